package mcphost

import "syscall"

// ownGroup starts a process in its own group. The system kills it when Loquat dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
