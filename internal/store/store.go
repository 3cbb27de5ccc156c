// Package store keeps sessions, their messages, their requests, and the log: the events of
// every change.
//
// It promises:
// - An update is on disk before Update returns.
// - Event ids follow the order of commits and are never used twice.
// - No reader sees anything before its commit.
// - All reads of one View see the same state.
//
// Updates that wait at the same time form a batch and share one commit. The tail keeps the
// newest events in memory, so followers rarely read the disk.
//
// Package chat is the only writer. It decides which events belong to a change; the store does
// not interpret event bodies.
//
// This package holds the rules. A driver supplies the database and its SQL dialect, and must
// pass package storetest.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
	"loquat/internal/loglimit"
	"loquat/internal/trace"
)

// Driver is the database behind a store. Its tables are those of the embedded driver's schema.
// Queries use `?` for parameters.
type Driver interface {
	// Write runs fn in a transaction that excludes all other writers, and commits it to stable
	// storage. An error of fn rolls the transaction back and is returned unchanged.
	Write(ctx context.Context, fn func(SQL) error) error
	// Read runs fn in a read-only transaction, which sees one state.
	Read(ctx context.Context, fn func(SQL) error) error
	// Check returns an error if the database can no longer be written. It detects this without
	// writing.
	Check() error
	// Explain returns the Fault that describes an error of Write, Read or Check.
	Explain(err error) Fault
	// Close waits for running transactions and closes the database.
	Close() error
}

// ErrInUse reports that another process uses the database.
var ErrInUse = errors.New("another process uses the database")

// maxBatch is the most updates of one commit; it bounds how long the first of them waits.
// maxWaiting is the most updates in the queue; further callers block.
const (
	maxBatch   = 512
	maxWaiting = 4096
)

// probeEvery is how often a store that failed to write tries again on its own.
const probeEvery = time.Second

// lookIdle is how often an idle store checks that its files are still there, so that the log reports it:
// an idle server wakes seldom. Each commit and each call of Healthy checks it, too. A store that is
// shared looks every probeEvery.
const lookIdle = 10 * time.Second

// healthyAfter is how long writes must succeed before a store that failed to write counts as
// healthy again. On a nearly full disk small writes succeed between large ones.
const healthyAfter = 3 * time.Second

// Options configure a store.
type Options struct {
	Logger    *slog.Logger  // nil means slog.Default()
	Retention time.Duration // age at which events may be removed; 0 keeps all events
	Version   string        // of this program, for Node

	// SkipLossCheck leaves it to the next server start to detect lost events. Commands that
	// open the store only briefly set it.
	SkipLossCheck bool
}

// Store holds the sessions, requests and events of one service.
type Store struct {
	driver    Driver
	log       *slog.Logger
	identity  atomic.Pointer[identity]
	retention atomic.Int64 // a time.Duration
	nodes     *nodes
	noticeKey *noticeKey // nil unless the log is shared
	feeder    feeder
	metrics   metrics

	queue    chan *update
	outboxes outboxes
	closed   chan struct{} // closed when the committer has ended
	stop     sync.Once
	gate     sync.RWMutex // held shared while an update is put into queue
	closing  bool         // guarded by gate; refuses further updates
	leaving  atomic.Bool  // see Leave

	silent      silence
	committing  atomic.Pointer[chan struct{}] // the batch that COMMIT makes visible; closed once its events are in the tail
	failing     atomic.Pointer[Fault]
	lastFailure time.Time        // time of the last failed write; owned by the committer
	unsorted    sizeOfIncrements // what shared rows hold; owned by the committer, like the following
	fences      fences
	spare       spare
	crowded     bool      // the last batch had increments of several requests
	lastCommit  time.Time // when the last commit began
	attempts    uint64
	damage      atomic.Pointer[Fault]
	held        atomic.Bool // see Hold
	marker      marker      // nil if the driver keeps no mark
	loss        *Loss       // detected when the store was opened

	faults  *loglimit.Logger // failures of the database
	tail    *tail
	shared  *shared
	windows *semaphore.Weighted // limits concurrent reads of the log from the database

	shown atomic.Pointer[func(loquat.Object) loquat.Object] // set by ShowMetadata
}

