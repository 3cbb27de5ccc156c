package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"loquat"
)

// A long session is copied in pieces, so that nobody waits for all of it: they go to a
// draft, which nobody sees, and one last transaction copies the rest and makes it a
// session. A draft that is given up is swept as deleted sessions are.

// copyRows and copyBytes bound what one transaction copies of a session.
const (
	copyRows  = 500
	copyBytes = 4 << 20
)

// ErrSourceChanged says that messages were changed or removed while they were copied.
var ErrSourceChanged = errors.New("the session was changed while it was copied")

// Long reports whether the messages of a session are too many, or too large, to be read
// or written in one transaction while others wait.
func (h Head) Long() bool { return h.Count > copyRows || h.bytes > copyBytes }

// Draft is the copy of a session as far as it is made. The zero Draft is one that is not
// begun.
type Draft struct {
	Head  Head
	begun bool
	rev   int64 // of the source when the last piece was copied
}

// Begun reports whether there is something to drop.
func (d Draft) Begun() bool { return d.begun }

// PrepareCopy copies the first messages of a session (all when upTo is nil, else those up
// to that index) to a draft, until what is left is little enough for one transaction.
// The draft is the caller's to finish or to drop, also when this fails.
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

// lacks returns how many messages are still to be copied: none up to an index that is
// not there.
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
		if d.Head, err = tx.CreateSession(to, source.AgentID, nil); err != nil {
			return err
		}
		d.begun = true
		if err := tx.exec(`UPDATE sessions SET deleted = 3 WHERE sid = ?`, d.Head.SID); err != nil {
			return err
		}
	}
	return tx.copyRows(source, d, min(copyRows, d.remaining(source, upTo)), copyBytes)
}

// FinishCopy copies what a draft lacks, with the assets that its messages name, and
// returns the session that it now is: a new one when nothing was prepared. Its first
// Checkpoint has to follow. It fails with ErrSourceChanged, and without a trace, when the
// draft is no longer like its source.
func (tx *Tx) FinishCopy(source Head, d Draft, to, agentID string, metadata loquat.Object, upTo *int) (Head, error) {
	var err error
	switch {
	case d.sourceChanged(source):
		return Head{}, ErrSourceChanged
	case d.begun:
		tx.Describe(&d.Head, agentID, metadata)
		err = tx.exec(`UPDATE sessions SET deleted = 0 WHERE sid = ?`, d.Head.SID)
	default:
		d.Head, err = tx.CreateSession(to, agentID, metadata)
	}
	if err != nil {
		return Head{}, err
	}
	if err := tx.copyRows(source, &d, d.remaining(source, upTo), math.MaxInt64); err != nil {
		return Head{}, err
	}
	return d.Head, tx.copyAssets(source, d.Head)
}

// copyRows copies the next messages as they are now: at most so many, and no more after
// so many bytes.
func (tx *Tx) copyRows(source Head, d *Draft, rows int, bytes int64) error {
	h := &d.Head
	found, err := tx.q.Query(`SELECT seq, octet_length(content) + coalesce(octet_length(metadata), 0) + ? FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? ORDER BY seq LIMIT ?`, messageOverhead, source.SID, h.nextSeq, rows)
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
	err = tx.exec(`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at)
		SELECT ?, seq, ?, message_id, role, content, metadata, created_at FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? AND seq < ?`, h.SID, h.Rev, source.SID, first, next)
	if err != nil {
		return fmt.Errorf("copy messages: %w", err)
	}
	return nil
}

// DropDraft gives up a draft; one that was finished, or not begun, stays as it is.
func (tx *Tx) DropDraft(d Draft) error {
	return tx.exec(`UPDATE sessions SET deleted = 1 WHERE sid = ? AND deleted = 3`, d.Head.SID)
}

// DropDrafts gives up the drafts of a process that died.
func (tx *Tx) DropDrafts() error {
	return tx.exec(`UPDATE sessions SET deleted = 1 WHERE deleted = 3`)
}
