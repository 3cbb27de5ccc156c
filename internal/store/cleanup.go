package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// cleanupRows is the most rows that one transaction removes, so that other updates wait only
// briefly.
const cleanupRows = 500

// What one transaction of a cleanup does to requests and sessions is bounded, too: on PostgreSQL each statement
// takes a round trip.
const (
	rowsOfRequest     = 20 // as how many removed rows a request counts whose increments are removed, with 3 statements
	pruneStatements   = 80 // for the requests and sessions of removed events
	sessionStatements = 5  // for a session of removed events; a request has one
)

// Cleanup removes, in small transactions, what is no longer needed: events past the retention
// (pruning), increments of ended requests, message versions that no event refers to, rows of
// deleted sessions, and answers past ReplayAge. It returns when nothing is left to remove, and
// shrinks the file. If one kind of them cannot be removed, it goes on with the others.
func (s *Store) Cleanup(ctx context.Context) error {
	var errs []error
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"remove events past the retention", s.prune},
		{"remove the increments of ended requests", s.removeIncrements},
		{"remove deleted sessions", s.repeat(removeDeletedSession)},
		{"remove old answers", s.repeat(removeOldReplays)},
		{"remove old counts", s.repeat((*Tx).forgetMeters)},
		{"remove old entries of the audit", s.repeat((*Tx).forgetAudit)},
		{"shrink the file", s.repeat(reclaim)},
	} {
		err := step.run(ctx)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		if ctx.Err() != nil || s.failing.Load() != nil { // the others would fail, too
			break
		}
	}
	return errors.Join(errs...)
}

