package store_test

import (
	"context"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// lateDriver delays the return of Write after its commit has become visible to readers.
type lateDriver struct {
	store.Driver
	visible, proceed chan struct{} // nil: no delay
}

func (d *lateDriver) Write(ctx context.Context, fn func(store.SQL) error) error {
	err := d.Driver.Write(ctx, fn)
	if d.proceed != nil {
		close(d.visible)
		<-d.proceed
	}
	return err
}

func TestViewIsNeverAheadOfTheLog(t *testing.T) {
	t.Parallel()
	s, late := openOn(t, func(db store.Driver) *lateDriver { return &lateDriver{Driver: db} })
	late.visible, late.proceed = make(chan struct{}), make(chan struct{})

	done := make(chan error, 1)
	go func() {
		done <- s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.CreateSession("s", "default", nil)
			if err != nil {
				return err
			}
			return tx.Checkpoint(&h, nil, false)
		})
	}()
	<-late.visible
	var seen loquat.EventID
	err := s.View(t.Context(), func(r *store.Reader) (err error) {
		h, err := r.Head("s")
		seen = h.Checkpoint
		time.AfterFunc(50*time.Millisecond, func() { close(late.proceed) })
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("the view saw events up to %s, %v; the commit was visible", seen, err)
	}
	records, err := s.Events(t.Context(), 0, store.Filter{}, store.Bounds{Events: 10})
	if err != nil || s.Last() < seen || len(records) == 0 {
		t.Errorf("after a view that saw events up to %s the log ends at %s and has %d events, %v", seen, s.Last(), len(records), err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
