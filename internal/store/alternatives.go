package store

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"loquat"
)

// A session has alternatives at an index: ends of its messages, of which one is in place and the others
// are kept. The messages of a kept end are those of a hidden session, which nothing but this file reads.
//
// An alternative hangs in the messages before it: in those of the session, or in those of a kept
// end, and goes with them. So the alternatives of a session are a tree, and those at its present
// messages are the ones whose holder is the session.
//
// Messages of a kept end share their large texts with those that they were copied from.

// deletedHidden is the value of the column deleted of a hidden session.
const deletedHidden = 4

// Alternative is one of the ends at an index of a session's messages.
type Alternative struct {
	N         int64 // its number in the session
	Index     int   // of its first message
	CreatedAt time.Time
	InPlace   bool  // its messages are those of the session from Index on
	Count     int   // messages, unless it is in place
	Bytes     int64 // approximate size of the messages as JSON, unless it is in place

	after string // id of the message before
	kept  int64  // sid of its messages; 0 if it is in place
}

// Alternatives returns the alternatives at the messages of a session, by index and then by number: all,
// or those at one index.
func (r *Reader) Alternatives(h Head, index *int) ([]Alternative, error) {
	if index != nil {
		return r.alternatives(h, `a.at_index = ? ORDER BY a.n`, *index)
	}
	return r.alternatives(h, `a.at_index <= ? ORDER BY a.at_index, a.n`, h.Count)
}

// Alternative returns an alternative at the messages of a session. The error is not_found if there
// is none with this number.
func (r *Reader) Alternative(h Head, n int64) (Alternative, error) {
	found, err := r.alternatives(h, `a.n = ?`, n)
	if err == nil && len(found) == 0 {
		return Alternative{}, loquat.Errorf(loquat.CodeNotFound, "session %s has no alternative %d at its messages; list its alternatives", h.SessionID, n)
	}
	if err != nil {
		return Alternative{}, err
	}
	return found[0], nil
}

// alternatives returns those whose message before is still there: programs that do not know alternatives
// delete messages, too.
func (r *Reader) alternatives(h Head, where string, args ...any) ([]Alternative, error) {
	found, err := r.alternativeRows(h, where, args...)
	if err != nil {
		return nil, err
	}
	out := found[:0]
	for _, a := range found {
		after, err := r.messageIDBefore(h, a.Index)
		if err != nil {
			return nil, err
		}
		if after == a.after && a.Index <= h.Count {
			out = append(out, a)
		}
	}
	return out, nil
}

