// Package store keeps sessions, their messages, the requests that run on them and
// the one log of events that tells of every change.
//
// It promises that an Update is on disk before it returns; that event ids are given
// in the order of commits and never twice; that no reader sees anything before its
// commit; and that what a reader sees in one View belongs together. Updates that
// wait at the same time share one commit. The log's newest part is also kept in
// memory, so that those who follow it need not ask the disk.
//
// It does not know what the changes mean: which events go with which change is the
// business of package chat, its only writer. It does not interpret event bodies.
//
// The rules stand here once; a driver brings a database and its dialect. Package
// storetest holds what every driver has to pass.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
)

// Driver is a database that the store lives in. Its tables are those of the
// embedded driver's schema; queries use `?` for their parameters.
type Driver interface {
	// Write runs fn in one transaction that excludes all others and commits it to
	// stable storage. An error of fn rolls back and is returned as it is.
	Write(ctx context.Context, fn func(SQL) error) error
	// Read runs fn in one transaction that sees a single state and changes nothing.
	Read(ctx context.Context, fn func(SQL) error) error
	// Check reports whether the database is still there to be written, as far as that
	// shows without writing.
	Check() error
	// Explain says what a failure of Write, Read or Check means.
	Explain(err error) Fault
	// Close waits for what runs and closes the database.
	Close() error
}

// SQL is a transaction of a driver.
type SQL interface {
	// Exec returns the number of rows that it changed.
	Exec(query string, args ...any) (int64, error)
	Query(query string, args ...any) (*sql.Rows, error)
}

// maxBatch bounds how many updates share a commit, so that the first of them does
// not wait for ever; maxWaiting bounds how many wait, above which callers block.
const (
	maxBatch   = 512
	maxWaiting = 4096
)

// probeEvery is how often a store that failed to write tries again by itself.
const probeEvery = time.Second

// healthyAfter is how long no write may have failed before a store that failed to write counts
// as healthy. On a disk that is nearly full small writes succeed between large ones.
const healthyAfter = 3 * time.Second

// Options are what a store may be told.
type Options struct {
	Logger    *slog.Logger  // nil: the default one
	Retention time.Duration // age at which events may be removed; 0 keeps all

	// Visit opens the store for a moment, beside no server: what the database has lost is
	// left for the server to find.
	SkipLossCheck bool
}

// Store is the sessions, requests and events of one service.
type Store struct {
	driver    Driver
	log       *slog.Logger
	id        string
	serverID  string
	foreign   []idRange
	retention time.Duration

	queue   chan *update
	closed  chan struct{} // closed when the committer has ended
	stop    sync.Once
	gate    sync.RWMutex // held shared while putting into queue
	closing bool         // guarded by gate: no more updates

	committing  atomic.Pointer[chan struct{}] // a batch on its way; closed when it is settled
	failing     atomic.Pointer[Fault]
	lastFailure time.Time // when a write failed last; the committer's
	damage      atomic.Pointer[Fault]
	held        atomic.Bool // see Hold
	marker      marker      // nil: the driver has none
	loss        *Loss       // found when the store was opened

	faultLog faultLog
	tail     *tail
	windows  *semaphore.Weighted // of reads of the log from the database

	shown atomic.Pointer[func(loquat.Object) loquat.Object] // set by ShowMetadata
}

