package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"loquat/internal/backup"
	"loquat/internal/config"
	"loquat/internal/store/sqlite"
	"loquat/internal/tui"
)

// backupFlags are the flags of loquat backup. follow, verify and list exclude each other.
type backupFlags struct {
	accessFlags
	follow, verify, list bool
	every, keep, maxAge  time.Duration
}

func newBackupCommand() *cobra.Command {
	var f backupFlags
	cmd := &cobra.Command{
		Use:   "backup DESTINATION",
		Short: "Copy the data directory, also while a server uses it",
		Long: "Copies the data directory into a new directory: sessions, events, tokens, devices and images, as they are\n" +
			"at one moment. A server may use the data directory meanwhile. To restore such a backup, start a server on it.\n\n" +
			"With --follow the command copies each change, until it is stopped, to a directory or to a bucket of an\n" +
			"S3-compatible object store. loquat restore makes a data directory from these copies, as of any time.\n" +
			"Credentials of a bucket come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).",
		Example: "  loquat backup /mnt/backup/loquat-monday\n  loquat serve --data /mnt/backup/loquat-monday\n" +
			"  loquat backup --follow /mnt/backup/loquat\n  loquat backup --follow 's3://bucket/loquat?region=eu-central-1'\n" +
			"  loquat backup --list /mnt/backup/loquat\n  loquat backup --verify /mnt/backup/loquat",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.list:
				return listCopies(cmd, args[0], f.maxAge)
			case f.verify:
				return verifyCopies(cmd, args[0])
			}
			from, err := f.dataDir("back it up with pgBackRest or pg_dump, as docs/postgresql.md describes; it has the images, too")
			if err != nil {
				return err
			}
			if err := sqlite.Require(from); err != nil {
				return usageError{err}
			}
			if f.follow {
				return followCopies(cmd, from, args[0], f)
			}
			return copyOnce(cmd, from, args[0])
		},
	}
	flags := cmd.Flags()
	f.addConfig(flags)
	flags.BoolVar(&f.follow, "follow", false, "copy each change until the command is stopped")
	flags.BoolVar(&f.list, "list", false, "show which states can be restored from copies")
	flags.BoolVar(&f.verify, "verify", false, "read all copies, restore the newest state to a temporary directory, and check it")
	flags.DurationVar(&f.every, "every", time.Second, "with --follow: the `time` between two copies")
	flags.DurationVar(&f.keep, "keep", 7*24*time.Hour, "with --follow: how `long` states can be restored")
	flags.DurationVar(&f.maxAge, "max-age", 0, "with --list: fail if changes of more than this `time` may be missing")
	cmd.MarkFlagsMutuallyExclusive("follow", "list", "verify")
	return cmd
}

// copyOnce copies a data directory once.
func copyOnce(cmd *cobra.Command, from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return usageError{fmt.Errorf("%s exists; name a directory that does not exist", to)}
	}
	r, err := backup.Make(cmd.Context(), from, to)
	if err != nil {
		return fmt.Errorf("back up %s: %w", from, err)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), tui.OneLine(note))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: everything up to event %s, %d %s\n", to, r.Last, r.Images, plural(r.Images, "image"))
	return lost(r, from)
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

// The bounds of the flags of --follow.
const (
	minEvery = 100 * time.Millisecond
	maxEvery = time.Hour
	minKeep  = time.Minute
)

func followCopies(cmd *cobra.Command, from, to string, f backupFlags) error {
	if f.every < minEvery || f.every > maxEvery || f.keep < minKeep {
		return usageError{fmt.Errorf("--every must be from %s to %s, and --keep at least %s", minEvery, maxEvery, minKeep)}
	}
	place, name, err := openPlace(to)
	if err != nil {
		return err
	}
	err = backup.Follow(cmd.Context(), backup.Options{
		Dir: from, Place: place, Name: name, Every: f.every, Keep: f.keep,
		Logger: newLogger(cmd.ErrOrStderr(), new(config.Redactor)), Permanent: refuses,
	})
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, name, err)
	}
	return nil
}

func listCopies(cmd *cobra.Command, from string, maxAge time.Duration) error {
	place, name, err := openPlace(from)
	if err != nil {
		return err
	}
	l, err := backup.List(cmd.Context(), place)
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	age := time.Since(l.Newest)
	if l.Checked.After(l.Newest) {
		age = time.Since(l.Checked)
	}
	showListing(cmd.OutOrStdout(), l, age)
	if maxAge > 0 && age > maxAge {
		return fmt.Errorf("the copies in %s are %s old, more than %s; see the log of loquat backup --follow, and whether it runs", name, age.Round(time.Second), maxAge)
	}
	return nil
}

// showListing prints which states can be restored. Others may have written the status that it shows.
func showListing(out io.Writer, l backup.Listing, age time.Duration) {
	for _, s := range l.Spans {
		fmt.Fprintf(out, "%-12s %6d from %s to %s\n", s.Level, s.States, backup.TimeText(s.First), backup.TimeText(s.Last))
	}
	fmt.Fprintf(out, "size         %s without images\n", sizeText(l.Bytes))
	fmt.Fprintf(out, "age          %.0f s: all changes before are copied\n", age.Seconds())
	fmt.Fprintf(out, "written by   %s\n", tui.OneLine(cmp.Or(l.Writer, "nobody, as far as is known")))
	if l.Failing != "" {
		fmt.Fprintf(out, "failing      %s\n", tui.OneLine(l.Failing))
	}
}

// sizeText returns a size in bytes in kB or MB.
func sizeText(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

func verifyCopies(cmd *cobra.Command, from string) error {
	place, name, err := openPlace(from)
	if err != nil {
		return err
	}
	v, err := backup.Verify(cmd.Context(), place, newLogger(cmd.ErrOrStderr(), new(config.Redactor)))
	if err != nil {
		return fmt.Errorf("verify %s: %w", name, err)
	}
	for _, p := range v.Problems {
		fmt.Fprintln(cmd.OutOrStdout(), tui.OneLine(p))
	}
	if n := len(v.Problems); n > 0 {
		return fmt.Errorf("%s has %d %s", name, n, plural(n, "problem"))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is sound: %d %s, %d %s, %s; the newest state is that of %s, up to event %s\n", name,
		v.Files, plural(v.Files, "file"), v.Images, plural(v.Images, "image"), sizeText(v.Bytes), backup.TimeText(v.Newest), v.Totals.Last)
	return nil
}
