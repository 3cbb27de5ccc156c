package backend

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Reframe lists changes of a stream's framing that every reader must accept.
type Reframe []string

// The changes of framing, in the order in which they are made.
const (
	reframeNoSpace   = "nospace"   // no space after the colon of a field
	reframeComments  = "comments"  // a comment before each line
	reframeNoNewline = "nonewline" // no line ends at the end of the stream
	reframeCRLF      = "crlf"      // lines end in CR LF
	reframeBytes     = "bytes"     // each byte is written separately
)

var reframes = []string{reframeCRLF, reframeNoSpace, reframeBytes, reframeComments, reframeNoNewline}

// ParseReframe parses a comma-separated list.
func ParseReframe(list string) (Reframe, error) {
	if list == "" {
		return nil, nil
	}
	r := Reframe(strings.Split(list, ","))
	return r, r.validate()
}

func (r Reframe) validate() error {
	for _, name := range r {
		if !slices.Contains(reframes, name) {
			return fmt.Errorf("reframe: %q is unknown; allowed are %s", name, strings.Join(reframes, ", "))
		}
	}
	return nil
}

// bytewise reports whether each byte is written separately.
func (r Reframe) bytewise() bool { return slices.Contains(r, reframeBytes) }

// apply changes one frame. In a body that is not a stream it changes only the end.
func (r Reframe) apply(frame []byte, stream, last bool) []byte {
	if stream && slices.Contains(r, reframeNoSpace) {
		frame = eachLine(frame, func(dst, line []byte) []byte {
			if field, value, ok := bytes.Cut(line, []byte(": ")); ok && len(field) > 0 && !bytes.ContainsAny(field, ":{\"") {
				dst = append(append(dst, field...), ':')
				return append(dst, value...)
			}
			return append(dst, line...)
		})
	}
	if stream && slices.Contains(r, reframeComments) {
		frame = eachLine(frame, func(dst, line []byte) []byte {
			if len(bytes.TrimRight(line, "\r\n")) > 0 {
				dst = append(dst, ": a comment\n"...)
			}
			return append(dst, line...)
		})
	}
	if last && slices.Contains(r, reframeNoNewline) {
		frame = bytes.TrimRight(frame, "\r\n")
	}
	if stream && slices.Contains(r, reframeCRLF) {
		frame = bytes.ReplaceAll(frame, []byte("\r\n"), []byte("\n"))
		frame = bytes.ReplaceAll(frame, []byte("\n"), []byte("\r\n"))
	}
	return frame
}

func eachLine(frame []byte, edit func(dst, line []byte) []byte) []byte {
	dst := make([]byte, 0, len(frame)+64)
	for line := range bytes.Lines(frame) {
		dst = edit(dst, line)
	}
	return dst
}
