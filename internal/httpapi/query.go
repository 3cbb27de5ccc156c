package httpapi

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
)

// kind is what the text of a parameter means.
type kind byte

const (
	text    kind = iota // any text that is not empty
	id                  // any text; an empty one counts as absent
	integer             // a decimal integer
	seconds             // a decimal number, perhaps with a fraction
	eventID             // 16 digits
	sinceID             // any number of digits; an empty one counts as absent
	flag                // true or false; the bare name is true
	indices             // integers from 0, separated by commas
)

// param is a parameter of a route's query. What cannot be parsed is 400, what is
// parsed and out of bounds is 422.
type param struct {
	name     string
	kind     kind
	min, max float64 // of an integer or seconds; max 0 means no bound
	preset   any     // what an absent one means; for the document
	only     string  // the only value of a text
	doc      string
}

// query holds the values of the parameters that a route declares. A parameter that
// it does not declare is ignored.
type query map[string]any

func parseQuery(params []param, raw string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, malformed("query", "cannot be parsed: %v", err)
	}
	q := query{}
	broken, wrong := faults{malformed: true}, faults{}
	for _, p := range params {
		given, ok := values[p.name]
		if !ok {
			continue
		}
		at := "query." + p.name
		if len(given) > 1 {
			broken.add(at, "is given %d times", len(given))
			continue
		}
		if given[0] == "" && (p.kind == id || p.kind == sinceID) {
			continue
		}
		v, expected := p.parse(given[0])
		if expected != "" {
			broken.add(at, "has to be %s, not %q", expected, loquat.Clip(given[0], loquat.Excerpt))
			continue
		}
		p.check(&wrong, at, v)
		q[p.name] = v
	}
	if err := broken.err(); err != nil {
		return nil, err
	}
	return q, wrong.err()
}

// parse returns the value, or what it should have been.
func (p param) parse(s string) (v any, expected string) {
	var err error
	switch p.kind {
	case integer:
		v, err = strconv.Atoi(s)
		expected = "an integer"
	case seconds:
		v, err = parseSeconds(s)
		expected = "a number of seconds"
	case eventID:
		v, err = loquat.ParseEventID(s)
		expected = "an event_id of 16 decimal digits"
	case sinceID:
		v, err = loquat.ParseSinceID(s)
		expected = "an event_id, which has only decimal digits"
	case flag:
		v, err = strconv.ParseBool(s)
		if s == "" {
			v, err = true, nil
		}
		expected = "true or false"
	case indices:
		v, err = parseIndices(s)
		expected = "integers separated by commas"
	default:
		v, expected = s, "a text that is not empty"
		if s == "" {
			return nil, expected
		}
	}
	if err != nil {
		return nil, expected
	}
	return v, ""
}

// parseSeconds reads plain decimals: no exponents, hexadecimals or infinities.
func parseSeconds(s string) (float64, error) {
	if strings.Trim(s, "+-.0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

func parseIndices(s string) ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func (p param) check(f *faults, at string, v any) {
	var numbers []float64
	switch v := v.(type) {
	case int:
		numbers = []float64{float64(v)}
	case float64:
		numbers = []float64{v}
	case []int:
		for _, n := range v {
			numbers = append(numbers, float64(n))
		}
	case string:
		if p.only != "" && v != p.only {
			f.add(at, "has to be %q, the only value there is, not %q", p.only, loquat.Clip(v, loquat.Excerpt))
		}
	}
	for _, n := range numbers {
		if n < p.min {
			f.add(at, "is at least %v, not %v", p.min, n)
		} else if p.max > 0 && n > p.max {
			f.add(at, "is at most %v, not %v", p.max, n)
		}
	}
}

func (q query) text(name string) string { s, _ := q[name].(string); return s }
func (q query) flag(name string) bool   { b, _ := q[name].(bool); return b }

// integer returns nil for an absent parameter.
func (q query) integer(name string) *int {
	if n, ok := q[name].(int); ok {
		return &n
	}
	return nil
}

// eventID returns nil for an absent parameter.
func (q query) eventID(name string) *loquat.EventID {
	if id, ok := q[name].(loquat.EventID); ok {
		return &id
	}
	return nil
}

func (q query) seconds(name string) time.Duration {
	s, _ := q[name].(float64)
	return time.Duration(math.Round(s * float64(time.Second)))
}

// document describes the parameter in the OpenAPI document.
func (p param) document() *huma.Param {
	schema := &huma.Schema{Type: huma.TypeString, Default: p.preset}
	switch p.kind {
	case integer:
		schema.Type = huma.TypeInteger
	case seconds:
		schema.Type = huma.TypeNumber
	case eventID:
		schema.Pattern = `^[0-9]{16}$`
	case sinceID:
		schema.Pattern = `^[0-9]*$`
	case flag:
		schema.Type = huma.TypeBoolean
	case indices:
		schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger, Minimum: &p.min}}
	}
	if p.kind == integer || p.kind == seconds {
		schema.Minimum = &p.min
		if p.max > 0 {
			schema.Maximum = &p.max
		}
	}
	if p.only != "" {
		schema.Enum = []any{p.only}
	}
	out := &huma.Param{Name: p.name, In: "query", Description: p.doc, Schema: schema}
	if p.kind == indices {
		joined := false
		out.Style, out.Explode = "form", &joined
	}
	return out
}