// Open opens the store in driver. Close closes the driver too.
func Open(ctx context.Context, driver Driver, opts Options) (*Store, error) {
	s := &Store{
		driver: driver,
		log:    opts.Logger,
		queue:  make(chan *update, maxWaiting),
		fences: fences{},
		closed: make(chan struct{}),
		shared: newShared(),

		nodes:   newNodes(driver, opts.Version),
		metrics: newMetrics(),
	}
	s.SetRetention(opts.Retention)
	s.feeder.init()
	if s.log == nil {
		s.log = slog.Default()
	}
	s.faults = loglimit.Once(s.log)
	if err := requireLog(ctx, driver); err != nil {
		return nil, err
	}
	if err := driver.Read(ctx, RequireInPlace); err != nil {
		return nil, fmt.Errorf("the database cannot be used: %w", err)
	}
	if err := adoptCopy(ctx, driver, s.log); err != nil {
		return nil, fmt.Errorf("give the copy a log of its own: %w", err)
	}
	if !opts.SkipLossCheck {
		s.marker, _ = driver.(marker)
	}
	if err := s.findLoss(ctx); err != nil {
		return nil, fmt.Errorf("detect lost events: %w", err)
	}
	last, gone, err := s.readState(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of the log: %w", err)
	}
	s.outboxes.filled = make(chan struct{}, 1)
	s.tail, s.windows = newTail(last, gone), semaphore.NewWeighted(parallelWindows())
	if s.marker != nil {
		s.marker.Mark(Mark{StoreID: s.ID(), Last: last})
	}
	if err := s.startNodes(ctx); err != nil {
		return nil, err
	}
	go s.commitLoop()
	return s, nil
}

// readState reads what Open needs of the log: its identity, its last id, and the newest id that
// retention has removed.
func (s *Store) readState(ctx context.Context) (last, gone loquat.EventID, err error) {
	err = s.driver.Read(ctx, func(q SQL) error {
		id, err := readIdentity(q)
		if err != nil {
			return err
		}
		s.identity.Store(id)
		if shared, ok := q.(sharedSQL); ok {
			s.feeder.cuts = shared.Log().Cuts
			if s.noticeKey, err = readNoticeKey(q); err != nil {
				return err
			}
		}
		if s.unsorted, err = unsortedIncrements(q); err != nil {
			return err
		}
		return one(q, `SELECT `+lastEventID+`, gone_event_id FROM log`, nil, &last, &gone)
	})
	return last, gone, err
}

// ShowMetadata sets the function that turns a session's metadata, which may hold secrets, into
// what events show. It must be called before the first update. Without it events show all
// metadata.
func (s *Store) ShowMetadata(shown func(loquat.Object) loquat.Object) { s.shown.Store(&shown) }

// VisibleMetadata returns a session's metadata as events show it.
func (s *Store) VisibleMetadata(metadata loquat.Object) loquat.Object {
	if shown := s.shown.Load(); shown != nil {
		return (*shown)(metadata)
	}
	return metadata
}

// requireLog returns an error if the log table does not hold exactly one valid row.
func requireLog(ctx context.Context, driver Driver) error {
	var rows int
	var last, gone any // SQLite stores any type in a column
	err := driver.Read(ctx, func(q SQL) error {
		return one(q, `SELECT count(*), max(last_event_id), max(gone_event_id) FROM log`, nil, &rows, &last, &gone)
	})
	_, lastOK := last.(int64)
	_, goneOK := gone.(int64)
	switch {
	case err != nil:
	case rows != 1:
		err = fmt.Errorf("its log has %d rows, not 1", rows)
	case !lastOK || !goneOK:
		err = errors.New("the ids of its log are not numbers")
	}
	if err != nil {
		return fmt.Errorf("the database cannot be used: %w; put a backup in its place, or choose another directory with --data", err)
	}
	return nil
}

// ID returns the random name of this log. If it changes at an address, event ids there start
// again.
func (s *Store) ID() string { return s.identity.Load().id }

// ServerID returns the name that, unlike ID, survives a restored backup: the ID of the
// original log.
func (s *Store) ServerID() string {
	id := s.identity.Load()
	return cmp.Or(id.serverID, id.id)
}

// Last returns the highest committed event id.
func (s *Store) Last() loquat.EventID { return s.tail.end() }

// Close commits the waiting updates, stops the committer and closes the driver. Further calls
// do nothing.
func (s *Store) Close() (err error) {
	s.stop.Do(func() {
		s.Leave()
		s.gate.Lock()
		s.closing = true
		close(s.queue)
		s.gate.Unlock()
		<-s.closed
		s.stopNodes()
		s.faults.Flush()
		err = s.driver.Close()
	})
	return err
}

