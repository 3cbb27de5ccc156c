package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"loquat"
)

// newest is the id up to which feedTail reads the whole log.
const newest = loquat.EventID(math.MaxInt64)

// The events of one step of feedTail. A node that is further behind than keepBehind forgets its
// tail instead of reading it all.
const (
	feedEvents = 2048
	feedBytes  = 2 << 20
	keepBehind = 8192
)

// maxNames is how many names of requests, and users of sessions, feedTail remembers.
const maxNames = 4096

// feeder adds the events of other nodes to the tail.
type feeder struct {
	// turn is held by the goroutine that changes the tail of a shared log.
	turn turn

	// limit is the highest id before a transaction of this node that may be committing, or newest.
	// The events of the transaction come from the committer, after the functions of AfterCommit.
	limit atomic.Int64

	// The names of requests, and the users of sessions; owned by the holder of turn, like cuts.
	names map[int64]requestName
	users map[string]string
	cuts  int64

	received received
	ends     endReads
}

// received holds the commits of other nodes that notifications brought and that are not yet in the
// tail. They may be dropped at any time: the database has them.
type received struct {
	mu      sync.Mutex
	commits []*smallCommit // in the order of their notifications
}

// maxReceived is the most commits in received. Each has up to 64 KiB (maxSmallCommit).
const maxReceived = 128

func (r *received) put(c *smallCommit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.commits) == maxReceived {
		r.commits = nil
	}
	r.commits = append(r.commits, c)
}

// after returns the commit that follows on an id, or nil. It drops the commits before.
func (r *received) after(id loquat.EventID) *smallCommit {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := 0
	for old < len(r.commits) && r.commits[old].last <= id {
		old++
	}
	r.commits = slices.Delete(r.commits, 0, old)
	if len(r.commits) == 0 || r.commits[0].base != id {
		return nil
	}
	return r.commits[0]
}

func (r *received) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits = nil
}

func (f *feeder) init() {
	f.turn, f.names, f.users, f.ends.turn = make(turn, 1), map[int64]requestName{}, map[string]string{}, make(turn, 1)
	f.limit.Store(int64(newest))
}

// forgetNames forgets names and users if they are too many.
func (f *feeder) forgetNames() {
	if len(f.names) > maxNames {
		clear(f.names)
	}
	if len(f.users) > maxNames {
		clear(f.users)
	}
}

// turn is a lock whose wait ends with a context. It has room for one element.
type turn chan struct{}

func (t turn) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) unlock() { <-t }

// feedTail adds events of the log to the tail, in order, until the tail reaches an id or the
// end of the log.
func (s *Store) feedTail(ctx context.Context, until loquat.EventID) error {
	if err := s.feeder.turn.lock(ctx); err != nil {
		return err
	}
	defer s.feeder.turn.unlock()
	return s.feedLocked(ctx, until)
}

