// Package sse reads and writes Server-Sent Events.
//
// The reader makes one pass over the bytes, allocates nothing per event, and returns an
// error instead of using unbounded memory. It accepts everything that real servers send:
// all three line ends, fields without the optional space, a byte order mark, and a last
// event without the blank line. Unlike browsers it also returns comments, because they show
// that the connection is alive, and fields that the format does not define.
//
// The package does not reconnect and does not interpret the data.
package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"strconv"
	"time"
)

// LargeEvent is the size in bytes from which the memory of an event belongs to the event. It
// is free as soon as the event is no longer used.
const LargeEvent = 1 << 20

// defaultMaxEvent is the default bound on the size of an event, in bytes of the stream.
const defaultMaxEvent = 32 << 20

// ErrTooLarge reports that an event is larger than the bound.
var ErrTooLarge = errors.New("event too large")

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	Message      Kind = iota // a block with data
	NoData                   // a block without data that has an id or a retry time
	Comment                  // a comment line; Data is its text
	UnknownField             // a field that the format does not define; Name is its name, Data its value
)

// Event is one event of a stream. Its slices are valid until the next event is read. Those of
// an event of LargeEvent bytes or more stay valid.
type Event struct {
	Kind  Kind
	Name  []byte // of a Message: the value of `event:`; of an UnknownField: its name
	Data  []byte // lines joined with \n
	ID    []byte // the last `id:` of the stream so far, possibly of an earlier event
	Retry time.Duration

	// Unterminated means that the stream ended before the blank line that ends the
	// event. The event may be incomplete.
	Unterminated bool
}

// Events reads the events of r until r ends. An error of r ends the sequence. The end of
// r is not an error. If an event is larger than maxEvent bytes, the sequence ends with an
// error that wraps ErrTooLarge. maxEvent 0 means 32 MiB.
func Events(r io.Reader, maxEvent int) iter.Seq2[Event, error] {
	if maxEvent <= 0 {
		maxEvent = defaultMaxEvent
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

// firstBuffer is the size of the first buffer, which is enough for most streams: their backend
// sends one small event at a time. fastBuffer is the size of the buffer after a read that
// filled it, so that a fast stream needs few reads.
const (
	firstBuffer = 4 << 10
	fastBuffer  = 16 << 10
)

// freeFrom is the size in bytes from which the memory of a buffer is returned as soon as a
// larger one takes its place. Otherwise a large event would be in memory twice.
const freeFrom = 4 << 20

// span is a part of the decoder's buffer. When the buffer moves, shift adjusts all spans.
type span struct{ from, to int }

// decoder keeps the whole current event in its buffer. A line of data is returned without
// copying. Further lines of data are moved up to the first within the buffer.
type decoder struct {
	r   io.Reader
	max int
	err error // error of r, returned when the buffer is used up

	filled bool // the last read filled the buffer

	buf   []byte // read so far; buf[event:] is the current event
	event int    // where the current event starts
	pos   int    // start of the line to be read next
	noLF  int    // buf[pos:noLF] contains no \n
	noEnd int    // buf[pos:noEnd] contains neither \n nor \r

	started bool // the byte order mark was skipped, or there is none
	skipLF  bool // the last line ended in \r; if a \n follows, it belongs to that line end

	data, name       span
	hasData, hasName bool
	hasMeta          bool // the block has an id or a retry time
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

// dispatch ends a block and returns its event. ok is false if the block has no content.
func (d *decoder) dispatch(unterminated bool) (Event, bool) {
	ev := Event{Kind: NoData, ID: d.id, Retry: d.retry, Unterminated: unterminated}
	ok := d.hasMeta
	if d.hasData {
		ok = true
		ev.Kind, ev.Data = Message, d.view(d.data)
		if d.hasName {
			ev.Name = d.view(d.name)
		}
	}
	d.hasData, d.hasName, d.hasMeta, d.retry = false, false, false, 0
	if size := d.pos - d.event; size >= LargeEvent {
		d.leaveBuffer()
	}
	d.event = d.pos
	return ev, ok
}

// leaveBuffer leaves the buffer to the event that ends at pos, and takes another one.
func (d *decoder) leaveBuffer() {
	rest := d.buf[d.pos:]
	d.buf = append(make([]byte, 0, max(2*len(rest), firstBuffer)), rest...)
	d.noLF, d.noEnd, d.pos = d.noLF-d.pos, d.noEnd-d.pos, 0
}

func (d *decoder) view(s span) []byte { return d.buf[s.from:s.to:s.to] }

// field processes one line. If the line is an event by itself, field returns the event.
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
			d.id, d.hasMeta = append(d.id[:0], v...), true
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(d.view(value)), 10, 31); err == nil {
			d.retry, d.hasMeta = time.Duration(ms)*time.Millisecond, true
		}
	case "":
		d.discardLine()
		return Event{Kind: Comment, Data: d.view(value), ID: d.id}, true
	default:
		d.discardLine()
		return Event{Kind: UnknownField, Name: key, Data: d.view(value), ID: d.id}, true
	}
	return Event{}, false
}

// discardLine lets the buffer drop the current line, unless an event has begun before it.
func (d *decoder) discardLine() {
	if !d.hasData && !d.hasName {
		d.event = d.pos
	}
}

// addData moves a further line of data up to the end of the data before it. There is always
// room for the \n between them, because the line end and the field's name were there.
func (d *decoder) addData(value span) {
	if !d.hasData {
		d.data, d.hasData = value, true
		return
	}
	to := d.data.to
	d.buf[to] = '\n'
	d.data.to = to + 1 + copy(d.buf[to+1:], d.view(value))
}

// line returns the next line without its line end. At the end of the stream, if the last
// block has no blank line, it returns an empty line with ended false once before io.EOF.
func (d *decoder) line() (line span, ended bool, err error) {
	for {
		if d.skipPrefix() {
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
			if d.hasData || d.hasMeta {
				return span{d.pos, d.pos}, false, nil
			}
			return span{}, false, io.EOF
		}
		line = span{d.pos, len(d.buf)}
		d.pos = len(d.buf)
		return line, true, nil
	}
}

// skipPrefix skips a byte order mark at the start of the stream, and the \n of a \r\n whose
// \r already ended a line. It returns false if it has to wait for more bytes.
func (d *decoder) skipPrefix() bool {
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

// findEnd finds the end of the line at pos. It searches each byte once, even if the reads
// are small.
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

// fill makes room in the buffer and reads more bytes.
func (d *decoder) fill() error {
	if d.event > 0 {
		d.shift()
	}
	if len(d.buf) >= d.max {
		return fmt.Errorf("%w: more than %d bytes without an end", ErrTooLarge, d.max)
	}
	size := cap(d.buf)
	if len(d.buf) == size {
		size = max(2*size, firstBuffer)
	}
	if d.filled {
		size = max(size, fastBuffer)
	}
	if size = min(size, d.max); size > cap(d.buf) {
		grown := make([]byte, len(d.buf), size)
		copy(grown, d.buf)
		left := cap(d.buf)
		d.buf = grown
		if left >= freeFrom {
			debug.FreeOSMemory()
		}
	}
	for range 100 {
		n, err := d.r.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		d.err, d.filled = err, len(d.buf) == cap(d.buf)
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