func (r *Reader) alternativeRows(h Head, where string, args ...any) (out []Alternative, err error) {
	rows, err := r.q.Query(`SELECT a.n, a.at_index, a.created_at, a.after_id, coalesce(a.kept, 0), coalesce(k.message_count, 0), coalesce(k.message_bytes, 0)
		FROM alternatives a LEFT JOIN sessions k ON k.sid = a.kept WHERE a.sid = ? AND a.holder = ? AND `+where, append([]any{h.SID, h.SID}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read alternatives: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var a Alternative
		var created int64
		if err := rows.Scan(&a.N, &a.Index, &created, &a.after, &a.kept, &a.Count, &a.Bytes); err != nil {
			return nil, fmt.Errorf("read alternative: %w", err)
		}
		a.CreatedAt, a.InPlace = fromMicros(created), a.kept == 0
		out = append(out, a)
	}
	return out, asDatabaseError(rows.Err())
}

// messageIDBefore returns the id of the message before an index, or "" if there is none.
func (r *Reader) messageIDBefore(h Head, index int) (id string, err error) {
	if index == 0 || index > h.Count {
		return "", nil
	}
	seq, err := r.seqOf(h, index-1)
	if err == nil {
		err = one(r.q, `SELECT message_id FROM messages WHERE sid = ? AND rev_to IS NULL AND seq = ?`, []any{h.SID, seq}, &id)
	}
	return id, err
}

// Preview returns the beginning of the first message of an alternative of a session, at least a few
// hundred characters.
func (r *Reader) Preview(h Head, a Alternative) (text string, err error) {
	sid, seq := a.kept, int64(0)
	if a.InPlace {
		if sid = h.SID; a.Index == h.Count {
			return "", nil
		}
		if seq, err = r.seqOf(h, a.Index); err != nil {
			return "", err
		}
	}
	var id, large int64
	err = one(r.q, `SELECT id, content, text_bytes FROM messages WHERE sid = ? AND rev_to IS NULL AND seq >= ? ORDER BY seq LIMIT 1`, []any{sid, seq}, &id, &text, &large)
	if err != nil || text != "" || large == 0 {
		return text, err
	}
	var piece []byte
	err = one(r.q, `SELECT x.body FROM message_texts t JOIN texts x ON x.text_id = t.text_id AND x.piece = 0 WHERE t.message = ? AND t.field = ?`, []any{id, ""}, &piece)
	if errors.Is(err, sql.ErrNoRows) { // its metadata are large
		return "", nil
	}
	return string(piece), err
}

// MessagesOf returns the messages of an alternative of a session.
func (r *Reader) MessagesOf(h Head, a Alternative) ([]loquat.Message, error) {
	if a.InPlace {
		return r.Messages(h, h.Rev, a.Index, -1)
	}
	return r.keptMessages(a.kept)
}

// keptMessages returns the messages of a hidden session, whose keys need not begin at 0.
func (r *Reader) keptMessages(sid int64) ([]loquat.Message, error) {
	return r.scanMessages(`SELECT `+messageColumns+` FROM messages WHERE sid = ? AND rev_to IS NULL ORDER BY seq`, sid)
}

// KeptWith returns the number of a kept alternative of a session that uses an asset.
func (r *Reader) KeptWith(h Head, assetID string) (n int64, ok bool, err error) {
	err = one(r.q, `SELECT a.n FROM alternatives a JOIN asset_uses u ON u.sid = a.kept WHERE a.sid = ? AND u.asset_id = ? LIMIT 1`, []any{h.SID, assetID}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return n, err == nil, err
}

// hiddenHead returns the head of a hidden session.
func (r *Reader) hiddenHead(sid int64) (Head, error) {
	return scanHead(func(dest ...any) error {
		return one(r.q, `SELECT `+headColumns+` FROM sessions s WHERE s.sid = ? AND s.deleted = ?`, []any{sid, deletedHidden}, dest...)
	})
}

// KeepFrom removes all messages starting at an index and keeps them as an alternative. What is appended
// next belongs to a new alternative. It returns the indices of the messages.
func (tx *Tx) KeepFrom(h *Head, index int) ([]int, error) {
	inPlace, err := tx.isInPlace(*h, index)
	if err == nil {
		err = tx.requireFewAlternatives(*h, inPlace)
	}
	if err == nil && !inPlace { // these are the first alternatives at the index
		err = tx.addAlternative(h, index)
	}
	if err == nil {
		err = tx.hide(*h, index)
	}
	if err == nil {
		err = tx.addAlternative(h, index)
	}
	if err != nil {
		return nil, err
	}
	return tx.DeleteFrom(h, index)
}

// requireFewAlternatives returns an error if a session has no room for another alternative, and for the one in place
// if that does not count yet.
func (tx *Tx) requireFewAlternatives(h Head, inPlace bool) error {
	var count int
	err := one(tx.q, `SELECT count(*) FROM alternatives WHERE sid = ?`, []any{h.SID}, &count)
	added := 2
	if inPlace {
		added = 1
	}
	if err == nil && count+added > loquat.MaxAlternatives {
		err = loquat.Errorf(loquat.CodeConflict, "session %s has %d alternatives; remove some, or send without keep", h.SessionID, count)
	}
	return err
}

// addAlternative adds an alternative that is in place. Its number is a revision, so no number is used twice.
func (tx *Tx) addAlternative(h *Head, index int) error {
	after, err := tx.messageIDBefore(*h, index)
	if err != nil {
		return err
	}
	h.Rev++
	return tx.exec(`INSERT INTO alternatives (sid, n, holder, at_index, after_id, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		h.SID, h.Rev, h.SID, index, after, micros(tx.Now))
}

// isInPlace reports whether an alternative at an index is in place, which is so if there are any.
func (tx *Tx) isInPlace(h Head, index int) (ok bool, err error) {
	err = one(tx.q, `SELECT EXISTS (SELECT 1 FROM alternatives WHERE holder = ? AND at_index = ? AND kept IS NULL)`, []any{h.SID, index}, &ok)
	return ok, err
}

// hide copies the messages of the alternative in place at an index to a hidden session, which also gets
// the alternatives that hang in them.
func (tx *Tx) hide(h Head, index int) error {
	seq, err := tx.seqOf(h, index)
	if err != nil {
		return err
	}
	// No client can use an id with spaces.
	kept, err := tx.CreateSession(fmt.Sprintf("end of %d at %d in revision %d", h.SID, index, h.Rev), "", nil)
	if err != nil {
		return err
	}
	kept.nextSeq = seq
	d := Draft{Head: kept}
	if err := tx.copyRows(h, &d, h.Count-index, math.MaxInt64); err != nil {
		return err
	}
	if err := tx.copyAssets(h, d.Head); err != nil {
		return err
	}
	return tx.execAll([]statement{
		{`UPDATE sessions SET deleted = ?, rev = ?, message_count = ?, message_bytes = ?, next_seq = ? WHERE sid = ?`,
			[]any{deletedHidden, d.Head.Rev, d.Head.Count, d.Head.bytes, d.Head.nextSeq, d.Head.SID}},
		{`UPDATE alternatives SET kept = ? WHERE holder = ? AND at_index = ? AND kept IS NULL`, []any{d.Head.SID, h.SID, index}},
		{`UPDATE alternatives SET holder = ?, at_index = at_index - ? WHERE holder = ? AND at_index > ?`, []any{d.Head.SID, index, h.SID, index}},
	})
}

// statement is a statement with its arguments.
type statement struct {
	query string
	args  []any
}

// execAll runs statements until one fails.
func (tx *Tx) execAll(statements []statement) error {
	for _, s := range statements {
		if err := tx.exec(s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// KeepInPlace removes the messages that are in place of an alternative and keeps them in turn. It
// returns their indices.
func (tx *Tx) KeepInPlace(h *Head, a Alternative) ([]int, error) {
	if a.Index == h.Count {
		return nil, tx.exec(`DELETE FROM alternatives WHERE holder = ? AND at_index = ? AND kept IS NULL`, h.SID, a.Index)
	}
	if err := tx.hide(*h, a.Index); err != nil {
		return nil, err
	}
	return tx.DeleteFrom(h, a.Index)
}

// PutInPlace appends the messages of a kept alternative, at whose index the session ends. It calls
// appended for each message, when h is the session with this message and those before.
func (tx *Tx) PutInPlace(h *Head, a Alternative, appended func(loquat.Message) error) error {
	kept, err := tx.hiddenHead(a.kept)
	if err != nil {
		return err
	}
	messages, err := tx.keptMessages(kept.SID)
	if err != nil {
		return err
	}
	if err := tx.appendCopies(kept, h, func(i int) error { return appended(messages[i]) }); err != nil {
		return err
	}
	err = tx.execAll([]statement{
		{`UPDATE alternatives SET kept = NULL WHERE sid = ? AND n = ?`, []any{h.SID, a.N}},
		{`UPDATE alternatives SET holder = ?, at_index = at_index + ? WHERE holder = ?`, []any{h.SID, a.Index, kept.SID}},
		{`UPDATE sessions SET deleted = 1 WHERE sid = ?`, []any{kept.SID}},
	})
	if err != nil {
		return err
	}
	return tx.dropLast(*h, a.Index)
}

// dropLast removes the alternative in place at an index if no other is left there.
func (tx *Tx) dropLast(h Head, index int) error {
	return tx.exec(`DELETE FROM alternatives WHERE holder = ? AND at_index = ? AND kept IS NULL
		AND NOT EXISTS (SELECT 1 FROM alternatives o WHERE o.holder = ? AND o.at_index = ? AND o.kept IS NOT NULL)`, h.SID, index, h.SID, index)
}

// appendCopies appends copies of the messages of a hidden session, each in a revision of its own, and
// calls appended with the number of each.
func (tx *Tx) appendCopies(kept Head, h *Head, appended func(int) error) error {
	keys, err := tx.integers(`SELECT seq FROM messages WHERE sid = ? AND rev_to IS NULL ORDER BY seq`, kept.SID)
	if err != nil || len(keys) == 0 {
		return err
	}
	sizes, err := tx.integers(`SELECT `+messageSize+` FROM messages WHERE sid = ? AND rev_to IS NULL ORDER BY seq`, kept.SID)
	if err != nil {
		return err
	}
	ahead := h.nextSeq - keys[0]     // of the new keys
	revisions := h.Rev + 1 - keys[0] // what is added to a key
	err = tx.execAll([]statement{
		{`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at, text_bytes)
			SELECT ?, seq + ?, seq + ?, message_id, role, content, metadata, created_at, text_bytes FROM messages WHERE sid = ? AND rev_to IS NULL`,
			[]any{h.SID, ahead, revisions, kept.SID}},
		{`INSERT INTO message_texts (message, field, text_id, size)
			SELECT copy.id, t.field, t.text_id, t.size FROM messages m JOIN message_texts t ON t.message = m.id
			JOIN messages copy ON copy.sid = ? AND copy.seq = m.seq + ? AND copy.rev_to IS NULL
			WHERE m.sid = ? AND m.rev_to IS NULL AND m.text_bytes > 0`, []any{h.SID, ahead, kept.SID}},
		{`INSERT INTO asset_uses (sid, asset_id, seq) SELECT ?, asset_id, seq + ? FROM asset_uses WHERE sid = ?`, []any{h.SID, ahead, kept.SID}},
		{`INSERT INTO assets (sid, asset_id, sha256, media_type, size, name, created_at)
			SELECT ?, asset_id, sha256, media_type, size, name, created_at FROM assets WHERE sid = ? ON CONFLICT (sid, asset_id) DO NOTHING`, []any{h.SID, kept.SID}},
	})
	if err != nil {
		return fmt.Errorf("copy messages: %w", err)
	}
	for i, key := range keys {
		h.nextSeq = key + ahead
		if i == 0 || key != keys[i-1]+1 {
			if err := tx.beginRun(h); err != nil {
				return err
			}
		}
		h.Rev = key + revisions
		h.nextSeq++
		h.Count++
		h.bytes += sizes[i]
		if err := appended(i); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAlternative removes a kept alternative, and those that hang in it.
func (tx *Tx) RemoveAlternative(h Head, a Alternative) error {
	if err := tx.dropAlternatives(`sid = ? AND n = ?`, h.SID, a.N); err != nil {
		return err
	}
	return tx.dropLast(h, a.Index)
}

// dropAlternativesAfter removes the alternatives that hang in the messages from an index on: those
// with a larger index.
func (tx *Tx) dropAlternativesAfter(h Head, index int) error {
	return tx.dropAlternatives(`holder = ? AND at_index > ?`, h.SID, index)
}

// dropAlternatives removes alternatives, and those that hang in them.
func (tx *Tx) dropAlternatives(where string, args ...any) error {
	kept, err := tx.integers(`SELECT kept FROM alternatives WHERE kept IS NOT NULL AND `+where, args...)
	if err != nil {
		return err
	}
	if err := tx.exec(`DELETE FROM alternatives WHERE `+where, args...); err != nil {
		return fmt.Errorf("remove alternatives: %w", err)
	}
	for _, sid := range kept {
		if err := tx.exec(`UPDATE sessions SET deleted = 1 WHERE sid = ?`, sid); err != nil {
			return err
		}
		if err := tx.dropAlternatives(`holder = ?`, sid); err != nil {
			return err
		}
	}
	return nil
}

// moveAlternatives makes the alternatives of a session follow a deletion of messages at indices, which
// are ascending: those that hang in a deleted message go, and those behind move.
func (tx *Tx) moveAlternatives(h *Head, indices []int) error {
	all, err := tx.alternativeRows(*h, `a.at_index > ?`, indices[0])
	if err != nil {
		return err
	}
	for _, a := range all {
		before := 0 // deletions before the alternative
		for before < len(indices) && indices[before] < a.Index {
			before++
		}
		switch {
		case before == 0:
		case indices[before-1] == a.Index-1:
			err = tx.dropAlternatives(`sid = ? AND n = ?`, h.SID, a.N)
		default:
			err = tx.exec(`UPDATE alternatives SET at_index = ? WHERE sid = ? AND n = ?`, a.Index-before, h.SID, a.N)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
