package loquat

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxDepth is how deep JSON may nest that comes from a client, a backend or a plugin.
// Everything that is stored and pushed stays so far below the depth at which JSON
// decoders give up, whatever wraps it.
const MaxDepth = 128

// DepthError reports that JSON nests deeper than MaxDepth.
type DepthError struct {
	Place string // where, like choices[0].delta.extra; its first steps only
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("JSON nests deeper than %d levels at %s", MaxDepth, e.Place)
}

// CheckDepth returns a *DepthError when JSON nests deeper than MaxDepth. Each object and
// each list counts as one level. CheckDepth does not say whether data is valid JSON.
func CheckDepth(data []byte) error {
	var s depthScan
	if s.within(data, MaxDepth) {
		return nil
	}
	return &DepthError{Place: s.place()}
}

// CheckDepth is CheckDepth of each value.
func (o Object) CheckDepth() error {
	for key, raw := range o {
		var s depthScan
		if !s.within(raw, MaxDepth) {
			return &DepthError{Place: joinPlace(key, s.place())}
		}
	}
	return nil
}

// NestsWithin reports whether JSON nests at most so deep.
func NestsWithin(data []byte, depth int) bool {
	var s depthScan
	return s.within(data, depth)
}

// The bounds of a DepthError's Place.
const (
	maxPlaceSteps = 6
	maxPlaceName  = 40
)

// depthScan looks at the brackets of JSON, and remembers the way to the first levels.
type depthScan struct {
	level int
	steps [maxPlaceSteps]depthStep
}

// depthStep is where a scan is within one object or list.
type depthStep struct {
	list  bool
	index int
	name  []byte // of the last member
}

// within reports whether data nests at most so deep. It stops where it does not.
func (s *depthScan) within(data []byte, depth int) bool {
	if bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) <= depth {
		return true // as nearly all is
	}
	var text []byte // the last string
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			start := i + 1
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			text = data[start:min(i, len(data))]
		case '{', '[':
			if s.level++; s.level > depth {
				return false
			}
			if step := s.step(); step != nil {
				*step = depthStep{list: c == '['}
			}
		case ':':
			if step := s.step(); step != nil {
				step.name = text
			}
		case ',':
			if step := s.step(); step != nil {
				step.index++
			}
		case '}', ']':
			s.level--
		}
	}
	return true
}

// step returns the innermost object or list, nil when it is not one of the first.
func (s *depthScan) step() *depthStep {
	if s.level < 1 || s.level > maxPlaceSteps {
		return nil
	}
	return &s.steps[s.level-1]
}

func (s *depthScan) place() string {
	var b strings.Builder
	for i, step := range s.steps {
		switch {
		case step.list:
			fmt.Fprintf(&b, "[%d]", step.index)
			continue
		case i > 0:
			b.WriteByte('.')
		}
		b.WriteString(placeName(string(step.name)))
	}
	return b.String() + "…"
}

func placeName(name string) string { return strings.ToValidUTF8(Clip(name, maxPlaceName), "\ufffd") }

func joinPlace(name, place string) string {
	if strings.HasPrefix(place, "[") {
		return placeName(name) + place
	}
	return placeName(name) + "." + place
}
