//go:build unix

package usage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// The sizes of the test. LOQUAT_USERS overrides the first; a tenth of the users follow.
const (
	manyUsers = 200
	changes   = 400
)

// A change costs the same with many users as with one, and reaches a user's follower as soon as a session's.
// The test checks that each follower gets its own events alone; the figures are for people, because machines
// differ.
func TestManyUsers(t *testing.T) {
	users := binary.Number(t, "LOQUAT_USERS", manyUsers)
	one := measureUsers(t, users, func(int) string { return "one" }, func(n int) string { return fmt.Sprintf("session_id=s%d", n) })
	t.Logf("%d sessions, %d followers: of one user's sessions p50 %v, %v of processor time for a change", users, users/10, one.p50, one.cpu)
	for what, query := range map[string]string{"all events": "", "lists": "list=true"} {
		many := measureUsers(t, users, func(n int) string { return fmt.Sprintf("u%d", n) }, func(int) string { return query })
		t.Logf("%s of %d users: p50 %v, %v: %.2f and %.2f times", what, users, many.p50, many.cpu, float64(many.p50)/float64(one.p50), float64(many.cpu)/float64(one.cpu))
	}
}

// measured is the median time until an event arrives, and the processor time of the server for a change.
type measuredUsers struct{ p50, cpu time.Duration }

// measureUsers runs a server with a session for each user, of which every tenth is followed.
func measureUsers(t *testing.T, users int, userOf, queryOf func(int) string) measuredUsers {
	t.Helper()
	dir := t.TempDir()
	cfg := filepath.Join(dir, "loquat.json")
	text := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "x", "base_url": "http://127.0.0.1:1/v1"}},
		"server": {"auth_tokens": [{"name": "a", "token": "the-token-of-the-backend", "scope": "full"}]},
		"limits": {"max_followers": 100000, "max_followers_per_token": 100000, "max_connections": 100000, "max_connections_per_address": 100000}}`
	binary.WriteFile(t, cfg, text)
	server := binary.Start(t, nil, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	address := strings.TrimPrefix(server.URL, "http://")
	inParallel(users, func(n int) {
		status, body, err := ask(t.Context(), http.MethodPost, address, "/sessions", userOf(n), "", fmt.Sprintf(`{"session_id": "s%d"}`, n))
		if err != nil || status != http.StatusCreated {
			t.Errorf("session %d: %d %s %v", n, status, body, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	f := followAll(ctx, t, address, users/10, userOf, queryOf)
	defer f.done.Wait()
	defer cancel()
	before := binary.ProcessorTime(t, server)
	for n := range changes {
		at := n % f.n
		f.sent(at)
		status, body, err := ask(ctx, http.MethodPost, address, fmt.Sprintf("/sessions/s%d/messages", at), "", "", `{"role": "user", "content": "hello"}`)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("message %d: %d %s %v", n, status, body, err)
		}
		f.await(t, at)
	}
	cpu := binary.ProcessorTime(t, server) - before
	slices.Sort(f.took)
	return measuredUsers{p50: f.took[len(f.took)/2], cpu: cpu / changes}
}

// followers follow one session each.
type followers struct {
	n     int
	done  sync.WaitGroup
	woken []chan struct{}

	mu   sync.Mutex
	at   []time.Time // when a change of the session was sent; zero: its event has come
	took []time.Duration
}

func followAll(ctx context.Context, t *testing.T, address string, n int, userOf, queryOf func(int) string) *followers {
	t.Helper()
	f := &followers{n: n, at: make([]time.Time, n)}
	ready := make(chan struct{}, n)
	for i := range n {
		f.woken = append(f.woken, make(chan struct{}, 1))
		f.done.Go(func() { f.follow(ctx, t, address, i, userOf(i), queryOf(i), ready) })
	}
	for range n {
		select {
		case <-ready:
		case <-time.After(30 * time.Second):
			t.Fatal("the followers are not connected")
		}
	}
	return f
}

// follow reads a stream, whose events all have to be of the follower's own session.
func (f *followers) follow(ctx context.Context, t *testing.T, address string, i int, user, query string, ready chan<- struct{}) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events/stream?session=omit&"+query, nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer the-token-of-the-backend")
	req.Header.Set("On-Behalf-Of", user)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("follower %d: %v %v", i, resp, err)
		return
	}
	defer resp.Body.Close()
	ready <- struct{}{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var e struct {
			Type      string
			SessionID string `json:"session_id"`
		}
		if !ok || json.Unmarshal([]byte(data), &e) != nil || e.SessionID == "" {
			continue
		}
		if e.SessionID != fmt.Sprintf("s%d", i) {
			t.Errorf("follower %d got an event of %s", i, e.SessionID)
		}
		if e.Type == "checkpoint" {
			f.came(i)
		}
	}
}

func (f *followers) sent(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[i] = time.Now()
}

func (f *followers) came(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at[i].IsZero() {
		return
	}
	f.took = append(f.took, time.Since(f.at[i]))
	f.at[i] = time.Time{}
	f.woken[i] <- struct{}{}
}

func (f *followers) await(t *testing.T, i int) {
	t.Helper()
	select {
	case <-f.woken[i]:
	case <-time.After(10 * time.Second):
		t.Fatalf("follower %d got nothing", i)
	}
}

// inParallel calls fn for each number below n.
func inParallel(n int, fn func(int)) {
	numbers := make(chan int)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range numbers {
				fn(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	all.Wait()
}
