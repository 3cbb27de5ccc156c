package store

import (
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Streamer is a running request that publishes increments. The committer calls its methods, so
// they must not block.
type Streamer interface {
	// PublishIncrements publishes the increments that wait. It is called again if the
	// transaction is rolled back.
	PublishIncrements(tx *Tx) error
	// IncrementsFailed reports why increments could not be written: ErrFenced, ErrCancelled, an
	// unavailable error, or the error of PublishIncrements. The committer does not try again.
	IncrementsFailed(err error)
}

// ErrCancelled reports that increments were not written because their request must end with
// request_cancelled.
var ErrCancelled = errors.New("the request was cancelled")

// Outbox is where a running request reports that increments wait.
//
// The committer collects increments when it builds a batch. So a request needs no goroutine to
// write them, and increments that wait for the same commit can be merged.
type Outbox struct {
	s        *Store
	request  Request // its row id and owner
	streamer Streamer
	listed   atomic.Bool // in s.outboxes.ready
	closed   atomic.Bool
	update   update // of the committer
	inBatch  bool   // update is in the batch that the committer writes; owned by the committer
}

// outboxes lists the outboxes whose increments wait.
type outboxes struct {
	mu     sync.Mutex
	ready  []*Outbox
	filled chan struct{} // signalled when ready is no longer empty
}

// NewOutbox returns the outbox of a running request. The owner must call Close.
func (s *Store) NewOutbox(q Request, streamer Streamer) *Outbox {
	return &Outbox{s: s, request: q, streamer: streamer}
}

// Ready makes the committer collect the increments that wait.
func (o *Outbox) Ready() {
	if o.closed.Load() || !o.listed.CompareAndSwap(false, true) {
		return
	}
	o.s.outboxes.mu.Lock()
	o.s.outboxes.ready = append(o.s.outboxes.ready, o)
	first := len(o.s.outboxes.ready) == 1
	o.s.outboxes.mu.Unlock()
	if first {
		select {
		case o.s.outboxes.filled <- struct{}{}:
		default:
		}
	}
}

// Close ends the collection. The committer may still be writing what it has collected.
func (o *Outbox) Close() { o.closed.Store(true) }

// collect adds one update per outbox with increments to a batch of such updates. They come first in
// their transaction, so the fence of each is the state after the last commit.
func (s *Store) collect(batch []*update) []*update {
	s.outboxes.mu.Lock()
	defer s.outboxes.mu.Unlock()
	for _, o := range s.outboxes.ready {
		o.listed.Store(false) // before the increments are taken: later ones list the outbox again
		if o.inBatch {
			continue
		}
		o.update, o.inBatch = update{fn: o.publish, outbox: o}, true
		batch = append(batch, &o.update)
	}
	s.crowded = len(batch) > 1
	clear(s.outboxes.ready)
	s.outboxes.ready = s.outboxes.ready[:0]
	return batch
}

// maxCollected is the size of the increments of one commit from which further requests wait
// for the next. It bounds the memory of a batch after a disk was full.
const maxCollected = 8 << 20

// publish is the update of an outbox.
func (o *Outbox) publish(tx *Tx) error {
	if o.closed.Load() {
		return nil
	}
	if tx.log.incrementBytes >= maxCollected {
		o.Ready()
		return nil
	}
	if err := tx.fenceIncrements(o.request); err != nil {
		return err
	}
	return o.streamer.PublishIncrements(tx)
}

// finish ends an update, whose err is set.
func (u *update) finish() {
	if u.outbox == nil {
		close(u.done)
		return
	}
	u.outbox.inBatch = false
	if u.err != nil && !u.outbox.closed.Load() {
		u.outbox.streamer.IncrementsFailed(u.err)
	}
}

// gatherFor is the least time between two commits of increments while several requests
// stream. More increments then share a commit.
const gatherFor = time.Millisecond

// await waits until gatherFor has passed since the last commit began, if several requests
// stream. An update ends the wait.
func (s *Store) await() (u *update, ok bool) {
	s.outboxes.mu.Lock()
	crowded := s.crowded || len(s.outboxes.ready) > 1
	s.outboxes.mu.Unlock()
	left := gatherFor - time.Since(s.lastCommit)
	if !crowded || left <= 0 {
		return nil, true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case u, ok = <-s.queue:
		return u, ok
	case <-timer.C:
		return nil, true
	}
}

// fences holds, for requests known to run and not to be cancelled, their owners after the last
// commit. It belongs to the committer.
//
// It cannot be wrong. Without other nodes, only the committer changes rows of requests, because a data directory
// has one process and the process has one committer. Every method that changes the owner, the
// status or the cancellation of a request calls noteFence; TestFencesFollowStatements reads
// the statements of this package to check that. The notes take effect after the commit and
// before the next batch. After a failed commit the noted requests are unknown, and an unknown
// request is read from the database.
//
// If the log is shared, each transaction reads the fences of all its outboxes in one query
// (readFences).
type fences map[int64]string

// noteFence records that a transaction makes a request run for owner, or makes it end or
// cancelled if owner is empty.
func (tx *Tx) noteFence(rid int64, owner string) {
	if tx.fenceChanges == nil {
		tx.fenceChanges = fences{}
	}
	tx.fenceChanges[rid] = owner
}

// fenceIncrements returns an error unless a request runs for its owner and is not cancelled.
func (tx *Tx) fenceIncrements(q Request) error {
	if tx.several && q.Owner != tx.owner { // of a hold that this node has lost
		return ErrFenced
	}
	if owner, known := tx.fences[q.RID]; known && owner == q.Owner {
		return nil
	}
	cancelled, err := tx.Fence(q)
	if err != nil {
		return err
	}
	if cancelled {
		return ErrCancelled
	}
	tx.noteFence(q.RID, q.Owner)
	return nil
}

// fenceQueries select the owners of 1, 2, 4, … 512 requests. Each is prepared once.
var fenceQueries = func() (out []string) {
	for n := 1; n <= maxBatch; n *= 2 {
		out = append(out, `SELECT rid, owner FROM requests WHERE status = 'running' AND cancelled = 0 AND rid IN (?`+strings.Repeat(`, ?`, n-1)+`)`)
	}
	return out
}()

// readFences reads the fences of the outboxes in a batch of a shared log.
func (tx *Tx) readFences(batch []*update) error {
	var rids []any
	for _, u := range batch {
		if u.outbox != nil {
			rids = append(rids, u.outbox.request.RID)
		}
	}
	tx.fences = make(fences, len(rids))
	for len(rids) > 0 {
		size := bits.Len(uint(min(len(rids), maxBatch) - 1)) // of the query, as a power of two
		n := min(len(rids), 1<<size)
		args := slices.Clone(rids[:n])
		for len(args) < 1<<size {
			args = append(args, rids[0])
		}
		err := eachRow(tx.q, fenceQueries[size], args, func(rows *sql.Rows) error {
			var rid int64
			var owner string
			err := rows.Scan(&rid, &owner)
			tx.fences[rid] = owner
			return err
		})
		if err != nil {
			return fmt.Errorf("read the fences of requests: %w", err)
		}
		rids = rids[n:]
	}
	return nil
}

// update adds the notes of a transaction.
func (f fences) update(changes fences, committed bool) {
	for rid, owner := range changes {
		if owner == "" || !committed {
			delete(f, rid)
		} else {
			f[rid] = owner
		}
	}
}

// AfterCommit makes the committer call fn once the transaction is on disk, before it runs any
// other update. fn must not block.
func (tx *Tx) AfterCommit(fn func()) { tx.committed = append(tx.committed, fn) }

// Attempt returns a number that identifies this run of the batch's updates. A batch that is
// rolled back runs again under another number.
func (tx *Tx) Attempt() uint64 { return tx.attempt }
