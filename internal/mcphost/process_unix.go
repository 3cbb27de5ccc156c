//go:build unix

package mcphost

import "syscall"

func killGroup(pid int)      { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }
