//go:build unix && !linux

package mcphost

import "syscall"

// ownGroup starts a process in its own group. If Loquat is killed, the process must notice
// the end of its input.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
