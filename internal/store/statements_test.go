package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// mostStatements is how many statements a transaction may run that can be as large as a client likes. Each takes a
// round trip on PostgreSQL, where the transaction keeps the writers of all nodes waiting.
const mostStatements = 100

// countingDriver counts the statements of transactions that write.
type countingDriver struct {
	store.Driver
	most, transactions int // of statements, since the last reset
}

func (d *countingDriver) Write(ctx context.Context, fn func(store.SQL) error) error {
	counted := &countedSQL{}
	err := d.Driver.Write(ctx, func(q store.SQL) error {
		counted.SQL = q
		return fn(counted)
	})
	d.most = max(d.most, counted.n)
	d.transactions++
	return err
}

func (d *countingDriver) reset() { d.most, d.transactions = 0, 0 }

type countedSQL struct {
	store.SQL
	n int
}

func (q *countedSQL) Exec(query string, args ...any) (int64, error) {
	q.n++
	return q.SQL.Exec(query, args...)
}

func (q *countedSQL) Query(query string, args ...any) (*sql.Rows, error) {
	q.n++
	return q.SQL.Query(query, args...)
}

// openOn opens a new store whose driver a test has wrapped.
func openOn[D store.Driver](t *testing.T, wrap func(store.Driver) D) (*store.Store, D) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	driver := wrap(db)
	s, err := store.Open(t.Context(), driver, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, driver
}

func openCounted(t *testing.T) (*store.Store, *countingDriver) {
	t.Helper()
	return openOn(t, func(db store.Driver) *countingDriver { return &countingDriver{Driver: db} })
}

// However many messages a client deletes, in a row or scattered, it takes few statements.
func TestStatementsOfADeletion(t *testing.T) {
	s, driver := openCounted(t)
	createIn(t, s, "s")
	var left []string
	change(t, s, func(tx *store.Tx, h *store.Head) error {
		for i := range 10_000 {
			m := loquat.Message{ID: fmt.Sprint("m", i), Role: loquat.RoleUser, Content: "x", CreatedAt: tx.Now}
			if _, err := tx.AppendMessage(h, m); err != nil {
				return err
			}
			left = append(left, m.ID)
		}
		return tx.Checkpoint(h, nil, false)
	})
	remove := func(what string, doomed func(i int) bool) {
		t.Helper()
		var indices []int
		var kept []string
		for i, id := range left {
			if doomed(i) {
				indices = append(indices, i)
			} else {
				kept = append(kept, id)
			}
		}
		driver.reset()
		change(t, s, func(tx *store.Tx, h *store.Head) error {
			if err := tx.DeleteMessages(h, indices); err != nil {
				return err
			}
			return tx.Checkpoint(h, nil, false)
		})
		if driver.most >= mostStatements {
			t.Errorf("%s takes %d statements", what, driver.most)
		}
		left = kept
		err := s.View(t.Context(), func(r *store.Reader) error {
			h, err := r.Head("s")
			if err != nil {
				return err
			}
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil || len(messages) != len(left) || h.Count != len(left) {
				t.Fatalf("%s leaves %d messages, the head has %d, want %d, %v", what, len(messages), h.Count, len(left), err)
			}
			for i, m := range messages {
				if m.ID != left[i] {
					t.Fatalf("%s leaves %s at %d, want %s", what, m.ID, i, left[i])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	remove("a deletion of 5,000 messages in a row", func(i int) bool { return i >= 2000 && i < 7000 })
	remove("a deletion of every second message", func(i int) bool { return i%2 == 1 })
	remove("a deletion of long and short runs", func(i int) bool { return i < 200 && i%100 > 10 || i > 1000 && i%5 < 3 })
}

// However many requests have ended, their increments go in transactions with few statements.
func TestStatementsOfACleanup(t *testing.T) {
	s, driver := openCounted(t)
	createIn(t, s, "s")
	change(t, s, func(tx *store.Tx, h *store.Head) error {
		for i := range 500 {
			q := store.Request{Request: loquat.Request{RequestID: fmt.Sprint("r", i)}, Send: []byte("{}"), Answer: []byte("{}")}
			if err := tx.AddRunning(h, &q, "owner"); err != nil {
				return err
			}
			for _, e := range []loquat.Event{{Type: loquat.RequestStarted}, {Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}}, {Type: loquat.RequestCompleted}} {
				if _, err := tx.Publish(e, h, &q); err != nil {
					return err
				}
			}
			if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
				return err
			}
		}
		return tx.Checkpoint(h, nil, false)
	})
	driver.reset()
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if driver.most >= mostStatements {
		t.Errorf("the increments of 500 requests take %d statements in one of %d transactions", driver.most, driver.transactions)
	}
	requireEvents(t, s, loquat.Partial, 0)
}

// However many sessions the removed events are of, they go in transactions with few statements.
func TestStatementsOfRetention(t *testing.T) {
	s, driver := openCounted(t)
	s.SetRetention(time.Nanosecond)
	for i := range 125 {
		id := fmt.Sprint("s", i)
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.CreateSession(id, "default", nil)
			if err != nil {
				return err
			}
			for range 4 {
				if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated}, &h, nil); err != nil {
					return err
				}
			}
			return tx.Checkpoint(&h, nil, false)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	driver.reset()
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if driver.most >= mostStatements {
		t.Errorf("625 events of 125 sessions take %d statements in one of %d transactions", driver.most, driver.transactions)
	}
	requireEvents(t, s, loquat.SessionCreated, 0)
	err := s.View(t.Context(), func(r *store.Reader) error {
		for i := range 125 {
			h, err := r.Head(fmt.Sprint("s", i))
			if err != nil {
				return err
			}
			if removed, err := r.NewestRemoved(store.Filter{SessionID: h.SessionID}); err != nil || removed != h.Cursor {
				t.Errorf("of %s events up to %s are removed, %v; its cursor is %s", h.SessionID, removed, err, h.Cursor)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requireEvents fails unless the database has so many events of a type.
func requireEvents(t *testing.T, s *store.Store, of loquat.EventType, want int) {
	t.Helper()
	n := 0
	err := s.View(t.Context(), func(r *store.Reader) error {
		all, err := r.DatabaseEvents(0, store.Filter{}, 10_000)
		for _, rec := range all {
			if rec.Type == of {
				n++
			}
		}
		return err
	})
	if err != nil || n != want {
		t.Fatalf("the database has %d events %s, %v, want %d", n, of, err, want)
	}
}
