package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/client"
	"loquat/internal/nearest"
)

type exportFlags struct {
	remoteFlags
	format, output string
	all            bool
}

// exportSuffixes are the names that files of each format end in.
var exportSuffixes = map[string]string{"json": ".json", "markdown": ".md", "html": ".html"}

func newExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export [SESSION_ID...]",
		Short: "Write sessions to files",
		Long: "Writes sessions with their images: as one archive, which 'loquat import' reads, or as texts for readers.\n" +
			"Markdown and HTML of several sessions become files in the directory --output.",
		Example: "  loquat export --all --output sessions.json\n  loquat export --format html 01J… > session.html",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "json", "`format`: json, markdown or html")
	flags.StringVarP(&f.output, "output", "o", "", "`file` to write, or the directory of several files (default: standard output)")
	flags.BoolVar(&f.all, "all", false, "export all sessions, also the archived ones")
	return cmd
}

func (f *exportFlags) run(ctx context.Context, ids []string, stdout, stderr io.Writer) error {
	suffix, known := exportSuffixes[f.format]
	switch {
	case !known:
		return usageError{fmt.Errorf("--format %s is unknown%s; use json, markdown or html", f.format, nearest.Hint(f.format, 2, "json", "markdown", "html"))}
	case f.all == (len(ids) > 0):
		return usageError{errors.New("name the sessions to export, or give --all")}
	case f.format != "json" && f.output == "" && (f.all || len(ids) > 1):
		return usageError{fmt.Errorf("--format %s makes a file of each session; name their directory with --output", f.format)}
	}
	f.local.idle = true
	c, closeClient, err := f.connect(context.WithoutCancel(ctx), stderr, client.Options{})
	if err != nil {
		return err
	}
	defer closeClient()
	if f.all {
		if ids, err = allSessions(ctx, c); err != nil {
			return err
		}
	}
	e := &exporter{c: c, format: f.format, progress: newProgress(stderr, "exported")}
	switch {
	case f.format == "json":
		err = toFile(f.output, stdout, func(w io.Writer) error { return e.archive(ctx, ids, w) })
	case !f.all && len(ids) == 1:
		err = toFile(f.output, stdout, func(w io.Writer) error { return e.text(ctx, ids[0], w) })
	default:
		err = e.texts(ctx, ids, f.output, suffix)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d %s exported\n", e.written, plural(e.written, "session"))
	return nil
}

// allSessions returns the ids of all sessions, the one that has not changed for longest first, so
// that an import lists them in the same order.
func allSessions(ctx context.Context, c *client.Client) (ids []string, err error) {
	for q := (loquat.SessionQuery{Limit: 200, Archived: loquat.ArchivedToo}); ; {
		list, err := c.Sessions(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range list.Sessions {
			ids = append(ids, s.SessionID)
		}
		if q.PageToken = list.NextPageToken; q.PageToken == "" {
			slices.Reverse(ids)
			return ids, nil
		}
	}
}

// exporter writes sessions of a server.
type exporter struct {
	c        *client.Client
	format   string
	progress *progress
	written  int
}

// archive writes one archive of the sessions.
func (e *exporter) archive(ctx context.Context, ids []string, out io.Writer) error {
	buffered := bufio.NewWriterSize(out, 64<<10)
	w := archive.NewWriter(buffered)
	for _, id := range ids {
		err := e.each(ctx, id, func(body io.Reader) error {
			session, err := archive.Unwrap(body)
			if err != nil {
				return err
			}
			return w.WriteRaw(session)
		})
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

func (e *exporter) text(ctx context.Context, id string, out io.Writer) error {
	return e.each(ctx, id, func(body io.Reader) error {
		_, err := io.Copy(out, body)
		return err
	})
}

// texts writes a file for each session to a directory.
func (e *exporter) texts(ctx context.Context, ids []string, dir, suffix string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, id := range ids {
		name := "loquat-" + id + suffix
		if filepath.Base(name) != name { // the server chose it, and must not choose a directory
			return fmt.Errorf("the server lists a session with the id %q, which is not a valid id; nothing was written for it", loquat.Clip(id, loquat.Excerpt))
		}
		err := toFile(filepath.Join(dir, name), nil, func(w io.Writer) error { return e.text(ctx, id, w) })
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls write with the file of one session.
func (e *exporter) each(ctx context.Context, id string, write func(io.Reader) error) error {
	body, err := e.c.Export(ctx, id, e.format)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := write(body); err != nil {
		return fmt.Errorf("export session %s: %w", id, err)
	}
	e.written++
	e.progress.show(e.written)
	return nil
}

// toFile calls write with standard output, or with a file that gets its name when it is whole.
func toFile(name string, stdout io.Writer, write func(io.Writer) error) error {
	if name == "" {
		return write(stdout)
	}
	return client.WriteWhole(name, write)
}

// progress reports on standard error how far a command is.
type progress struct {
	w    io.Writer
	did  string
	last time.Time
}

// progressEvery is how often progress is shown.
const progressEvery = 5 * time.Second

func newProgress(w io.Writer, did string) *progress {
	return &progress{w: w, did: did, last: time.Now()}
}

// show prints how many sessions are done, with other counts, if the last time is long ago.
func (p *progress) show(done int, others ...string) {
	if time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	fmt.Fprintln(p.w, strings.Join(append([]string{fmt.Sprintf("%d %s so far", done, p.did)}, others...), ", "))
}
