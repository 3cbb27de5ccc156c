package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"loquat"
)

// A long session is copied in several transactions, so that other updates need not wait
// for the whole copy. They fill a draft, which readers cannot see. A last transaction
// copies the rest and turns the draft into a session. Cleanup removes dropped drafts.

// copyRows and copyBytes limit what one transaction copies.
const (
	copyRows  = 500
	copyBytes = 4 << 20
)

// ErrSourceChanged reports that messages of the source were changed or removed during the
// copy.
var ErrSourceChanged = errors.New("the session was changed while it was copied")

// Long reports whether the messages are too many or too large to be copied in one transaction.
func (h Head) Long() bool { return h.Count > copyRows || h.bytes > copyBytes }

// Draft is an unfinished copy of a session. The zero Draft has not been begun.
type Draft struct {
	Head  Head
	begun bool
	rev   int64 // revision of the source at the last copied part
}

// Begun reports whether the draft has rows that DropDraft must remove.
func (d Draft) Begun() bool { return d.begun }

// PrepareCopy copies messages of a session to a draft until one transaction can copy the rest.
// It copies up to index upTo, or all messages if upTo is nil. The caller must finish or drop
// the draft, even after an error.
func (s *Store) PrepareCopy(ctx context.Context, from, to string, upTo *int) (Draft, error) {
	var d Draft
	more := false
	err := s.View(ctx, func(r *Reader) error {
		source, err := r.Head(from)
		more = err == nil && d.needsAnotherPart(source, upTo)
		return err
	})
	for more && err == nil {
		var next Draft
		err = s.Update(ctx, func(tx *Tx) error {
			next, more = d, false
			source, err := tx.Head(from)
			if err != nil {
				return err
			}
			if err := tx.copyPart(source, &next, to, upTo); err != nil {
				return err
			}
			more = next.needsAnotherPart(source, upTo)
			return nil
		})
		if err == nil {
			d = next
		}
	}
	return d, err
}

// remaining returns how many messages are still to be copied. It is 0 if upTo is out of range.
func (d Draft) remaining(source Head, upTo *int) int {
	switch {
	case upTo == nil:
		return source.Count - d.Head.Count
	case *upTo < source.Count:
		return *upTo + 1 - d.Head.Count
	}
	return 0
}

func (d Draft) needsAnotherPart(source Head, upTo *int) bool {
	rows := d.remaining(source, upTo)
	return rows > copyRows || rows > 0 && source.bytes-d.Head.bytes > copyBytes
}

func (d Draft) sourceChanged(source Head) bool { return d.begun && source.edited > d.rev }

func (tx *Tx) copyPart(source Head, d *Draft, to string, upTo *int) (err error) {
	if d.sourceChanged(source) {
		return ErrSourceChanged
	}
	if !d.begun {
		if *d, err = tx.BeginDraft(to, source.AgentID); err != nil {
			return err
		}
	}
	return tx.copyRows(source, d, min(copyRows, d.remaining(source, upTo)), copyBytes)
}

// FinishCopy copies the remaining messages and their assets, and returns the finished session.
// If nothing was prepared, it creates the session. The caller must publish its first
// Checkpoint. If the source was changed, it fails with ErrSourceChanged and changes nothing.
func (tx *Tx) FinishCopy(source Head, d Draft, to, agentID string, metadata loquat.Object, upTo *int) (Head, error) {
	var err error
	whole := true
	switch {
	case d.sourceChanged(source):
		return Head{}, ErrSourceChanged
	case d.begun:
		tx.Describe(&d.Head, agentID, metadata)
		whole, err = tx.execOne(`UPDATE sessions SET deleted = 0 WHERE sid = ? AND deleted = 3`, d.Head.SID)
	default:
		d.Head, err = tx.CreateSession(to, agentID, metadata)
	}
	if err != nil {
		return Head{}, err
	}
	if !whole { // the draft was dropped meanwhile, and the cleanup may have removed rows of it
		return Head{}, ErrSourceChanged
	}
	if err := tx.SetUser(&d.Head, source.User); err != nil {
		return Head{}, err
	}
	if err := tx.copyRows(source, &d, d.remaining(source, upTo), math.MaxInt64); err != nil {
		return Head{}, err
	}
	if err := tx.copyRuns(source, d.Head); err != nil {
		return Head{}, err
	}
	if err := tx.copyAssets(source, d.Head); err != nil {
		return Head{}, err
	}
	origin := loquat.Origin{SourceSessionID: source.SessionID}
	if d.Head.Count > 0 {
		origin.SourceIndex = new(d.Head.Count - 1)
	}
	err = tx.SetOrigin(&d.Head, origin)
	return d.Head, err
}

// copyRows copies the current versions of the next messages: at most rows messages, and none
// after bytes is exceeded.
func (tx *Tx) copyRows(source Head, d *Draft, rows int, bytes int64) error {
	h := &d.Head
	found, err := tx.q.Query(`SELECT seq, `+messageSize+` FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? ORDER BY seq LIMIT ?`, source.SID, h.nextSeq, rows)
	if err != nil {
		return fmt.Errorf("read messages: %w", err)
	}
	defer found.Close()
	first, next := h.nextSeq, h.nextSeq
	for ; bytes > 0 && found.Next(); h.Count++ {
		var size int64
		if err := found.Scan(&next, &size); err != nil {
			return fmt.Errorf("read message: %w", err)
		}
		next++
		bytes -= size
		h.bytes += size
	}
	if err := found.Close(); err != nil {
		return asDatabaseError(err)
	}
	h.nextSeq, d.rev = next, source.Rev
	err = tx.exec(`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at, text_bytes)
		SELECT ?, seq, ?, message_id, role, content, metadata, created_at, text_bytes FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? AND seq < ?`, h.SID, h.Rev, source.SID, first, next)
	if err != nil {
		return fmt.Errorf("copy messages: %w", err)
	}
	err = tx.exec(`INSERT INTO message_texts (message, field, text_id, size)
		SELECT copy.id, t.field, t.text_id, t.size FROM messages m JOIN message_texts t ON t.message = m.id
		JOIN messages copy ON copy.sid = ? AND copy.seq = m.seq AND copy.rev_to IS NULL
		WHERE m.sid = ? AND m.rev_to IS NULL AND m.seq >= ? AND m.seq < ? AND m.text_bytes > 0`, h.SID, source.SID, first, next)
	if err != nil {
		return fmt.Errorf("copy texts: %w", err)
	}
	return nil
}

// DropDraft marks a draft for removal. It does nothing to a finished draft or one that was not
// begun.
func (tx *Tx) DropDraft(d Draft) error {
	return tx.exec(`UPDATE sessions SET deleted = 1 WHERE sid = ? AND deleted = 3`, d.Head.SID)
}

// DropDrafts marks the drafts that were begun before a time for removal.
func (tx *Tx) DropDrafts(before time.Time) error {
	return tx.exec(`UPDATE sessions SET deleted = 1 WHERE deleted = 3 AND created_at < ?`, micros(before))
}
