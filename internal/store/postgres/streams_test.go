//go:build unix

package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/postgres/pgtest"
)

// stream is a running request whose increments are the numbers 1, 2, 3 and so on.
type stream struct {
	q      store.Request
	outbox *store.Outbox
	failed chan error

	mu        sync.Mutex
	produced  int
	published int // by the transaction that runs
	attempt   uint64
	stored    int
}

// beginStream begins a request of a new session.
func beginStream(ctx context.Context, s *store.Store, id string) (*stream, error) {
	r := &stream{q: store.Request{Request: loquat.Request{RequestID: "r-" + id}}, failed: make(chan error, 1000)}
	err := s.Update(ctx, func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", nil)
		if err != nil {
			return err
		}
		if err := errors.Join(tx.Checkpoint(&h, nil, false), tx.EnqueueRequest(&h, &r.q, store.AtTheEnd), tx.StartRequest(&r.q, s.Owner())); err != nil {
			return err
		}
		_, err = tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &r.q)
		return err
	})
	r.outbox = s.NewOutbox(r.q, r)
	return r, err
}

func (r *stream) produce(n int) {
	r.mu.Lock()
	r.produced += n
	r.mu.Unlock()
	r.outbox.Ready()
}

func (r *stream) PublishIncrements(tx *store.Tx) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempt != tx.Attempt() {
		r.attempt, r.published = tx.Attempt(), r.stored
		tx.AfterCommit(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stored = r.published
		})
	}
	for ; r.published < r.produced; r.published++ {
		e := loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: strconv.Itoa(r.published + 1)}}
		if _, err := tx.Publish(e, &store.Head{SID: r.q.SID, SessionID: r.q.SessionID}, &r.q); err != nil {
			return err
		}
	}
	return nil
}

func (r *stream) IncrementsFailed(err error) { r.failed <- err }

// end publishes the increments that are left and ends the request.
func (r *stream) end(ctx context.Context, s *store.Store) error {
	r.outbox.Close()
	return s.Update(ctx, func(tx *store.Tx) error {
		if err := r.PublishIncrements(tx); err != nil {
			return err
		}
		if err := tx.EndRequest(&r.q, loquat.StatusCompleted, ""); err != nil {
			return err
		}
		_, err := tx.Publish(loquat.Event{Type: loquat.RequestCompleted}, &store.Head{SID: r.q.SID, SessionID: r.q.SessionID}, &r.q)
		return err
	})
}

// followStreams checks the events of a store until ctx ends and the store's log has been read.
func followStreams(ctx context.Context, s *store.Store) error {
	w := s.Watch(store.Filter{})
	defer w.Stop()
	defer context.AfterFunc(ctx, w.Wake)()
	shown := map[string]int{}
	for at := loquat.EventID(0); ; {
		done := ctx.Err() != nil
		records, err := w.Events(context.Background(), nil, at, "", store.Bounds{Events: 100})
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.ID <= at {
				return fmt.Errorf("event %s comes after %s", r.ID, at)
			}
			at = r.ID
			if r.Type != loquat.Partial {
				continue
			}
			var e loquat.Event
			if err := json.Unmarshal(r.Body, &e); err != nil {
				return err
			}
			shown[r.RequestID]++
			if e.Message.Content != strconv.Itoa(shown[r.RequestID]) {
				return fmt.Errorf("event %s has increment %s of %s, not %d", r.ID, e.Message.Content, r.RequestID, shown[r.RequestID])
			}
		}
		if len(records) > 0 {
			continue
		}
		if done {
			return nil
		}
		<-w.C()
	}
}

