package strictjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"loquat/internal/heap"
)

// Stream reads a long JSON text one value at a time, for example the elements of a list. It keeps
// one value in memory. If a value is too large or faulty, the values after it can still be read,
// because Stream finds the end of a value by its brackets and quotes alone.
//
// A *ValueError concerns one value, and reading goes on after it. Any other error ends the stream.
type Stream struct {
	// MaxValues is how many values one value may have within it, unless it is 0. A small text can
	// become far larger in memory, if it has many values.
	MaxValues int

	in     *bufio.Reader
	line   int
	levels []level
}

// level is an object or list that is open.
type level struct {
	open  byte // '{' or '['
	begun bool // an element was read
}

// ValueError reports a value that was skipped. Message follows the name of the value.
type ValueError struct {
	Line    int // of the text, where the value begins
	Message string
}

func (e *ValueError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// errEnds reports that a text ends within a value.
var errEnds = errors.New("ends too early; the file is cut off")

// streamBuffer is how many bytes a Stream reads at once.
const streamBuffer = 64 << 10

// NewStream returns a Stream of the text in r. A byte order mark of UTF-8 is skipped. A text in
// UTF-16 is refused.
func NewStream(r io.Reader) (*Stream, error) {
	s := &Stream{in: bufio.NewReaderSize(r, streamBuffer), line: 1}
	head, err := s.in.Peek(3)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = s.in.Discard(3)
	case len(head) >= 2 && (head[0] == 0 || head[1] == 0 || string(head[:2]) == "\xff\xfe" || string(head[:2]) == "\xfe\xff"):
		return nil, errors.New("is not in UTF-8 but probably in UTF-16 or UTF-32; save it as UTF-8")
	}
	return s, nil
}

// Line returns the number of the line that is read next.
func (s *Stream) Line() int { return s.line }

// Peek returns the first byte of the next value, without reading it.
func (s *Stream) Peek() (byte, error) {
	for {
		b, err := s.in.Peek(1)
		if err == io.EOF {
			return 0, errEnds
		}
		if err != nil {
			return 0, err
		}
		switch b[0] {
		case '\n':
			s.line++
		case ' ', '\t', '\r':
		default:
			return b[0], nil
		}
		_, _ = s.in.Discard(1)
	}
}

// Open reads the bracket that begins an object or a list.
func (s *Stream) Open(bracket byte) error {
	if err := s.expect(bracket); err != nil {
		return err
	}
	s.levels = append(s.levels, level{open: bracket})
	return nil
}

func (s *Stream) expect(want byte) error {
	got, err := s.Peek()
	if err != nil {
		return err
	}
	if got != want {
		return s.unexpected(got, want)
	}
	_, _ = s.in.Discard(1)
	return nil
}

func (s *Stream) unexpected(got, want byte) error {
	return fmt.Errorf("has %q where %q must be, in line %d", got, want, s.line)
}

// More reports whether the innermost object or list has another element, and reads the comma
// before it. At the end it reads the closing bracket.
func (s *Stream) More() (bool, error) {
	in := &s.levels[len(s.levels)-1]
	end := in.open + 2 // in ASCII a closing bracket comes two after the opening one
	got, err := s.Peek()
	switch {
	case err != nil:
		return false, err
	case got == end:
		_, _ = s.in.Discard(1)
		s.levels = s.levels[:len(s.levels)-1]
		return false, nil
	case in.begun && got != ',':
		return false, s.unexpected(got, ',')
	case in.begun:
		_, _ = s.in.Discard(1)
	}
	in.begun = true
	return true, nil
}

// Key reads the name of the next member of an object. At the end of the object, more is false.
func (s *Stream) Key() (name string, more bool, err error) {
	if more, err = s.More(); err != nil || !more {
		return "", false, err
	}
	got, err := s.Peek()
	if err != nil {
		return "", false, err
	}
	if got != '"' {
		return "", false, s.unexpected(got, '"')
	}
	line := s.line
	raw, err := s.Value(maxKey, 1)
	if err == nil && json.Unmarshal(raw, &name) != nil {
		err = fmt.Errorf("has a name that is not a string, in line %d", line)
	}
	if err != nil {
		return "", false, err
	}
	return name, true, s.expect(':')
}

// Object reads an object. It calls each with the name of each member, whose value each has to read.
func (s *Stream) Object(each func(name string) error) error {
	if err := s.Open('{'); err != nil {
		return err
	}
	for {
		name, more, err := s.Key()
		if err != nil || !more {
			return err
		}
		if err := each(name); err != nil {
			return err
		}
	}
}

// List reads a list. It calls each with the index of each element, which each has to read.
func (s *Stream) List(each func(i int) error) error {
	if err := s.Open('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := s.More()
		if err != nil || !more {
			return err
		}
		if err := each(i); err != nil {
			return err
		}
	}
}

// maxKey is the length of the longest name of a member.
const maxKey = 1 << 20

