package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// An import writes a long session to a draft, as a fork does, and a short one in one transaction.

// errDraftDropped reports that a cleanup has removed a draft.
var errDraftDropped = errors.New("the unfinished session was removed meanwhile; try again")

// BeginDraft creates a session that readers cannot see, under an id that is not used.
func (tx *Tx) BeginDraft(draftID, agentID string) (Draft, error) {
	h, err := tx.CreateSession(draftID, agentID, nil)
	if err == nil {
		err = tx.exec(`UPDATE sessions SET deleted = 3 WHERE sid = ?`, h.SID)
	}
	return Draft{Head: h, begun: err == nil}, err
}

// OnePart reports whether one transaction can write all the messages.
func OnePart(messages []loquat.Message) bool { return firstPart(messages) == len(messages) }

// firstPart returns how many of the messages one transaction writes.
func firstPart(messages []loquat.Message) int {
	bytes := int64(0)
	for i, m := range messages {
		if i == copyRows || bytes > copyBytes {
			return i
		}
		bytes += int64(len(m.Content)+m.Metadata.Size()) + messageOverhead
	}
	return len(messages)
}

// FillDraft appends messages to a draft until one transaction can append the rest, which it
// returns. Its caller must finish or drop the draft, even after an error.
func (s *Store) FillDraft(ctx context.Context, d Draft, messages []loquat.Message) (Draft, []loquat.Message, error) {
	for !OnePart(messages) {
		n := firstPart(messages)
		next, err := Do(ctx, s, func(tx *Tx) (Draft, error) {
			next := d
			err := tx.appendAll(&next.Head, messages[:n])
			next.Head.appended = nil
			return next, err
		})
		if err != nil {
			return d, nil, err
		}
		d, messages = next, messages[n:]
	}
	return d, messages, nil
}

func (tx *Tx) appendAll(h *Head, messages []loquat.Message) error {
	for _, m := range messages {
		if _, err := tx.AppendMessage(h, m); err != nil {
			return err
		}
	}
	return nil
}

// FinishDraft makes a draft a session under an id that is not used, and appends the last messages.
// If the draft was not begun, it creates the session. The caller must publish its first Checkpoint.
func (tx *Tx) FinishDraft(d Draft, sessionID, agentID string, metadata loquat.Object, rest []loquat.Message) (Head, error) {
	if !d.begun {
		h, err := tx.CreateSession(sessionID, agentID, metadata)
		if err == nil {
			err = tx.appendAll(&h, rest)
		}
		return h, err
	}
	h := d.Head
	h.SessionID = sessionID
	if metadata == nil {
		metadata = loquat.Object{}
	}
	tx.Describe(&h, agentID, metadata)
	ok, err := tx.execOne(`UPDATE sessions SET session_id = ?, deleted = 0 WHERE sid = ? AND deleted = 3`, sessionID, h.SID)
	if err != nil {
		return Head{}, fmt.Errorf("finish the session: %w", err)
	}
	if !ok {
		return Head{}, errDraftDropped
	}
	return h, tx.appendAll(&h, rest)
}

// SetTimes sets when a session was created, and when it was updated. The next Checkpoint keeps the
// latter and shows it; those after it set it again.
func (tx *Tx) SetTimes(h *Head, created, updated time.Time) error {
	h.CreatedAt, h.UpdatedAt, h.timed = fromMicros(micros(created)), fromMicros(micros(updated)), true
	return tx.exec(`UPDATE sessions SET created_at = ? WHERE sid = ?`, micros(created), h.SID)
}

// UsedAssets returns the assets of a session that its messages use, in the order of their first
// use. Those of one message are sorted by id.
func (r *Reader) UsedAssets(h Head) (out []loquat.Asset, err error) {
	rows, err := r.q.Query(`SELECT a.asset_id, a.sha256, a.media_type, a.size, a.name FROM assets a
		JOIN asset_uses u ON u.sid = a.sid AND u.asset_id = a.asset_id
		JOIN messages m ON m.sid = u.sid AND m.seq = u.seq AND m.rev_to IS NULL
		WHERE a.sid = ? GROUP BY a.asset_id, a.sha256, a.media_type, a.size, a.name ORDER BY min(u.seq), a.asset_id`, h.SID)
	if err != nil {
		return nil, fmt.Errorf("read the assets of a session: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var a loquat.Asset
		if err := rows.Scan(&a.AssetID, &a.SHA256, &a.MediaType, &a.Size, &a.Name); err != nil {
			return nil, fmt.Errorf("read the assets of a session: %w", err)
		}
		out = append(out, a)
	}
	return out, asDatabaseError(rows.Err())
}
