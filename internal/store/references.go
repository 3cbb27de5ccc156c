package store

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/heap"
)

// The messages of a final or tool_results event are in the messages table too. Unless they are
// small, the event is stored as a reference to them, and a reader of the database builds its
// body. The row has the revision of the messages, so that they are kept as long as the event.
//
// The tail has the body, so a follower that is level reads nothing from the database. A large
// body would drop everything else from the tail; readers of a large event read the database.

// referredText is the size of messages in bytes from which an event is stored as a reference.
// Below it, the reference would save little and cost its readers a query.
const referredText = 1 << 10

// messageReference says which messages an event has: count of them, in the order of their
// keys, at a revision.
type messageReference struct {
	Seq   int64 `json:"seq"` // ordering key of the first
	Count int   `json:"count"`
	Rev   int64 `json:"rev"`
	Bytes int   `json:"bytes"` // of JSON
}

const (
	referenceFormat = `,"stored":{"seq":%d,"count":%d,"rev":%d,"bytes":%d}}`
	maxReference    = 1 << 10 // no body of a reference is larger
)

// appendedMessage is a message as it was stored.
type appendedMessage struct {
	message  loquat.Message
	metadata []byte // of the row
}

// StoredMessage is a message in the form of its row. It has no large texts.
type StoredMessage struct {
	message  loquat.Message // without metadata
	metadata []byte
}

// Appended returns the last messages of a session, which must have no large texts: those that
// the transaction of h has appended since it last changed or removed a message.
func (h Head) Appended() []StoredMessage {
	out := make([]StoredMessage, len(h.appended))
	for i, a := range h.appended {
		out[i] = StoredMessage(a)
		out[i].message.Metadata = nil
	}
	return out
}

// Decode returns the message as Reader.Messages does. Each call decodes new metadata.
func (m StoredMessage) Decode() (loquat.Message, error) {
	out := m.message
	return out, decodeMetadata(&out, m.metadata)
}

// appendedLast returns the messages of a final or tool_results event as they were stored. It
// returns nil unless they are the last ones that were appended to h.
func (h *Head) appendedLast(e loquat.Event) []appendedMessage {
	n := len(h.appended) - len(e.Messages)
	if e.Type != loquat.Final && e.Type != loquat.ToolResults || n < 0 || len(e.Messages) == 0 {
		return nil
	}
	last := h.appended[n:]
	for i, m := range e.Messages {
		if stored := last[i].message; m.ID != stored.ID || m.Role != stored.Role || m.Content != stored.Content {
			return nil
		}
	}
	return last
}

// publishMessages publishes an event whose messages were stored as appended.
func (tx *Tx) publishMessages(e loquat.Event, appended []appendedMessage, h *Head, req *Request) (loquat.EventID, error) {
	rec := loquat.Record{Type: e.Type, SessionID: e.SessionID, RequestID: e.RequestID}
	head := eventHead(rec)
	ref := messageReference{Seq: h.nextSeq - int64(len(appended)), Count: len(appended), Rev: h.Rev}
	size := 0
	for _, a := range appended {
		size += len(a.message.Content) + a.message.Metadata.Size()
	}
	if size >= largeText {
		ref.Bytes = e.MessagesSize()
		return tx.addEvent(rec, h, req, ref.Rev, ref.appendTo(head))
	}
	rec.Body = append(append(make([]byte, 0, len(head)+size+size/8+messageOverhead*(1+len(appended))), head...), messagesBefore...)
	for i, a := range appended {
		if i > 0 {
			rec.Body = append(rec.Body, ',')
		}
		rec.Body = a.message.AppendEncoded(rec.Body, a.metadata)
	}
	rec.Body = append(rec.Body, messagesAfter...)
	if size < referredText || len(head) != leading(rec) { // an id has escapes, which references cannot have
		return tx.addEvent(rec, h, req, 0, rec.Body)
	}
	ref.Bytes = len(rec.Body)
	return tx.addEvent(rec, h, req, ref.Rev, ref.appendTo(head))
}

// What follows the ids in the body of an event with messages, and what ends it.
const (
	messagesBefore = `,"messages":[`
	messagesAfter  = `]}`
)

// eventHead returns the beginning of an event's body: its type and its ids.
func eventHead(rec loquat.Record) []byte {
	dst := loquat.AppendString([]byte(`{"type":`), string(rec.Type))
	dst = loquat.AppendString(append(dst, `,"session_id":`...), rec.SessionID)
	if rec.RequestID != "" {
		dst = loquat.AppendString(append(dst, `,"request_id":`...), rec.RequestID)
	}
	return dst
}

// appendTo appends the rest of the body of an event that is stored as a reference.
func (ref messageReference) appendTo(head []byte) []byte {
	return fmt.Appendf(head, referenceFormat, ref.Seq, ref.Count, ref.Rev, ref.Bytes)
}

// leading returns how many bytes of a body have the type and the ids.
func leading(rec loquat.Record) int {
	n := len(`{"type":"","session_id":""`) + len(rec.Type) + len(rec.SessionID)
	if rec.RequestID != "" {
		n += len(`,"request_id":""`) + len(rec.RequestID)
	}
	return n
}

