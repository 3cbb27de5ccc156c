//go:build !unix

package mcphost

import (
	"os"
	"syscall"
)

// Here there are no process groups: children of a plugin end with its input.
func ownGroup() *syscall.SysProcAttr { return nil }

func apart() *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func terminateGroup(int) {}
