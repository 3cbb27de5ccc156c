package loquat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// appendPartial appends a partial event as JSON. Most events are partials, so it works in
// one pass without reflection. It produces the same bytes as encoding/json.
func appendPartial(dst []byte, e Event) []byte {
	dst = append(dst, `{"type":"partial","session_id":`...)
	dst = AppendString(dst, e.SessionID)
	if e.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = AppendString(dst, e.RequestID)
	}
	dst = append(dst, `,"message":{"role":`...)
	dst = AppendString(dst, e.Message.Role)
	dst = append(dst, `,"content":`...)
	dst = AppendString(dst, e.Message.Content)
	if len(e.Message.Metadata) > 0 {
		dst = append(dst, `,"metadata":`...)
		dst = appendObject(dst, e.Message.Metadata)
	}
	return append(dst, "}}"...)
}

func appendObject(dst []byte, o Object) []byte {
	var few [8]string
	keys := few[:0]
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, k)
		dst = append(dst, ':')
		dst = appendRaw(dst, o[k])
	}
	return append(dst, '}')
}

// largeObject is the size from which an Object, or the messages of an event, are encoded
// into a buffer of the right size. encoding/json keeps two to four copies meanwhile.
const largeObject = 1 << 20

// Size returns about how many bytes the values have.
func (o Object) Size() (n int) {
	for _, raw := range o {
		n += len(raw)
	}
	return n
}

// Encode returns the JSON of the object. A large object is copied once.
func (o Object) Encode() ([]byte, error) {
	if o.Size() < largeObject {
		b, err := marshal(o)
		return validRaw(bytes.TrimSuffix(b, []byte("\n"))), err
	}
	if err := o.checkValid(); err != nil {
		return nil, err
	}
	return appendObject(make([]byte, 0, o.encodedSize()), o), nil
}

// checkValid fails when a value is not valid JSON.
func (o Object) checkValid() error {
	for key, raw := range o {
		if !json.Valid(raw) {
			return fmt.Errorf("the value at %q is not valid JSON", Clip(key, Excerpt))
		}
	}
	return nil
}

func (o Object) encodedSize() int {
	n := 2
	for key, raw := range o {
		n += quotedSize(key) + len(raw) + 2
	}
	return n
}

// isLarge reports whether the messages of an event are encoded by encodeMessages.
func (e Event) isLarge() bool {
	if e.Type != Final && e.Type != ToolResults {
		return false
	}
	n := 0
	for _, m := range e.Messages {
		n += len(m.Content) + m.Metadata.Size()
	}
	return n >= largeObject
}

// encodeMessages encodes a final or tool_results event. It produces the same JSON as
// encoding/json, but copies the messages only once.
func (e Event) encodeMessages() ([]byte, error) {
	for _, m := range e.Messages {
		if err := m.Metadata.checkValid(); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	}
	names := []string{string(e.Type), e.SessionID, e.RequestID}
	size := e.MessagesSize()
	for _, name := range names {
		size += quotedSize(name)
	}
	dst := AppendString(append(make([]byte, 0, size), `{"type":`...), names[0])
	dst = AppendString(append(dst, `,"session_id":`...), names[1])
	if e.RequestID != "" {
		dst = AppendString(append(dst, `,"request_id":`...), names[2])
	}
	dst = append(dst, `,"messages":[`...)
	for i, m := range e.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.append(dst)
	}
	return append(dst, "]}"...), nil
}

// MessagesSize returns how many bytes the messages of an event have as JSON, or a few more.
func (e Event) MessagesSize() int {
	const others = 200 // names of fields, and the time, of one message
	size := others
	for _, m := range e.Messages {
		size += others + quotedSize(m.ID) + quotedSize(m.Role) + quotedSize(m.Content) + m.Metadata.encodedSize()
	}
	return size
}

