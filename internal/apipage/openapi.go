package apipage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// openAPI is an OpenAPI document, as far as the page shows it.
type openAPI struct {
	Info       info
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]*schema }
}

type info struct{ Title, Version, Description string }

type operation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []parameter
	RequestBody                       *body
	Responses                         map[string]body
	Security                          []map[string][]string

	Method, Path, Example string `json:"-"`
}

// Open reports whether the operation needs no token.
func (o operation) Open() bool { return len(o.Security) == 1 && len(o.Security[0]) == 0 }

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                *schema
}

type body struct {
	Description string
	Required    bool
	Content     map[string]struct{ Schema *schema }
	Headers     map[string]struct{ Description string }
}

// content is one schema of a body with the media types that it is of.
type content struct {
	Media  string
	Schema *schema
}

// Contents returns the media types of a body. Those of the same schema stand together.
func (b body) Contents() []content {
	var out []content
	for _, media := range slices.Sorted(maps.Keys(b.Content)) {
		s := b.Content[media].Schema
		i := slices.IndexFunc(out, func(c content) bool { return c.Schema.same(s) })
		if i < 0 {
			out = append(out, content{media, s})
		} else {
			out[i].Media += ", " + media
		}
	}
	return out
}

// schema is a JSON Schema.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 types
	Description, Format  string
	Pattern              string
	Enum                 []json.RawMessage
	Default              json.RawMessage
	Items                *schema
	Properties           map[string]*schema
	Required             []string
	OneOf, AnyOf         []*schema
	AdditionalProperties json.RawMessage
	Discriminator        *struct{ PropertyName string }
	Minimum, Maximum     json.Number
	MinLength, MaxLength json.Number
}

// types is the type of a schema: one name or several.
type types []string

func (t *types) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = types{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

func (s *schema) is(kind string) bool { return slices.Contains(s.Type, kind) }

func (s *schema) same(other *schema) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// RefName returns the name of the schema that a reference points to.
func (s *schema) RefName() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// TypeName returns the type of a schema that is not a reference, a list or a choice.
func (s *schema) TypeName() string {
	name := cmp.Or(strings.Join(s.Type, " or "), "any JSON")
	if s.Format != "" {
		name += ", " + s.Format
	}
	return name
}

// Choices returns the schemas of which a value has one.
func (s *schema) Choices() []*schema { return slices.Concat(s.OneOf, s.AnyOf) }

// Values returns the schema of the values of an object whose names are free, nil when any
// value will do.
func (s *schema) Values() *schema {
	var out schema
	if !s.is("object") || len(s.Properties) > 0 || json.Unmarshal(s.AdditionalProperties, &out) != nil || out.same(&schema{}) {
		return nil
	}
	return &out
}

// Closed reports whether an object has no other fields than those listed.
func (s *schema) Closed() bool { return string(s.AdditionalProperties) == "false" }

// Limits returns what a value has to keep to, in words.
func (s *schema) Limits() string {
	var out []string
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, string(v))
		}
		out = append(out, strings.Join(values, ", "))
	}
	for _, limit := range []struct {
		words string
		value json.Number
	}{{"at least %s", s.Minimum}, {"at most %s", s.Maximum}, {"at least %s characters", s.MinLength}, {"at most %s characters", s.MaxLength}} {
		if limit.value != "" {
			out = append(out, fmt.Sprintf(limit.words, limit.value))
		}
	}
	if s.Pattern != "" {
		out = append(out, "matches "+s.Pattern)
	}
	if len(s.Default) > 0 {
		out = append(out, "default "+string(s.Default))
	}
	return strings.Join(out, "; ")
}

// field is a field of an object.
type field struct {
	Name     string
	Required bool
	Schema   *schema
}

// Fields returns the fields of an object: the required ones first, each part in the order of
// the alphabet.
func (s *schema) Fields() []field {
	var out []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, field{name, slices.Contains(s.Required, name), s.Properties[name]})
	}
	slices.SortStableFunc(out, func(a, b field) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return out
}
