package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"loquat/internal/backup"
	"loquat/internal/store/sqlite"
)

func newBackupCommand() *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the data directory, also while a server uses it",
		Long: "Copies the data directory into a new directory: sessions, events, tokens, devices and images, as they are\n" +
			"at one moment. A server may use the data directory meanwhile. To restore a backup, start a server on it.",
		Example: "  loquat backup /mnt/backup/loquat-monday\n  loquat serve --data /mnt/backup/loquat-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := f.dataDir("back it up with pgBackRest or pg_dump, as docs/postgresql.md describes; it has the images, too")
			if err != nil {
				return err
			}
			to := args[0]
			if !sqlite.Exists(from) {
				return usageError{fmt.Errorf("there is no data in %s; --data names the data directory of the server", from)}
			}
			if _, err := os.Lstat(to); err == nil {
				return usageError{fmt.Errorf("%s exists; name a directory that does not exist", to)}
			}
			r, err := backup.Make(cmd.Context(), from, to)
			if err != nil {
				return fmt.Errorf("back up %s: %w", from, err)
			}
			for _, note := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), note)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: everything up to event %s, %d %s\n", to, r.Last, r.Images, plural(r.Images, "image"))
			return lost(r, from)
		},
	}
	f.addConfig(cmd.Flags())
	return cmd
}

// lost returns an error that lists images missing or damaged in the source. The copy itself is
// complete otherwise.
func lost(r backup.Report, from string) error {
	if len(r.Lost) == 0 {
		return nil
	}
	text := fmt.Sprintf("%d %s missing or damaged in %s itself; everything else is copied:", len(r.Lost), plural(len(r.Lost), "image"), from)
	for _, hash := range r.Lost {
		text += "\n  " + hash
	}
	return errors.New(text)
}
