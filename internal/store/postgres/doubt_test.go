//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// through returns a URL that leads to another address.
func through(t *testing.T, text, address string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address
	return u.String() + "&default_query_exec_mode=cache_describe" // sends the text of each COMMIT
}

func openStore(t *testing.T, opts postgres.Options) (*store.Store, *postgres.DB) {
	t.Helper()
	db := open(t, opts)
	s, err := store.Open(t.Context(), db, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, db
}

// create creates a session without messages.
func create(ctx context.Context, s *store.Store, id string) error {
	return s.Update(ctx, func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", nil)
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// ledger records which sessions were acknowledged, and which were refused.
type ledger struct {
	n        atomic.Int64
	mu       sync.Mutex
	accepted []string
	refused  []string
	unknown  int
}

func (l *ledger) add(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.accepted = append(l.accepted, id)
	case strings.Contains(err.Error(), "not known"):
		l.unknown++
	default:
		l.refused = append(l.refused, id)
	}
}

// fillUntil lets workers create sessions until enough commits were cut, and each worker one
// more that succeeds.
func (l *ledger) fillUntil(t *testing.T, s *store.Store, workers int, enough func() bool) {
	t.Helper()
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range workers {
		all.Go(func() {
			for done := false; !done && ctx.Err() == nil; {
				done = enough()
				id := fmt.Sprint("session-", l.n.Add(1))
				err := create(ctx, s, id)
				l.add(id, err)
				if err != nil {
					done = false
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Errorf("the store did not recover: %v", s.Healthy())
	}
}

// check compares the ledger with the store: every acknowledged session is there, and no
// refused one. Ids have no gaps.
func (l *ledger) check(t *testing.T, s *store.Store) {
	t.Helper()
	err := s.View(t.Context(), func(r *store.Reader) error {
		for want, ids := range map[bool][]string{true: l.accepted, false: l.refused} {
			for _, id := range ids {
				got, err := r.Taken(id)
				if err != nil {
					return err
				}
				if got != want {
					t.Errorf("%s: stored %v, acknowledged %v", id, got, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	at := loquat.EventID(0)
	for {
		records, err := s.Events(t.Context(), at, store.Filter{}, store.Bounds{Events: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		for _, rec := range records {
			if rec.ID != at+1 {
				t.Errorf("event %s after %s", rec.ID, at)
			}
			at = rec.ID
		}
	}
	if int(at) != len(l.accepted)+l.unknown && l.unknown == 0 {
		t.Errorf("%d events of %d sessions", at, len(l.accepted))
	}
	t.Logf("%d acknowledged, %d refused, %d not known", len(l.accepted), len(l.refused), l.unknown)
}

func sound(t *testing.T, db *postgres.DB) {
	t.Helper()
	err := db.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { t.Error(problem) })
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The connection is cut while COMMIT runs, before or after the server got it. A change
// that was answered as stored is stored, and a refused change is not.
func TestConnectionCutDuringCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	_, direct := server.Database(t)
	const cuts = 30
	var left atomic.Int64
	proxy := startCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port), func() int {
		if rand.IntN(4) > 0 || left.Add(-1) < 0 {
			return pass
		}
		return cutBefore + rand.IntN(2)
	})
	s, db := openStore(t, postgres.Options{URL: through(t, direct, proxy.ln.Addr().String())})
	left.Store(cuts)
	left.Store(cuts)
	var l ledger
	l.fillUntil(t, s, 16, func() bool { return left.Load() <= 0 })
	l.check(t, s)
	sound(t, db)
	if len(l.refused) == 0 || l.unknown > 0 {
		t.Errorf("%d refused, %d not known", len(l.refused), l.unknown)
	}
}

// The network swallows the answer, or the COMMIT, and keeps the connection open.
func TestConnectionStallsDuringCommit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for timeouts")
	}
	server := pgtest.Shared(t)
	_, direct := server.Database(t)
	var commits, faults atomic.Int64
	proxy := startCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port), func() int {
		switch commits.Add(1) {
		case 5:
			faults.Add(1)
			return swallow
		case 10:
			faults.Add(1)
			return swallowRequest
		}
		return pass
	})
	s, db := openStore(t, postgres.Options{URL: through(t, direct, proxy.ln.Addr().String()), StatementTimeout: time.Second})
	var l ledger
	l.fillUntil(t, s, 4, func() bool { return faults.Load() == 2 })
	l.check(t, s)
	sound(t, db)
	if l.unknown > 0 {
		t.Errorf("%d outcomes are not known", l.unknown)
	}
}

// All processes of the server are killed under load, again and again.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	server := pgtest.Start(t)
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres")})
	var l ledger
	for range rounds {
		var killed atomic.Bool
		go func() {
			defer killed.Store(true)
			time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
			if err := server.Restart(); err != nil {
				t.Error(err)
			}
		}()
		l.fillUntil(t, s, 8, killed.Load)
	}
	l.check(t, s)
	sound(t, db)
}
