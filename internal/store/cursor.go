package store

import (
	"database/sql"
	"errors"
	"loquat"
)

// Checkpoint publishes the checkpoint that follows a change and writes the head. The
// checkpoint becomes the cursor, unless keepCursor is true because clients would otherwise
// skip increments in flight.
func (tx *Tx) Checkpoint(h *Head, req *Request, keepCursor bool) error {
	now, count := tx.Now, h.Count
	e := loquat.Event{Type: loquat.Checkpoint, Timestamp: &now, MessageCount: &count}
	updated := now
	if h.timed {
		updated = h.UpdatedAt
		e.UpdatedAt = &updated
	}
	if h.described {
		e.AgentID, e.Metadata = h.AgentID, h.Metadata
		if tx.shown != nil {
			e.Metadata = (*tx.shown)(h.Metadata)
		}
		if err := tx.writeDescription(h); err != nil {
			return err
		}
	}
	id, err := tx.Publish(e, h, req)
	if err != nil {
		return err
	}
	h.Checkpoint, h.UpdatedAt, h.described, h.timed = id, updated, false, false
	if !keepCursor {
		h.Cursor = id
	}
	if err := tx.moveTags(h); err != nil {
		return err
	}
	return tx.exec(`UPDATE sessions SET rev = ?, cursor_event_id = ?, checkpoint_event_id = ?, message_count = ?,
		message_bytes = ?, next_seq = ?, edited_rev = ?, updated_at = ? WHERE sid = ?`,
		h.Rev, h.Cursor, h.Checkpoint, h.Count, h.bytes, h.nextSeq, h.edited, micros(updated), h.SID)
}

// RevisionAt returns the revision of a session at one of its checkpoints. The error is gone if
// that event was removed.
func (r *Reader) RevisionAt(h Head, at loquat.EventID) (int64, error) {
	if at == h.Cursor { // every change of messages moves the cursor
		return h.Rev, nil
	}
	var rev int64
	err := one(r.q, `SELECT rev FROM events WHERE event_id = ? AND sid = ? AND type = 'checkpoint'`, []any{at, h.SID}, &rev)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, loquat.Errorf(loquat.CodeGone, "the snapshot at %s is not kept; load the messages again without at", at)
	}
	return rev, err
}
