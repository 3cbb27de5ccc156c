package chat

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Searches read new messages without the index, so their indexing is never urgent. It waits until
// indexAtLeast messages share a transaction, or until the oldest has waited for indexWithin. The
// index is merged, a little every indexEvery, while nothing happens.
// Nodes that do not index only look how much there is to do, every indexLook. While nothing
// happens, the queue is looked at every indexIdle: cleanups of an older node have no events.
const (
	indexEvery   = 250 * time.Millisecond
	indexRest    = 2 * time.Second // in place of indexEvery while there is nothing to do; what comes then waits longer
	indexLook    = 2 * time.Second
	indexIdle    = time.Minute
	indexAtLeast = 64
	indexWithin  = 5 * time.Second
)

// indexReport is how often the progress of a long indexing is logged, and indexLong from how many
// messages it is.
const (
	indexReport = 10 * time.Second
	indexLong   = 2000
)

// While the server has other work, a pause of indexPauses times as long follows each transaction. So
// indexing takes a quarter of a processor at most, and commits seldom wait for it.
const indexPauses = 3

// indexing indexes messages and titles for searches. Of several nodes, one at a time does this.
type indexing struct {
	store  *store.Store
	log    *slog.Logger
	life   context.Context
	queued atomic.Int64 // messages that wait, while there are more than indexLong

	looked time.Time      // when another node was last looked at
	since  time.Time      // when there was first something to index; zero if there is nothing
	seen   loquat.EventID // the end of the log when there was last nothing to index
	merged bool           // the index has nothing to merge
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
	for {
		select {
		case <-x.life.Done():
			return
		case <-tick.C:
		}
		err := x.step()
		if err != nil && x.life.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable { // the store reports the others
			x.log.Warn("messages could not be indexed; searches read the newest of them without the index", "error", err)
		}
		tick.Reset(x.every())
	}
}

// every returns after how long the next step follows.
func (x *indexing) every() time.Duration {
	if x.merged && x.seen == x.store.Last() {
		return indexRest
	}
	return indexEvery
}

// step indexes what is queued, if it is time to.
func (x *indexing) step() error {
	leads := x.store.Leads()
	last := x.store.Last()
	if leads && last == x.seen && !x.merged {
		more, err := x.store.MergeIndex(x.life)
		x.merged = !more
		return err
	}
	if !leads && time.Since(x.looked) < indexLook || last == x.seen && time.Since(x.looked) < indexIdle {
		return nil
	}
	x.looked = time.Now()
	n, err := x.count(indexLong)
	if n > indexLong {
		n, err = x.count(math.MaxInt32 - 1)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		x.since, x.seen = time.Time{}, last
	case x.since.IsZero():
		x.since = time.Now()
	}
	x.report(n)
	if !leads || n == 0 || n < indexAtLeast && time.Since(x.since) < indexWithin {
		return nil
	}
	x.since, x.merged = time.Time{}, false
	return x.all(n)
}

func (x *indexing) pause(d time.Duration) {
	select {
	case <-x.life.Done():
	case <-time.After(d):
	}
}

func (x *indexing) count(upTo int) (int, error) {
	return store.Read(x.life, x.store, func(r *store.Reader) (int, error) { return r.Waiting(upTo) })
}

// report sets what left returns.
func (x *indexing) report(queued int) {
	if queued <= indexLong {
		queued = 0
	}
	x.queued.Store(int64(queued))
}

// all indexes what waits, which is about n messages.
func (x *indexing) all(n int) error {
	if n > indexLong {
		x.log.Info("indexing messages for searches", "messages", n)
	}
	began, reported, done := time.Now(), time.Now(), 0
	for more := true; more && x.store.Leads(); {
		last, batch := x.store.Last(), time.Now()
		some, err := x.store.IndexSome(x.life)
		if err != nil {
			return err
		}
		done, more = done+some, some == store.IndexBatch
		if time.Since(reported) >= indexReport {
			reported = time.Now()
			left, err := x.count(math.MaxInt32 - 1)
			if err != nil {
				return err
			}
			if n = done + left; left > indexLong {
				x.log.Info("indexing messages for searches", "indexed", done, "left", left)
			}
		}
		x.report(n - done)
		if more && x.store.Last() != last {
			x.pause(indexPauses * time.Since(batch))
		}
	}
	if n > indexLong {
		x.log.Info("messages are indexed for searches", "messages", done, "seconds", int(time.Since(began).Seconds()))
	}
	return nil
}
