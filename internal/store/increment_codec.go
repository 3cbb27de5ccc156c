package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"loquat"
)

// increment is an entry of a row of the increments table.
type increment struct {
	id   loquat.EventID
	rid  int64
	at   int64 // microseconds
	kind incrementKind
	rest []byte // what the kind leaves of the event's body
}

// incrementKind says which part of an event's body an entry leaves out.
type incrementKind byte

const (
	otherPartial incrementKind = iota // leaves out the type and the ids
	toolPartial                       // leaves out the type and the ids
	plainText                         // a partial; leaves out everything except the escaped text
)

func (k incrementKind) eventType() loquat.EventType {
	if k == toolPartial {
		return loquat.ToolPartial
	}
	return loquat.Partial
}

// The parts of a partial's body before and after the text of the assistant.
const (
	beforeText = `,"message":{"role":"assistant","content":"`
	afterText  = `"}}`
)

// isIncrement reports whether an event belongs in the increments table.
func isIncrement(kind loquat.EventType) bool {
	return kind == loquat.Partial || kind == loquat.ToolPartial
}

// appendHead appends the beginning of an increment's body, up to and including its ids.
func appendHead(dst []byte, kind loquat.EventType, sessionID, requestID string) []byte {
	dst = loquat.AppendString(append(dst, `{"type":`...), string(kind))
	dst = loquat.AppendString(append(dst, `,"session_id":`...), sessionID)
	return loquat.AppendString(append(dst, `,"request_id":`...), requestID)
}

// newIncrement returns the entry of an event. head is the result of appendHead. It returns
// false if the body does not begin with head.
func newIncrement(rec loquat.Record, rid int64, head []byte) (increment, bool) {
	rest, ok := bytes.CutPrefix(rec.Body, head)
	in := increment{id: rec.ID, rid: rid, at: micros(rec.At), rest: rest}
	if rec.Type == loquat.ToolPartial {
		in.kind = toolPartial
	} else if len(rest) >= len(beforeText)+len(afterText) && bytes.HasPrefix(rest, []byte(beforeText)) && bytes.HasSuffix(rest, []byte(afterText)) {
		in.kind, in.rest = plainText, rest[len(beforeText):len(rest)-len(afterText)]
	}
	return in, ok
}

// size returns the number of bytes of the event's body after its head.
func (in increment) size() int {
	if in.kind == plainText {
		return len(beforeText) + len(in.rest) + len(afterText)
	}
	return len(in.rest)
}

// record returns the event of an entry. head is the result of appendHead.
func (in increment) record(sessionID, requestID string, head []byte) loquat.Record {
	body := append(make([]byte, 0, len(head)+in.size()), head...)
	if in.kind == plainText {
		body = append(append(append(body, beforeText...), in.rest...), afterText...)
	} else {
		body = append(body, in.rest...)
	}
	return loquat.Record{ID: in.id, Type: in.kind.eventType(), SessionID: sessionID, RequestID: requestID, Body: body, At: fromMicros(in.at)}
}

// appendIncrements appends the body of a row whose last entry is the last of entries. Ids,
// request ids and times are differences from the entry before; the first id is the difference
// from the row's key.
func appendIncrements(dst []byte, entries []increment) []byte {
	before := increment{}
	for i, in := range entries {
		step := in.id - before.id
		if i == 0 {
			step = entries[len(entries)-1].id - in.id
		}
		dst = binary.AppendUvarint(dst, uint64(step))
		dst = binary.AppendVarint(dst, in.rid-before.rid)
		dst = binary.AppendVarint(dst, in.at-before.at)
		dst = append(dst, byte(in.kind))
		dst = binary.AppendUvarint(dst, uint64(len(in.rest)))
		dst = append(dst, in.rest...)
		before = in
	}
	return dst
}

var errIncrements = errors.New("the row is not one that this program writes")

// eachIncrement calls fn with each entry of a row, in order. The entries share body.
func eachIncrement(last loquat.EventID, body []byte, fn func(increment)) error {
	d := fieldDecoder{rest: body}
	in := increment{}
	for first := true; len(d.rest) > 0; first = false {
		step := loquat.EventID(d.uvarint())
		if in.id += step; first {
			in.id = last - step
		}
		in.rid += d.varint()
		in.at += d.varint()
		in.kind = incrementKind(d.byte())
		in.rest = d.bytes(d.uvarint())
		if d.bad || in.kind > plainText || in.id <= 0 || in.id > last || !first && step <= 0 {
			return fmt.Errorf("increments up to %s: %w", last, asDamage(errIncrements))
		}
		fn(in)
	}
	if in.id != last {
		return fmt.Errorf("increments up to %s: %w", last, asDamage(errIncrements))
	}
	return nil
}

// fieldDecoder reads the fields of an encoded row or commit. bad is set when it ends too early.
type fieldDecoder struct {
	rest []byte
	bad  bool
}

func (d *fieldDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.skip(n)
	return v
}

func (d *fieldDecoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	d.skip(n)
	return v
}

func (d *fieldDecoder) byte() byte {
	if b := d.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *fieldDecoder) bytes(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// skip drops the n bytes of a number; n is 0 or negative when there was none.
func (d *fieldDecoder) skip(n int) {
	if n <= 0 {
		d.bad, d.rest = true, nil
		return
	}
	d.rest = d.rest[n:]
}
