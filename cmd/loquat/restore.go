package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loquat/internal/asset"
	"loquat/internal/asset/s3"
	"loquat/internal/backup"
	"loquat/internal/tui"
)

func newRestoreCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "restore FROM TO",
		Short: "Make a data directory from the copies of loquat backup --follow",
		Long: "Makes the new data directory TO from the copies in FROM, a directory or a bucket. By default it has the newest\n" +
			"state; with --at it has the newest state up to a time. loquat backup --list shows which states there are.\n" +
			"TO appears when it is complete and verified. The command that copies may run meanwhile.",
		Example: "  loquat restore /mnt/backup/loquat /var/lib/loquat\n  loquat restore 's3://bucket/loquat' /var/lib/loquat --at 2026-11-26T21:30:00Z",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := args[1]
			if _, err := os.Lstat(to); err == nil {
				return usageError{fmt.Errorf("%s exists; name a directory that does not exist, or move it away", to)}
			}
			upTo, err := parseTime(at)
			if err != nil {
				return usageError{err}
			}
			place, name, err := openPlace(args[0])
			if err != nil {
				return err
			}
			r, err := backup.Restore(cmd.Context(), place, to, upTo)
			if err != nil {
				return fmt.Errorf("restore %s: %w", name, err)
			}
			for _, note := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), tui.OneLine(note))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: the state of %s, everything up to event %s, %d %s\n", to, backup.TimeText(r.Time), r.Last, r.Images, plural(r.Images, "image"))
			return lost(r.Report, name)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the `time` whose state is restored, such as 2026-11-26T21:30:00Z (default: the newest)")
	return cmd
}

// parseTime reads the time of --at.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--at %q is not a time; write it with its zone, such as 2026-11-26T21:30:00Z or 2026-11-26T22:30:00+01:00", text)
	}
	return t, nil
}

// openPlace returns the place of copies that an argument names, and its name without parameters.
func openPlace(text string) (place backup.Place, name string, err error) {
	if !strings.HasPrefix(text, "s3://") {
		if strings.Contains(text, "://") {
			return nil, "", usageError{fmt.Errorf("%q is not a destination; name a directory, or a bucket such as s3://bucket/prefix", text)}
		}
		path, err := filepath.Abs(text)
		if err != nil {
			return nil, "", err
		}
		if _, err := os.ReadDir(path); errors.Is(err, fs.ErrPermission) {
			return nil, "", err
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return nil, "", usageError{fmt.Errorf("%s is not a directory; make it, or mount its disk", path)}
		}
		path, err = filepath.EvalSymlinks(path) // a place has one name
		return backup.OpenFolder(path), path, err
	}
	location, err := asset.ParseLocation(text)
	if err != nil {
		return nil, "", usageError{fmt.Errorf("%s %w", strings.SplitN(text, "?", 2)[0], err)}
	}
	objects, err := s3.OpenObjects(s3.Options{Location: location})
	if err != nil {
		return nil, "", err
	}
	name = "s3://" + location.Bucket + "/" + location.Prefix
	if location.Endpoint != "" {
		name += " at " + location.Endpoint
	}
	return objects, name, nil
}

// refuses reports whether an error of a place lasts until somebody corrects something.
func refuses(err error) bool {
	_, refused := errors.AsType[*s3.RefusedError](err)
	return refused || errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist)
}
