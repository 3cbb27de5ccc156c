package route

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
)

// ParamKind says how the text of a parameter is parsed.
type ParamKind byte

// The kinds of parameters.
const (
	Text     ParamKind = iota // any text that is not empty
	ID                        // any text; an empty one counts as absent
	Integer                   // a decimal integer
	Seconds                   // a decimal number, perhaps with a fraction
	EventID                   // 16 digits
	SinceID                   // any number of digits; an empty one counts as absent
	Flag                      // true or false; the bare name is true
	Indices                   // integers from 0, separated by commas
	TextList                  // texts that are not empty; the parameter may be given several times
	Time                      // a time of RFC 3339
)

// Param is a parameter of a route's query. A value that cannot be parsed is answered with
// 400, a value out of bounds with 422.
type Param struct {
	Name     string
	Kind     ParamKind
	Min, Max float64  // of an integer or seconds, or of the length of a list of texts; Max 0 means no bound
	Default  any      // what an absent parameter means; for the document
	OneOf    []string // the values that a text, or each of a list, may have; empty means any
	Required bool
	Doc      string
}

// Query holds the values of the parameters that a route declares. A parameter that
// it does not declare is ignored.
type Query map[string]any

func parseQuery(params []Param, raw string) (Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, Malformed("query", "cannot be parsed: %v", err)
	}
	q := Query{}
	broken, wrong := loquat.FieldErrors{Malformed: true}, loquat.FieldErrors{}
	for _, p := range params {
		given, ok := values[p.Name]
		if !ok {
			if p.Required {
				broken.Add("query."+p.Name, "is missing")
			}
			continue
		}
		at := "query." + p.Name
		if len(given) > 1 && p.Kind != TextList {
			broken.Add(at, "is given %d times", len(given))
			continue
		}
		if given[0] == "" && (p.Kind == ID || p.Kind == SinceID) {
			continue
		}
		v, expected := p.parse(given[0])
		if p.Kind == TextList {
			v, expected = parseTexts(given)
		}
		if expected != "" {
			broken.Add(at, "has to be %s, not %q", expected, loquat.Clip(given[0], loquat.Excerpt))
			continue
		}
		p.check(&wrong, at, v)
		q[p.Name] = v
	}
	if err := broken.Err(); err != nil {
		return nil, err
	}
	return q, wrong.Err()
}

// parse returns the value, or a description of the values that are expected.
func (p Param) parse(s string) (v any, expected string) {
	var err error
	switch p.Kind {
	case Integer:
		v, err = strconv.Atoi(s)
		expected = "an integer"
	case Seconds:
		v, err = parseSeconds(s)
		expected = "a number of seconds"
	case EventID:
		v, err = loquat.ParseEventID(s)
		expected = "an event_id of 16 decimal digits"
	case SinceID:
		v, err = loquat.ParseSinceID(s)
		expected = "an event_id, which has only decimal digits"
	case Time:
		v, err = time.Parse(time.RFC3339, s)
		expected = "a time such as 2006-01-02T15:04:05Z"
	case Flag:
		v, err = strconv.ParseBool(s)
		if s == "" {
			v, err = true, nil
		}
		expected = "true or false"
	case Indices:
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

func parseTexts(given []string) (v any, expected string) {
	if slices.Contains(given, "") {
		return nil, "a text that is not empty"
	}
	return given, ""
}

func (p Param) check(f *loquat.FieldErrors, at string, v any) {
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
		p.checkText(f, at, v)
	case []string:
		if float64(len(v)) > p.Max {
			f.Add(at, "is given %d times, at most %v are allowed", len(v), p.Max)
		}
		for _, text := range v {
			p.checkText(f, at, text)
		}
	}
	for _, n := range numbers {
		if n < p.Min {
			f.Add(at, "is at least %v, not %v", p.Min, n)
		} else if p.Max > 0 && n > p.Max {
			f.Add(at, "is at most %v, not %v", p.Max, n)
		}
	}
}

func (p Param) checkText(f *loquat.FieldErrors, at, text string) {
	if len(p.OneOf) > 0 && !slices.Contains(p.OneOf, text) {
		f.Add(at, "has to be %s, not %q", oneOf(p.OneOf), loquat.Clip(text, loquat.Excerpt))
	}
}

// oneOf lists the allowed values of a text.
func oneOf(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = strconv.Quote(value)
	}
	return strings.Join(quoted, " or ")
}

// Has reports whether the parameter was given.
func (q Query) Has(name string) bool { _, ok := q[name]; return ok }

// TextList returns nil for an absent parameter.
func (q Query) TextList(name string) []string { list, _ := q[name].([]string); return list }

// Text returns "" for an absent parameter.
func (q Query) Text(name string) string { s, _ := q[name].(string); return s }

// Flag returns false for an absent parameter.
func (q Query) Flag(name string) bool { b, _ := q[name].(bool); return b }

// Integer returns nil for an absent parameter.
func (q Query) Integer(name string) *int {
	if n, ok := q[name].(int); ok {
		return &n
	}
	return nil
}

// EventID returns nil for an absent parameter.
func (q Query) EventID(name string) *loquat.EventID {
	if id, ok := q[name].(loquat.EventID); ok {
		return &id
	}
	return nil
}

// Time returns the zero Time for an absent parameter.
func (q Query) Time(name string) time.Time { t, _ := q[name].(time.Time); return t }

// Seconds returns 0 for an absent parameter.
func (q Query) Seconds(name string) time.Duration {
	s, _ := q[name].(float64)
	return time.Duration(math.Round(s * float64(time.Second)))
}

// Indices returns the list, and whether the parameter was given.
func (q Query) Indices(name string) (list []int, given bool) {
	list, given = q[name].([]int)
	return list, given
}

// document describes the parameter in the OpenAPI document.
func (p Param) document() *huma.Param {
	schema := &huma.Schema{Type: huma.TypeString, Default: p.Default}
	switch p.Kind {
	case Integer:
		schema.Type = huma.TypeInteger
	case Seconds:
		schema.Type = huma.TypeNumber
	case EventID:
		schema.Pattern = `^[0-9]{16}$`
	case SinceID:
		schema.Pattern = `^[0-9]*$`
	case Time:
		schema.Format = "date-time"
	case Flag:
		schema.Type = huma.TypeBoolean
	case Indices:
		schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger, Minimum: &p.Min}}
	case TextList:
		most := int(p.Max)
		schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MaxItems: &most}
	}
	if p.Kind == Integer || p.Kind == Seconds {
		schema.Minimum = &p.Min
		if p.Max > 0 {
			schema.Maximum = &p.Max
		}
	}
	texts := schema
	if p.Kind == TextList {
		texts = schema.Items
	}
	for _, value := range p.OneOf {
		texts.Enum = append(texts.Enum, value)
	}
	out := &huma.Param{Name: p.Name, In: "query", Description: p.Doc, Required: p.Required, Schema: schema}
	if p.Kind == Indices {
		joined := false
		out.Style, out.Explode = "form", &joined
	}
	return out
}