// referenceOf returns the reference that a record was stored as. ok is false if the record has
// its messages.
func referenceOf(rec loquat.Record) (ref messageReference, ok bool) {
	if rec.Type != loquat.Final && rec.Type != loquat.ToolResults || len(rec.Body) > maxReference {
		return ref, false
	}
	rest, ok := bytes.CutPrefix(rec.Body[min(leading(rec), len(rec.Body)):], []byte(`,"stored":`))
	if !ok {
		return ref, false
	}
	err := json.Unmarshal(rest[:max(0, len(rest)-1)], &ref)
	return ref, err == nil && ref.Count > 0
}

// resolve returns the body of a record that was stored as a reference to large messages.
func (r *Reader) resolve(rec loquat.Record, ref messageReference) ([]byte, error) {
	return r.load(-int64(rec.ID), func() ([]byte, error) {
		defer heap.Hold()()
		messages, err := r.messageRows(`SELECT `+messageColumns+` FROM messages WHERE sid = (SELECT sid FROM sessions WHERE session_id = ?)
			AND seq >= ? AND seq < ? AND rev_from <= ? AND (rev_to IS NULL OR rev_to > ?) ORDER BY seq`,
			rec.SessionID, ref.Seq, ref.Seq+int64(ref.Count), ref.Rev, ref.Rev)
		if err == nil && len(messages) != ref.Count {
			err = asDamage(errors.New("they are not in the database"))
		}
		heap.Free(ref.Bytes) // the reply's own text, once it is stored
		body := make([]byte, 0, len(rec.Body)+ref.Bytes)
		body = append(append(body, rec.Body[:leading(rec)]...), messagesBefore...)
		for i, row := range messages {
			if err != nil {
				break
			}
			if i > 0 {
				body = append(body, ',')
			}
			body, err = r.appendJSON(body, row)
		}
		if err != nil {
			return nil, fmt.Errorf("messages of event %s: %w", rec.ID, err)
		}
		return append(body, messagesAfter...), nil
	})
}

// storedReference is a reference in the row of an event.
type storedReference struct {
	messageReference
	event int   // its index among the events that were read with it
	sid   int64 // row id of the session
}

// referredMessages and referredKeys select columns of the messages of 1, 2, 4, … 64 references,
// after the index of the reference. Each is prepared once.
var (
	referredMessages = referredQueries(`m.seq, m.message_id, m.role, m.content, m.metadata, m.created_at, m.text_bytes`)
	referredKeys     = referredQueries(`m.seq`)
)

// referredQueries returns queries without an order: sorting would copy the texts.
func referredQueries(columns string) (out []string) {
	const values = `(CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS BIGINT))`
	for n := 1; n <= 64; n *= 2 {
		out = append(out, `WITH refs (i, sid, low, high, rev) AS (VALUES `+strings.Repeat(values+`, `, n-1)+values+`)
			SELECT refs.i, `+columns+` FROM refs CROSS JOIN messages m
			WHERE m.sid = refs.sid AND m.seq >= refs.low AND m.seq < refs.high AND m.rev_from <= refs.rev AND (m.rev_to IS NULL OR m.rev_to > refs.rev)`)
	}
	return out
}

// eachReferred calls fn with each row of the messages of references.
func eachReferred(q SQL, queries []string, refs []storedReference, fn func(*sql.Rows) error) error {
	for i, done := len(queries)-1, 0; i >= 0; i-- {
		for n := 1 << i; len(refs)-done >= n; done += n {
			args := make([]any, 0, 5*n)
			for j, ref := range refs[done : done+n] {
				args = append(args, done+j, ref.sid, ref.Seq, ref.Seq+int64(ref.Count), ref.Rev)
			}
			if err := eachRow(q, queries[i], args, fn); err != nil {
				return fmt.Errorf("read messages of events: %w", err)
			}
		}
	}
	return nil
}

// referredMessage is a message of an event that was stored as a reference.
type referredMessage struct {
	seq       int64
	message   loquat.Message
	metadata  []byte
	textBytes int64
}

// fill gives events that were stored as references to small messages their bodies. An event
// whose messages are large, or missing, stays as it is; resolve reports what is missing.
func fill(q SQL, events []loquat.Record, refs []storedReference) error {
	found := make([][]referredMessage, len(refs))
	return eachReferred(q, referredMessages, refs, func(rows *sql.Rows) error {
		var i int
		var m referredMessage
		var created int64
		if err := rows.Scan(&i, &m.seq, &m.message.ID, &m.message.Role, &m.message.Content, &m.metadata, &created, &m.textBytes); err != nil {
			return err
		}
		m.message.CreatedAt = fromMicros(created)
		found[i] = append(found[i], m)
		if len(found[i]) == refs[i].Count {
			rec := &events[refs[i].event]
			rec.Body = bodyOf(*rec, refs[i].Bytes, found[i])
			found[i] = nil
		}
		return nil
	})
}

// bodyOf returns the body, of about size bytes, of a record that was stored as a reference.
func bodyOf(rec loquat.Record, size int, messages []referredMessage) []byte {
	slices.SortFunc(messages, func(a, b referredMessage) int { return cmp.Compare(a.seq, b.seq) })
	body := append(append(make([]byte, 0, size), rec.Body[:leading(rec)]...), messagesBefore...)
	for i, m := range messages {
		if m.textBytes > 0 {
			return rec.Body // resolve reads texts
		}
		if i > 0 {
			body = append(body, ',')
		}
		body = m.message.AppendEncoded(body, m.metadata)
	}
	return append(body, messagesAfter...)
}
