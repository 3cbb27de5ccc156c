package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"loquat"
)

// WindowBytes is the size of event bodies that ends a window.
const WindowBytes = 8 << 20

// Filter selects events. The zero Filter matches all events.
type Filter struct {
	SessionID string
	RequestID string
	User      string     // of sessions that belong to this user; in place of the ids
	Among     *Selection // in place of the others
}

func (f Filter) matches(r *loquat.Record) bool {
	if f.Among != nil {
		return f.Among.matches(r)
	}
	return (f.SessionID == "" || f.SessionID == r.SessionID) && (f.RequestID == "" || f.RequestID == r.RequestID) && (f.User == "" || f.User == r.User)
}

// bound counts how much a window may still hold. The first event is always admitted.
type bound struct {
	events int
	bytes  int
	taken  bool
}

func (b *bound) admits(bytes int) bool {
	if b.events == 0 || b.taken && bytes > b.bytes {
		return false
	}
	b.events--
	b.bytes -= bytes
	b.taken = true
	return true
}

// Bounds limit the events of one read.
type Bounds struct {
	Events int // most events
	Bytes  int // size of bodies that ends the read, but never before the first event; 0 means WindowBytes

	// Reserve, if set, is called with Bytes before bodies are read from the database into new
	// memory. Its error ends the read.
	Reserve func(ctx context.Context, bytes int) error
}

// Events returns matching events above since, oldest first, up to the bounds. Unknown ids in
// the filter match no events. The slice belongs to the caller; the bodies of the events are
// shared.
func (s *Store) Events(ctx context.Context, since loquat.EventID, f Filter, bounds Bounds) ([]loquat.Record, error) {
	if f.Among != nil {
		return s.eventsAmong(ctx, since, f.Among, bounds)
	}
	return s.read(ctx, []*part{s.tail.find(f)}, nil, since, f, bounds)
}

// readAgain is how often a read of the database begins anew because the tail has meanwhile
// forgotten what it had taken from there.
const readAgain = 10

// read appends to buf the events that Events returns. parts are those of the tail that have the
// events of the filter.
func (s *Store) read(ctx context.Context, parts []*part, buf []loquat.Record, since loquat.EventID, f Filter, bounds Bounds) ([]loquat.Record, error) {
	b := bound{events: bounds.Events, bytes: cmp.Or(bounds.Bytes, WindowBytes)}
	inTail := s.tail.sinceAmong
	if f.Among == nil {
		inTail = s.tail.sinceOne
	}
	if records, ok := inTail(parts, since, f, b, buf); ok {
		return records, nil
	}
	if bounds.Reserve != nil {
		if err := bounds.Reserve(ctx, b.bytes); err != nil {
			return nil, err
		}
	}
	if err := s.windows.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.windows.Release(1)
	for range readAgain {
		out, ok, err := s.readDatabase(ctx, parts, since, f, b)
		if err != nil || ok {
			return out, err
		}
	}
	return nil, loquat.Errorf(loquat.CodeUnavailable, "the log changes faster than it can be read; try again")
}

