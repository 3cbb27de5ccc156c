package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"loquat/internal/mcphost"
)

// guardName is the command that a server runs beside itself.
const guardName = "guard"

// newGuardCommand is for servers only: it kills what is left of their plugins.
func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "End what the plugins of a killed server have left running",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mcphost.Watch(cmd.InOrStdin())
			return nil
		},
	}
}

// newGuard makes the guard over the plugins of this process.
func newGuard(log *slog.Logger) (*mcphost.Guard, error) {
	self, err := os.Executable()
	if err != nil { // there is no /proc, as in a bare chroot
		self, err = exec.LookPath(os.Args[0])
	}
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return mcphost.NewGuard(log, self, guardName), nil
}
