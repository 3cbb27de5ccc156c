package loquat

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxDepth is the nesting limit for JSON from clients, backends and plugins. Stored and
// pushed JSON wraps such values in a few more levels. The limit is low enough that the
// result stays far below the limits of JSON decoders.
const MaxDepth = 128

// DepthError reports that JSON nests deeper than MaxDepth.
type DepthError struct {
	Place string // path to the value, such as choices[0].delta.extra; the first steps only
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("JSON nests deeper than %d levels at %s", MaxDepth, e.Place)
}

// CheckDepth returns a *DepthError if JSON nests deeper than MaxDepth. Each object and
// each list counts as one level. CheckDepth does not check that data is valid JSON.
func CheckDepth(data []byte) error {
	var s depthScan
	if s.nestsWithin(data, MaxDepth) {
		return nil
	}
	return &DepthError{Place: s.place()}
}

// CheckDepth returns a *DepthError if a value of the object nests deeper than MaxDepth.
func (o Object) CheckDepth() error {
	for key, raw := range o {
		var s depthScan
		if !s.nestsWithin(raw, MaxDepth) {
			return &DepthError{Place: joinPlace(key, s.place())}
		}
	}
	return nil
}

// NestsWithin reports whether JSON nests at most depth levels deep.
func NestsWithin(data []byte, depth int) bool {
	var s depthScan
	return s.nestsWithin(data, depth)
}

// The bounds of a DepthError's Place.
const (
	maxPlaceSteps = 6
	maxPlaceName  = 40
)

// depthScan counts the open brackets of JSON text. For the outer levels it records the
// member or index that it has reached, so that an error can name the place.
type depthScan struct {
	level int
	steps [maxPlaceSteps]depthStep
}

// depthStep is the position of a scan within one object or list.
type depthStep struct {
	list  bool
	index int
	name  []byte // of the last member
}

// nestsWithin reports whether data nests at most depth levels deep. It stops at the first
// bracket that exceeds depth, so that place describes that bracket.
func (s *depthScan) nestsWithin(data []byte, depth int) bool {
	if bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) <= depth {
		return true // the usual case: too few brackets to nest too deep
	}
	var lastString []byte
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			start := i + 1
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			lastString = data[start:min(i, len(data))]
		case '{', '[':
			if s.level++; s.level > depth {
				return false
			}
			if step := s.step(); step != nil {
				*step = depthStep{list: c == '['}
			}
		case ':':
			if step := s.step(); step != nil {
				step.name = lastString
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

// step returns the step of the innermost object or list, or nil if it is too deep to be
// recorded.
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
