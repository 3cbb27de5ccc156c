package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/s3"
	"loquat/internal/config"
	"loquat/internal/migrate"
	"loquat/internal/tui"
)

func newMigrateCommand() *cobra.Command {
	var from, to, assets, reopen string
	cmd := &cobra.Command{
		Use:   "migrate --from PLACE --to PLACE",
		Short: "Move all sessions from a data directory to PostgreSQL, or back",
		Long: "Moves everything from a data directory to a PostgreSQL database, or back: sessions, events with their ids,\n" +
			"tokens, devices, states of plugins and images. Clients continue at their cursors. Stop all servers first.\n" +
			"A place is a data directory or the URL of a database, as store.url has it; ${file:/path} and ${NAME} in a\n" +
			"URL insert a file or a variable. The target must be empty. With --assets the images of the database are in an\n" +
			"object store, as with assets.url; the credentials are those of the environment (AWS_ACCESS_KEY_ID and so on).\n\n" +
			"The command checks the source, copies it, and compares the copy with it. Then the source refuses to be\n" +
			"served. An interrupted move changes nothing in the source; run the same command again, and it starts again.\n\n" +
			"--reopen makes a source that was moved away usable again, as a separate copy of the moved sessions: its event\n" +
			"ids continue elsewhere, and clients load their sessions again.",
		Example: "  loquat migrate --from ~/.local/share/loquat --to postgres://loquat@db/loquat\n" +
			"  loquat migrate --from 'postgres://loquat:${file:/etc/loquat/password}@db/loquat' --to /var/lib/loquat",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLogger(cmd.ErrOrStderr(), &config.Redactor{})
			switch {
			case reopen != "" && (from != "" || to != "" || assets != ""):
				return usageError{errors.New("--reopen is used without --from, --to and --assets")}
			case reopen != "":
				place, err := placeOf("--reopen", reopen)
				if err != nil {
					return err
				}
				if err := migrate.Reopen(cmd.Context(), place, log); err != nil {
					return fmt.Errorf("reopen %s: %w", place, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s can be used again; the next start gives it a log of its own\n", tui.OneLine(place.String()))
				return nil
			}
			o := migrate.Options{Logger: log, Progress: showProgress(cmd.ErrOrStderr())}
			var err error
			if o.From, err = placeOf("--from", from); err != nil {
				return err
			}
			if o.To, err = placeOf("--to", to); err != nil {
				return err
			}
			if o.Objects, err = bucketOf(cmd.Context(), assets); err != nil {
				return err
			}
			return runMigrate(cmd, o, assets)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the `place` that has the sessions")
	flags.StringVar(&to, "to", "", "the empty `place` that gets them")
	flags.StringVar(&assets, "assets", "", "the assets.url of the servers, if it is set: a `bucket` of an object store")
	flags.StringVar(&reopen, "reopen", "", "make this `place` usable again, from which sessions were moved away")
	return cmd
}

// bucketOf returns the bucket that --assets names, or nil.
func bucketOf(ctx context.Context, url string) (asset.Store, error) {
	if url == "" {
		return nil, nil
	}
	location, err := asset.ParseLocation(url)
	if err != nil {
		return nil, usageError{fmt.Errorf("--assets %w", err)}
	}
	bucket, err := s3.Open(ctx, s3.Options{Location: location})
	if err != nil {
		return nil, fmt.Errorf("--assets: %w", err)
	}
	return bucket, nil
}

func runMigrate(cmd *cobra.Command, o migrate.Options, assets string) error {
	began := time.Now()
	r, err := migrate.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	from, to := tui.OneLine(o.From.String()), tui.OneLine(o.To.String())
	out := cmd.OutOrStdout()
	if r.Again {
		fmt.Fprintf(out, "an earlier command has moved everything from %s to %s\n", from, to)
		return nil
	}
	fmt.Fprintf(out, "moved %d %s, %d %s, %d %s and %d %s up to %s from %s to %s in %s; all are equal\n", r.Sessions, plural(r.Sessions, "session"), r.Messages, plural(r.Messages, "message"),
		r.Images, plural(r.Images, "image"), r.Events, plural(r.Events, "event"), r.Last, from, to, time.Since(began).Round(100*time.Millisecond))
	switch {
	case assets != "" && o.To.URL != "":
		fmt.Fprintf(out, "now set store.url to %s and assets.url to %s; the database file in %s is not used any more\n", to, tui.OneLine(assets), from)
	case o.To.URL != "":
		fmt.Fprintf(out, "now set store.url to %s; the database file in %s is not used any more\n", to, from)
	default:
		fmt.Fprintf(out, "now remove store.url and start the server with --data %s; the database %s is not used any more\n", to, from)
	}
	return nil
}

// placeOf returns the place that a flag names. References to variables and files are replaced as
// in the configuration.
func placeOf(flag, text string) (migrate.Place, error) {
	if text == "" {
		return migrate.Place{}, usageError{fmt.Errorf("%s is missing; it names a data directory or the URL of a database", flag)}
	}
	place, err := migrate.ParsePlace(text)
	if err != nil {
		return migrate.Place{}, usageError{fmt.Errorf("%s: %w", flag, err)}
	}
	if place.URL == "" {
		return place, nil
	}
	cfg, problems := config.Parse(fmt.Appendf(nil, `{"store": {"url": %s}}`, loquat.Quote(place.URL)), config.ProcessEnvironment())
	if config.Failed(problems) {
		return migrate.Place{}, usageError{fmt.Errorf("%s %s", flag, problems[0].Message)}
	}
	place.URL = cfg.Store.URL
	return place, nil
}

// The time between two reports of progress, on a terminal and elsewhere.
const (
	terminalEvery = 200 * time.Millisecond
	lineEvery     = 5 * time.Second
)

// showProgress returns a function that shows the progress of a move: on a terminal in one line,
// which it overwrites, elsewhere as a line for each step and every few seconds.
func showProgress(out io.Writer) func(migrate.Progress) {
	file, _ := out.(*os.File)
	terminal := file != nil && term.IsTerminal(int(file.Fd()))
	every := lineEvery
	if terminal {
		every = terminalEvery
	}
	var step string
	var shown time.Time
	return func(p migrate.Progress) {
		now := time.Now()
		if p.Step == step && now.Sub(shown) < every {
			return
		}
		switch {
		case terminal && p.Step == step:
			fmt.Fprint(out, "\r\x1b[K"+progressText(p))
		case terminal:
			fmt.Fprint(out, "\n"+progressText(p))
		default:
			fmt.Fprintln(out, progressText(p))
		}
		step, shown = p.Step, now
	}
}

// progressText returns a progress as text, such as "copying: 120000 of 400000 rows, 80 of 230 MB,
// 12s left".
func progressText(p migrate.Progress) string {
	text := tui.OneLine(p.Step)
	if p.AllRows > 0 {
		text += fmt.Sprintf(": %d of %d rows", p.Rows, p.AllRows)
	}
	if p.AllSize > 0 {
		text += fmt.Sprintf(", %.1f of %.1f MB", float64(p.Bytes)/1e6, float64(p.AllSize)/1e6)
	}
	if p.Left >= 0 {
		text += fmt.Sprintf(", %s left", p.Left.Round(time.Second))
	}
	return text
}
