// Package webhooks has a receiver of webhooks for tests, and the tests of webhooks with the real program.
package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"loquat"
	"loquat/internal/e2e/binary"
)

// Receiver is the receiver of a webhook. It refuses some messages, and takes some in without an answer.
type Receiver struct {
	Address string
	Foreign []string // texts that no message may have
	server  *http.Server

	mu             sync.Mutex
	verifier       *standardwebhooks.Webhook
	arrived        map[string][]string // event ids in the order of their first arrival, by session
	ids            map[string]string   // event id by webhook-id
	calls, repeats int
	faults         []string
}

// NewReceiver starts a receiver, which the end of the test stops.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{Address: binary.FreeAddress(t), arrived: map[string][]string{}, ids: map[string]string{}}
	if err := r.Revive(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

// Expect sets the secret with which messages are signed.
func (r *Receiver) Expect(t testing.TB, secret string) {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier = v
}

// Kill ends the receiver with all its connections.
func (r *Receiver) Kill() { _ = r.server.Close() }

// Revive starts the receiver again, at the same address.
func (r *Receiver) Revive() error {
	ln, err := net.Listen("tcp", r.Address)
	if err != nil {
		return err
	}
	r.server = &http.Server{Handler: r}
	go func(s *http.Server) { _ = s.Serve(ln) }(r.server)
	return nil
}

// Distinct returns the number of events that have arrived.
func (r *Receiver) Distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// Compare compares the events of each session that have arrived with those that have to arrive, after
// an event. It returns the faults, also those of single messages.
func (r *Receiver) Compare(after loquat.EventID, want map[string][]string) (faults []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fault := range r.faults {
		faults = append(faults, errors.New(fault))
	}
	for session, ids := range want {
		var got []string
		for _, id := range r.arrived[session] {
			if id > after.String() { // ids of equal length
				got = append(got, id)
			}
		}
		if !slices.Equal(got, ids) {
			faults = append(faults, fmt.Errorf("session %s: %d events arrived in the order %.200s, want %d: %.200s", session, len(got), strings.Join(got, " "), len(ids), strings.Join(ids, " ")))
		}
	}
	return faults
}

// Counts describes what the receiver got.
func (r *Receiver) Counts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d events in %d calls, %d of them repeats, %d faults", len(r.ids), r.calls, r.repeats, len(r.faults))
}

// Sent returns the ids of the events of a log that webhooks are sent, by session.
func Sent(log []loquat.Event) (ids map[string][]string) {
	ids = map[string][]string{}
	for _, e := range log {
		if e.Type != loquat.Partial && e.Type != loquat.ToolPartial {
			ids[e.SessionID] = append(ids[e.SessionID], e.EventID.String())
		}
	}
	return ids
}

// ServeHTTP takes in a message.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
	for _, text := range r.Foreign {
		if strings.Contains(string(body), text) {
			r.faults = append(r.faults, fmt.Sprintf("it has %q: %.300s", text, body))
		}
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
