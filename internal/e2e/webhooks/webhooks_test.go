package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/e2e/webhooks"
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
	r := webhooks.NewReceiver(t)
	var made loquat.Webhook
	if err := json.Unmarshal([]byte(binary.Call(t, http.MethodPost, url+"/webhooks", fmt.Sprintf(`{"url": "http://%s/hook?x=1"}`, r.Address))), &made); err != nil {
		t.Fatal(err)
	}
	r.Expect(t, made.Secret)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var crowd sync.WaitGroup
	stop := make(chan struct{})
	for n := range sessions {
		crowd.Go(func() { converse(ctx, binary.NewClient(t, url), fmt.Sprintf("s%d", n), stop) })
	}
	killed := 0
	for n := 1; killed < kills || r.Distinct() < events; n++ {
		if ctx.Err() != nil {
			t.Fatalf("%d events and %d kills within the time", r.Distinct(), killed)
		}
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond)
		if killed == kills {
			continue
		}
		r.Kill()
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		_ = server.Cmd.Process.Kill()
		_ = server.Cmd.Wait()
		killed++
		server = run()
		if err := r.Revive(); err != nil {
			t.Fatal(err)
		}
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
func check(ctx context.Context, t *testing.T, url string, r *webhooks.Receiver, kills int) {
	t.Helper()
	c := binary.NewClient(t, url)
	var log []loquat.Event
	for since := loquat.EventID(0); ; since = log[len(log)-1].EventID {
		w, err := c.Events(ctx, client.Query{Since: &since, OmitSession: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			break
		}
		log = append(log, w.Events...)
	}
	want, total := webhooks.Sent(log), 0
	for _, ids := range want {
		total += len(ids)
	}
	for r.Distinct() < total && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%d events over %d kills of the server and of the receiver: %s", total, kills, r.Counts())
	for _, fault := range r.Compare(0, want) {
		t.Error(fault)
	}
}