func (s *Store) feedLocked(ctx context.Context, until loquat.EventID) error {
	for s.Last() < until {
		s.addReceived()
		if s.Last() >= until || s.Last() >= loquat.EventID(s.feeder.limit.Load()) {
			return nil
		}
		if more, err := s.feedStep(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// tryAddReceived calls addReceived unless that must wait for the feeder's turn. Who has it calls
// addReceived itself, or follow does.
func (s *Store) tryAddReceived() {
	select {
	case s.feeder.turn <- struct{}{}:
		s.addReceived()
		s.feeder.turn.unlock()
	default:
	}
}

// addReceived adds to the tail the commits of other nodes that follow on it. The caller holds the
// feeder's turn.
func (s *Store) addReceived() {
	s.feeder.forgetNames()
	for c := s.feeder.received.after(s.Last()); c != nil; c = s.feeder.received.after(s.Last()) {
		if int64(c.last) > s.feeder.limit.Load() { // it may follow on a transaction of this node, even one without events
			return
		}
		if c.cuts != s.feeder.cuts {
			s.feeder.received.clear()
			return
		}
		records, ok := c.records(s.feeder.names, s.feeder.users)
		if !ok { // reading it from the database also reads the names
			return
		}
		s.tail.noteRemoved(c.gone)
		s.tail.noteSorted(c.sorted)
		s.tail.add(c.last, records)
	}
}

// feedWindow is a part of the log that other nodes wrote.
type feedWindow struct {
	state   LogState
	log     *identity // read if the log has another one
	records []loquat.Record
	far     bool           // the log is far ahead, so records is empty
	upTo    loquat.EventID // records has everything up to it
}

// feedStep adds the next events to the tail. It returns false at the end of the log.
func (s *Store) feedStep(ctx context.Context) (more bool, err error) {
	since := s.Last()
	var w feedWindow
	err = s.driver.Read(ctx, func(q SQL) (err error) {
		w, err = s.readFeed(q, since)
		return err
	})
	if err != nil {
		return false, err
	}
	// A transaction of this node that the read saw had set the limit before.
	if limit := loquat.EventID(s.feeder.limit.Load()); w.upTo > limit {
		w.upTo = limit
		w.records = w.records[:indexOf(w.records, limit)]
	}
	s.tail.noteRemoved(w.state.Gone)
	s.tail.noteSorted(w.state.Sorted)
	if w.log != nil {
		s.takeIdentity(w.log, w.state.Cuts)
		s.tail.skip(max(w.upTo, since))
		return false, nil
	}
	if w.upTo <= since {
		return false, nil
	}
	if w.far {
		s.tail.skip(w.upTo)
		return true, nil
	}
	s.tail.add(w.upTo, w.records)
	return true, nil
}

// takeIdentity records that the log was cut. The caller holds the feeder's turn and then moves
// the floor of the tail above the cut.
func (s *Store) takeIdentity(id *identity, cuts int64) {
	s.identity.Store(id)
	s.feeder.cuts = cuts
	clear(s.feeder.names) // row ids may have been given again, and ids of sessions
	clear(s.feeder.users)
	s.nodes.forgetRevisions()
}

func indexOf(records []loquat.Record, above loquat.EventID) int {
	i, _ := slices.BinarySearchFunc(records, above+1, func(r loquat.Record, id loquat.EventID) int { return int(r.ID - id) })
	return i
}

// readFeed reads the next part of the log above an id. If the log is far ahead, the part has no
// records and ends a little below the end of the log.
func (s *Store) readFeed(q SQL, since loquat.EventID) (w feedWindow, err error) {
	shared, ok := q.(sharedSQL)
	if !ok {
		return w, fmt.Errorf("the transaction of a shared log is a %T", q)
	}
	w.state = shared.Log()
	w.upTo = w.state.Last
	if w.state.Cuts != s.feeder.cuts {
		w.log, err = readIdentity(q)
		return w, err
	}
	if w.upTo <= since {
		return w, nil
	}
	if w.upTo-since > keepBehind {
		w.far, w.upTo = true, w.upTo-keepBehind/2
		return w, nil
	}
	s.feeder.forgetNames()
	r := &Reader{q: &taggedSQL{SQL: q}, shared: s.shared}
	in := &incrementReader{q: r.q, since: since, all: true, above: since, names: s.feeder.names, heads: incrementHeads{}}
	query, args, err := r.eventQuery(Filter{})
	if err != nil {
		return w, err
	}
	b := bound{events: feedEvents, bytes: feedBytes}
	w.records = make([]loquat.Record, 0, min(feedEvents, int(w.upTo-since)))
	err = mergeEvents(&eventReader{q: r.q, query: query, args: args, since: since, page: b}, in, func(rec loquat.Record) (more bool, err error) {
		if _, stored := referenceOf(rec); stored { // its messages are large; readers get it from the database
			rec.Body = nil
		}
		if !b.admits(len(rec.Body)) {
			w.upTo = w.records[len(w.records)-1].ID
			return false, nil
		}
		w.records = append(w.records, rec)
		s.feeder.users[rec.SessionID] = rec.User
		return true, nil
	})
	return w, err
}

// addOwn adds the events of a transaction of this node to the tail, after those that other
// nodes committed before it. If these cannot be read, the tail begins after them.
func (s *Store) addOwn(tx *Tx) {
	if !s.Shared() {
		s.tail.add(tx.last, tx.published)
		return
	}
	ctx := context.Background()
	_ = s.feeder.turn.lock(ctx)
	defer s.feeder.turn.unlock()
	if tx.cut != nil && s.feeder.cuts == tx.state.Cuts {
		s.takeIdentity(s.identity.Load().with(*tx.cut), tx.state.Cuts+1)
		s.tail.skip(tx.base)
	}
	if err := s.feedLocked(ctx, tx.base); err != nil || s.Last() != tx.base { // above it are only events that the log has lost
		s.tail.skip(tx.base)
	}
	s.feeder.limit.Store(int64(newest))
	s.tail.add(tx.last, tx.published)
	s.addReceived()
}

// awaitTail waits until the tail has every event up to an id that a reader saw.
func (s *Store) awaitTail(ctx context.Context, seen loquat.EventID) error {
	for s.Last() < seen {
		committing, before := s.committing.Load(), s.Last()
		if err := s.feedTail(ctx, seen); err != nil {
			return err
		}
		switch {
		case s.Last() >= seen:
		case committing != nil:
			select {
			case <-*committing:
			case <-ctx.Done():
				return ctx.Err()
			}
		case s.Last() == before: // the log has lost these events
			return nil
		}
	}
	return nil
}

// CatchUp waits until the tail has every event that any node had committed before the call. If
// the log is not shared, the tail always has them.
func (s *Store) CatchUp(ctx context.Context) error {
	if !s.Shared() {
		return nil
	}
	last, err := s.feeder.ends.read(ctx, s.readEnd)
	if err == nil && last > s.Last() {
		err = s.awaitTail(ctx, last)
	}
	return s.classify(ctx, asDatabaseError(err))
}

// readEnd returns the id of the newest event in the database.
func (s *Store) readEnd(ctx context.Context) (last loquat.EventID, err error) {
	err = s.driver.Read(ctx, func(q SQL) error {
		if shared, ok := q.(sharedSQL); ok {
			last = shared.Log().Last
			s.tail.noteSorted(shared.Log().Sorted)
		}
		return nil
	})
	return last, err
}

// endReads reads the end of the log for many callers at a time: when a node has died, all its
// followers call at once.
type endReads struct {
	turn  turn
	calls atomic.Uint64 // how many calls have begun

	// The newest read; owned by the holder of turn.
	covers uint64 // the calls that had begun before it
	last   loquat.EventID
	err    error
}

// read returns the result of a read that began after the call did.
func (e *endReads) read(ctx context.Context, read func(context.Context) (loquat.EventID, error)) (loquat.EventID, error) {
	call := e.calls.Add(1)
	if err := e.turn.lock(ctx); err != nil {
		return 0, err
	}
	defer e.turn.unlock()
	if e.covers < call {
		e.covers = e.calls.Load()
		e.last, e.err = read(ctx)
		if ctx.Err() != nil {
			e.covers = 0 // only this caller gave up
		}
	}
	return e.last, e.err
}

// repairLoss skips ids if the log has lost events that clients may have seen, so that no id
// gets a second meaning.
func (tx *Tx) repairLoss(seen loquat.EventID) error {
	if !tx.state.Lost && tx.last >= seen {
		return nil
	}
	next := firstIDAfter(max(tx.last, seen))
	tx.cut = &idRange{above: tx.last, below: next}
	if err := tx.exec(`INSERT INTO foreign_ids (above, below) VALUES (?, ?)`, tx.last, next); err != nil {
		return err
	}
	tx.last = next
	return tx.exec(`UPDATE log SET last_event_id = ?, cuts = cuts + 1, timeline = ?`, next, tx.state.Timeline)
}
