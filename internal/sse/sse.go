// Package sse reads and writes Server-Sent Events.
//
// Reading promises one pass over the bytes, no allocation per event, and an error
// instead of unbounded memory. It accepts what real servers send: any of the three
// line ends, fields without the optional space, a byte order mark, an event that the
// end of the stream leaves unterminated. It also shows what browsers hide: comments,
// for they are signs of life, and fields that the format does not know.
//
// It does not reconnect, and it knows nothing of what the data means.
package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"
)

// DefaultMaxEvent is the largest event, in bytes of the stream, unless the caller
// sets another bound.
const DefaultMaxEvent = 32 << 20

// ErrTooLarge is the cause of the error that ends a stream whose event is over the bound.
var ErrTooLarge = errors.New("event too large")

// Kind tells what an Event is.
type Kind uint8

// The kinds of events.
const (
	Message Kind = iota // a block with data
	Mark                // a block without data that has an id or a retry time
	Comment             // a comment line; Data is its text
	Unknown             // a field that the format does not know: Name and Data
)

// Event is one thing that a stream tells. Its slices are views that the next event
// overwrites.
type Event struct {
	Kind  Kind
	Name  []byte // `event:` of a Message, the field's name of an Unknown
	Data  []byte // lines joined with \n
	ID    []byte // the newest `id:` of the stream so far, also from earlier events
	Retry time.Duration

	// Unterminated says that the stream ended before the blank line: the event may
	// be whole or cut.
	Unterminated bool
}

