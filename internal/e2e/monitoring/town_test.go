//go:build unix

package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// town is servers with a fault each, or several that do not hide each other, and one without.
type town struct {
	sound    *binary.Process
	strained *binary.Process // see strained
	busy     *binary.Process // one request runs for long, which is its bound
	refused  *binary.Process // its backend refuses all calls with 429, its webhook's receiver is away
	database *pgtest.Server
	name     string
	nodes    [2]*binary.Process // with PostgreSQL
	dead     string
}

func newTown(t *testing.T) *town {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"text": "one two three four five six seven eight nine ten", "rate": 0.1}`)})
	fast := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"text": "ok", "rate": 0}`)})
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	t.Cleanup(full.Close)
	w := &town{database: pgtest.Start(t), dead: binary.FreeAddress(t), strained: strained(t)}
	w.sound = faulty(t, nil, "{"+providers(fast+"/v1", "")+"}")
	w.busy = faulty(t, nil, fmt.Sprintf(`{%s, "limits": {"max_running_requests": 1}}`, providers(scripted+"/v1", "")))
	w.refused = faulty(t, nil, fmt.Sprintf(`{%s, "webhooks": {"allow_private_addresses": true, "retry_delays_seconds": []}}`, providers(full.URL+"/v1", `, "rate_limit_retry_delays_seconds": [0.05, 0.05, 0.05, 0.05, 0.05]`)))
	var err error
	if w.name, err = w.database.NewDatabase(); err != nil {
		t.Fatal(err)
	}
	for i := range w.nodes {
		w.nodes[i] = faulty(t, nil, fmt.Sprintf(`{%s, "store": {"url": %q}}`, providers(fast+"/v1", ""), w.database.URL(w.name)))
	}
	return w
}

// targets are the addresses of all servers, and one at which there is none.
func (w *town) targets() string {
	all := []string{w.dead}
	for _, p := range []*binary.Process{w.sound, w.strained, w.busy, w.refused, w.nodes[0], w.nodes[1]} {
		all = append(all, strings.TrimPrefix(p.URL, "http://"))
	}
	return strings.Join(all, ", ")
}

// provoke makes the faults come about, those of the database one after the other.
func (w *town) provoke(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	to := func(p *binary.Process) *client.Client { return binary.NewClient(t, p.URL) }
	session(t, to(w.busy))
	hang(ctx, t, w.strained.URL+"/events/stream")
	if _, err := http.Post(w.refused.URL+"/webhooks", "application/json", strings.NewReader(`{"url": "http://`+w.dead+`/hook"}`)); err != nil {
		t.Fatal(err)
	}
	refuseReload(t, w.busy)
	sound, strained, refused := to(w.sound), to(w.strained), to(w.refused)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, c := range []*client.Client{sound, strained, refused} {
				_, _ = c.CreateSession(ctx, loquat.NewSession{Send: &loquat.Send{Content: new("hi")}})
			}
			_ = pause(ctx, 100*time.Millisecond)
		}
	}()
	w.breakDatabase(ctx, t)
}

// refuseReload lets a server reload a configuration file that cannot be used.
func refuseReload(t *testing.T, p *binary.Process) {
	t.Helper()
	file := p.Cmd.Args[slices.Index(p.Cmd.Args, "--config")+1]
	binary.WriteFile(t, file, `{"providers": 7}`)
	if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// hang follows a stream until ctx ends.
func hang(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v %v", url, resp, err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
}

// breakDatabase slows commits down, cuts connections, pauses a node for longer than its lease, and stops the database.
func (w *town) breakDatabase(ctx context.Context, t *testing.T) {
	t.Helper()
	first := binary.NewClient(t, w.nodes[0].URL)
	work := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
			_, _ = first.CreateSession(ctx, loquat.NewSession{})
			_ = pause(ctx, 50*time.Millisecond)
		}
	}
	exec := func(statements string) {
		if err := w.database.Exec(w.name, statements); err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		go work(2 * time.Second)
		_ = pause(ctx, 300*time.Millisecond)
		exec(`BEGIN; LOCK TABLE events IN SHARE MODE; SELECT pg_sleep(0.8); COMMIT`)
		_ = pause(ctx, time.Second)
	}
	for range 20 {
		exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		work(400 * time.Millisecond)
	}
	if err := w.nodes[1].Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	work(14 * time.Second)
	if err := w.nodes[1].Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = pause(ctx, 2*time.Second)
	for range 5 { // as another node ends the lease of one that was cut off
		exec(`UPDATE nodes SET ended_at = now() WHERE ended_at IS NULL`)
		work(time.Second)
	}
	w.database.Stop()
	t.Cleanup(func() { _ = w.database.Restart() }) // so that the nodes end well
	go work(time.Minute)
}
