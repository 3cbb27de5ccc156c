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
	const columns = `SELECT ` + messageColumns + ` FROM messages WHERE sid = ? AND `
	query, args := columns+`rev_from <= ? AND (rev_to IS NULL OR rev_to > ?) ORDER BY seq LIMIT ? OFFSET ?`, []any{h.SID, rev, rev, limit, from}
	if h.onlyAppendedSince(rev) {
		seq, err := r.seqOf(h, from)
		if err != nil {
			return nil, err
		}
		query, args = columns+`rev_to IS NULL AND seq >= ? AND rev_from <= ? ORDER BY seq LIMIT ?`, []any{h.SID, seq, rev, limit}
	}
	return r.scanMessages(query, args...)
}

// scanMessages returns the messages of a query of messageColumns.
func (r *Reader) scanMessages(query string, args ...any) ([]loquat.Message, error) {
	rows, err := r.messageRows(query, args...)
	if err != nil {
		return nil, err
	}
	out := make([]loquat.Message, len(rows))
	for i := range rows {
		if err := r.complete(&rows[i]); err != nil {
			return nil, err
		}
		out[i] = rows[i].message
	}
	return out, nil
}

// messageRows returns the rows of a query of messageColumns.
func (r *Reader) messageRows(query string, args ...any) (out []messageRow, err error) {
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanMessage(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
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

// messageColumns are what scanMessage scans.
const messageColumns = `id, message_id, role, content, metadata, created_at, text_bytes`

// messageRow is a row of a message. Its message lacks the large texts until complete.
type messageRow struct {
	id        int64
	message   loquat.Message
	textBytes int64 // of its large texts
}

func scanMessage(scan func(...any) error) (messageRow, error) {
	var (
		row      messageRow
		m        = &row.message
		metadata []byte
		created  int64
	)
	if err := scan(&row.id, &m.ID, &m.Role, &m.Content, &metadata, &created, &row.textBytes); err != nil {
		return messageRow{}, fmt.Errorf("read message: %w", err)
	}
	m.CreatedAt = fromMicros(created)
	return row, decodeMetadata(m, metadata)
}

// decodeMetadata sets the metadata of a message from its row.
func decodeMetadata(m *loquat.Message, metadata []byte) error {
	if metadata == nil {
		return nil
	}
	if err := json.Unmarshal(metadata, &m.Metadata); err != nil {
		return fmt.Errorf("metadata of message %s: %w", m.ID, asDamage(err))
	}
	return nil
}

// insertMessage inserts the version of a message that begins at the present revision. It
// returns the metadata in its row and its approximate size as JSON.
func (tx *Tx) insertMessage(h *Head, seq int64, m loquat.Message) (metadata []byte, size int64, err error) {
	inline, large := splitTexts(m)
	for key, text := range large {
		if key != "" && !json.Valid(asBytes(text)) {
			return nil, 0, fmt.Errorf("the metadata at %q are not valid JSON", loquat.Clip(key, loquat.Excerpt))
		}
	}
	metadata, err = encodeMetadata(inline.Metadata)
	if err != nil {
		return nil, 0, err
	}
	size = int64(len(inline.Content)+len(metadata)+messageOverhead) + large.size()
	const insert = `INSERT INTO messages (sid, seq, rev_from, message_id, role, content, metadata, created_at, text_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	args := []any{h.SID, seq, h.Rev, m.ID, m.Role, inline.Content, metadata, micros(m.CreatedAt), large.size()}
	if large == nil {
		return metadata, size, tx.exec(insert, args...)
	}
	row, err := tx.insert(insert+` RETURNING id`, args...)
	if err != nil {
		return nil, 0, err
	}
	return metadata, size, tx.insertTexts(row, large)
}

// AppendMessage appends a message and returns its index.
func (tx *Tx) AppendMessage(h *Head, m loquat.Message) (int, error) {
	h.Rev++
	metadata, size, err := tx.insertMessage(h, h.nextSeq, m)
	if err != nil {
		return 0, fmt.Errorf("append message: %w", err)
	}
	if err := tx.useAssets(h, h.nextSeq, m); err != nil {
		return 0, err
	}
	if err := tx.beginRun(h); err != nil {
		return 0, err
	}
	m.CreatedAt = fromMicros(micros(m.CreatedAt))
	h.appended = append(h.appended, appendedMessage{m, metadata})
	h.nextSeq++
	h.Count++
	h.bytes += size
	return h.Count - 1, nil
}

// edit starts a revision that changes or removes messages, unlike an append.
func (h *Head) edit() {
	h.Rev++
	h.edited, h.appended = h.Rev, nil
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
	h.edit()
	if err := tx.endVersion(h, row); err != nil {
		return loquat.Message{}, err
	}
	_, size, err := tx.insertMessage(h, row.seq, m)
	if err == nil && role != "" {
		err = tx.exec(`DELETE FROM asset_uses WHERE sid = ? AND seq = ?`, h.SID, row.seq)
	}
	if err != nil {
		return loquat.Message{}, fmt.Errorf("modify message: %w", err)
	}
	h.bytes += size
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
	if err := tx.endVersions(h, keys); err != nil {
		return fmt.Errorf("delete messages: %w", err)
	}
	if err := tx.splitRuns(h, indices); err != nil {
		return err
	}
	if err := tx.moveAlternatives(h, indices); err != nil {
		return err
	}
	h.Count -= len(keys)
	return nil
}

// endVersions ends the current versions of messages with these keys, which are ascending. It takes few
// statements, because on PostgreSQL the transaction keeps the writers of all nodes waiting.
func (tx *Tx) endVersions(h *Head, keys []int64) error {
	const update = `UPDATE messages SET rev_to = ? WHERE sid = ? AND rev_to IS NULL AND `
	var scattered []int64
	for len(keys) > 0 {
		n := 1
		for n < len(keys) && keys[n] == keys[n-1]+1 {
			n++
		}
		if n < idListSize {
			scattered = append(scattered, keys[:n]...)
		} else if err := tx.exec(update+`seq >= ? AND seq <= ?`, h.Rev, h.SID, keys[0], keys[n-1]); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return eachIDs(scattered, func(list string, args []any) error {
		return tx.exec(update+`seq IN `+list, append([]any{h.Rev, h.SID}, args...)...)
	})
}

// selectForDeletion returns the ordering keys of the messages at the given indices and
// subtracts their sizes from h.
func (tx *Tx) selectForDeletion(h *Head, indices []int) ([]int64, error) {
	from := indices[0]
	first, err := tx.seqOf(*h, from)
	if err != nil {
		return nil, err
	}
	rows, err := tx.q.Query(`SELECT seq, `+messageSize+` FROM messages
		WHERE sid = ? AND rev_to IS NULL AND seq >= ? ORDER BY seq LIMIT ?`, h.SID, first, indices[len(indices)-1]-from+1)
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
	row, err := tx.versionRow(h, from)
	if err != nil {
		return nil, err
	}
	var bytes int64
	err = one(tx.q, `SELECT coalesce(sum(`+messageSize+`), 0) FROM messages WHERE sid = ? AND rev_to IS NULL AND seq >= ?`,
		[]any{h.SID, row.seq}, &bytes)
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
	if err := tx.dropAlternativesAfter(*h, from); err != nil {
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

// version is the current version of a message, its ordering key and its approximate size as
// JSON.
type version struct {
	messageRow
	seq, size int64
}

// version returns the current version of a message.
func (tx *Tx) version(h *Head, index int) (version, error) {
	v, err := tx.versionRow(h, index)
	if err != nil {
		return version{}, err
	}
	return v, tx.complete(&v.messageRow)
}

// versionRow is version without the large texts of the message.
func (tx *Tx) versionRow(h *Head, index int) (v version, err error) {
	if index < 0 || index >= h.Count {
		return version{}, noMessage(h, index)
	}
	if v.seq, err = tx.seqOf(*h, index); err != nil {
		return version{}, err
	}
	v.messageRow, err = scanMessage(func(dest ...any) error {
		return one(tx.q, `SELECT `+messageColumns+`, `+messageSize+` FROM messages WHERE sid = ? AND rev_to IS NULL AND seq = ?`, []any{h.SID, v.seq}, append(dest, &v.size)...)
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
	h.bytes = max(0, h.bytes-v.size)
	if err := tx.exec(`UPDATE messages SET rev_to = ? WHERE sid = ? AND seq = ? AND rev_to IS NULL`, h.Rev, h.SID, v.seq); err != nil {
		return fmt.Errorf("end version of message: %w", err)
	}
	return nil
}

// messageOverhead is the approximate size of a message's field names, id and time in JSON.
const messageOverhead = 128

// messageSize is the approximate size of a row's message as JSON, to compare with
// MaxEventSession.
var messageSize = fmt.Sprintf(`octet_length(content) + coalesce(octet_length(metadata), 0) + text_bytes + %d`, messageOverhead)

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
