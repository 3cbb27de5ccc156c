package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"loquat"
)

// Each version of a message is a row. A change or deletion ends the version at the new
// revision. Current versions have no end.

// Messages returns up to limit messages (-1: all) of a session at a revision, starting at
// index from.
func (r *Reader) Messages(h Head, rev int64, from, limit int) ([]loquat.Message, error) {
	if limit < 0 {
		limit = math.MaxInt
	}
	const columns = `SELECT message_id, role, content, metadata, created_at FROM messages WHERE sid = ? AND `
	query, args := columns+`rev_from <= ? AND (rev_to IS NULL OR rev_to > ?) ORDER BY seq LIMIT ? OFFSET ?`, []any{h.SID, rev, rev, limit, from}
	if h.onlyAppendedSince(rev) {
		seq, err := r.seqOf(h, from)
		if err != nil {
			return nil, err
		}
		query, args = columns+`rev_to IS NULL AND seq >= ? AND rev_from <= ? ORDER BY seq LIMIT ?`, []any{h.SID, seq, rev, limit}
	}
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	out := []loquat.Message{}
	for rows.Next() {
		m, err := scanMessage(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, asDatabaseError(rows.Err())
}

// CountAt returns how many messages a session had at a revision.
func (r *Reader) CountAt(h Head, rev int64) (n int, err error) {
	if h.onlyAppendedSince(rev) {
		later, err := r.countAppended(h, rev)
		return h.Count - later, err
	}
	err = one(r.q, `SELECT count(*) FROM messages WHERE sid = ? AND rev_from <= ? AND (rev_to IS NULL OR rev_to > ?)`,
		[]any{h.SID, rev, rev}, &n)
	return n, err
}

// onlyAppendedSince reports whether the messages at a revision are the first of the present
// messages. After a change or deletion they are not, and old pages are counted from the start.
func (h Head) onlyAppendedSince(rev int64) bool {
	return rev == h.Rev || rev < h.Rev && h.edited <= rev
}

// countAppended returns how many messages were appended after a revision. It reads only these.
func (r *Reader) countAppended(h Head, rev int64) (n int, err error) {
	if rev == h.Rev {
		return 0, nil
	}
	rows, err := r.q.Query(`SELECT rev_from FROM messages WHERE sid = ? AND rev_to IS NULL ORDER BY seq DESC`, h.SID)
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var from int64
		if err := rows.Scan(&from); err != nil {
			return 0, fmt.Errorf("count messages: %w", err)
		}
		if from <= rev {
			return n, nil
		}
	}
	return n, asDatabaseError(rows.Err())
}

func scanMessage(scan func(...any) error) (loquat.Message, error) {
	var (
		m        loquat.Message
		metadata []byte
		created  int64
	)
	if err := scan(&m.ID, &m.Role, &m.Content, &metadata, &created); err != nil {
		return loquat.Message{}, fmt.Errorf("read message: %w", err)
	}
	m.CreatedAt = fromMicros(created)
	if metadata != nil {
		if err := json.Unmarshal(metadata, &m.Metadata); err != nil {
			return loquat.Message{}, fmt.Errorf("metadata of message %s: %w", m.ID, asDamage(err))
		}
	}
	return m, nil
}

// AppendMessage appends a message and returns its index.
func (tx *Tx) AppendMessage(h *Head, m loquat.Message) (int, error) {
	metadata, err := encodeMetadata(m.Metadata)
	if err != nil {
		return 0, err
	}
	h.Rev++
	err = tx.exec(`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		h.SID, h.nextSeq, h.Rev, m.ID, m.Role, m.Content, metadata, micros(m.CreatedAt))
	if err != nil {
		return 0, fmt.Errorf("append message: %w", err)
	}
	if err := tx.useAssets(h, h.nextSeq, m); err != nil {
		return 0, err
	}
	if err := tx.beginRun(h); err != nil {
		return 0, err
	}
	h.nextSeq++
	h.Count++
	h.bytes += messageSize(m, metadata)
	return h.Count - 1, nil
}

// edit starts a revision that changes or removes messages, unlike an append.
func (h *Head) edit() {
	h.Rev++
	h.edited = h.Rev
}

// ModifyMessage changes the content of the message at an index and returns the new message. If
// the index is out of range, the error is not_found. If role is set, the message is replaced
// and its metadata, which described the old message, is removed.
func (tx *Tx) ModifyMessage(h *Head, index int, role, content string) (loquat.Message, error) {
	row, err := tx.version(h, index)
	if err != nil {
		return loquat.Message{}, err
	}
	m := row.message
	m.Content = content
	if role != "" {
		m.Role, m.Metadata = role, nil
	}
	metadata, err := encodeMetadata(m.Metadata)
	if err != nil {
		return loquat.Message{}, err
	}
	h.edit()
	if err := tx.endVersion(h, row); err != nil {
		return loquat.Message{}, err
	}
	err = tx.exec(`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		h.SID, row.seq, h.Rev, m.ID, m.Role, m.Content, metadata, micros(m.CreatedAt))
	if err == nil && role != "" {
		err = tx.exec(`DELETE FROM asset_uses WHERE sid = ? AND seq = ?`, h.SID, row.seq)
	}
	if err != nil {
		return loquat.Message{}, fmt.Errorf("modify message: %w", err)
	}
	h.bytes += messageSize(m, metadata)
	return m, nil
}

// DeleteMessages removes the messages at the given indices, which are ascending, unique, and
// refer to the state before the call. If one is out of range, the error is not_found.
func (tx *Tx) DeleteMessages(h *Head, indices []int) error {
	if len(indices) == 0 {
		return nil
	}
	if last := indices[len(indices)-1]; indices[0] < 0 || last >= h.Count {
		return noMessage(h, last)
	}
	keys, err := tx.selectForDeletion(h, indices)
	if err != nil {
		return err
	}
	h.edit()
	for _, seq := range keys {
		if err := tx.exec(`UPDATE messages SET rev_to = ? WHERE sid = ? AND seq = ? AND rev_to IS NULL`, h.Rev, h.SID, seq); err != nil {
			return fmt.Errorf("delete messages: %w", err)
		}
	}
	if err := tx.splitRuns(h, indices); err != nil {
		return err
	}
	h.Count -= len(keys)
	return nil
}

// selectForDeletion returns the ordering keys of the messages at the given indices and
// subtracts their sizes from h.
func (tx *Tx) selectForDeletion(h *Head, indices []int) ([]int64, error) {
	from := indices[0]
	first, err := tx.seqOf(*h, from)
	if err != nil {
		return nil, err
	}
	rows, err := tx.q.Query(`SELECT seq, octet_length(content) + coalesce(octet_length(metadata), 0) + ? FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? ORDER BY seq LIMIT ?`, messageOverhead, h.SID, first, indices[len(indices)-1]-from+1)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	out := make([]int64, 0, len(indices))
	for i := from; rows.Next(); i++ {
		if i != indices[len(out)] {
			continue
		}
		var seq, size int64
		if err := rows.Scan(&seq, &size); err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
		out = append(out, seq)
		h.bytes = max(0, h.bytes-size)
	}
	return out, asDatabaseError(rows.Err())
}

// DeleteFrom removes all messages starting at an index and returns their indices.
func (tx *Tx) DeleteFrom(h *Head, from int) ([]int, error) {
	row, err := tx.version(h, from)
	if err != nil {
		return nil, err
	}
	var bytes int64
	err = one(tx.q, `SELECT coalesce(sum(octet_length(content) + coalesce(octet_length(metadata), 0) + ?), 0) FROM messages WHERE sid = ? AND rev_to IS NULL AND seq >= ?`,
		[]any{messageOverhead, h.SID, row.seq}, &bytes)
	if err != nil {
		return nil, err
	}
	h.edit()
	if err := tx.exec(`UPDATE messages SET rev_to = ? WHERE sid = ? AND rev_to IS NULL AND seq >= ?`, h.Rev, h.SID, row.seq); err != nil {
		return nil, fmt.Errorf("delete messages: %w", err)
	}
	if err := tx.cutRuns(h, from); err != nil {
		return nil, err
	}
	indices := make([]int, 0, h.Count-from)
	for i := from; i < h.Count; i++ {
		indices = append(indices, i)
	}
	h.Count = from
	h.bytes = max(0, h.bytes-bytes)
	return indices, nil
}

// version is the current version of a message and its ordering key.
type version struct {
	seq     int64
	message loquat.Message
}

func (tx *Tx) version(h *Head, index int) (version, error) {
	if index < 0 || index >= h.Count {
		return version{}, noMessage(h, index)
	}
	seq, err := tx.seqOf(*h, index)
	if err != nil {
		return version{}, err
	}
	v := version{seq: seq}
	v.message, err = scanMessage(func(dest ...any) error {
		return one(tx.q, `SELECT message_id, role, content, metadata, created_at FROM messages WHERE sid = ? AND rev_to IS NULL AND seq = ?`, []any{h.SID, seq}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return version{}, noMessage(h, index)
	}
	return v, err
}

func noMessage(h *Head, index int) error {
	return loquat.Errorf(loquat.CodeNotFound, "session %s has %d messages, there is none at index %d", h.SessionID, h.Count, index)
}

func (tx *Tx) endVersion(h *Head, v version) error {
	metadata, err := encodeMetadata(v.message.Metadata)
	if err != nil {
		return err
	}
	h.bytes = max(0, h.bytes-messageSize(v.message, metadata))
	if err := tx.exec(`UPDATE messages SET rev_to = ? WHERE sid = ? AND seq = ? AND rev_to IS NULL`, h.Rev, h.SID, v.seq); err != nil {
		return fmt.Errorf("end version of message: %w", err)
	}
	return nil
}

// messageOverhead is the approximate size of a message's field names, id and time in JSON.
const messageOverhead = 128

// messageSize returns the approximate size of a message as JSON, to compare with
// MaxEventSession.
func messageSize(m loquat.Message, metadata []byte) int64 {
	return int64(len(m.Content) + len(metadata) + messageOverhead)
}

func encodeMetadata(o loquat.Object) ([]byte, error) {
	if len(o) == 0 {
		return nil, nil
	}
	b, err := o.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode message metadata: %w", err)
	}
	return b, nil
}