// Open opens the store that lives in driver, which it closes in Close.
func Open(ctx context.Context, driver Driver, opts Options) (*Store, error) {
	s := &Store{
		driver: driver,
		log:    opts.Logger,
		queue:  make(chan *update, maxWaiting),
		closed: make(chan struct{}),

		retention: opts.Retention,
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := requireLog(ctx, driver); err != nil {
		return nil, err
	}
	if err := adoptCopy(ctx, driver, s.log); err != nil {
		return nil, fmt.Errorf("make the copy a log of its own: %w", err)
	}
	if !opts.SkipLossCheck {
		s.marker, _ = driver.(marker)
	}
	if err := s.findLoss(ctx); err != nil {
		return nil, fmt.Errorf("look for lost changes: %w", err)
	}
	var last, gone loquat.EventID
	err := driver.Read(ctx, func(q SQL) (err error) {
		if s.foreign, err = foreignIDs(q); err != nil {
			return err
		}
		return one(q, `SELECT store_id, server_id, last_event_id, gone_event_id FROM log`, nil, &s.id, &s.serverID, &last, &gone)
	})
	if err != nil {
		return nil, fmt.Errorf("read the state of the log: %w", err)
	}
	s.tail, s.windows = newTail(last, gone), semaphore.NewWeighted(parallelWindows())
	if s.marker != nil {
		s.marker.Mark(Mark{StoreID: s.id, Last: last})
	}
	go s.commitLoop()
	return s, nil
}

// ShowMetadata sets how events show the metadata of sessions, which may hold secrets. It
// is called before the first update. Without it events show all of it.
func (s *Store) ShowMetadata(shown func(loquat.Object) loquat.Object) { s.shown.Store(&shown) }

// VisibleMetadata returns the metadata of a session as events show it.
func (s *Store) VisibleMetadata(metadata loquat.Object) loquat.Object {
	if shown := s.shown.Load(); shown != nil {
		return (*shown)(metadata)
	}
	return metadata
}

// requireLog refuses a database whose tables are those of a store and whose log is not.
func requireLog(ctx context.Context, driver Driver) error {
	var rows int
	var last, gone string
	err := driver.Read(ctx, func(q SQL) error {
		return one(q, `SELECT count(*), coalesce(max(typeof(last_event_id)), ''), coalesce(max(typeof(gone_event_id)), '') FROM log`, nil, &rows, &last, &gone)
	})
	switch {
	case err != nil:
	case rows != 1:
		err = fmt.Errorf("its log has %d rows, not 1", rows)
	case last != "integer" || gone != "integer":
		err = errors.New("the ids of its log are not numbers")
	}
	if err != nil {
		return fmt.Errorf("the database cannot be used: %w; put a backup in its place, or choose another directory with --data", err)
	}
	return nil
}

// ID is the random name of this store: another one under the same address means
// that event ids start afresh.
func (s *Store) ID() string { return s.id }

// ServerID is the name that stays where ID does not: that of the log which this one,
// copy by copy, goes back to.
func (s *Store) ServerID() string { return cmp.Or(s.serverID, s.id) }

// Last is the highest event id that was ever given and committed.
func (s *Store) Last() loquat.EventID { return s.tail.end() }

// Close ends the committer after what waits is committed, then the driver. A second
// call does nothing.
func (s *Store) Close() (err error) {
	s.stop.Do(func() {
		s.gate.Lock()
		s.closing = true
		close(s.queue)
		s.gate.Unlock()
		<-s.closed
		err = s.driver.Close()
	})
	return err
}

// Healthy is nil while the store can be used. After a failed write it is the Fault behind
// it until writes succeed and none has failed for a while; the store tries by itself.
// Damage stays.
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

// update is a change that waits for its commit. Its fields belong to whoever made
// it until it is queued, and to the committer until done is closed.
type update struct {
	fn    func(*Tx) error
	state atomic.Int32 // waiting, taken or abandoned
	err   error
	done  chan struct{}
}

const (
	waiting = iota
	taken
	abandoned
)

// Update runs fn in a transaction and returns when it is on disk, or with fn's
// error when nothing of it was kept. fn runs on the committer: it must not block or
// call the store, and it may run again when a neighbour in the batch failed, so it
// sets what it reports and never adds to it.
//
// When ctx ends while the update still waits, it is dropped; one that runs is
// waited for.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	u, err := s.submit(ctx, fn)
	if err != nil {
		return err
	}
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

// Do is Update for a change that has a result, which is that of the run of fn that was
// committed: fn may run more than once.
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

// Read is View for a read that has a result.
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

// View runs fn on one state of the store. When it returns, the log has every event that
// belongs to that state: who saw a request end finds its end there.
func (s *Store) View(ctx context.Context, fn func(*Reader) error) error {
	var unsettled <-chan struct{}
	var said error
	err := s.driver.Read(ctx, func(q SQL) error {
		r := &Reader{q: taggedSQL{q}}
		said = fn(r)
		// Readers see a commit a moment before the log has its events.
		if flight := s.committing.Load(); flight != nil {
			if last, lastErr := r.last(); lastErr == nil && last > s.Last() {
				unsettled = *flight
			}
		}
		return said
	})
	if said == nil { // then err is the driver's own
		err = asDatabaseError(err)
	}
	if unsettled != nil {
		select {
		case <-unsettled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.classify(err)
}

// commitLoop is the one goroutine that writes. While one batch is on its way to
// disk, the next one gathers in the queue.
func (s *Store) commitLoop() {
	defer close(s.closed)
	batch := make([]*update, 0, maxBatch)
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for {
		select {
		case u, ok := <-s.queue:
			if !ok {
				return
			}
			batch = s.gather(append(batch[:0], u))
			s.commit(batch)
			clear(batch) // or what the updates hold would live until the next large batch
		case <-probe.C:
			s.probe(batch[:0])
			s.repeatFaults()
		}
	}
}

// probe looks, while nothing is written, whether something can be. A store that failed to
// write tries again.
func (s *Store) probe(batch []*update) {
	if s.failing.Load() != nil {
		s.commit(append(batch, &update{fn: writeUnchanged, done: make(chan struct{})}))
	} else if err := s.driver.Check(); err != nil {
		_ = s.unavailable(err)
	}
}

// writeUnchanged writes something that changes nothing.
func writeUnchanged(tx *Tx) error { return tx.exec(`UPDATE log SET last_event_id = last_event_id`) }

// gather adds what waits already. It does not wait for more: under load the time
// that a commit takes fills the next batch, and without load nothing is held back.
func (s *Store) gather(batch []*update) []*update {
	for len(batch) < maxBatch {
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

// commit brings a batch to disk. An update that fails after it wrote spoils the
// transaction for its neighbours: it is answered and the others start over.
func (s *Store) commit(batch []*update) {
	settled := make(chan struct{})
	s.committing.Store(&settled)
	defer func() {
		s.committing.Store(nil)
		close(settled)
	}()
	live := batch[:0]
	for _, u := range batch {
		if u.state.CompareAndSwap(waiting, taken) {
			live = append(live, u)
		}
	}
	for len(live) > 0 {
		var tx *Tx
		err := s.driver.Write(context.Background(), func(q SQL) error {
			tx = s.begin(q)
			if err := tx.runAll(live); err != nil {
				return err
			}
			beforeCommit()
			return nil
		})
		if err == nil {
			afterCommit()
		}
		if failed, ok := errors.AsType[*failedAfterWriteError](err); ok {
			u := live[failed.index]
			u.err = s.classify(failed.err)
			close(u.done)
			live = append(live[:failed.index], live[failed.index+1:]...)
			if !isDatabaseError(failed.err) {
				continue
			}
			// It was this update's alone, or the disk's: then the others would fail one by one.
			if err = s.driver.Write(context.Background(), func(q SQL) error { return writeUnchanged(s.begin(q)) }); err == nil {
				continue
			}
		}
		s.finishBatch(live, tx, err)
		return
	}
}

func (s *Store) begin(q SQL) *Tx {
	log := &eventWriter{SQL: taggedSQL{q}}
	return &Tx{
		shown:  s.shown.Load(),
		Reader: Reader{q: log},
		Now:    time.Now().UTC().Truncate(time.Millisecond),
		last:   s.Last(),
		log:    log,
	}
}

// settle answers a batch whose transaction ended with err, and shows its events to
// readers before anybody learns that they are there.
func (s *Store) finishBatch(batch []*update, tx *Tx, err error) {
	if err != nil {
		err = s.unavailable(err)
		for _, u := range batch {
			u.err = err
			close(u.done)
		}
		return
	}
	if fault := s.failing.Load(); fault != nil && time.Since(s.lastFailure) >= healthyAfter {
		s.failing.Store(nil)
		s.forgetFault(fault.Kind)
		s.log.Info("the store can write again")
	}
	if s.marker != nil && len(tx.published) > 0 {
		s.marker.Mark(Mark{StoreID: s.id, Last: tx.last})
	}
	s.tail.add(tx.last, tx.published)
	for _, u := range batch {
		u.err = s.classify(u.err)
		close(u.done)
	}
}

// unavailable remembers that writing failed.
func (s *Store) unavailable(err error) error {
	fault := s.reportFault(err)
	s.lastFailure = time.Now()
	s.failing.Store(&fault)
	return &loquat.Error{
		Code: loquat.CodeUnavailable, Err: err,
		Detail: "the store cannot write at the moment: " + fault.Text + "; nothing of this change was kept, try again",
	}
}

// classify makes unavailable what the database failed at, and passes on the rest.
func (s *Store) classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !isDatabaseError(err) {
		return err
	}
	if _, ok := errors.AsType[*loquat.Error](err); ok {
		return err
	}
	fault := s.reportFault(err)
	return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the store cannot be read or written at the moment: " + fault.Text, Err: err}
}

// databaseError is a failure of the database, not of what was asked of it.
type databaseError struct{ err error }

func (e *databaseError) Error() string { return e.err.Error() }
func (e *databaseError) Unwrap() error { return e.err }

func isDatabaseError(err error) bool {
	_, ok := errors.AsType[*databaseError](err)
	return ok
}

func asDatabaseError(err error) error {
	if err == nil {
		return nil
	}
	return &databaseError{err}
}

// marked tells the errors of a transaction's statements from all others.
type taggedSQL struct{ SQL }

func (t taggedSQL) Exec(query string, args ...any) (int64, error) {
	n, err := t.SQL.Exec(query, args...)
	return n, asDatabaseError(err)
}

func (t taggedSQL) Query(query string, args ...any) (*sql.Rows, error) {
	rows, err := t.SQL.Query(query, args...)
	return rows, asDatabaseError(err)
}

// Reclaim passes on a power that the driver may have.
func (t taggedSQL) Reclaim() (more bool, err error) {
	r, ok := t.SQL.(reclaimer)
	if !ok {
		return false, nil
	}
	more, err = r.Reclaim()
	return more, asDatabaseError(err)
}

// reclaimer is a driver whose files do not shrink by themselves.
type reclaimer interface{ Reclaim() (more bool, err error) }

// ErrFenced tells a worker that its request is no longer its own: it ended, was
// deleted, or another node took it over. The worker drops out without a word.
var ErrFenced = errors.New("the request is no longer this worker's")

// failedAfterWriteError is a failed update that had already written.
type failedAfterWriteError struct {
	index int
	err   error
}

func (e *failedAfterWriteError) Error() string { return e.err.Error() }
func (e *failedAfterWriteError) Unwrap() error { return e.err }

// one scans the first row of a query; sql.ErrNoRows when there is none.
func one(q SQL, query string, args []any, dest ...any) error {
	rows, err := q.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return asDatabaseError(err)
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return asDatabaseError(rows.Close())
}