// repeat returns a function that runs a step in a transaction again and again, until there is nothing more to do.
func (s *Store) repeat(step func(*Tx) (more bool, err error)) func(context.Context) error {
	return func(ctx context.Context) error {
		for more := true; more; {
			err := s.Update(ctx, func(tx *Tx) (err error) {
				more, err = step(tx)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// remove runs a DELETE that ends in LIMIT ? and returns the number of removed rows.
func (tx *Tx) remove(query string, args ...any) (int64, error) {
	tx.wrote = true
	return tx.q.Exec(query, append(args, cleanupRows)...)
}

// removeIncrements removes the increments of the requests that have ended. A reader that reads
// past a request's end arrives at the same state without them, so no cursor becomes too old.
// Their ids are not used again.
func (s *Store) removeIncrements(ctx context.Context) error {
	for {
		ended, err := Do(ctx, s, (*Tx).sortEnded)
		if err != nil || len(ended) == 0 {
			return err
		}
		for len(ended) > 0 {
			ended, err = Do(ctx, s, func(tx *Tx) ([]int64, error) { return tx.removeIncrementsOf(ended) })
			if err != nil {
				return err
			}
		}
	}
}

// sortEnded returns requests that have ended and may have increments. None of them are in
// shared rows any more.
func (tx *Tx) sortEnded() (ended []int64, err error) {
	rows, err := tx.q.Query(`SELECT rid FROM requests WHERE thinned = 0 AND ended_at IS NOT NULL LIMIT ?`, cleanupRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var rid int64
		if err := rows.Scan(&rid); err != nil {
			return nil, err
		}
		ended = append(ended, rid)
	}
	if err := rows.Err(); err != nil || len(ended) == 0 {
		return nil, asDatabaseError(err)
	}
	return ended, tx.sortIncrements()
}

// removeIncrementsOf removes some increments of requests, the newest first: a node that has not read
// the end of a request yet may read the beginning of a text, but not the rest alone. It returns the
// requests that may have more.
// Increments among the events were written by earlier versions.
func (tx *Tx) removeIncrementsOf(requests []int64) ([]int64, error) {
	if err := tx.keepLastID(); err != nil { // see lastEventID
		return nil, err
	}
	for removed := int64(0); len(requests) > 0 && removed < cleanupRows; requests = requests[1:] {
		removed += rowsOfRequest
		for _, statement := range []string{
			`DELETE FROM increments WHERE last_event_id IN (SELECT last_event_id FROM increments WHERE rid = ? ORDER BY last_event_id DESC LIMIT ?)`,
			`DELETE FROM events WHERE event_id IN (SELECT event_id FROM events WHERE rid = ? AND type IN ('partial', 'tool_partial') ORDER BY event_id DESC LIMIT ?)`,
		} {
			n, err := tx.remove(statement, requests[0])
			if err != nil || n == cleanupRows {
				return requests, err
			}
			removed += n
		}
		if err := tx.exec(`UPDATE requests SET thinned = 1 WHERE rid = ?`, requests[0]); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

// removeDeletedSession removes some rows of one deleted session. The rows of the session and
// of its requests stay, because their ids stay taken. The session_deleted event stays too.
func removeDeletedSession(tx *Tx) (more bool, err error) {
	var sid int64
	err = one(tx.q, `SELECT sid FROM sessions WHERE deleted = 1 ORDER BY sid LIMIT 1`, nil, &sid)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := tx.dropAlternatives(`sid = ?`, sid); err != nil {
		return false, err
	}
	if more, err := freeAssets(tx, sid); more || err != nil {
		return true, err
	}
	for _, statement := range []string{
		`DELETE FROM events WHERE event_id IN (SELECT event_id FROM events WHERE sid = ? AND type <> 'session_deleted' LIMIT ?)`,
		`DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE sid = ? LIMIT ?)`,
		`DELETE FROM message_runs WHERE (sid, first_index) IN (SELECT sid, first_index FROM message_runs WHERE sid = ? LIMIT ?)`,
		`DELETE FROM descriptions WHERE (sid, rev_from) IN (SELECT sid, rev_from FROM descriptions WHERE sid = ? LIMIT ?)`,
		`DELETE FROM unattached WHERE (sid, asset_id) IN (SELECT sid, asset_id FROM unattached WHERE sid = ? LIMIT ?)`,
		`DELETE FROM asset_uses WHERE (sid, asset_id, seq) IN (SELECT sid, asset_id, seq FROM asset_uses WHERE sid = ? LIMIT ?)`,
	} {
		if n, err := tx.remove(statement, sid); err != nil || n > 0 {
			return true, err
		}
	}
	return true, tx.exec(`UPDATE sessions SET deleted = 2 WHERE sid = ?`, sid)
}

// freeAssets removes some assets of a deleted session and queues their files for removal.
func freeAssets(tx *Tx, sid int64) (more bool, err error) {
	const some = `FROM assets WHERE sid = ? ORDER BY asset_id LIMIT ?`
	if err := tx.exec(`INSERT INTO freed_files (sha256) SELECT DISTINCT sha256 FROM (SELECT sha256 `+some+`) f WHERE true ON CONFLICT (sha256) DO NOTHING`, sid, cleanupRows); err != nil {
		return false, err
	}
	n, err := tx.remove(`DELETE FROM assets WHERE (sid, asset_id) IN (SELECT sid, asset_id `+some+`)`, sid)
	return n > 0, err
}

func removeOldReplays(tx *Tx) (more bool, err error) {
	n, err := tx.remove(`DELETE FROM answers WHERE (idempotency_key, method, path) IN
		(SELECT idempotency_key, method, path FROM answers WHERE at <= ? LIMIT ?)`, micros(tx.Now.Add(-ReplayAge)))
	return n == cleanupRows, err
}

// reclaim shrinks the database file if the driver supports it.
func reclaim(tx *Tx) (more bool, err error) {
	tx.wrote = true
	return tx.log.Reclaim()
}

// SetRetention sets the age at which events may be removed; 0 keeps all events.
func (s *Store) SetRetention(age time.Duration) { s.retention.Store(int64(age)) }

// prune removes events past the retention. It keeps events of requests that have not ended,
// and events above their session's cursor: a client that loads a session can always continue
// from its cursor.
func (s *Store) prune(ctx context.Context) error {
	retention := time.Duration(s.retention.Load())
	if retention <= 0 {
		return nil
	}
	cutoff := time.Now().Add(-retention)
	for after := loquat.EventID(0); ; {
		var old []prunableEvent
		err := s.View(ctx, func(r *Reader) (err error) {
			old, err = r.prunableEvents(after, cutoff)
			return err
		})
		if err != nil || len(old) == 0 {
			return err
		}
		after = old[len(old)-1].id
		s.tail.announceRemoval(newestEssential(old))
		if err := s.Update(ctx, func(tx *Tx) error { return tx.pruneEvents(old) }); err != nil {
			return err
		}
		s.tail.finishRemoval()
	}
}

func newestEssential(old []prunableEvent) (id loquat.EventID) {
	for _, e := range old {
		if e.essential {
			id = e.id
		}
	}
	return id
}

// prunableEvent is an event past the retention.
type prunableEvent struct {
	id        loquat.EventID
	sid       int64
	rid       sql.NullInt64
	essential bool // not an increment: once removed, cursors below it are too old (410)
}

// prunableEvents returns the next events above after that may be removed, of a few sessions and requests. It uses
// a read transaction, so writers do not wait; events that must stay are read again in each run.
func (r *Reader) prunableEvents(after loquat.EventID, cutoff time.Time) ([]prunableEvent, error) {
	until, err := r.lastBefore(cutoff)
	if err != nil {
		return nil, err
	}
	rows, err := r.q.Query(`SELECT e.event_id, e.sid, e.rid, e.type NOT IN ('partial', 'tool_partial')
		FROM events e JOIN sessions s ON s.sid = e.sid LEFT JOIN requests q ON q.rid = e.rid
		WHERE e.event_id > ? AND e.event_id <= ? AND (q.rid IS NULL OR q.ended_at IS NOT NULL)
		AND (e.event_id <= s.cursor_event_id OR s.deleted <> 0)
		ORDER BY e.event_id LIMIT ?`, after, until, cleanupRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []prunableEvent
	sessions, requests := map[int64]bool{}, map[int64]bool{}
	for rows.Next() {
		var e prunableEvent
		if err := rows.Scan(&e.id, &e.sid, &e.rid, &e.essential); err != nil {
			return nil, err
		}
		sessions[e.sid] = true
		if e.rid.Valid {
			requests[e.rid.Int64] = true
		}
		if sessionStatements*len(sessions)+len(requests) > pruneStatements { // never for the first event
			return out, nil
		}
		out = append(out, e)
	}
	return out, asDatabaseError(rows.Err())
}

// lastBefore returns the highest id of an event published before cutoff. It bisects, because
// ids grow with time.
func (r *Reader) lastBefore(cutoff time.Time) (loquat.EventID, error) {
	var low, high sql.NullInt64
	if err := one(r.q, `SELECT min(event_id), max(event_id) FROM events`, nil, &low, &high); err != nil {
		return 0, err
	}
	if !low.Valid {
		return 0, nil
	}
	below, above := low.Int64-1, high.Int64+1 // events up to below are older than cutoff, events from above on are not
	for above-below > 1 {
		middle := below + (above-below)/2
		var id, at int64
		err := one(r.q, `SELECT event_id, at FROM events WHERE event_id >= ? ORDER BY event_id LIMIT 1`, []any{middle}, &id, &at)
		if err != nil {
			return 0, err
		}
		if at < micros(cutoff) {
			below = id
		} else {
			above = middle
		}
	}
	return loquat.EventID(below), nil
}

// pruneEvents removes events. For each filter that matches them it stores the newest removed
// event, below which cursors are too old.
func (tx *Tx) pruneEvents(old []prunableEvent) error {
	sessions, requests, ids := map[int64]loquat.EventID{}, map[int64]loquat.EventID{}, make([]int64, len(old))
	for i, e := range old {
		ids[i] = int64(e.id)
		if _, seen := sessions[e.sid]; !seen {
			sessions[e.sid] = 0
		}
		if !e.essential {
			continue
		}
		sessions[e.sid] = e.id
		if e.rid.Valid {
			requests[e.rid.Int64] = e.id
		}
	}
	err := eachIDs(ids, func(list string, args []any) error {
		return tx.exec(`DELETE FROM events WHERE event_id IN `+list, args...)
	})
	if err != nil {
		return err
	}
	gone := newestEssential(old)
	if err := tx.exec(`UPDATE log SET gone_event_id = ? WHERE gone_event_id < ?`, gone, gone); err != nil {
		return err
	}
	for rid, id := range requests {
		if err := tx.exec(`UPDATE requests SET gone_event_id = ? WHERE rid = ? AND gone_event_id < ?`, id, rid, id); err != nil {
			return err
		}
	}
	for sid, id := range sessions {
		if err := tx.exec(`UPDATE sessions SET gone_event_id = ? WHERE sid = ? AND gone_event_id < ?`, id, sid, id); err != nil {
			return err
		}
		if err := tx.removeVersions(sid); err != nil {
			return err
		}
	}
	return nil
}

// removeVersions removes message versions, descriptions and asset uses of a session that ended
// before the oldest revision that an event refers to.
func (tx *Tx) removeVersions(sid int64) error {
	var oldest int64
	err := one(tx.q, `SELECT coalesce((SELECT rev FROM events WHERE sid = ? AND rev > 0 ORDER BY event_id LIMIT 1), (SELECT rev FROM sessions WHERE sid = ?))`,
		[]any{sid, sid}, &oldest)
	if err != nil {
		return err
	}
	if err := tx.exec(`DELETE FROM messages WHERE sid = ? AND rev_to <= ?`, sid, oldest); err != nil {
		return err
	}
	err = tx.exec(`DELETE FROM asset_uses AS u WHERE sid = ? AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sid = u.sid AND m.seq = u.seq)`, sid)
	if err != nil {
		return err
	}
	return tx.exec(`DELETE FROM descriptions WHERE sid = ? AND rev_from <
		(SELECT max(rev_from) FROM descriptions WHERE sid = ? AND rev_from <= ?)`, sid, sid, oldest)
}

// NewestRemoved returns the newest event removed by retention that matches a filter, or 0. A
// reader with a cursor below it would miss events.
func (r *Reader) NewestRemoved(f Filter) (id loquat.EventID, err error) {
	switch {
	case f.RequestID != "":
		err = one(r.q, `SELECT gone_event_id FROM requests WHERE request_id = ?`, []any{f.RequestID}, &id)
	case f.SessionID != "":
		err = one(r.q, `SELECT gone_event_id FROM sessions WHERE session_id = ?`, []any{f.SessionID}, &id)
	default:
		err = one(r.q, `SELECT gone_event_id FROM log`, nil, &id)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// NewestRemovedOverall returns, from memory, the newest event that retention has removed or is
// about to remove. settled is true while no removal is running. A result of NewestRemoved that
// was read while settled stays valid until NewestRemovedOverall returns another id.
func (s *Store) NewestRemovedOverall() (id loquat.EventID, settled bool) {
	return s.tail.newestRemoved()
}
