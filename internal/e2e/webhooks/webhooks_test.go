package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// The sizes of the test. LOQUAT_WEBHOOK_EVENTS and LOQUAT_WEBHOOK_KILLS override them.
const (
	wantedEvents = 600
	wantedKills  = 2 // of the server, and as many of the receiver
	sessions     = 12
)

// Every event arrives at a webhook's receiver, those of a session in their order, while the server and
// the receiver are killed again and again. A repeat has the same webhook-id, and every signature is right.
func TestWebhooksLoseNothing(t *testing.T) {
	events, kills := binary.Number(t, "LOQUAT_WEBHOOK_EVENTS", wantedEvents), binary.Number(t, "LOQUAT_WEBHOOK_KILLS", wantedKills)
	scripted := binary.ScriptedBackend(t, backend.Options{})
	dir := t.TempDir()
	cfg := filepath.Join(dir, "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"webhooks": {"allow_private_addresses": true, "retry_delays_seconds": [%s]}}`, scripted, strings.TrimSuffix(strings.Repeat("0.3, ", 400), ", "))
	binary.WriteFile(t, cfg, text)
	address := binary.FreeAddress(t)
	run := func() *binary.Process {
		return binary.Start(t, nil, "serve", "--config", cfg, "--listen", address, "--data", filepath.Join(dir, "data"))
	}
	server := run()
	url := "http://" + address
	r := newReceiver(t)
	var made loquat.Webhook
	if err := json.Unmarshal([]byte(binary.Call(t, http.MethodPost, url+"/webhooks", fmt.Sprintf(`{"url": "http://%s/hook?x=1"}`, r.address))), &made); err != nil {
		t.Fatal(err)
	}
	r.expect(t, made.Secret)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var crowd sync.WaitGroup
	stop := make(chan struct{})
	for n := range sessions {
		crowd.Go(func() { converse(ctx, binary.NewClient(t, url), fmt.Sprintf("s%d", n), stop) })
	}
	killed := 0
	for n := 1; killed < kills || r.distinct() < events; n++ {
		if ctx.Err() != nil {
			t.Fatalf("%d events and %d kills within the time", r.distinct(), killed)
		}
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond)
		if killed == kills {
			continue
		}
		r.kill()
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		_ = server.Cmd.Process.Kill()
		_ = server.Cmd.Wait()
		killed++
		server = run()
		r.revive(t)
	}
	close(stop)
	crowd.Wait()
	check(ctx, t, url, r, killed)
}

// converse sends messages in a session until stop is closed. The server may be killed at any time.
func converse(ctx context.Context, c *client.Client, session string, stop <-chan struct{}) {
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-stop:
			return
		default:
		}
		id, text := fmt.Sprintf("%s-%d", session, n), `{"text": "one two"}`
		again(ctx, func() error {
			_, err := c.CreateSession(ctx, loquat.NewSession{SessionID: session})
			if loquat.CodeOf(err) == loquat.CodeConflict {
				return nil
			}
			return err
		})
		again(ctx, func() error {
			_, err := c.Send(ctx, session, loquat.Send{Content: &text, RequestID: id, OnBusy: loquat.BusyQueue})
			return err
		})
		again(ctx, func() error {
			q, err := c.Request(ctx, id)
			if err == nil && !q.Status.Ended() {
				err = fmt.Errorf("request %s runs", id)
			}
			return err
		})
	}
}

func again(ctx context.Context, fn func() error) {
	for fn() != nil && ctx.Err() == nil {
		time.Sleep(30 * time.Millisecond)
	}
}

// check compares what has arrived with the log.
func check(ctx context.Context, t *testing.T, url string, r *receiver, kills int) {
	t.Helper()
	c := binary.NewClient(t, url)
	want := map[string][]string{} // event ids by session
	total := 0
	for since := loquat.EventID(0); ; {
		w, err := c.Events(ctx, client.Query{Since: &since, OmitSession: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			break
		}
		for _, e := range w.Events {
			since = e.EventID
			if e.Type != loquat.Partial && e.Type != loquat.ToolPartial {
				want[e.SessionID] = append(want[e.SessionID], e.EventID.String())
				total++
			}
		}
	}
	for r.distinct() < total && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d events over %d kills of the server and of the receiver: %d calls, %d of them repeats, %d faults", total, kills, r.calls, r.repeats, len(r.faults))
	for _, fault := range r.faults {
		t.Error(fault)
	}
	for session, ids := range want {
		if got := strings.Join(r.arrived[session], " "); got != strings.Join(ids, " ") {
			t.Errorf("session %s: %d events arrived in the order %.200s, want %d: %.200s", session, len(r.arrived[session]), got, len(ids), strings.Join(ids, " "))
		}
	}
}

// receiver is the receiver of a webhook.
type receiver struct {
	address string
	server  *http.Server

	mu             sync.Mutex
	verifier       *standardwebhooks.Webhook
	arrived        map[string][]string // event ids in the order of their first arrival, by session
	ids            map[string]string   // event id by webhook-id
	calls, repeats int
	faults         []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{address: binary.FreeAddress(t), arrived: map[string][]string{}, ids: map[string]string{}}
	r.revive(t)
	t.Cleanup(r.kill)
	return r
}

func (r *receiver) expect(t *testing.T, secret string) {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier = v
}

// kill ends the receiver with all its connections, and revive starts it again.
func (r *receiver) kill() { _ = r.server.Close() }

func (r *receiver) revive(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.server = &http.Server{Handler: r}
	go func(s *http.Server) { _ = s.Serve(ln) }(r.server)
}

func (r *receiver) distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// ServeHTTP takes in a message. Some it refuses, and some it takes in without an answer.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if rand.IntN(100) < 3 {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if err := r.verifier.Verify(body, req.Header); err != nil {
		r.faults = append(r.faults, fmt.Sprintf("%s: %v", req.Header.Get("webhook-id"), err))
	}
	var m struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			EventID   string `json:"event_id"`
			Type      string
			SessionID string `json:"session_id"`
			Session   *loquat.Snapshot
		}
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Type == "" || m.Type != m.Data.Type || m.Timestamp.IsZero() || m.Data.Session != nil {
		r.faults = append(r.faults, fmt.Sprintf("%.300s: %v", body, err))
	}
	id := req.Header.Get("webhook-id")
	if before, known := r.ids[id]; known {
		r.repeats++
		if before != m.Data.EventID {
			r.faults = append(r.faults, fmt.Sprintf("%s is of %s and of %s", id, before, m.Data.EventID))
		}
	} else {
		r.ids[id] = m.Data.EventID
		r.arrived[m.Data.SessionID] = append(r.arrived[m.Data.SessionID], m.Data.EventID)
	}
	if rand.IntN(100) < 3 {
		panic(http.ErrAbortHandler)
	}
}