// AppendJSON appends the message as JSON. The functions in large append the values that m
// lacks: under "" the content, without its quotes, and under other keys metadata.
func (m Message) AppendJSON(dst []byte, large map[string]func([]byte) ([]byte, error)) (_ []byte, err error) {
	dst = AppendString(append(dst, `{"id":`...), m.ID)
	dst = AppendString(append(dst, `,"role":`...), m.Role)
	dst = append(dst, `,"content":"`...)
	if content := large[""]; content == nil {
		dst = AppendEscaped(dst, m.Content)
	} else if dst, err = content(dst); err != nil {
		return dst, err
	}
	dst = append(dst, '"')
	keys := slices.Collect(maps.Keys(m.Metadata))
	for key := range large {
		if key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i == 0 {
			dst = append(dst, `,"metadata":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, key), ':')
		if value := large[key]; value == nil {
			dst = appendRaw(dst, m.Metadata[key])
		} else if dst, err = value(dst); err != nil {
			return dst, err
		}
	}
	if len(keys) > 0 {
		dst = append(dst, '}')
	}
	dst = m.CreatedAt.AppendFormat(append(dst, `,"created_at":"`...), time.RFC3339Nano)
	return append(dst, `"}`...), nil
}

func (m Message) append(dst []byte) []byte {
	dst = m.appendStart(dst)
	if len(m.Metadata) > 0 {
		dst = appendObject(append(dst, `,"metadata":`...), m.Metadata)
	}
	return m.appendEnd(dst)
}

// AppendEncoded appends the message as JSON, with metadata that Object.Encode returned, or
// none, in place of its own.
func (m Message) AppendEncoded(dst, metadata []byte) []byte {
	dst = m.appendStart(dst)
	if len(metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), metadata...)
	}
	return m.appendEnd(dst)
}

func (m Message) appendStart(dst []byte) []byte {
	dst = AppendString(append(dst, `{"id":`...), m.ID)
	dst = AppendString(append(dst, `,"role":`...), m.Role)
	return AppendString(append(dst, `,"content":`...), m.Content)
}

func (m Message) appendEnd(dst []byte) []byte {
	dst = m.CreatedAt.AppendFormat(append(dst, `,"created_at":"`...), time.RFC3339Nano)
	return append(dst, `"}`...)
}

// quotedSize returns how many bytes AppendString appends.
func quotedSize(s string) int {
	var buf [1 << 10]byte
	const piece = len(buf) / 6 // of a character's escape, at most
	n := 2
	for len(s) > 0 {
		end := CharacterStart(s, min(len(s), piece))
		n += len(AppendString(buf[:0], s[:end])) - 2
		s = s[end:]
	}
	return n
}

// CleanText replaces each U+0000 with U+FFFD, because not every store can keep U+0000.
func CleanText(s string) string { return strings.ReplaceAll(s, "\x00", "\ufffd") }

// validRaw replaces each byte of raw JSON that is not valid UTF-8 with U+FFFD, as
// AppendString does in strings.
func validRaw(v json.RawMessage) json.RawMessage {
	if utf8.Valid(v) {
		return v
	}
	return bytes.Map(func(r rune) rune { return r }, v)
}

// CleanRaw applies validRaw to raw JSON and CleanText to all strings in it.
func CleanRaw(v json.RawMessage) json.RawMessage {
	v = validRaw(v)
	if bytes.Contains(v, nulEscape) {
		v = replaceNulEscapes(v)
	}
	return v
}

var nulEscape = []byte(`\u0000`)

// replaceNulEscapes replaces the escape `\u0000`. It leaves `\\u0000`, which is an escaped
// backslash and the text u0000.
func replaceNulEscapes(v json.RawMessage) json.RawMessage {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		switch {
		case bytes.HasPrefix(v[i:], nulEscape):
			out = append(out, `\ufffd`...)
			i += len(nulEscape) - 1
		case v[i] == '\\' && i+1 < len(v):
			out = append(out, v[i], v[i+1])
			i++
		default:
			out = append(out, v[i])
		}
	}
	return out
}

// appendRaw appends a raw value on one line, because a stream may send it as one line. A
// value that cannot be put on one line becomes null.
func appendRaw(dst []byte, v json.RawMessage) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	v = validRaw(v)
	if bytes.ContainsAny(v, "\n\r") {
		buf := bytes.NewBuffer(dst)
		if json.Compact(buf, v) == nil {
			return buf.Bytes()
		}
		return append(dst, "null"...)
	}
	return append(dst, v...)
}

// OneLine returns raw JSON as events have it: on one line and valid UTF-8. It returns v itself
// if v is so already, or if it is no JSON.
func OneLine(v json.RawMessage) json.RawMessage {
	if isOneLine(v) {
		return v
	}
	var buf bytes.Buffer
	if json.Compact(&buf, validRaw(v)) != nil {
		return v
	}
	return buf.Bytes()
}

// Quote returns s as a JSON string.
func Quote(s string) json.RawMessage { return AppendString(make([]byte, 0, len(s)+len(s)/8+2), s) }

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Each byte that is not valid UTF-8 becomes
// U+FFFD. U+2028 and U+2029 are escaped, because JavaScript before 2019 did not allow them
// in strings. HTML characters are not escaped.
func AppendString(dst []byte, s string) []byte {
	return append(AppendEscaped(append(dst, '"'), s), '"')
}

// plainBytes returns how many bytes at the beginning of s are ASCII and need no escape, or
// fewer. It looks at 8 bytes at a time.
func plainBytes(s string) (n int) {
	const each = 0x0101010101010101
	for ; n+8 <= len(s); n += 8 {
		b := s[n : n+8]
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		control, quote, backslash := w-each*' ', w^each*'"'-each, w^each*'\\'-each
		if (w|control|quote|backslash)&(each*0x80) != 0 {
			break
		}
	}
	return n
}

// AppendEscaped is AppendString without the quotes.
func AppendEscaped(dst []byte, s string) []byte {
	start, plain := 0, 8 // plain: where plainBytes is tried next
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				if i++; i >= plain {
					n := plainBytes(s[i:])
					i += n
					plain = i + 8
					if n == 0 { // text that is not ASCII, probably
						plain = i + 64
					}
				}
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\b':
				dst = append(dst, '\\', 'b')
			case '\f':
				dst = append(dst, '\\', 'f')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:]...)
}
