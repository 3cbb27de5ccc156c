//go:build unix

package mcphost

import "syscall"

// apart keeps what is meant for Loquat's own group, such as Ctrl-C, from a process.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
