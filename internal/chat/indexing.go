package chat

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Searches read new messages without the index, so their indexing is never urgent. It waits until
// indexAtLeast messages share a transaction, or until the oldest has waited for indexWithin.
const (
	indexEvery   = 250 * time.Millisecond
	indexAtLeast = 64
	indexWithin  = 5 * time.Second
)

// indexReport is how often the progress of a long indexing is logged, and indexLong from how many
// messages it is.
const (
	indexReport = 10 * time.Second
	indexLong   = 2000
)

// indexing indexes messages and titles for searches. Of several nodes, one at a time does this.
type indexing struct {
	store  *store.Store
	log    *slog.Logger
	life   context.Context
	queued atomic.Int64 // messages that wait, while there are more than indexLong
}

// left describes how far a long indexing is, or returns an empty string.
func (x *indexing) left() string {
	if n := x.queued.Load(); n > 0 {
		return fmt.Sprintf("%d messages are still to be indexed; searches miss the older ones", n)
	}
	return ""
}

// loop indexes until the service stops.
func (x *indexing) loop() {
	tick := time.NewTicker(indexEvery)
	defer tick.Stop()
	var since time.Time // when there was first something to index
	for {
		select {
		case <-x.life.Done():
			return
		case <-tick.C:
		}
		n, err := store.Read(x.life, x.store, (*store.Reader).Queued)
		switch {
		case err != nil || n == 0:
			since = time.Time{}
			x.queued.Store(0)
			continue
		case since.IsZero():
			since = time.Now()
		}
		if n > indexLong {
			x.queued.Store(int64(n))
		}
		if !x.store.Leads() || n < indexAtLeast && time.Since(since) < indexWithin {
			continue
		}
		since = time.Time{}
		if err := x.all(n); err != nil && x.life.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable { // the store reports the others
			x.log.Warn("messages could not be indexed; searches read them without the index", "error", err)
		}
	}
}

// all indexes what is queued, which is about n messages.
func (x *indexing) all(n int) error {
	began, reported, done := time.Now(), time.Now(), 0
	if n > indexLong {
		x.log.Info("indexing messages for searches", "messages", n)
	}
	for {
		some, err := x.store.IndexSome(x.life)
		if err != nil {
			return err
		}
		if some < store.IndexBatch || !x.store.Leads() {
			break
		}
		if done += some; n > indexLong && time.Since(reported) >= indexReport {
			reported = time.Now()
			x.log.Info("indexing messages for searches", "indexed", done, "left", max(0, n-done))
		}
		if n > indexLong {
			x.queued.Store(int64(max(1, n-done)))
		}
	}
	x.queued.Store(0)
	if n > indexLong {
		x.log.Info("messages are indexed for searches", "messages", done, "seconds", int(time.Since(began).Seconds()))
	}
	return nil
}
