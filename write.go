package loquat

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"unicode/utf8"
)

// LargeJSON is implemented by answers that hold messages. WriteJSON writes what encoding/json
// encodes, without a copy of the messages.
type LargeJSON interface {
	JSONSize() int // approximate
	WriteJSON(w io.Writer) error
}

var _, _ LargeJSON = Snapshot{}, MessagePage{}

// JSONSize returns about how many bytes WriteJSON writes.
func (s Snapshot) JSONSize() int { return messagesSize(s.Messages) + s.Waiting.size() }

// WriteJSON writes the snapshot as JSON, the messages from where they are.
func (s Snapshot) WriteJSON(w io.Writer) error {
	messages := s.Messages
	s.Messages = []Message{}
	return writeAround(w, s, messages)
}

// JSONSize returns about how many bytes WriteJSON writes.
func (p MessagePage) JSONSize() int { return messagesSize(p.Messages) + p.Waiting.size() }

// WriteJSON writes the page as JSON, the messages from where they are.
func (p MessagePage) WriteJSON(w io.Writer) error {
	messages := p.Messages
	p.Messages = []Message{}
	return writeAround(w, p, messages)
}

// messagesSize returns about how many bytes messages have as JSON.
func messagesSize(messages []Message) (n int) {
	const others = 128
	for _, m := range messages {
		n += others + len(m.Content) + m.Metadata.Size()
	}
	return n
}

// writeAround writes v, whose list of messages is empty, with messages in the list.
func writeAround(w io.Writer, v any, messages []Message) error {
	around, err := marshal(v)
	if err != nil {
		return err
	}
	// Only ids follow the list. They hold no quotation marks, so the last match is the list.
	list := []byte(`"messages":[]`)
	at := bytes.LastIndex(around, list) + len(list) - 1
	p := pieceWriter{w: w, buf: slices.Clip(around[:at])}
	for i, m := range messages {
		if i > 0 {
			p.buf = append(p.buf, ',')
		}
		p.message(m)
	}
	p.buf = append(p.buf, around[at:]...)
	p.flush()
	return p.err
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

// pieceWriter writes JSON in pieces of bounded size. err is the first error of w.
type pieceWriter struct {
	w   io.Writer
	buf []byte
	err error
}

// writtenPiece is the most text that is escaped at a time.
const writtenPiece = 16 << 10

func (p *pieceWriter) flush() {
	if p.err == nil {
		_, p.err = p.w.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

func (p *pieceWriter) flushFull() {
	if len(p.buf) >= writtenPiece {
		p.flush()
	}
}

func (p *pieceWriter) message(m Message) {
	content, metadata := m.Content, m.Metadata
	m.Content, m.Metadata = "", nil
	empty := []byte(`"content":""`)
	around := m.append(nil)
	at := bytes.LastIndex(around, empty) + len(empty) - 1 // only the time follows the content
	p.buf = append(p.buf, around[:at]...)
	p.text(content)
	p.buf = append(p.buf, '"')
	if len(metadata) > 0 {
		p.buf = append(p.buf, `,"metadata":`...)
		p.object(metadata)
	}
	p.buf = append(p.buf, around[at+1:]...)
	p.flushFull()
}

func (p *pieceWriter) text(s string) {
	for len(s) > 0 && p.err == nil {
		end := CharacterStart(s, min(len(s), writtenPiece))
		p.buf = AppendEscaped(p.buf, s[:end])
		s = s[end:]
		p.flushFull()
	}
}

func (p *pieceWriter) object(o Object) {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	p.buf = append(p.buf, '{')
	for i, k := range keys {
		if i > 0 {
			p.buf = append(p.buf, ',')
		}
		p.buf = append(AppendString(p.buf, k), ':')
		if v := o[k]; len(v) > writtenPiece && isOneLine(v) {
			p.flush()
			if p.err == nil {
				_, p.err = p.w.Write(v)
			}
		} else {
			p.buf = appendRaw(p.buf, v)
			p.flushFull()
		}
	}
	p.buf = append(p.buf, '}')
}

// isOneLine reports whether appendRaw appends v unchanged.
func isOneLine(v json.RawMessage) bool { return utf8.Valid(v) && !bytes.ContainsAny(v, "\n\r") }
