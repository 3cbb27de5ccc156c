//go:build !unix

package mcphost

import (
	"os"
	"syscall"
)

// This system has no process groups: a plugin's children must notice the end of its input.
func ownGroup() *syscall.SysProcAttr { return nil }

func apart() *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func terminateGroup(int) {}
