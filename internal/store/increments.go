package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"loquat"
)

// Increments are most of the data that is written, and they are not needed once their request
// has ended. So they have a table of their own: a commit adds all of its increments as one
// shared row, without an index.
//
// A reader of one session would have to read the increments of all sessions that stream at
// the same time. So whenever many increments are in shared rows, sortIncrements moves them to
// rows that hold the increments of one request each and are indexed by request. That closes a
// segment of the log.

// The number and size of the increments in shared rows at which they are sorted. They bound
// what a reader of one session reads of other sessions, and how long sorting delays a commit.
const (
	sortEntries = 16384
	sortBytes   = 2 << 20
)

// requestName holds the ids that an increment's body has of its request.
type requestName struct {
	request, session, user string
	visible                bool // as the condition isShown says
}

// isShown is the condition that the increments of request r are still shown; see tail.hides.
const isShown = `(r.ended_at IS NULL OR (SELECT coalesce(max(e.event_id), 0) FROM events e WHERE e.rid = r.rid) > (SELECT sorted_event_id FROM log))`

// incrementReader yields increments in the order of their ids. A nil incrementReader has none.
type incrementReader struct {
	q     SQL
	since loquat.EventID
	all   bool // of all requests, otherwise only those in names

	names map[int64]requestName
	heads incrementHeads

	keys    []incrementKey // of rows of the requests in names, not yet read
	above   loquat.EventID // the last key of rows
	rows    []incrementRow // shared rows, or of all rows, not yet in entries
	ended   bool           // all rows are in keys or rows
	entries []increment    // read, but not yet returned
}

// incrementKey names a row of the increments table.
type incrementKey struct {
	last    loquat.EventID
	segment int64
}

// incrementRow is a row of the increments table.
type incrementRow struct {
	last    loquat.EventID
	segment int64
	body    []byte
}

// incrementHeads holds the results of appendHead.
type incrementHeads map[incrementHead][]byte

type incrementHead struct {
	rid  int64
	kind loquat.EventType
}

// record returns the event of an entry.
func (h incrementHeads) record(e increment, name requestName) loquat.Record {
	key := incrementHead{e.rid, e.kind.eventType()}
	head, ok := h[key]
	if !ok {
		head = appendHead(nil, key.kind, name.session, name.request)
		h[key] = head
	}
	rec := e.record(name.session, name.request, head)
	rec.User = name.user
	return rec
}

