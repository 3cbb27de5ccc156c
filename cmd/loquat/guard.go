package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"loquat/internal/mcphost"
)

// guardName is the name of the command that runs as the process guard.
const guardName = "guard"

// newGuardCommand returns the command of the process guard, which kills the plugin processes
// of a dead server. Only servers start it.
func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "End the plugin processes that a killed server left running",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mcphost.Watch(cmd.InOrStdin())
			return nil
		},
	}
}

// newGuard returns the process guard for the plugins of this process.
func newGuard(log *slog.Logger) (*mcphost.Guard, error) {
	self, err := os.Executable()
	if err != nil { // for example in a chroot without /proc
		self, err = exec.LookPath(os.Args[0])
	}
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return mcphost.NewGuard(log, self, guardName), nil
}
