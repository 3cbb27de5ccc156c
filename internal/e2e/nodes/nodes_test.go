//go:build unix

// Package nodes_test runs several servers on one PostgreSQL database: they die, pause, and
// take over from each other.
package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat"
	"loquat/internal/client"
)

// takeover is how long after the death of a node its requests may run in the database.
const takeover = 15 * time.Second

// patience bounds the wait for whatever has to happen.
const patience = time.Minute

// configFor returns the configuration of a node whose backend is at url.
func configFor(url string) string {
	return fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "timeout": 60,
		"retry_on_status": {"503": [0.02]}, "stream_recovery": {"mode": "aggressive", "max_retries": 1}}}, "limits": {"max_tool_rounds": 2},
		"server": {"shutdown_grace_seconds": 1}}`, url)
}

// database is a connection of the test to the database of the nodes.
type database struct {
	t    *testing.T
	conn *pgx.Conn
}

func connect(t *testing.T, url string) database {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return database{t, conn}
}

// strings returns the first column of a query.
func (d database) strings(query string, args ...any) []string {
	d.t.Helper()
	rows, err := d.conn.Query(d.t.Context(), query, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// runningOn returns the running requests of a node.
func (d database) runningOn(nodeID string) []string {
	d.t.Helper()
	return d.strings(`SELECT convert_from(request_id, 'UTF8') FROM requests r JOIN nodes n ON r.owner = n.owner WHERE n.node_id = $1 AND r.status = 'running'`, nodeID)
}

// stillRunning returns the requests of a list that have not ended.
func (d database) stillRunning(requests []string) []string {
	d.t.Helper()
	return d.strings(`SELECT convert_from(request_id, 'UTF8') FROM requests WHERE convert_from(request_id, 'UTF8') = ANY($1) AND status = 'running'`, requests)
}

// awaitEnds waits until requests have ended, and fails the test if that takes longer than
// takeover since a time. It returns how long it took.
func (d database) awaitEnds(since time.Time, requests []string) time.Duration {
	d.t.Helper()
	for {
		left := d.stillRunning(requests)
		took := time.Since(since)
		if len(left) == 0 {
			return took
		}
		if took > takeover {
			d.t.Errorf("%d of %d requests run %s after the death of their node: %.3v", len(left), len(requests), took.Round(time.Millisecond), left)
			return took
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func scripted(attempt map[string]any, text string) loquat.NewSession {
	return loquat.NewSession{Metadata: loquat.Object{}.Set(loquat.MetaOverrides, map[string]any{"request_options": map[string]any{
		"loquat_script": map[string]any{"attempts": []any{attempt}, "text": text},
	}})}
}

// create creates a session at a node.
func create(ctx context.Context, t *testing.T, c *client.Client, s loquat.NewSession) string {
	t.Helper()
	made, err := c.CreateSession(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	return made.SessionID
}

// send starts a streamed request and returns its id.
func send(ctx context.Context, t *testing.T, c *client.Client, session, content string) string {
	t.Helper()
	done, err := c.Send(ctx, session, loquat.Send{Content: &content, Stream: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	return done.RequestID
}

// ended waits until a request has ended.
func ended(ctx context.Context, t *testing.T, c *client.Client, id string) loquat.Request {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		q, err := c.Request(ctx, id)
		if err == nil && q.Status.Ended() {
			return q
		}
		if time.Since(began) > patience {
			t.Fatalf("request %s is %+v, %v", id, q, err)
		}
	}
}

// eventsOf returns the events of a request.
func eventsOf(ctx context.Context, t *testing.T, c *client.Client, id string) (out []loquat.Event) {
	t.Helper()
	for at := loquat.EventID(0); ; {
		w, err := c.Events(ctx, client.Query{Since: &at, RequestID: id, OmitSession: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			return out
		}
		out = append(out, w.Events...)
		at = out[len(out)-1].EventID
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
