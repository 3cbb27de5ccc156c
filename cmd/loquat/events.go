package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/tui"
)

type eventsFlags struct {
	remoteFlags
	since, session, request string
	follow, json            bool
}

func newEventsCommand() *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print events",
		Long: "Prints the stored events after --since, and with --follow also new ones. Without --since it\n" +
			"starts at the cursor of --session, at the first event of --request, or at the newest event.",
		Example: strings.Join([]string{
			"  loquat events --server http://127.0.0.1:8787 --follow",
			"  loquat events --server http://127.0.0.1:8787 --since 0 --json",
		}, "\n"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.follow, "follow", false, "also print new events, until interrupted")
	flags.StringVar(&f.session, "session", "", "only events of the session with this `id`")
	flags.StringVar(&f.request, "request", "", "only events of the request with this `id`")
	flags.StringVar(&f.since, "since", "", "only events after the one with this `id`; 0 is the beginning")
	flags.BoolVar(&f.json, "json", false, "print each event as one line of JSON")
	return cmd
}

func (f *eventsFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	q := client.Query{SessionID: f.session, RequestID: f.request, OmitSession: !f.json}
	if f.since != "" {
		since, err := loquat.ParseSinceID(f.since)
		if err != nil {
			return usageError{fmt.Errorf("--since: %w", err)}
		}
		q.Since = &since
	}
	f.local.idle = true
	c, closeClient, err := f.connect(context.WithoutCancel(ctx), stderr, client.Options{})
	if err != nil {
		return err
	}
	defer closeClient()
	screen := tui.NewScreen(stdout, tui.Detect(stdout, os.Getenv))
	show := func(body json.RawMessage) error { return f.show(screen, stdout, body) }
	if f.follow {
		first := q
		first.Limit = 1 // a follower would wait forever for a server that does not exist
		if _, err = c.Events(ctx, first); err == nil {
			err = followEvents(ctx, c, q, show)
		}
	} else {
		err = printEvents(ctx, c, q, stderr, show)
	}
	if ctx.Err() != nil && f.follow {
		return nil // which ends in no other way
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; not all events were printed")
	}
	if loquat.CodeOf(err) == loquat.CodeGone {
		return fmt.Errorf("%w; leave --since out to start at what is kept", err)
	}
	return err
}

func (f *eventsFlags) show(screen *tui.Screen, stdout io.Writer, body json.RawMessage) error {
	if f.json {
		if screen.Terminal {
			body = tui.EscapeJSON(body)
		}
		_, err := fmt.Fprintf(stdout, "%s\n", body)
		return err
	}
	var e loquat.Event
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("read the event %s: %w", loquat.Clip(string(body), loquat.Excerpt), err)
	}
	screen.Line(e)
	return screen.Err()
}

func followEvents(ctx context.Context, c *client.Client, q client.Query, show func(json.RawMessage) error) error {
	for entry, err := range c.FollowJSON(ctx, q) {
		if err != nil {
			return err
		}
		if err := show(entry.JSON); err != nil {
			return err
		}
	}
	return nil
}

// printEvents prints the stored events, window by window.
func printEvents(ctx context.Context, c *client.Client, q client.Query, stderr io.Writer, show func(json.RawMessage) error) error {
	newest, err := c.Events(ctx, client.Query{})
	if err != nil {
		return err
	}
	if q.Since == nil && q.SessionID == "" && q.RequestID == "" {
		fmt.Fprintf(stderr, "the newest event is %s; --follow prints new events, --since 0 all stored ones\n", newest.LatestEventID)
		return nil
	}
	for {
		w, err := c.Events(ctx, q)
		if err != nil || len(w.Events) == 0 {
			return err
		}
		for _, body := range w.JSON {
			if err := show(body); err != nil {
				return err
			}
		}
		last := w.Events[len(w.Events)-1].EventID
		if last >= newest.LatestEventID {
			return nil
		}
		q.Since = &last
	}
}
