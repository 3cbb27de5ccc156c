package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages",
		Long: "Writes a manual page for each command into a directory, which it creates. SOURCE_DATE_EPOCH sets their date.\n" +
			"Packages contain them.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // it is a date
			header := doc.GenManHeader{Section: "1", Source: "loquat " + version(), Manual: "Loquat"}
			if err := doc.GenManTree(root, &header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}
