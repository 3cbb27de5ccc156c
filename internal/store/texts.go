package store

import (
	"database/sql"
	"fmt"
	"math/rand/v2"

	"loquat"
	"loquat/internal/heap"
)

// A large value of a message, which is its content or a value of its metadata, is stored as a
// text of its own, in pieces: a database holds a row twice in memory while it writes or reads
// the row. Readers share the text.

// largeText is the size in bytes from which a value is stored as a text. textPiece is the
// size of the pieces.
const (
	largeText = heap.Large
	textPiece = 256 << 10
)

// largeTexts are the large values of a message by field: the key of the metadata, or "" for
// the content.
type largeTexts map[string]string

func (l largeTexts) size() (n int64) {
	for _, text := range l {
		n += int64(len(text))
	}
	return n
}

// splitTexts returns a message without its large values, and these values.
func splitTexts(m loquat.Message) (loquat.Message, largeTexts) {
	var large largeTexts
	add := func(field, text string) {
		if large == nil {
			large = largeTexts{}
			m.Metadata = m.Metadata.Clone()
		}
		large[field] = text
	}
	if len(m.Content) >= largeText {
		add("", m.Content)
		m.Content = ""
	}
	for key, raw := range m.Metadata {
		if len(raw) >= largeText {
			add(key, asString(loquat.OneLine(raw)))
			delete(m.Metadata, key)
		}
	}
	return m, large
}

// insertTexts stores the large values of the message in a row.
func (tx *Tx) insertTexts(message int64, large largeTexts) error {
	for field, text := range large {
		id := rand.Int64() // never used again, unlike the next number after a removal
		for n, rest := 0, text; rest != ""; n++ {
			end := len(rest)
			if end > textPiece {
				end = loquat.CharacterStart(rest, textPiece)
			}
			if err := tx.exec(`INSERT INTO texts (text_id, piece, body) VALUES (?, ?, ?)`, id, n, asBytes(rest[:end])); err != nil {
				return fmt.Errorf("insert text: %w", err)
			}
			rest = rest[end:]
		}
		err := tx.exec(`INSERT INTO message_texts (message, field, text_id, size) VALUES (?, ?, ?, ?)`, message, field, id, len(text))
		if err != nil {
			return fmt.Errorf("insert text: %w", err)
		}
		tx.shared.add(id, asBytes(text))
	}
	return nil
}

// textReference is a large value of a message.
type textReference struct {
	field    string
	id, size int64
}

// texts returns the large values of the message in a row.
func (r *Reader) texts(row messageRow) ([]textReference, error) {
	if row.textBytes == 0 {
		return nil, nil
	}
	rows, err := r.q.Query(`SELECT field, text_id, size FROM message_texts WHERE message = ?`, row.id)
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer rows.Close()
	var out []textReference
	left := row.textBytes
	for rows.Next() {
		var ref textReference
		if err := rows.Scan(&ref.field, &ref.id, &ref.size); err != nil {
			return nil, fmt.Errorf("read texts: %w", asDamage(err))
		}
		out = append(out, ref)
		left -= ref.size
	}
	if err := closeRows(rows); err != nil {
		return nil, err
	}
	if left != 0 {
		return nil, asDamage(fmt.Errorf("message %s lacks texts", row.message.ID))
	}
	return out, nil
}

// complete adds the large values to the message of a row.
func (r *Reader) complete(row *messageRow) error {
	texts, err := r.texts(*row)
	if err != nil {
		return err
	}
	for _, ref := range texts {
		text, err := r.load(ref.id, func() ([]byte, error) { return r.readText(ref) })
		if err != nil {
			return fmt.Errorf("text of message %s: %w", row.message.ID, err)
		}
		if ref.field == "" {
			row.message.Content = asString(text)
			continue
		}
		if row.message.Metadata == nil {
			row.message.Metadata = loquat.Object{}
		}
		row.message.Metadata[ref.field] = text
	}
	return nil
}

func (r *Reader) readText(ref textReference) ([]byte, error) {
	defer heap.Hold()()
	out := make([]byte, 0, ref.size)
	err := r.eachPiece(ref, func(piece []byte) { out = append(out, piece...) })
	return out, err
}

// eachPiece calls fn with each piece of a text, which fn must not keep.
func (r *Reader) eachPiece(ref textReference, fn func([]byte)) error {
	rows, err := r.q.Query(`SELECT body FROM texts WHERE text_id = ? ORDER BY piece`, ref.id)
	if err != nil {
		return fmt.Errorf("read text: %w", err)
	}
	defer rows.Close()
	left := ref.size
	for rows.Next() {
		var piece sql.RawBytes
		if err := rows.Scan(&piece); err != nil {
			return fmt.Errorf("read text: %w", asDamage(err))
		}
		fn(piece)
		left -= int64(len(piece))
	}
	if err := closeRows(rows); err != nil {
		return err
	}
	if left != 0 {
		return asDamage(fmt.Errorf("%d of %d bytes are missing", left, ref.size))
	}
	return nil
}

// appendJSON appends the message of a row as JSON. It does not hold the large values together.
func (r *Reader) appendJSON(dst []byte, row messageRow) ([]byte, error) {
	texts, err := r.texts(row)
	if err != nil {
		return dst, err
	}
	large := make(map[string]func([]byte) ([]byte, error), len(texts))
	for _, ref := range texts {
		large[ref.field] = func(dst []byte) ([]byte, error) {
			add := func(piece []byte) { dst = append(dst, piece...) }
			if ref.field == "" {
				add = func(piece []byte) { dst = loquat.AppendEscaped(dst, asString(piece)) }
			}
			err := r.eachPiece(ref, add)
			return dst, err
		}
	}
	return row.message.AppendJSON(dst, large)
}
