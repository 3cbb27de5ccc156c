package mcphost

import "syscall"

// ownGroup also has the system kill the process when Loquat is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
