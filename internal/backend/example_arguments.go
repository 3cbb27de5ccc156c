package backend

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"loquat"
)

// schema holds the parts of a JSON schema that exampleArguments uses.
type schema struct {
	Ref        string                     `json:"$ref"`
	Type       json.RawMessage            `json:"type"` // a name, or a list of names
	Const      json.RawMessage            `json:"const"`
	Default    json.RawMessage            `json:"default"`
	Enum       []json.RawMessage          `json:"enum"`
	Examples   []json.RawMessage          `json:"examples"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AllOf      []json.RawMessage          `json:"allOf"`
	Format     string                     `json:"format"`
	MinLength  int                        `json:"minLength"`
	MaxLength  *int                       `json:"maxLength"`
	Minimum    *float64                   `json:"minimum"`
	Maximum    *float64                   `json:"maximum"`
	MinItems   int                        `json:"minItems"`
	Items      json.RawMessage            `json:"items"`
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
}

// The bounds of an example value. Values nested deeper are null; lists and strings are
// shortened.
const (
	maxSchemaDepth = 8
	maxItems       = 16
	maxExampleText = 4096
)

// exampleArguments returns plausible arguments for a tool. They may violate keywords that
// the type schema does not contain, such as pattern.
func exampleArguments(parameters json.RawMessage, userText string) json.RawMessage {
	var root schema
	if len(parameters) == 0 || json.Unmarshal(parameters, &root) != nil {
		return json.RawMessage("{}")
	}
	m := example{defs: root.Defs, userText: userText}
	object, ok := m.value("", parameters, 0).(map[string]any)
	if !ok {
		return json.RawMessage("{}")
	}
	data, err := json.Marshal(object)
	if err != nil {
		return json.RawMessage("{}")
	}
	return data
}

type example struct {
	defs     map[string]json.RawMessage
	userText string
}

// value returns an example value for a property.
func (m example) value(name string, raw json.RawMessage, depth int) any {
	var s schema
	if depth > maxSchemaDepth || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	for _, given := range [][]json.RawMessage{{s.Const}, {s.Default}, s.Examples, s.Enum} {
		if len(given) > 0 && len(given[0]) > 0 {
			return given[0]
		}
	}
	if def, ok := m.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]; ok && s.Ref != "" {
		return m.value(name, def, depth+1)
	}
	for _, choice := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		if len(choice) > 0 {
			return m.value(name, choice[0], depth+1)
		}
	}
	if len(s.AllOf) > 0 {
		return m.mergeAll(name, s.AllOf, depth)
	}
	switch s.kind() {
	case "object":
		return m.object(s, depth)
	case "array":
		list := []any{}
		for range min(max(s.MinItems, 1), maxItems) {
			list = append(list, m.value(name, orAnySchema(s.Items), depth+1))
		}
		return list
	case "integer":
		return int64(math.Ceil(s.number()))
	case "number":
		return s.number()
	case "boolean":
		return true
	case "null":
		return nil
	}
	return s.fitLength(m.exampleString(name, s.Format))
}

func (s schema) kind() string {
	var one string
	var several []string
	if json.Unmarshal(s.Type, &one) == nil {
		return one
	}
	if json.Unmarshal(s.Type, &several) == nil && len(several) > 0 {
		return several[0]
	}
	switch {
	case s.Properties != nil:
		return "object"
	case s.Items != nil:
		return "array"
	}
	return "string"
}

// object returns an object with the required properties, or with all of them if none is
// required.
func (m example) object(s schema, depth int) map[string]any {
	names := s.Required
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(s.Properties))
	}
	object := map[string]any{}
	for _, name := range names {
		object[name] = m.value(name, orAnySchema(s.Properties[name]), depth+1)
	}
	return object
}

// mergeAll merges the objects of allOf. If one is not an object, it returns the first value.
func (m example) mergeAll(name string, parts []json.RawMessage, depth int) any {
	merged := map[string]any{}
	for _, part := range parts {
		object, ok := m.value(name, part, depth+1).(map[string]any)
		if !ok {
			return m.value(name, parts[0], depth+1)
		}
		maps.Copy(merged, object)
	}
	return merged
}

func (s schema) number() float64 {
	n := 1.0
	if s.Minimum != nil {
		n = max(n, *s.Minimum)
	}
	if s.Maximum != nil {
		n = min(n, *s.Maximum)
	}
	return n
}

// exampleString returns a string that suits the format or the name of a property.
func (m example) exampleString(name, format string) string {
	switch format {
	case "date":
		return "2026-01-31"
	case "date-time":
		return "2026-01-31T12:00:00Z"
	case "time":
		return "12:00:00Z"
	case "email":
		return "ada@example.com"
	case "uri", "url":
		return "https://example.com/"
	case "uuid":
		return "00000000-0000-4000-8000-000000000001"
	}
	for _, p := range []struct{ part, text string }{
		{"city", "Paris"}, {"location", "Paris"}, {"country", "France"}, {"url", "https://example.com/"},
		{"path", "README.md"}, {"file", "README.md"}, {"email", "ada@example.com"}, {"date", "2026-01-31"},
		{"name", "Ada"}, {"lang", "en"},
	} {
		if strings.Contains(strings.ToLower(name), p.part) {
			return p.text
		}
	}
	return cmp.Or(loquat.Clip(strings.TrimSpace(m.userText), maxQuote), "example")
}

// fitLength extends or cuts text to the length that the schema requires, up to
// maxExampleText.
func (s schema) fitLength(text string) string {
	runes := []rune(text)
	for len(runes) < min(s.MinLength, maxExampleText) {
		runes = append(runes, 'x')
	}
	if s.MaxLength != nil && *s.MaxLength >= 0 && len(runes) > *s.MaxLength {
		runes = runes[:*s.MaxLength]
	}
	return string(runes)
}

// orAnySchema returns raw, or a schema that allows any value if raw is nil.
func orAnySchema(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}
