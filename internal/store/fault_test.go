package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// unprunable is a driver that fails to read which events are past the retention.
type unprunable struct {
	store.Driver
	failed atomic.Int64
}

func (d *unprunable) Read(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Read(ctx, func(q store.SQL) error { return fn(unprunableSQL{q, d}) })
}

type unprunableSQL struct {
	store.SQL
	driver *unprunable
}

func (q unprunableSQL) Query(query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, "min(event_id)") {
		q.driver.failed.Add(1)
		return nil, errors.New("canceling statement due to statement timeout")
	}
	return q.SQL.Query(query, args...)
}

// If events past the retention cannot be removed, everything else is cleaned up all the same.
func TestCleanupGoesOnAfterAFailure(t *testing.T) {
	db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	driver := &unprunable{Driver: db}
	s, err := store.Open(t.Context(), driver, store.Options{Logger: slog.New(slog.DiscardHandler), Retention: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	createIn(t, s, "s")
	createIn(t, s, "deleted")
	q := runIn(t, s, "other")
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("other")
		if err != nil {
			return err
		}
		for _, e := range []loquat.Event{{Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}}, {Type: loquat.RequestCompleted}} {
			if _, err := tx.Publish(e, &h, &q); err != nil {
				return err
			}
		}
		if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
			return err
		}
		if h, err = tx.Head("deleted"); err != nil {
			return err
		}
		return tx.DeleteSession(&h)
	})
	if err != nil {
		t.Fatal(err)
	}
	requireEvents(t, s, loquat.Partial, 1)
	if err := s.Cleanup(t.Context()); err == nil || !strings.Contains(err.Error(), "retention") || driver.failed.Load() != 1 {
		t.Errorf("the cleanup: %v", err)
	}
	requireEvents(t, s, loquat.Partial, 0)
	swept := 0
	err = db.Read(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(`SELECT sid FROM sessions WHERE deleted = 2`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			swept++
		}
		return rows.Err()
	})
	if err != nil || swept != 1 {
		t.Errorf("the rows of %d deleted sessions are removed, %v", swept, err)
	}
}

// fullDisk is a driver whose commits fail while full is set.
type fullDisk struct {
	store.Driver
	full atomic.Bool
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Write(ctx, func(q store.SQL) error {
		if err := fn(q); err != nil {
			return err
		}
		if d.full.Load() {
			return errFull // fail where a commit would: after all statements
		}
		return nil
	})
}

func TestStoreThatCannotWriteForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, cannotWriteForAWhile)
}

