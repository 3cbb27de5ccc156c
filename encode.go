package loquat

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// appendPartial writes a partial event. It is the hottest encoder of the service:
// one pass, no reflection, and the same bytes that encoding/json would make of it.
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

// CleanText returns text with U+FFFD in the place of U+0000, which not every store can
// keep.
func CleanText(s string) string { return strings.ReplaceAll(s, "\x00", "\ufffd") }

// ValidRaw returns raw JSON with U+FFFD in the place of each byte that is no UTF-8, as
// texts get it too.
func ValidRaw(v json.RawMessage) json.RawMessage {
	if utf8.Valid(v) {
		return v
	}
	return bytes.Map(func(r rune) rune { return r }, v)
}

// CleanRaw is ValidRaw that does to all texts in the JSON what CleanText does.
func CleanRaw(v json.RawMessage) json.RawMessage {
	v = ValidRaw(v)
	if bytes.Contains(v, nulEscape) {
		v = withoutNul(v)
	}
	return v
}

var nulEscape = []byte(`\u0000`)

// withoutNul replaces the escape of U+0000, but not `\\u0000`, which is a backslash and
// five characters.
func withoutNul(v json.RawMessage) json.RawMessage {
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

// appendRaw appends a raw value on one line, for it may end in a line of a stream.
func appendRaw(dst []byte, v json.RawMessage) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	v = ValidRaw(v)
	if bytes.ContainsAny(v, "\n\r") {
		buf := bytes.NewBuffer(dst)
		if json.Compact(buf, v) == nil {
			return buf.Bytes()
		}
		return append(dst, "null"...)
	}
	return append(dst, v...)
}

// Quote returns s as a JSON string.
func Quote(s string) json.RawMessage { return AppendString(make([]byte, 0, len(s)+len(s)/8+2), s) }

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; the line
// separators that JavaScript once minded are escaped, HTML is not.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
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
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