// Events reads events from r until it ends. After an error it yields nothing more;
// a clean end of r is no error. An event of more than maxEvent bytes is one whose
// cause is ErrTooLarge; 0 means DefaultMaxEvent.
func Events(r io.Reader, maxEvent int) iter.Seq2[Event, error] {
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	return func(yield func(Event, error) bool) {
		d := decoder{r: r, max: maxEvent}
		for {
			ev, err := d.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

const firstBuffer = 16 << 10

// span is a part of the decoder's buffer. It survives the buffer's moves because
// those shift all spans alike.
type span struct{ from, to int }

// decoder keeps the whole current event in its buffer, so that a line of data is
// handed out where it was read; further lines of data are moved up to it in place.
type decoder struct {
	r   io.Reader
	max int
	err error // of r, kept until the buffer is used up

	buf   []byte // read so far; buf[event:] is the current event
	event int    // where the current event starts
	pos   int    // start of the line to be read next
	noLF  int    // buf[pos:noLF] holds no \n
	noEnd int    // buf[pos:noEnd] holds no line end at all

	started bool // the byte order mark has been looked for
	skipLF  bool // the last line ended in \r: a \n that follows belongs to it

	data, name       span
	hasData, hasName bool
	marked           bool // an id or a retry time came in this block
	retry            time.Duration
	id               []byte
}

// next returns the next event, or io.EOF.
func (d *decoder) next() (Event, error) {
	for {
		line, ended, err := d.line()
		if err != nil {
			return Event{}, err
		}
		if line.from == line.to {
			if ev, ok := d.dispatch(!ended); ok {
				return ev, nil
			}
			if !ended {
				return Event{}, io.EOF
			}
			continue
		}
		if ev, ok := d.field(line); ok {
			return ev, nil
		}
	}
}

// dispatch ends a block. There is no event in a block that says nothing.
func (d *decoder) dispatch(unterminated bool) (Event, bool) {
	ev := Event{Kind: Mark, ID: d.id, Retry: d.retry, Unterminated: unterminated}
	ok := d.marked
	if d.hasData {
		ok = true
		ev.Kind, ev.Data = Message, d.view(d.data)
		if d.hasName {
			ev.Name = d.view(d.name)
		}
	}
	d.hasData, d.hasName, d.marked, d.retry = false, false, false, 0
	d.event = d.pos
	return ev, ok
}

func (d *decoder) view(s span) []byte { return d.buf[s.from:s.to:s.to] }

// field takes in one line. It returns an event when the line is one by itself.
func (d *decoder) field(line span) (Event, bool) {
	text := d.view(line)
	colon := bytes.IndexByte(text, ':')
	key, value := text, span{line.to, line.to}
	if colon >= 0 {
		key = text[:colon]
		value.from = line.from + colon + 1
		if value.from < value.to && d.buf[value.from] == ' ' {
			value.from++
		}
	}
	switch string(key) {
	case "data":
		d.addData(value)
	case "event":
		d.name, d.hasName = value, true
	case "id":
		if v := d.view(value); bytes.IndexByte(v, 0) < 0 {
			d.id, d.marked = append(d.id[:0], v...), true
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(d.view(value)), 10, 31); err == nil {
			d.retry, d.marked = time.Duration(ms)*time.Millisecond, true
		}
	case "":
		d.release()
		return Event{Kind: Comment, Data: d.view(value), ID: d.id}, true
	default:
		d.release()
		return Event{Kind: Unknown, Name: key, Data: d.view(value), ID: d.id}, true
	}
	return Event{}, false
}

// release lets go of a line that no event needs, when no event has begun.
func (d *decoder) release() {
	if !d.hasData && !d.hasName {
		d.event = d.pos
	}
}

// addData moves a further line of data up to the first. There is always room: the
// field's name and the line end stood between them.
func (d *decoder) addData(value span) {
	if !d.hasData {
		d.data, d.hasData = value, true
		return
	}
	to := d.data.to
	d.buf[to] = '\n'
	d.data.to = to + 1 + copy(d.buf[to+1:], d.view(value))
}

// line returns the next line without its end. ended is false for what follows the
// last line end of the stream; that comes once, perhaps empty, before io.EOF.
func (d *decoder) line() (line span, ended bool, err error) {
	for {
		if d.settle() {
			if end, next, ok := d.findEnd(); ok {
				line = span{d.pos, end}
				d.pos = next
				d.noLF = max(d.noLF, next)
				d.noEnd = next
				return line, true, nil
			}
		}
		if d.err == nil {
			if err := d.fill(); err != nil {
				return span{}, false, err
			}
			continue
		}
		if d.err != io.EOF {
			return span{}, false, d.err
		}
		if d.pos == len(d.buf) {
			if d.hasData || d.marked {
				return span{d.pos, d.pos}, false, nil
			}
			return span{}, false, io.EOF
		}
		line = span{d.pos, len(d.buf)}
		d.pos = len(d.buf)
		return line, true, nil
	}
}

// settle drops a byte order mark at the start and the \n of a \r\n whose \r was
// already taken for a line end. It is false while too little has been read to tell.
func (d *decoder) settle() bool {
	if !d.started {
		const bom = "\xef\xbb\xbf"
		rest := d.buf[d.pos:]
		if d.err == nil && len(rest) < len(bom) && bytes.HasPrefix([]byte(bom), rest) {
			return false
		}
		d.started = true
		if bytes.HasPrefix(rest, []byte(bom)) {
			d.skip(len(bom))
		}
	}
	if d.skipLF && d.pos < len(d.buf) {
		d.skipLF = false
		if d.buf[d.pos] == '\n' {
			d.skip(1)
		}
	}
	return true
}

func (d *decoder) skip(n int) {
	if d.event == d.pos {
		d.event += n
	}
	d.pos += n
	d.noLF, d.noEnd = max(d.noLF, d.pos), max(d.noEnd, d.pos)
}

// findEnd looks for the end of the line at pos. What has been searched once is
// not searched again, however small the reads are.
func (d *decoder) findEnd() (end, next int, ok bool) {
	lf := d.noLF
	if lf < len(d.buf) && d.buf[lf] != '\n' {
		if i := bytes.IndexByte(d.buf[lf:], '\n'); i >= 0 {
			lf += i
		} else {
			lf = len(d.buf)
		}
	}
	d.noLF = lf
	if i := bytes.IndexByte(d.buf[d.noEnd:lf], '\r'); i >= 0 {
		end = d.noEnd + i
		if end+1 == len(d.buf) {
			d.skipLF = true
			return end, end + 1, true
		}
		if d.buf[end+1] == '\n' {
			return end, end + 2, true
		}
		return end, end + 1, true
	}
	d.noEnd = lf
	return lf, lf + 1, lf < len(d.buf)
}

// fill reads once, after it has made room.
func (d *decoder) fill() error {
	if d.event > 0 {
		d.shift()
	}
	if len(d.buf) == cap(d.buf) {
		if len(d.buf) >= d.max {
			return fmt.Errorf("%w: more than %d bytes without an end", ErrTooLarge, d.max)
		}
		grown := make([]byte, len(d.buf), min(max(2*cap(d.buf), firstBuffer), d.max))
		copy(grown, d.buf)
		d.buf = grown
	}
	for range 100 {
		n, err := d.r.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		d.err = err
		if n > 0 || err != nil {
			return nil
		}
	}
	return io.ErrNoProgress
}

// shift moves the current event to the front of the buffer.
func (d *decoder) shift() {
	by := d.event
	d.buf = d.buf[:copy(d.buf, d.buf[by:])]
	d.event, d.pos, d.noLF, d.noEnd = 0, d.pos-by, d.noLF-by, d.noEnd-by
	d.data.from, d.data.to = d.data.from-by, d.data.to-by
	d.name.from, d.name.to = d.name.from-by, d.name.to-by
}
