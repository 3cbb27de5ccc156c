package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"time"

	"loquat"
)

// WindowBytes is the size of event bodies that ends a window.
const WindowBytes = 8 << 20

// Filter selects events. The zero Filter matches all events.
type Filter struct {
	SessionID string
	RequestID string
}

func (f Filter) matches(r *loquat.Record) bool {
	return (f.SessionID == "" || f.SessionID == r.SessionID) && (f.RequestID == "" || f.RequestID == r.RequestID)
}

// bound counts how much a window may still hold. The first event is always admitted.
type bound struct {
	events int
	bytes  int
	taken  bool
}

func (b *bound) admits(r *loquat.Record) bool {
	if b.events == 0 || b.taken && len(r.Body) > b.bytes {
		return false
	}
	b.events--
	b.bytes -= len(r.Body)
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
	return s.read(ctx, s.tail.find(f.SessionID), nil, since, f, bounds)
}

// read appends to buf the events that Events returns. p is the part of the tail for the
// filter's session.
func (s *Store) read(ctx context.Context, p *part, buf []loquat.Record, since loquat.EventID, f Filter, bounds Bounds) ([]loquat.Record, error) {
	b := bound{events: bounds.Events, bytes: cmp.Or(bounds.Bytes, WindowBytes)}
	if records, ok := s.tail.since(p, since, f, b, buf); ok {
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
	var out []loquat.Record
	err := s.View(ctx, func(r *Reader) (err error) {
		out, err = r.events(since, f, b)
		return err
	})
	return out, err
}

// parallelWindows is how many windows are read from the database concurrently. The limit
// leaves processors to writers while many followers catch up.
func parallelWindows() int64 { return int64(max(2, runtime.GOMAXPROCS(0)/2)) }

const eventColumns = `e.event_id, CASE e.type WHEN 'checkpoint' THEN 0 ELSE e.rev END, e.omit_messages, e.at, e.body`

func (r *Reader) events(since loquat.EventID, f Filter, b bound) ([]loquat.Record, error) {
	query, args, err := r.eventQuery(since, f, b.events)
	if err != nil || query == "" {
		return nil, err
	}
	return r.scanEvents(&b, query, args...)
}

// scanEvents reads events until a bound is reached.
func (r *Reader) scanEvents(b *bound, query string, args ...any) ([]loquat.Record, error) {
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	var out []loquat.Record
	for rows.Next() {
		rec, err := scanEvent(rows)
		if err != nil {
			return nil, err
		}
		if !b.admits(&rec) {
			break
		}
		out = append(out, rec)
	}
	return out, asDatabaseError(rows.Err())
}

// eventQuery returns the query whose index fits the filter. Of a deleted session only the
// session_deleted event can be read.
func (r *Reader) eventQuery(since loquat.EventID, f Filter, limit int) (string, []any, error) {
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
		return `SELECT ` + eventColumns + ` FROM events e WHERE e.rid = ? AND e.event_id > ? ORDER BY e.event_id LIMIT ?`,
			[]any{req.RID, since, limit}, nil
	}
	if f.SessionID != "" {
		return `SELECT ` + eventColumns + ` FROM events e JOIN sessions s ON s.sid = e.sid
			WHERE e.sid = (SELECT sid FROM sessions WHERE session_id = ?) AND e.event_id > ?
			AND (s.deleted = 0 OR e.type = 'session_deleted') ORDER BY e.event_id LIMIT ?`,
			[]any{f.SessionID, since, limit}, nil
	}
	return `SELECT ` + eventColumns + ` FROM events e WHERE e.event_id > ?
		AND (e.type = 'session_deleted' OR e.sid NOT IN (SELECT sid FROM sessions WHERE deleted = 1))
		ORDER BY e.event_id LIMIT ?`, []any{since, limit}, nil
}

// EachRequestEvent calls fn with each event that a request published above since, in order,
// until fn fails. It holds one event at a time, because together they may be large. If
// increments is false it skips partial and tool_partial events.
func (r *Reader) EachRequestEvent(req Request, since loquat.EventID, increments bool, fn func(loquat.Record) error) error {
	query := `SELECT ` + eventColumns + ` FROM events e WHERE e.rid = ? AND e.event_id > ?`
	if !increments {
		query += ` AND e.type NOT IN ('partial', 'tool_partial')`
	}
	rows, err := r.q.Query(query+` ORDER BY e.event_id`, req.RID, since)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		rec, err := scanEvent(rows)
		if err != nil {
			return err
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	return asDatabaseError(rows.Err())
}

// SizeOfRequestEvents returns the bytes of all event bodies that a request published above
// since.
func (r *Reader) SizeOfRequestEvents(req Request, since loquat.EventID) (n int64, err error) {
	err = one(r.q, `SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE rid = ? AND event_id > ?`, []any{req.RID, since}, &n)
	return n, err
}

func scanEvent(rows *sql.Rows) (loquat.Record, error) {
	var (
		id   loquat.EventID
		rev  int64
		omit bool
		at   int64
		body []byte
	)
	if err := rows.Scan(&id, &rev, &omit, &at, &body); err != nil {
		return loquat.Record{}, fmt.Errorf("read event: %w", asDamage(err))
	}
	rec, err := loquat.ParseRecord(body)
	if err != nil {
		return loquat.Record{}, fmt.Errorf("event %s: %w", id, asDamage(err))
	}
	rec.ID, rec.Rev, rec.OmitMessages, rec.At = id, rev, omit, fromMicros(at)
	return rec, nil
}

// last returns the highest event id ever assigned, read from the database.
func (r *Reader) last() (id loquat.EventID, err error) {
	err = one(r.q, `SELECT last_event_id FROM log`, nil, &id)
	return id, err
}

// Publish assigns an id to an event of a session, and of a request unless req is nil, and adds
// the event to the log. An event that carries the session shows h as it is now.
func (tx *Tx) Publish(e loquat.Event, h *Head, req *Request) (loquat.EventID, error) {
	e.SessionID = h.SessionID
	var rid any
	if req != nil {
		e.RequestID, rid = req.RequestID, req.RID
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
	tx.last++
	rec.ID, rec.At = tx.last, tx.Now
	tx.wrote = true
	if err := tx.log.add(rec.Body, rec.ID, h.SID, rid, string(rec.Type), rev, rec.OmitMessages, micros(tx.Now)); err != nil {
		return 0, err
	}
	tx.published = append(tx.published, rec)
	return rec.ID, nil
}

func micros(t time.Time) int64     { return t.UnixMicro() }
func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
