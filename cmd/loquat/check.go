package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"loquat/internal/check"
	"loquat/internal/store/sqlite"
	"loquat/internal/tui"
)

func newCheckCommand() *cobra.Command {
	var f accessFlags
	var full bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify the data directory",
		Long: "Verifies the data directory and changes nothing. It checks the database file, the consistency of its\n" +
			"rows, whether events were lost, and the image files. A server may run meanwhile. Each problem is a line on\n" +
			"standard output; the exit code is then 1. To verify a backup, name its directory with --data.",
		Example: "  loquat check\n  loquat check --full --data /mnt/backup/loquat-monday",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := f.dataDir("verify it with pg_amcheck; loquat migrate checks it before it moves it to a data directory")
			if err != nil {
				return err
			}
			if err := sqlite.Require(dir); err != nil {
				return usageError{err}
			}
			r, err := check.Run(cmd.Context(), dir, full, slog.New(slog.DiscardHandler))
			if err != nil {
				return fmt.Errorf("check %s: %w", dir, err)
			}
			for _, p := range r.Problems {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", p.Kind, tui.OneLine(p.Text))
			}
			if n := len(r.Problems); n > 0 {
				return fmt.Errorf("%s has %d %s; what to do:\n%s", dir, n, plural(n, "problem"), r.Remedy())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is sound: %d %s, %d %s, %d %s up to %s, %d %s\n", tui.OneLine(dir), r.Sessions, plural(r.Sessions, "session"),
				r.Messages, plural(r.Messages, "message"), r.Events, plural(r.Events, "event"), r.Last, r.Images, plural(r.Images, "image"))
			return nil
		},
	}
	f.addConfig(cmd.Flags())
	cmd.Flags().BoolVar(&full, "full", false, "also read every row, compare every index, and hash every image")
	return cmd
}
