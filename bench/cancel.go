package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
)

// The parameters of the run, and its aim: the p99 of the cancels.
const (
	cancels           = 400
	backgroundStreams = 20 // streams that run all the time
	backgroundRate    = 50 // increments per second of each
	maxCancel99       = 250 * time.Millisecond
)

// cancelPhases are the scripts of the requests that are cancelled, used in turn.
var cancelPhases = []struct{ name, script string }{
	{"streaming", `"chunks": 1000000, "rate": 50`},
	{"a stalled stream", `"chunks": 10, "stall_after": 1`},
	{"waiting for the headers", `"delay_ms": 600000`},
}

// benchCancel measures, with the real program, the time from a call of cancel until the
// backend sees its connection closed.
func benchCancel(w io.Writer) ([]verdict, error) {
	p, err := buildProgram()
	if err != nil {
		return nil, err
	}
	defer p.remove()
	scripted, err := p.start("backend", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer scripted.stop()
	server, err := p.serve(fmt.Sprintf(`{"server": {"shutdown_grace_seconds": 0},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "lorem", "base_url": "%s/v1"}}}`, scripted.url), "cancel")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	c, err := client.New(server.url, client.Options{})
	if err != nil {
		return nil, err
	}
	defer c.CloseIdleConnections()
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	for i := range backgroundStreams {
		script := fmt.Sprintf(`{"id": "background-%d", "chunks": 1000000, "rate": %d}`, i, backgroundRate)
		if _, err := sendScripted(ctx, c, script); err != nil {
			return nil, err
		}
	}
	cancelledAt := map[string]time.Time{} // time of each cancel, by the id of its script
	for i := range cancels {
		id := fmt.Sprint("cancel-", i)
		at, err := cancelOne(ctx, c, fmt.Sprintf(`{"id": %q, %s}`, id, cancelPhases[i%len(cancelPhases)].script), i%len(cancelPhases) != 2)
		if err != nil {
			return nil, err
		}
		cancelledAt[id] = at
	}
	return reportCancels(w, scripted.url, cancelledAt)
}

func sendScripted(ctx context.Context, c *client.Client, script string) (requestID string, err error) {
	overrides := json.RawMessage(`{"request_options": {"loquat_script": ` + script + `}}`)
	s, err := c.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
	if err != nil {
		return "", err
	}
	content := "go"
	sent, err := c.Send(ctx, s.SessionID, loquat.Send{Content: &content, Stream: new(true)})
	return sent.RequestID, err
}

// cancelOne sends a request, cancels it in the middle of its phase, and returns the time of
// the cancel.
func cancelOne(ctx context.Context, c *client.Client, script string, streams bool) (time.Time, error) {
	id, err := sendScripted(ctx, c, script)
	if err != nil {
		return time.Time{}, err
	}
	if streams {
		err = awaitPartial(ctx, c, id)
	} else {
		time.Sleep(30 * time.Millisecond) // no event shows that the backend has received the request
	}
	if err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	_, err = c.Cancel(ctx, id)
	return at, err
}

func awaitPartial(ctx context.Context, c *client.Client, requestID string) error {
	for e, err := range c.Follow(ctx, client.Query{RequestID: requestID, OmitSession: true}) {
		if err != nil {
			return err
		}
		if e.Type == loquat.Partial {
			return nil
		}
	}
	return fmt.Errorf("request %s ended before it streamed", requestID)
}

// reportCancels compares the times of the cancels with the times in the backend's journal.
func reportCancels(w io.Writer, backendURL string, cancelledAt map[string]time.Time) ([]verdict, error) {
	time.Sleep(500 * time.Millisecond) // for the last cancel
	entries, err := requestsOf(backendURL)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	running, open := 0, 0
	for _, e := range entries {
		at, cancelled := cancelledAt[e.Key]
		switch {
		case cancelled && e.Ended != nil && e.End == backend.EndClientClosed:
			took = append(took, e.Ended.Sub(at))
		case cancelled:
			open++
		case e.Ended == nil:
			running++
		}
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("the backend saw none of %d cancels", len(cancelledAt))
	}
	slices.Sort(took)
	p50, p99, most := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "cancels\tother streams\tp50\tp99\tmax\tconnections left open\t\n")
	fmt.Fprintf(table, "%d\t%d\t%v\t%v\t%v\t%d\t\n", len(took), running, p50, p99, most, open)
	met := p99 <= maxCancel99 && open == 0 && running == backgroundStreams && len(took) >= cancels*3/4
	return []verdict{{fmt.Sprintf("the backend sees its connection closed at most %v after a cancel (p99, with %d other streams)", maxCancel99, backgroundStreams), met, p99.String()}}, table.Flush()
}

func requestsOf(backendURL string) ([]backend.Entry, error) {
	resp, err := http.Get(backendURL + "/_requests")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out struct{ Requests []backend.Entry }
	err = json.NewDecoder(resp.Body).Decode(&out)
	return out.Requests, err
}