// Healthy returns nil while the store can be used. After a failed write it returns the Fault
// until writes have succeeded for healthyAfter; the store retries on its own. Damage is
// permanent.
func (s *Store) Healthy() error {
	if fault := s.failing.Load(); fault != nil {
		return *fault
	}
	if fault := s.damage.Load(); fault != nil {
		return *fault
	}
	if err := s.driver.Check(); err != nil {
		return s.driver.Explain(err)
	}
	return nil
}

// update is a change submitted to the store. The submitter owns its fields until it is queued,
// then the committer until done is closed.
type update struct {
	fn     func(*Tx) error
	state  atomic.Int32 // waiting, started or abandoned
	err    error
	done   chan struct{} // nil if outbox is set
	outbox *Outbox       // whose increments fn publishes

	updates, events int // of the batch that has committed it
}

const (
	waiting = iota
	started
	abandoned
)

// Update runs fn in a transaction. It returns once the change is on disk, or returns fn's
// error with nothing kept. The committer calls fn, so fn must not block or call the store. If
// another update of the batch fails, fn runs again: it must overwrite captured results, not
// append to them.
//
// If ctx ends while the update is in the queue, the update is dropped. Once it has started,
// Update waits for its end.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	span := trace.Commit(ctx)
	defer span.End()
	u, err := s.submit(ctx, fn)
	if err == nil {
		err = u.wait(ctx)
	}
	switch {
	case !span.Traced():
	case err != nil:
		span.Failed(err)
	default:
		span.Committed(u.updates, u.events)
	}
	return err
}

// wait waits for the end of an update.
func (u *update) wait(ctx context.Context) error {
	select {
	case <-u.done:
		return u.err
	case <-ctx.Done():
	}
	if u.state.CompareAndSwap(waiting, abandoned) {
		return ctx.Err()
	}
	<-u.done
	return u.err
}