func cannotWriteForAWhile(t *testing.T) {
	db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	disk := &fullDisk{Driver: db}
	s, err := store.Open(t.Context(), disk, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	create := func(id string) error {
		return s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.CreateSession(id, "default", nil)
			if err != nil {
				return err
			}
			return tx.Checkpoint(&h, nil, false)
		})
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	last := s.Last()

	disk.full.Store(true)
	for range 2 {
		if err := create("lost"); loquat.CodeOf(err) != loquat.CodeUnavailable || !errors.Is(err, errFull) {
			t.Errorf("an update on a full disk: %v", err)
		}
	}
	if s.Healthy() == nil {
		t.Error("a store that cannot write reports that it is healthy")
	}
	records, err := s.Events(t.Context(), last, store.Filter{}, store.Bounds{Events: 10})
	if s.Last() != last || len(records) != 0 || err != nil {
		t.Errorf("readers see %d events of changes that were refused, %v", len(records), err)
	}

	// One successful write does not make the store healthy: it may have been a small one.
	disk.full.Store(false)
	if err := create("small"); err != nil || s.Healthy() == nil {
		t.Errorf("after one write: %v, healthy %v", err, s.Healthy() == nil)
	}
	last++
	time.Sleep(5 * time.Second) // the store recovers on its own
	if err := s.Healthy(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := create("lost"); err != nil || s.Last() != last+1 {
		t.Errorf("after the recovery: %v; the last event is %s, want %s", err, s.Last(), last+1)
	}
}

// noReads is a driver whose reads fail with err if err is set.
type noReads struct {
	store.Driver
	err error
}

func (d *noReads) Read(ctx context.Context, fn func(store.SQL) error) error {
	if d.err != nil {
		return d.err
	}
	return d.Driver.Read(ctx, fn)
}

// A database error becomes unavailable. An error of the read function is returned unchanged.
func TestStoreThatCannotRead(t *testing.T) {
	t.Parallel()
	s, driver := openOn(t, func(db store.Driver) *noReads { return &noReads{Driver: db} })
	own := errors.New("of the reader")
	if err := s.View(t.Context(), func(*store.Reader) error { return own }); err != own {
		t.Errorf("the error of the read function: %v", err)
	}
	driver.err = errors.New("too many open files")
	err := s.View(t.Context(), func(*store.Reader) error { return nil })
	if loquat.CodeOf(err) != loquat.CodeUnavailable || !errors.Is(err, driver.err) {
		t.Errorf("a database that cannot be read: %v", err)
	}
	driver.err = context.Canceled
	if err := s.View(t.Context(), func(*store.Reader) error { return nil }); !errors.Is(err, context.Canceled) || loquat.CodeOf(err) == loquat.CodeUnavailable {
		t.Errorf("a reader that gave up: %v", err)
	}
}

// slowReads is a driver whose reads fail as those of a driver do that waited too long for a
// connection.
type slowReads struct {
	store.Driver
	slow  atomic.Bool
	leave func() // is called after a timeout, unless nil
}

func (d *slowReads) Read(ctx context.Context, fn func(store.SQL) error) error {
	if d.slow.Load() {
		if d.leave != nil {
			defer d.leave()
		}
		return fmt.Errorf("connect: %w", cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return d.Driver.Read(ctx, fn)
}

// A timeout of the driver is a failure of the database, and not a caller that has left.
func TestTimeoutOfTheDriver(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowReads{Driver: db}
	s, err := store.Open(t.Context(), slow, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	slow.slow.Store(true)
	read := func(ctx context.Context) error {
		return s.View(ctx, func(r *store.Reader) error { _, err := r.Taken("s"); return err })
	}
	if err := read(t.Context()); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a timeout of the driver: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := read(left); !errors.Is(err, context.Canceled) || loquat.CodeOf(err) == loquat.CodeUnavailable {
		t.Errorf("a caller that left: %v", err)
	}
	late, leaveLate := context.WithCancel(t.Context())
	slow.leave = leaveLate // after the timeout: what failed is the database
	if err := read(late); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a timeout of the driver for a caller that then leaves: %v", err)
	}
}

// silentDisk is a driver whose commits fail after some seconds while silent is set.
type silentDisk struct {
	store.Driver
	silent atomic.Bool
}

// slowWrite is how long a write to a silentDisk takes.
const slowWrite = 3 * time.Second

func (d *silentDisk) Write(ctx context.Context, fn func(store.SQL) error) error {
	if d.silent.Load() {
		time.Sleep(slowWrite)
		return errFull
	}
	return d.Driver.Write(ctx, fn)
}

// A change that was submitted during a slow probe is tried next, not after more probes.
func TestChangeAfterASlowProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		disk := &silentDisk{Driver: db}
		s, err := store.Open(t.Context(), disk, store.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		disk.silent.Store(true)
		if err := s.TryWrite(t.Context()); loquat.CodeOf(err) != loquat.CodeUnavailable {
			t.Fatal(err)
		}
		for i := range 20 {
			time.Sleep(slowWrite * 2 / 3) // a probe is under way
			began := time.Now()
			if err := s.TryWrite(t.Context()); loquat.CodeOf(err) != loquat.CodeUnavailable {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 2*slowWrite {
				t.Fatalf("change %d waited for more than one probe: %s", i, took)
			}
		}
	})
}
