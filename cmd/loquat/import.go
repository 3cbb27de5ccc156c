package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/client"
	"loquat/internal/importer"
	"loquat/internal/tui"
)

// maxImageRead is the largest image that is read from a file. The server has its own limit.
const maxImageRead = 256 << 20

type importFlags struct {
	remoteFlags
	agent  string
	newIDs bool
}

func newImportCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import sessions from files, also of other applications",
		Long: "Imports archives, and exports of ChatGPT, Claude, LibreChat and Open WebUI. Each session is sent by itself\n" +
			"and stored whole or not at all. To continue an import that was interrupted, repeat it: sessions that are\n" +
			"there already are skipped. - reads standard input.",
		Example: "  loquat import chatgpt-export.zip\n  loquat import --server http://127.0.0.1:8787 sessions.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "`id` of the agent of all sessions (default: that in the archive, or the agent default)")
	flags.BoolVar(&f.newIDs, "new-ids", false, "give each session a new id, also if it is there already")
	return cmd
}

func (f *importFlags) run(ctx context.Context, names []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f.local.idle = true
	c, closeClient, err := f.connect(context.WithoutCancel(ctx), stderr, client.Options{})
	if err != nil {
		return err
	}
	defer closeClient()
	sender := &importSender{c: c, opts: client.ImportOptions{NewIDs: f.newIDs, AgentID: f.agent}, stderr: stderr, progress: newProgress(stderr, "imported")}
	defer sender.close()
	failed := 0
	for _, name := range names {
		report, err := sender.file(ctx, name, stdin)
		if ctx.Err() != nil {
			return errors.New("interrupted; repeat the command to import the rest")
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", name, err)
		}
		fmt.Fprintf(stdout, "%s: %d imported, %d skipped, %d failed\n", tui.Clean(name), report.Imported, report.Skipped, report.Failed)
		if failed += report.Failed; report.Error != "" {
			failed++
			what := "the rest cannot be read"
			if report.Imported+report.Skipped+report.Failed == 0 {
				what = "the file cannot be read"
			}
			fmt.Fprintf(stderr, "%s: %s: %s\n", tui.Clean(name), what, tui.Clean(report.Error))
		}
	}
	if failed > 0 {
		return errors.New("not everything was imported; what was named above is missing")
	}
	return nil
}

// importSender reads files and sends their sessions to a server, one at a time.
type importSender struct {
	c        *client.Client
	opts     client.ImportOptions
	temp     string // directory for images, once there are some
	stderr   io.Writer
	progress *progress
}

// createTemp creates a file for an image, or for a ZIP file that comes through a pipe.
func (s *importSender) createTemp() (_ *os.File, err error) {
	if s.temp == "" {
		if s.temp, err = os.MkdirTemp("", "loquat-import-"); err != nil {
			return nil, err
		}
	}
	return os.CreateTemp(s.temp, "")
}

func (s *importSender) close() {
	if s.temp != "" {
		_ = os.RemoveAll(s.temp)
	}
}

// file imports one file. It fails if the server cannot be used.
func (s *importSender) file(ctx context.Context, name string, stdin io.Reader) (total loquat.ImportReport, err error) {
	var in io.Reader
	if name == "-" {
		in = interruptible(ctx, stdin)
	} else {
		f, err := os.Open(name)
		if err != nil {
			total.Error = unreadable(err)
			return total, nil
		}
		defer f.Close()
		in = f
	}
	agent := s.opts.AgentID
	if agent == "" {
		agent = loquat.DefaultAgent
	}
	file, err := importer.Open(in, importer.Options{CreateTemp: s.createTemp, MaxImage: maxImageRead, AgentID: agent})
	if err != nil {
		total.Error = unreadable(err)
		return total, nil
	}
	defer file.Close()
	for item, err := range file.Sessions() {
		if ctx.Err() != nil {
			return total, ctx.Err()
		}
		if err != nil {
			total.Error = unreadable(err)
			return total, nil
		}
		out, err := s.send(ctx, item)
		if err != nil {
			return total, err
		}
		s.print(name, out)
		total.Add(out)
		s.progress.show(total.Imported, fmt.Sprintf("%d skipped", total.Skipped), fmt.Sprintf("%d failed", total.Failed))
	}
	return total, nil
}

// unreadable returns why a file cannot be read. The errors of package importer follow the name of the
// file.
func unreadable(err error) string {
	if system, ok := errors.AsType[*fs.PathError](err); ok {
		return system.Err.Error()
	}
	return "it " + err.Error()
}

// send sends one session. Its error means that no session can be sent.
func (s *importSender) send(ctx context.Context, item archive.Item) (loquat.ImportedSession, error) {
	out := loquat.ImportedSession{Place: item.Place, SessionID: item.Session.SessionID, Status: loquat.ImportFailed, Notes: item.Notes}
	if item.Err != nil {
		out.Error = item.Err.Error()
		return out, nil
	}
	session := item.Session
	session.Images = nil
	for _, image := range item.Session.Images {
		if err := archive.Identify(&image); err != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("image %s is left out: %v", loquat.Clip(image.AssetID, loquat.Excerpt), err))
			continue
		}
		session.Images = append(session.Images, image)
	}
	report, err := s.c.Import(ctx, s.opts, func(w io.Writer) error {
		a := archive.NewWriter(w)
		if err := a.Write(session); err != nil {
			return err
		}
		return a.Close()
	})
	switch code := loquat.CodeOf(err); {
	case ofQuery(err):
		return out, err
	case code == loquat.CodeTooLarge || code == loquat.CodeInvalid:
		out.Error = err.Error()
		return out, nil
	case err != nil:
		return out, err
	case len(report.Sessions) != 1:
		out.Error = "the server has not stored it: " + report.Error
		return out, nil
	}
	got := report.Sessions[0]
	out.SessionID, out.Status, out.Error, out.Notes = got.SessionID, got.Status, got.Error, append(out.Notes, got.Notes...)
	return out, nil
}

// ofQuery reports whether an error concerns the options of the command, and so every session.
func ofQuery(err error) bool {
	e, ok := errors.AsType[*loquat.Error](err)
	return ok && slices.ContainsFunc(e.Fields, func(f loquat.FieldError) bool { return strings.HasPrefix(f.Location, "query.") })
}

// print prints what went wrong with a session and what it has lost.
func (s *importSender) print(name string, out loquat.ImportedSession) {
	if out.Error == "" && (len(out.Notes) == 0 || out.Status == loquat.ImportSkipped) {
		return
	}
	fmt.Fprintf(s.stderr, "%s: %s: %s %s\n", tui.Clean(name), tui.Clean(out.Place), out.Status, tui.Clean(out.Error))
	for _, note := range out.Notes {
		fmt.Fprintf(s.stderr, "  %s\n", tui.Clean(note))
	}
}