// Do is Update for a change with a result. It returns the result of the committed run of fn,
// which may run more than once.
func Do[T any](ctx context.Context, s *Store, fn func(*Tx) (T, error)) (T, error) {
	var out T
	err := s.Update(ctx, func(tx *Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// Read is View for a read with a result.
func Read[T any](ctx context.Context, s *Store, fn func(*Reader) (T, error)) (T, error) {
	var out T
	err := s.View(ctx, func(r *Reader) (err error) {
		out, err = fn(r)
		return err
	})
	return out, err
}

func (s *Store) submit(ctx context.Context, fn func(*Tx) error) (*update, error) {
	if err := s.heldError(ctx); err != nil {
		return nil, err
	}
	u := &update{fn: fn, done: make(chan struct{})}
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closing {
		return nil, loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down")
	}
	select {
	case s.queue <- u:
		return u, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// View runs fn on one state of the store. When it returns, Events finds every event of that
// state: a caller that saw a request end also finds the end in the log.
func (s *Store) View(ctx context.Context, fn func(*Reader) error) error {
	var notInTail <-chan struct{}
	var fnErr error
	var state LogState
	err := s.driver.Read(ctx, func(q SQL) error {
		r := &Reader{q: &taggedSQL{SQL: q}, shared: s.shared, owner: s.Owner(), several: s.Shared()}
		fnErr = fn(r)
		if shared, ok := q.(sharedSQL); ok && s.Shared() {
			state = shared.Log()
			return fnErr
		}
		// The database shows a commit shortly before the tail has its events.
		if committing := s.committing.Load(); committing != nil {
			if last, lastErr := LastEvent(r.q); lastErr == nil && last > s.Last() {
				notInTail = *committing
			}
		}
		return fnErr
	})
	if fnErr == nil { // err comes from the driver
		err = asDatabaseError(err)
	}
	s.tail.noteRemoved(state.Gone)
	s.tail.noteSorted(state.Sorted)
	if state.Last > s.Last() {
		if err := s.awaitTail(ctx, state.Last); err != nil {
			return s.classify(ctx, asDatabaseError(err))
		}
	}
	if notInTail != nil {
		select {
		case <-notInTail:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.classify(ctx, err)
}

// commitLoop is the committer, the only goroutine that writes. While it writes one batch, the
// next gathers in the queue and in the outboxes.
func (s *Store) commitLoop() {
	defer close(s.closed)
	var batch []*update
	probe := time.NewTimer(0)
	defer probe.Stop()
	for {
		probe.Reset(s.untilProbe())
		var first *update
		open := true
		select {
		case first, open = <-s.queue:
		case <-s.outboxes.filled:
			first, open = s.await()
		case <-probe.C:
			select {
			case first, open = <-s.queue: // not after the probe, which may take seconds
			default:
				s.probe(batch[:0])
				continue
			}
		}
		if !open {
			return
		}
		batch = s.collect(batch[:0])
		if first != nil {
			batch = append(batch, first)
		}
		if batch = s.gather(batch, maxBatch); len(batch) == 0 { // an earlier batch has collected the increments
			continue
		}
		s.lastCommit = time.Now()
		s.commit(batch)
		s.sortIfDue()
		clear(batch) // lets the garbage collector free what the updates captured
	}
}

// untilProbe returns after how long without a commit the store is checked.
func (s *Store) untilProbe() time.Duration {
	if s.Shared() || s.failing.Load() != nil {
		return probeEvery
	}
	return lookIdle
}

// probe checks an idle store. A store that failed to write tries again.
func (s *Store) probe(batch []*update) {
	if s.failing.Load() != nil {
		s.commit(append(batch, &update{fn: writeUnchanged, done: make(chan struct{})}))
	} else if err := s.driver.Check(); err != nil {
		_ = s.unavailable(err)
	}
}

// TryWrite returns an error if the store cannot write. It changes no value.
func (s *Store) TryWrite(ctx context.Context) error { return s.Update(ctx, writeUnchanged) }

// writeUnchanged tests that the database can be written, without changing any value.
func writeUnchanged(tx *Tx) error { return tx.exec(`UPDATE log SET last_event_id = last_event_id`) }

// checkWrite tests that the database can be written, in a transaction of its own.
func (s *Store) checkWrite() error {
	return s.driver.Write(context.Background(), func(q SQL) error {
		tx := s.begin(q)
		if err := s.prepare(tx, nil); err != nil {
			return err
		}
		return writeUnchanged(tx)
	})
}

// gather adds updates that are already waiting, up to a number. It does not wait for more: under
// load the next batch fills while this one commits, and without load nothing is delayed.
func (s *Store) gather(batch []*update, most int) []*update {
	for range most {
		select {
		case u, ok := <-s.queue:
			if !ok {
				return batch
			}
			batch = append(batch, u)
		default:
			return batch
		}
	}
	return batch
}

// start marks the updates of a batch as started, and drops those that were abandoned.
func start(batch []*update) []*update {
	left := batch[:0]
	for _, u := range batch {
		if u.state.CompareAndSwap(waiting, started) {
			left = append(left, u)
		}
	}
	return left
}

// join adds to a batch what has come while this node waited for others to release the log.
func (s *Store) join(batch []*update) []*update {
	n := 0 // increments come first, see collect
	for n < len(batch) && batch[n].outbox != nil {
		n++
	}
	outboxes, updates := s.collect(slices.Clone(batch[:n])), batch[n:]
	if room := maxBatch - len(updates); room > 0 {
		updates = slices.Concat(updates, start(s.gather(nil, room)))
	}
	return append(outboxes, updates...)
}

// commit writes a batch. If an update fails after it wrote, or a statement of an update fails,
// the transaction is rolled back: the update gets its error, and the remaining updates run
// again.
func (s *Store) commit(batch []*update) {
	inTail := make(chan struct{})
	defer func() {
		s.silent.idle()
		s.feeder.limit.Store(int64(newest))
		s.committing.Store(nil)
		close(inTail)
		if s.nodes.newest.Load() > int64(s.Last()) { // commits of others may have waited for this one
			poke(s.nodes.wake)
		}
	}()
	remaining := start(batch)
	for first := true; len(remaining) > 0; first = false {
		var tx *Tx
		began := time.Now()
		s.silent.asked()
		err := s.driver.Write(context.Background(), func(q SQL) error {
			if tx != nil && tx.sharedLog == nil {
				s.fences.update(tx.fenceChanges, false)
			}
			if first && s.Shared() {
				remaining = s.join(remaining)
			}
			tx = s.begin(q)
			return s.run(tx, remaining, &inTail)
		})
		if doubt, ok := errors.AsType[Doubt](err); ok {
			err = s.resolve(doubt)
		}
		if err == nil {
			s.metrics.committed(len(remaining), time.Since(began))
			afterCommit()
		}
		if failed, ok := errors.AsType[*spoiledError](err); ok {
			u := remaining[failed.index]
			u.err = s.classify(context.Background(), failed.err)
			u.finish()
			remaining = append(remaining[:failed.index], remaining[failed.index+1:]...)
			if !isDatabaseError(failed.err) {
				continue
			}
			// If the database as a whole fails, all remaining updates fail at once, not one by one.
			if err = s.checkWrite(); err == nil {
				continue
			}
		}
		s.finishBatch(remaining, tx, err)
		return
	}
}

// run runs the updates of a batch. inTail will be closed when their events are in the tail.
func (s *Store) run(tx *Tx, batch []*update, inTail *chan struct{}) error {
	if err := s.prepare(tx, batch); err != nil {
		return err
	}
	if err := tx.runAll(batch); err != nil {
		return err
	}
	beforeCommit()
	// Only from here on may a reader see the batch.
	s.feeder.limit.Store(int64(tx.base))
	s.committing.Store(inTail)
	return nil
}

func (s *Store) begin(q SQL) *Tx {
	s.attempts++
	s.silent.asked()
	statements := &taggedSQL{SQL: q, silent: &s.silent}
	log := &eventWriter{SQL: statements, increments: s.spare.increments}
	tx := &Tx{
		statements: statements,
		shown:      s.shown.Load(),
		Reader:     Reader{q: log, shared: s.shared, owner: s.Owner(), writes: true},
		Now:        time.Now().UTC().Truncate(time.Millisecond),
		last:       s.Last(),
		log:        log,
		published:  s.spare.published,
		fences:     s.fences,
		attempt:    s.attempts,
	}
	if shared, ok := q.(sharedSQL); ok && s.Shared() {
		tx.sharedLog, tx.several, tx.state, tx.noticeKey = shared, true, shared.Log(), s.noticeKey
		tx.last, tx.fences = tx.state.Last, nil
	}
	tx.base = tx.last
	return tx
}

// prepare does what the first update of a transaction of a shared log relies on.
func (s *Store) prepare(tx *Tx, batch []*update) error {
	if tx.sharedLog == nil {
		return nil
	}
	if err := tx.repairLoss(s.Last()); err != nil {
		return err
	}
	tx.base = tx.last
	return tx.readFences(batch)
}

// finishBatch ends the updates of a batch whose transaction returned err. Their events are in
// the tail before any caller learns of the commit.
func (s *Store) finishBatch(batch []*update, tx *Tx, err error) {
	if tx != nil && tx.sharedLog == nil {
		s.fences.update(tx.fenceChanges, err == nil)
	}
	if err != nil {
		err = s.unavailable(err)
		for _, u := range batch {
			u.err = err
			u.finish()
		}
		return
	}
	for _, fn := range tx.committed {
		fn()
	}
	if fault := s.failing.Load(); fault != nil && time.Since(s.lastFailure) >= healthyAfter {
		s.failing.Store(nil)
		s.log.Info("the store can write again")
	}
	if tx.sorted || s.Shared() {
		s.unsorted = sizeOfIncrements{}
	}
	unsorted := tx.unsorted()
	s.unsorted.entries += unsorted.entries
	s.unsorted.bytes += unsorted.bytes
	s.addOwn(tx)
	s.nodes.keepRevisions(tx.revisions)
	if s.marker != nil && len(tx.published) > 0 {
		s.marker.Mark(Mark{StoreID: s.ID(), Last: tx.last})
	}
	events := len(tx.published)
	s.spare.keep(tx)
	for _, u := range batch {
		u.err, u.updates, u.events = s.classify(context.Background(), u.err), len(batch), events
		u.finish()
	}
}

// unavailable records a failed write and returns the error for its callers.
func (s *Store) unavailable(err error) error {
	fault := s.reportFault(err)
	s.lastFailure = time.Now()
	s.failing.Store(&fault)
	if errors.Is(err, errUnresolved) {
		return &loquat.Error{
			Code: loquat.CodeUnavailable, Err: err,
			Detail: "the store cannot write at the moment: " + fault.Text + "; it is not known whether this change was kept, look before you try again",
		}
	}
	return refusal(fault, err)
}

// classify turns a database error into an unavailable error and returns other errors
// unchanged.
func (s *Store) classify(ctx context.Context, err error) error {
	// Drivers have timeouts of their own, so a timeout says that the caller left only if it is the caller's.
	left := errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded)
	if err == nil || left || !isDatabaseError(err) {
		return err
	}
	if _, ok := errors.AsType[*loquat.Error](err); ok {
		return err
	}
	fault := s.reportFault(err)
	return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the store cannot be read or written at the moment: " + fault.Text, Err: err}
}

// ErrFenced reports that a request no longer belongs to its worker: the request ended, was
// deleted, or was taken over by another node. The worker then stops silently.
var ErrFenced = errors.New("the request is no longer this worker's")

// spoiledError reports an update that failed and left its transaction unusable for the rest of
// the batch.
type spoiledError struct {
	index int
	err   error
}

func (e *spoiledError) Error() string { return e.err.Error() }
func (e *spoiledError) Unwrap() error { return e.err }
