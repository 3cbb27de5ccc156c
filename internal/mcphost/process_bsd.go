//go:build unix && !linux

package mcphost

import "syscall"

// ownGroup leaves a killed Loquat's processes to the end of their input.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
