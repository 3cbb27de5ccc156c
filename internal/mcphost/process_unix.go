//go:build unix

package mcphost

import "syscall"

// apart starts a process in its own group, so that Ctrl-C does not reach it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