// Value reads the next value: at most size bytes, nesting at most depth levels deep, and valid as
// Check requires it. If the value is not so, Value skips it and returns a *ValueError. An escape that
// is half of a surrogate pair becomes U+FFFD, because programs in JavaScript write such halves.
func (s *Stream) Value(size, depth int) ([]byte, error) {
	if _, err := s.Peek(); err != nil {
		return nil, err
	}
	line := s.line
	var memory heap.Gauge
	defer memory.Reset()
	scan := valueScan{size: size, memory: &memory}
	if err := s.scan(&scan); err != nil {
		return nil, err
	}
	if scan.tooLarge {
		return nil, &ValueError{line, fmt.Sprintf("is larger than %d bytes", size)}
	}
	if s.MaxValues > 0 && scan.values > s.MaxValues {
		return nil, &ValueError{line, fmt.Sprintf("has more than %d values in it", s.MaxValues)}
	}
	replaceHalves(scan.kept)
	if err := checkWithin(scan.kept, depth); err != nil {
		what := err.Message
		if !utf8.Valid(scan.kept) {
			what = "is not in UTF-8"
		}
		return nil, &ValueError{line + err.Line - 1, joinWords(err.Path, what)}
	}
	return scan.kept, nil
}

// replaceHalves replaces escapes of surrogates that are not in pairs.
func replaceHalves(raw []byte) {
	for i := 0; ; {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			return
		}
		i += next
		switch r := escaped(raw[i:]); {
		case !utf16.IsSurrogate(r):
			i += 2
		case utf16.DecodeRune(r, escaped(raw[i+6:])) != utf8.RuneError:
			i += 12
		default:
			copy(raw[i+2:], "fffd")
			i += 6
		}
		if i >= len(raw) {
			return
		}
	}
}

// escaped returns the character of an escape such as \u00e9 at the beginning of raw, or 0.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	r, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(r)
}

func joinWords(place, text string) string {
	if place == "" {
		return text
	}
	return place + " " + text
}

// Skip skips the next value.
func (s *Stream) Skip() error {
	if _, err := s.Peek(); err != nil {
		return err
	}
	return s.scan(&valueScan{})
}

// Leave skips the rest of the levels that were opened after there were depth of them.
func (s *Stream) Leave(depth int) error {
	for len(s.levels) > depth {
		rest := valueScan{level: len(s.levels) - depth, rest: true}
		s.levels = s.levels[:depth]
		if err := s.scan(&rest); err != nil {
			return err
		}
	}
	return nil
}

// Depth returns how many objects and lists are open.
func (s *Stream) Depth() int { return len(s.levels) }

// End returns an error if anything but space follows.
func (s *Stream) End() error {
	got, err := s.Peek()
	if errors.Is(err, errEnds) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("has %q after the end, in line %d", got, s.line)
	}
	return err
}

// scan reads bytes until the value of v ends.
func (s *Stream) scan(v *valueScan) error {
	for {
		if _, err := s.in.Peek(1); err == io.EOF {
			if v.scalar && v.level == 0 {
				return nil
			}
			return errEnds
		} else if err != nil {
			return err
		}
		chunk, _ := s.in.Peek(s.in.Buffered())
		n, ended := v.take(chunk)
		s.line += bytes.Count(chunk[:n], []byte{'\n'})
		_, _ = s.in.Discard(n)
		if ended {
			return nil
		}
	}
}

// valueScan finds the end of one value.
type valueScan struct {
	size     int // 0: nothing is kept
	kept     []byte
	memory   *heap.Gauge
	tooLarge bool

	values         int // about: commas and brackets
	level          int // of brackets that are open
	rest           bool
	begun, scalar  bool
	quoted, escape bool
}

// take returns how many bytes of chunk belong to the value, and whether the value ends there.
func (v *valueScan) take(chunk []byte) (n int, ended bool) {
	for n < len(chunk) && !ended {
		c := chunk[n]
		if v.quoted {
			n, ended = v.takeQuoted(chunk, n)
			continue
		}
		switch c {
		case '"':
			v.quoted = true
		case '{', '[':
			v.level++
			v.values++
		case '}', ']':
			if v.level == 0 { // of the object around a number
				v.keep(chunk[:n])
				return n, true
			}
			v.level--
			ended = v.level == 0
		case ',', ' ', '\t', '\r', '\n', ':':
			if v.level == 0 {
				v.keep(chunk[:n])
				return n, true
			}
			if c == ',' {
				v.values++
			}
		default:
			v.scalar = v.scalar || !v.begun && !v.rest
		}
		v.begun = true
		n++
	}
	v.keep(chunk[:n])
	return n, ended
}

// takeQuoted goes on within a string, from n on.
func (v *valueScan) takeQuoted(chunk []byte, n int) (next int, ended bool) {
	if v.escape {
		v.escape = false
		return n + 1, false
	}
	i := bytes.IndexAny(chunk[n:], `"\`)
	if i < 0 {
		return len(chunk), false
	}
	n += i
	if chunk[n] == '\\' {
		v.escape = true
		return n + 1, false
	}
	v.quoted = false
	return n + 1, v.level == 0
}

func (v *valueScan) keep(part []byte) {
	switch {
	case v.size == 0 || v.tooLarge:
	case len(v.kept)+len(part) > v.size:
		v.tooLarge, v.kept = true, nil
		v.memory.Reset()
	default:
		before := cap(v.kept)
		v.kept = append(v.kept, part...)
		if grown := cap(v.kept) - before; grown > 0 {
			v.memory.Add(grown)
		}
	}
}