// Followers at every node see the increments of all nodes in order, each once, while increments are
// sorted, other transactions have no events, and others fail.
func TestStreamsOfSeveralNodes(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 3, 0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var followers, writers sync.WaitGroup
	for i, s := range nodes {
		followers.Go(func() {
			if err := followStreams(ctx, s); err != nil {
				t.Errorf("a follower of node %d: %v", i, err)
			}
		})
		for k := range 2 {
			writers.Go(func() {
				for round := range 3 {
					if err := writeStream(t.Context(), s, fmt.Sprintf("%d-%d-%d", i, k, round), 400); err != nil {
						t.Errorf("node %d: %v", i, err)
					}
				}
			})
		}
	}
	writers.Wait()
	level(t, nodes...)
	stop()
	followers.Wait()
	sameLog(t, nodes...)
	var sorted int64
	if err := connect(t, url).QueryRow(t.Context(), "SELECT sorted_event_id FROM log").Scan(&sorted); err != nil || sorted == 0 {
		t.Errorf("no increments were sorted: %v", err)
	}
}

// writeStream runs a request with 4·n increments.
func writeStream(ctx context.Context, s *store.Store, id string, n int) error {
	r, err := beginStream(ctx, s, id)
	if err != nil {
		return err
	}
	errFails := errors.New("this change fails")
	for i := range n {
		r.produce(4)
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		if i%2 == 0 { // a transaction without events
			if err := s.TryWrite(ctx); err != nil {
				return err
			}
		}
		if i%50 == 0 {
			err := s.Update(ctx, func(tx *store.Tx) error {
				if _, err := tx.CreateSession(id+strconv.Itoa(i), "default", nil); err != nil {
					return err
				}
				return errFails
			})
			if !errors.Is(err, errFails) {
				return err
			}
		}
	}
	if err := r.end(ctx, s); err != nil {
		return err
	}
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}

// A batch is rolled back because a change fails, and waits for the log again. Meanwhile the tail does
// not stay behind what other nodes committed.
func TestTailWhileABatchRunsAgain(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	name, url := server.Database(t)
	nodes := openNodes(t, url, 2, 0)
	mustCreate(t, nodes[0], "a")
	level(t, nodes...)
	first, second := connect(t, url), connect(t, url)
	admin := connect(t, server.URL("postgres"))
	const lock = "BEGIN; SELECT 1 FROM log FOR UPDATE"
	waiting := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " transactions wait for the log"), func() bool {
			var count int
			if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'", name).Scan(&count); err != nil {
				t.Fatal(err)
			}
			return count == n
		})
	}
	for round := range 20 {
		exec(t, first, lock)
		results, other, locked := make(chan error, 2), make(chan error, 1), make(chan error, 1)
		go func() {
			errFails := errors.New("this change fails")
			err := nodes[0].Update(t.Context(), func(tx *store.Tx) error {
				_, err := tx.CreateSession("never", "default", nil)
				return errors.Join(err, errFails)
			})
			if errors.Is(err, errFails) {
				err = nil
			}
			results <- err
		}()
		waiting(1)
		go func() { results <- create(t.Context(), nodes[0], fmt.Sprint("again-", round)) }()
		go func() { other <- create(t.Context(), nodes[1], fmt.Sprint("other-", round)) }()
		waiting(2)
		go func() {
			_, err := second.Exec(t.Context(), lock)
			locked <- err
		}()
		waiting(3)
		time.Sleep(20 * time.Millisecond) // until "again" is in the queue of its node
		exec(t, first, "COMMIT")
		if err := <-locked; err != nil {
			t.Fatal(err)
		}
		committed := false
		select {
		case err := <-other:
			if committed = true; err != nil {
				t.Fatal(err)
			}
		case <-time.After(100 * time.Millisecond): // it comes only after the second lock
		}
		if err := nodes[0].CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := nodes[0].Last(), nodes[1].Last(); got < want {
			t.Fatalf("round %d: the tail ends at %s after a change at another node ended at %s", round, got, want)
		}
		exec(t, second, "COMMIT")
		if !committed {
			if err := <-other; err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(<-results, <-results); err != nil {
			t.Fatal(err)
		}
	}
	sameLog(t, nodes...)
}