// readDatabase reads a window from the database, up to the end that the tail had when the read
// began. It returns false if the tail has changed so much meanwhile that the read has to begin anew.
func (s *Store) readDatabase(ctx context.Context, parts []*part, since loquat.EventID, f Filter, b bound) (out []loquat.Record, ok bool, err error) {
	held := s.tail.increments(f, parts)
	var sorted loquat.EventID
	err = s.View(ctx, func(r *Reader) (err error) {
		if err := one(r.q, `SELECT sorted_event_id FROM log`, nil, &sorted); err != nil {
			return err
		}
		out, err = r.events(since, f, b, held)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	s.tail.noteSorted(sorted) // and the tail has every end that the snapshot showed
	read := len(out)
	out = slices.DeleteFunc(out, func(r loquat.Record) bool { return s.tail.hides(&r) })
	return out, held.upToDate(out) && (len(out) > 0 || read == 0), nil
}

// heldIncrements are the newest increments of the log, as the tail holds them. A read of the database
// takes them from here: a request may end before the read, and then the database hides them, while
// the next read, of the tail, would show the rest of a text without its beginning.
type heldIncrements struct {
	from, to loquat.EventID // records has those above from and up to to, the end of the tail
	records  []*loquat.Record
	tail     *tail
	parts    []*part          // that had the records; none if there are no records
	floors   []loquat.EventID // their floors at that time
}

// upToDate reports whether the tail still knows, of those of these increments that a window has,
// whether their request has ended.
func (held heldIncrements) upToDate(window []loquat.Record) bool {
	if len(window) == 0 || window[len(window)-1].ID <= held.from {
		return true
	}
	for i, p := range held.parts {
		if p.floor.Load() != int64(held.floors[i]) {
			return false
		}
	}
	return true
}

// stitchedIncrements yields the increments of the database, then those of the tail.
type stitchedIncrements struct {
	*incrementReader
	held   heldIncrements
	f      Filter
	atTail bool
}

func (in *stitchedIncrements) next() (rec loquat.Record, ok bool, err error) {
	if !in.atTail {
		rec, ok, err = in.incrementReader.next()
		if err != nil || ok && rec.ID <= in.held.from {
			return rec, ok, err
		}
		in.atTail = true
	}
	for len(in.held.records) > 0 {
		r := in.held.records[0]
		in.held.records = in.held.records[1:]
		if isIncrement(r.Type) && in.f.matches(r) && !in.held.tail.hides(r) {
			return *r, true, nil
		}
	}
	return loquat.Record{}, false, nil
}

// parallelWindows is how many windows are read from the database concurrently. The limit
// leaves processors to writers while many followers catch up.
func parallelWindows() int64 { return int64(max(2, runtime.GOMAXPROCS(0)/2)) }

const eventColumns = `e.event_id, CASE WHEN e.type IN ('checkpoint', 'final', 'tool_results') THEN 0 ELSE e.rev END, e.omit_messages, e.at, e.body, e.sid,
	(SELECT o.user_id FROM sessions o WHERE o.sid = e.sid)`

func (r *Reader) events(since loquat.EventID, f Filter, b bound, held heldIncrements) ([]loquat.Record, error) {
	reader := &eventReader{q: r.q, since: since, page: b}
	var err error
	if f.Among != nil {
		reader.query, reader.bind, err = r.selectionQuery(f.Among)
	} else {
		reader.query, reader.args, err = r.eventQuery(f)
	}
	if err != nil || reader.query == "" {
		return nil, err
	}
	stored, err := r.incrementsOf(since, f, b.events)
	if err != nil {
		return nil, err
	}
	held.records = held.records[indexAfter(held.records, max(since, held.from)):]
	increments := &stitchedIncrements{incrementReader: stored, held: held, f: f}
	var out []loquat.Record
	err = mergeEvents(reader, increments, func(rec loquat.Record) (more bool, err error) {
		ref, stored := referenceOf(rec)
		if rec.ID > held.to || !b.admits(max(len(rec.Body), ref.Bytes)) {
			return false, nil
		}
		if stored {
			if rec.Body, err = r.resolve(rec, ref); err != nil {
				return false, err
			}
		}
		out = append(out, rec)
		return true, nil
	})
	return out, err
}

// eventReader yields the events of a query, a page at a time: not every driver allows other
// queries while it reads rows.
type eventReader struct {
	q     SQL
	query string
	args  []any                                       // without the last two: the event above which, and how many events
	bind  func(since loquat.EventID, limit int) []any // returns all arguments, in place of args
	since loquat.EventID
	page  bound

	events []loquat.Record // read, but not yet returned
	ended  bool
}

// next returns the next event. It returns false at the end.
func (in *eventReader) next() (rec loquat.Record, ok bool, err error) {
	if len(in.events) == 0 && !in.ended {
		if err := in.read(); err != nil {
			return rec, false, err
		}
	}
	if len(in.events) == 0 {
		return rec, false, nil
	}
	rec, in.events = in.events[0], in.events[1:]
	in.since = rec.ID
	return rec, true, nil
}

// read reads the next page.
func (in *eventReader) read() error {
	args := append(slices.Clip(in.args), in.since, in.page.events)
	if in.bind != nil {
		args = in.bind(in.since, in.page.events)
	}
	rows, err := in.q.Query(in.query, args...)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	in.events, in.ended = nil, true
	var refs []storedReference
	for left := in.page; in.ended && rows.Next(); {
		rec, sid, err := scanEvent(rows)
		if err != nil {
			return err
		}
		ref, stored := referenceOf(rec)
		if stored && ref.Bytes < largeText {
			refs = append(refs, storedReference{ref, len(in.events), sid})
		}
		in.events = append(in.events, rec)
		in.ended = left.admits(max(len(rec.Body), ref.Bytes)) && left.events > 0
	}
	if err := closeRows(rows); err != nil {
		return err
	}
	return fill(in.q, in.events, refs)
}

// incrementSource yields increments in the order of their ids.
type incrementSource interface {
	next() (rec loquat.Record, ok bool, err error)
}

// mergeEvents calls fn with events and with increments, in the order of their ids, until fn
// returns false or fails. An increment that is among both counts once.
func mergeEvents(events *eventReader, increments incrementSource, fn func(loquat.Record) (more bool, err error)) error {
	event, someEvent, err := events.next()
	if err != nil {
		return err
	}
	increment, someIncrement, err := increments.next()
	for err == nil && (someEvent || someIncrement) {
		more := true
		if someEvent && (!someIncrement || event.ID < increment.ID) {
			if more, err = fn(event); more && err == nil {
				event, someEvent, err = events.next()
			}
		} else {
			if !someEvent || event.ID > increment.ID {
				more, err = fn(increment)
			}
			if more && err == nil {
				increment, someIncrement, err = increments.next()
			}
		}
		if !more {
			return err
		}
	}
	return err
}

// eventQuery returns the query whose index fits the filter, without its last two arguments:
// the event above which, and how many events. Of a deleted session only the session_deleted
// event can be read.
func (r *Reader) eventQuery(f Filter) (string, []any, error) {
	if f.RequestID != "" {
		req, err := r.Request(f.RequestID)
		if loquat.CodeOf(err) == loquat.CodeNotFound {
			return "", nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		if f.SessionID != "" && req.SessionID != f.SessionID {
			return "", nil, nil
		}
		return `SELECT ` + eventColumns + ` FROM events e WHERE e.rid = ? AND e.event_id > ? ORDER BY e.event_id LIMIT ?`, []any{req.RID}, nil
	}
	if f.SessionID != "" {
		return `SELECT ` + eventColumns + ` FROM events e JOIN sessions s ON s.sid = e.sid
			WHERE e.sid = (SELECT sid FROM sessions WHERE session_id = ?) AND e.event_id > ?
			AND (s.deleted = 0 OR e.type = 'session_deleted') ORDER BY e.event_id LIMIT ?`, []any{f.SessionID}, nil
	}
	if f.User != "" {
		// The inner query needs no rows of events except of sessions that were deleted.
		return `SELECT ` + eventColumns + ` FROM events e WHERE e.event_id IN (SELECT p.event_id FROM (SELECT n.event_id FROM sessions s JOIN events n ON n.sid = s.sid
			WHERE s.user_id = ? AND s.user_id <> '' AND n.event_id > ? AND (s.deleted = 0 OR n.type = 'session_deleted') ORDER BY n.event_id LIMIT ?) p)
			ORDER BY e.event_id`, []any{f.User}, nil
	}
	return `SELECT ` + eventColumns + ` FROM events e WHERE e.event_id > ?
		AND (e.type = 'session_deleted' OR e.sid NOT IN (SELECT sid FROM sessions WHERE deleted = 1))
		ORDER BY e.event_id LIMIT ?`, nil, nil
}

// EachRequestEvent calls fn with each event that a request published above since, in order,
// until fn fails. It holds few events at a time, because together they may be large. If
// increments is false it skips partial and tool_partial events.
func (r *Reader) EachRequestEvent(req Request, since loquat.EventID, increments bool, fn func(loquat.Record) error) error {
	query := `SELECT ` + eventColumns + ` FROM events e WHERE e.rid = ? AND e.event_id > ?`
	var in *incrementReader
	if increments {
		var err error
		if in, err = r.incrementsOf(since, Filter{RequestID: req.RequestID}, math.MaxInt); err != nil {
			return err
		}
	} else {
		query += ` AND e.type NOT IN ('partial', 'tool_partial')`
	}
	events := &eventReader{q: r.q, query: query + ` ORDER BY e.event_id LIMIT ?`, args: []any{req.RID}, since: since, page: bound{events: pageEvents, bytes: pageBytes}}
	return mergeEvents(events, in, func(rec loquat.Record) (more bool, err error) {
		if ref, stored := referenceOf(rec); stored {
			if rec.Body, err = r.resolve(rec, ref); err != nil {
				return false, err
			}
		}
		return true, fn(rec)
	})
}

// The size of the pages in which the events of a request, and increments, are read.
const (
	pageEvents = 256
	pageBytes  = 256 << 10
)

// SizeOfRequestEvents returns the bytes of all event bodies that a request published above
// since.
func (r *Reader) SizeOfRequestEvents(req Request, since loquat.EventID) (n int64, err error) {
	if err := one(r.q, `SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE rid = ? AND event_id > ?`, []any{req.RID, since}, &n); err != nil {
		return 0, err
	}
	in, err := r.incrementsOf(since, Filter{RequestID: req.RequestID}, math.MaxInt)
	if err != nil {
		return 0, err
	}
	for {
		rec, ok, err := in.next()
		if !ok || err != nil {
			return n, err
		}
		n += int64(len(rec.Body))
	}
}

// scanEvent returns an event and the row id of its session.
func scanEvent(rows *sql.Rows) (loquat.Record, int64, error) {
	var (
		id   loquat.EventID
		sid  int64
		rev  int64
		omit bool
		at   int64
		body []byte
		user sql.NullString
	)
	if err := rows.Scan(&id, &rev, &omit, &at, &body, &sid, &user); err != nil {
		return loquat.Record{}, 0, fmt.Errorf("read event: %w", asDamage(err))
	}
	rec, err := loquat.ParseRecord(body)
	if err != nil {
		return loquat.Record{}, 0, fmt.Errorf("event %s: %w", id, asDamage(err))
	}
	rec.ID, rec.Rev, rec.OmitMessages, rec.At, rec.User = id, rev, omit, fromMicros(at), user.String
	return rec, sid, nil
}

// lastEventID is the highest event id ever assigned. A commit that only adds increments does
// not write the row of the log, because its own row names its highest id. So every transaction
// that removes rows of increments must write the row of the log (keepLastID).
const lastEventID = `(SELECT max(id) FROM (SELECT last_event_id AS id FROM log UNION ALL SELECT max(last_event_id) FROM increments) ids)`

// LastEvent returns the highest event id that the log in the database of q ever assigned.
func LastEvent(q SQL) (id loquat.EventID, err error) {
	err = one(q, `SELECT `+lastEventID+` FROM log`, nil, &id)
	return id, err
}

// keepLastID writes the highest event id ever assigned to the row of the log.
func (tx *Tx) keepLastID() error { return tx.exec(`UPDATE log SET last_event_id = ?`, tx.last) }

// Publish assigns an id to an event of a session, and of a request unless req is nil, and adds
// the event to the log. An event that carries the session shows h as it is now. The messages of
// a final or tool_results event were appended to h before.
func (tx *Tx) Publish(e loquat.Event, h *Head, req *Request) (loquat.EventID, error) {
	e.SessionID = h.SessionID
	if req != nil {
		e.RequestID = req.RequestID
	}
	if ChangesList(e.Type) {
		e.User = h.User
	}
	if appended := h.appendedLast(e); appended != nil {
		return tx.publishMessages(e, appended, h, req)
	}
	rec, err := e.Encode()
	if err != nil {
		return 0, err
	}
	switch e.Type {
	case loquat.SessionCreated, loquat.MessageAppended, loquat.MessageModified, loquat.MessagesDeleted:
		rec.Rev, rec.OmitMessages = h.Rev, h.bytes > loquat.MaxEventSession
	}
	// A checkpoint stores its revision too, so that pages of its snapshot can be read.
	rev := rec.Rev
	if e.Type == loquat.Checkpoint {
		rev = h.Rev
	}
	return tx.addEvent(rec, h, req, rev, rec.Body)
}

// addEvent gives a record the next id, stores it with a body, and adds it to what was published.
func (tx *Tx) addEvent(rec loquat.Record, h *Head, req *Request, rev int64, body []byte) (loquat.EventID, error) {
	tx.last++
	rec.ID, rec.At, rec.User = tx.last, tx.Now, h.User
	tx.wrote = true
	tx.published = append(tx.published, rec)
	if req != nil && isIncrement(rec.Type) {
		tx.head = appendHead(tx.head[:0], rec.Type, rec.SessionID, rec.RequestID)
		if in, ok := newIncrement(rec, req.RID, tx.head); ok {
			tx.log.increments = append(tx.log.increments, in)
			tx.log.incrementBytes += len(in.rest)
			return rec.ID, nil
		}
	}
	tx.others = append(tx.others, len(tx.published)-1)
	var rid any
	if req != nil {
		rid = req.RID
	}
	return rec.ID, tx.log.add(body, rec.ID, h.SID, rid, string(rec.Type), rev, rec.OmitMessages, micros(tx.Now))
}

func micros(t time.Time) int64     { return t.UnixMicro() }
func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
