package provider

import (
	"encoding/json"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"loquat/internal/sse"
)

// scanner reads JSON in one pass. It copies only strings that hold escapes. It accepts a
// subset of the input that encoding/json accepts and decodes that subset identically. On
// invalid UTF-8, keys with escapes and deep nesting it fails, and the caller falls back
// to decodeGeneral.
type scanner struct {
	b       []byte
	i       int
	scratch []byte // decoded strings of the current value; views stay valid until reset
}

func (s *scanner) reset(b []byte) { s.b, s.i, s.scratch = b, 0, s.scratch[:0] }

// largeString is the size from which a decoded string has memory that is not used again: its
// own if it holds escapes, else that of the answer or of the event.
const largeString = sse.LargeEvent

// keepString returns a decoded string that stays valid. It does not copy a large one.
func keepString(b []byte) string {
	if len(b) >= largeString {
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	return string(b)
}

func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return // the usual case
	}
	s.spaces()
}

func (s *scanner) spaces() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the first byte of the next token, 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i] // fast path: usually no space precedes a token
	}
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c || c == 0 {
		return false
	}
	s.i++
	return true
}

func (s *scanner) atEnd() bool { return s.peek() == 0 && s.i == len(s.b) }

// object calls member for each key. member must read the value.
func (s *scanner) object(member func(key []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		raw, escaped, ok := s.stringToken()
		if !ok || escaped || !s.take(':') || !member(raw) {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// array calls element before each element. element must read the element.
func (s *scanner) array(element func(i int) bool) bool {
	if !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for i := 0; ; i++ {
		if !element(i) {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// plain marks the bytes that need no decoding within a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf
	}
	return t
}()

// stringToken reads a string and returns the bytes between its quotes.
func (s *scanner) stringToken() (raw []byte, escaped, ok bool) {
	if !s.take('"') {
		return nil, false, false
	}
	b, i, start := s.b, s.i, s.i
	for i < len(b) {
		c := b[i]
		if plain[c] {
			i++
			continue
		}
		switch {
		case c == '"':
			s.i = i + 1
			return b[start:i:i], escaped, true
		case c == '\\':
			if i+1 >= len(b) {
				return nil, false, false
			}
			escaped = true
			i += 2
		case c < ' ':
			return nil, false, false
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				return nil, false, false
			}
			i += size
		}
	}
	return nil, false, false
}

// str reads a string and decodes it. It replaces U+0000 with U+FFFD, because texts of the
// service must not hold U+0000.
func (s *scanner) str() ([]byte, bool) {
	raw, escaped, ok := s.stringToken()
	switch {
	case !ok:
		return nil, false
	case len(raw) >= largeString:
		if !escaped {
			return raw, true
		}
		usual := s.scratch
		s.scratch = make([]byte, 0, len(raw))
		raw, ok = s.decodeEscaped(raw)
		s.scratch = usual
		return raw, ok
	case !escaped:
		return raw, true
	}
	return s.decodeEscaped(raw)
}

// decodeEscaped decodes a string into scratch.
func (s *scanner) decodeEscaped(raw []byte) ([]byte, bool) {
	from := len(s.scratch)
	if len(raw) > cap(s.scratch)-from {
		s.scratch = slices.Grow(s.scratch, len(raw)) // unescaping never makes a string longer
	}
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			s.scratch = append(s.scratch, raw[i])
			i++
			continue
		}
		n, ok := s.unescape(raw[i:])
		if !ok {
			return nil, false
		}
		i += n
	}
	return s.scratch[from:len(s.scratch):len(s.scratch)], true
}

// unescape decodes the escape at the start of raw and returns its length.
func (s *scanner) unescape(raw []byte) (int, bool) {
	switch c := raw[1]; c {
	case '"', '\\', '/':
		s.scratch = append(s.scratch, c)
	case 'n':
		s.scratch = append(s.scratch, '\n')
	case 't':
		s.scratch = append(s.scratch, '\t')
	case 'r':
		s.scratch = append(s.scratch, '\r')
	case 'b':
		s.scratch = append(s.scratch, '\b')
	case 'f':
		s.scratch = append(s.scratch, '\f')
	case 'u':
		return s.unescapeRune(raw)
	default:
		return 0, false
	}
	return 2, true
}

func (s *scanner) unescapeRune(raw []byte) (int, bool) {
	r, ok := hex4(raw)
	if !ok {
		return 0, false
	}
	n := 6
	if utf16.IsSurrogate(r) {
		low, isLow := hex4(raw[n:])
		if r = utf16.DecodeRune(r, low); isLow && r != utf8.RuneError {
			n = 12
		} else {
			r = utf8.RuneError
		}
	}
	if r == 0 {
		r = utf8.RuneError
	}
	s.scratch = utf8.AppendRune(s.scratch, r)
	return n, true
}

// hex4 reads the four digits of a \u escape.
func hex4(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// maxDepth is the deepest nesting that the scanner reads.
const maxDepth = 64

// raw reads any value and returns its bytes unchanged.
func (s *scanner) raw() (json.RawMessage, bool) {
	s.space()
	start := s.i
	ok := s.skip(0)
	return json.RawMessage(s.b[start:s.i:s.i]), ok
}

func (s *scanner) skip(depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch c := s.peek(); c {
	case '"':
		raw, escaped, ok := s.stringToken()
		return ok && (!escaped || validEscapes(raw))
	case '{':
		return s.object(func([]byte) bool { return s.skip(depth + 1) })
	case '[':
		return s.array(func(int) bool { return s.skip(depth + 1) })
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.number()
	}
}

func validEscapes(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		switch raw[i] {
		case '"', '\\', '/', 'n', 't', 'r', 'b', 'f':
		case 'u':
			if _, ok := hex4(raw[i-1:]); !ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// null reads a null, and reports whether there was one.
func (s *scanner) null() bool { return s.peek() == 'n' && s.literal("null") }

func (s *scanner) number() bool {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// index reads a small non-negative integer.
func (s *scanner) index() (int, bool) {
	s.space()
	start, n := s.i, 0
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		n = n*10 + int(s.b[s.i]-'0')
		s.i++
	}
	digits := s.i - start
	if digits == 0 || digits > 6 || (digits > 1 && s.b[start] == '0') {
		return 0, false
	}
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case '.', 'e', 'E':
			return 0, false
		}
	}
	return n, true
}