// incrementsOf returns a reader of the increments above since that match a filter. It yields
// at least the first limit of them.
func (r *Reader) incrementsOf(since loquat.EventID, f Filter, limit int) (*incrementReader, error) {
	in := &incrementReader{q: r.q, since: since, names: map[int64]requestName{}, heads: incrementHeads{}}
	where, args := "", []any(nil)
	switch {
	case f.Among != nil && len(f.Among.Sessions) == 0:
		return nil, nil
	case f.Among != nil:
		where, args = `r.sid IN (SELECT sid FROM sessions WHERE session_id IN `+places(len(f.Among.Sessions))+`)`, anys(f.Among.Sessions)
	case f.RequestID != "":
		where, args = `r.request_id = ?`, []any{f.RequestID}
	case f.SessionID != "":
		where, args = `r.sid = (SELECT sid FROM sessions WHERE session_id = ?)`, []any{f.SessionID}
	case f.User != "":
		where, args = `s.user_id = ? AND s.user_id <> ''`, []any{f.User}
	default:
		in.all, in.above = true, since
		return in, nil
	}
	if err := in.findRequests(where, args); err != nil {
		return nil, err
	}
	if len(in.names) == 0 {
		return nil, nil
	}
	var sorted loquat.EventID
	if err := one(in.q, `SELECT sorted_event_id FROM log`, nil, &sorted); err != nil {
		return nil, err
	}
	for rid := range in.names {
		if err := in.findKeys(rid, limit); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(in.keys, func(a, b incrementKey) int { return cmp.Compare(a.last, b.last) })
	if end := limit; len(in.keys) >= limit { // each row has one at least, so the shared rows are not needed
		for end < len(in.keys) && in.keys[end].segment == in.keys[end-1].segment {
			end++ // its increments may come before those of the rows in front of it
		}
		in.keys, in.ended = in.keys[:end], true
	}
	in.above = max(since, sorted)
	return in, nil
}

// findRequests adds the matching requests that may have increments to names.
func (in *incrementReader) findRequests(where string, args []any) error {
	rows, err := in.q.Query(`SELECT r.rid, r.request_id, s.session_id, s.user_id, s.deleted = 0 FROM requests r JOIN sessions s ON s.sid = r.sid WHERE r.thinned = 0 AND `+isShown+` AND `+where, args...)
	if err != nil {
		return fmt.Errorf("read the requests of increments: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var rid int64
		var name requestName
		if err := rows.Scan(&rid, &name.request, &name.session, &name.user, &name.visible); err != nil {
			return err
		}
		if name.visible {
			in.names[rid] = name
		}
	}
	return asDatabaseError(rows.Err())
}

// findKeys adds the first keys of a request's own rows to keys.
func (in *incrementReader) findKeys(rid int64, limit int) error {
	rows, err := in.q.Query(`SELECT last_event_id, segment FROM increments WHERE rid = ? AND last_event_id > ? ORDER BY last_event_id LIMIT ?`, rid, in.since, limit)
	if err != nil {
		return fmt.Errorf("read increments: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key incrementKey
		if err := rows.Scan(&key.last, &key.segment); err != nil {
			return err
		}
		in.keys = append(in.keys, key)
	}
	return asDatabaseError(rows.Err())
}

// next returns the next increment. It returns false at the end.
func (in *incrementReader) next() (rec loquat.Record, ok bool, err error) {
	if in == nil {
		return rec, false, nil
	}
	for len(in.entries) == 0 {
		if more, err := in.read(); err != nil || !more {
			return rec, false, err
		}
	}
	e := in.entries[0]
	in.entries = in.entries[1:]
	return in.heads.record(e, in.names[e.rid]), true, nil
}

// read reads the next shared row, or the next segment of other rows: the rows of one segment overlap
// if they are of several requests. It returns false at the end.
func (in *incrementReader) read() (more bool, err error) {
	in.entries = in.entries[:0:0]
	if len(in.keys) > 0 {
		return true, in.readKeys()
	}
	for segment := int64(0); ; in.rows = in.rows[1:] {
		if len(in.rows) == 0 && !in.ended {
			if err := in.readPage(); err != nil {
				return false, err
			}
		}
		if len(in.rows) == 0 || segment != 0 && in.rows[0].segment != segment {
			in.sortEntries()
			return segment != 0, nil
		}
		row := in.rows[0]
		if err := in.add(row.last, row.body); err != nil {
			return false, err
		}
		if segment = row.segment; segment == 0 {
			in.rows = in.rows[1:]
			return true, nil
		}
	}
}

// readKeys reads the rows of keys that are in the next segment. If they are all of one request, they do not
// overlap, so it reads the first of them.
func (in *incrementReader) readKeys() error {
	for segment := in.keys[0].segment; len(in.keys) > 0 && in.keys[0].segment == segment; {
		key := in.keys[0].last
		in.keys = in.keys[1:]
		var body []byte
		if err := one(in.q, `SELECT body FROM increments WHERE last_event_id = ?`, []any{key}, &body); err != nil {
			return fmt.Errorf("read increments: %w", err)
		}
		if err := in.add(key, body); err != nil {
			return err
		}
		if len(in.names) == 1 {
			break
		}
	}
	in.sortEntries()
	return nil
}

func (in *incrementReader) sortEntries() {
	slices.SortFunc(in.entries, func(a, b increment) int { return cmp.Compare(a.id, b.id) })
}

// readPage reads the next rows.
func (in *incrementReader) readPage() error {
	rows, err := in.q.Query(`SELECT last_event_id, segment, body FROM increments WHERE last_event_id > ? ORDER BY last_event_id LIMIT ?`, in.above, pageEvents)
	if err != nil {
		return fmt.Errorf("read increments: %w", err)
	}
	defer rows.Close()
	in.rows, in.ended = nil, true
	for size := 0; rows.Next(); {
		var row incrementRow
		if err := rows.Scan(&row.last, &row.segment, &row.body); err != nil {
			return fmt.Errorf("read increments: %w", asDamage(err))
		}
		in.rows, in.above = append(in.rows, row), row.last
		if size += len(row.body); size >= pageBytes || len(in.rows) == pageEvents {
			in.ended = false
			return nil
		}
	}
	return asDatabaseError(rows.Err())
}

// add adds the matching entries of a row to entries.
func (in *incrementReader) add(last loquat.EventID, body []byte) error {
	var failed error
	err := eachIncrement(last, body, func(e increment) {
		if e.id <= in.since || failed != nil {
			return
		}
		name, known := in.names[e.rid]
		if !known && in.all {
			name, failed = in.nameOf(e.rid)
		}
		if name.visible {
			in.entries = append(in.entries, e)
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// nameOf reads the names of a request and keeps them. It returns the zero requestName for an
// unknown request.
func (in *incrementReader) nameOf(rid int64) (name requestName, err error) {
	err = one(in.q, `SELECT r.request_id, s.session_id, s.user_id, s.deleted = 0 AND `+isShown+` FROM requests r JOIN sessions s ON s.sid = r.sid WHERE r.rid = ?`, []any{rid},
		&name.request, &name.session, &name.user, &name.visible)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return name, fmt.Errorf("read the request of increments: %w", err)
	}
	in.names[rid] = name
	return name, nil
}

// sortIncrements moves the increments of running requests from shared rows to rows of their
// own, and removes those of ended requests. A reader that reads past a request's end arrives
// at the same state without them. The row of the log has the end of the log at that time.
func (tx *Tx) sortIncrements() error {
	entries, err := tx.sharedIncrements()
	if err != nil {
		return err
	}
	if err := tx.exec(`DELETE FROM increments WHERE last_event_id > (SELECT sorted_event_id FROM log)`); err != nil {
		return err
	}
	byRequest := map[int64][]increment{}
	var order []int64
	for _, e := range entries {
		if _, seen := byRequest[e.rid]; !seen {
			order = append(order, e.rid)
		}
		byRequest[e.rid] = append(byRequest[e.rid], e)
	}
	running := map[int64]bool{}
	err = eachIDs(order, func(list string, args []any) error {
		rids, err := tx.integers(`SELECT rid FROM requests WHERE ended_at IS NULL AND rid IN `+list, args...)
		for _, rid := range rids {
			running[rid] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, rid := range order {
		if !running[rid] {
			continue
		}
		if _, err := insertIncrements(tx.q, byRequest[rid], rid, tx.last); err != nil {
			return err
		}
	}
	tx.log.written, tx.sorted = sizeOfIncrements{}, true
	if err := tx.exec(`UPDATE log SET sorted_event_id = ?`, tx.last); err != nil {
		return err
	}
	return tx.keepLastID()
}

// unsortedIncrements returns the number and size of the increments in shared rows.
func unsortedIncrements(q SQL) (n sizeOfIncrements, err error) {
	err = one(q, `SELECT coalesce(sum(entries), 0), coalesce(sum(octet_length(body)), 0) FROM increments
		WHERE last_event_id > (SELECT sorted_event_id FROM log)`, nil, &n.entries, &n.bytes)
	return n, err
}

// unsorted returns what the shared rows of increments hold after the transaction.
func (tx *Tx) unsorted() sizeOfIncrements {
	size := tx.log.written
	if tx.sharedLog != nil && !tx.sorted {
		size.entries += tx.state.UnsortedEntries
		size.bytes += tx.state.UnsortedBytes
	}
	return size
}

// sortIfDue sorts the increments if the shared rows hold many.
func (s *Store) sortIfDue() {
	if s.unsorted.entries < sortEntries && s.unsorted.bytes < sortBytes {
		return
	}
	s.unsorted = sizeOfIncrements{} // after a failure the next attempt comes after as many increments
	s.commit([]*update{{fn: (*Tx).sortIncrements, done: make(chan struct{})}})
}

// sharedIncrements reads the shared rows.
func (tx *Tx) sharedIncrements() (out []increment, err error) {
	rows, err := tx.q.Query(`SELECT last_event_id, body FROM increments WHERE last_event_id > (SELECT sorted_event_id FROM log) ORDER BY last_event_id`)
	if err != nil {
		return nil, fmt.Errorf("read increments: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var last loquat.EventID
		var body []byte
		if err := rows.Scan(&last, &body); err != nil {
			return nil, err
		}
		if err := eachIncrement(last, body, func(e increment) { out = append(out, e) }); err != nil {
			return nil, err
		}
	}
	return out, asDatabaseError(rows.Err())
}
