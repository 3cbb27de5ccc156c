package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
)

// schemas are the JSON Schemas of all bodies, made from the Go types, so that what
// is checked, what is documented and what is decoded cannot drift apart.
type schemas struct{ registry huma.Registry }

const schemaPrefix = "#/components/schemas/"

func newSchemas() schemas {
	r := huma.NewMapRegistry(schemaPrefix, schemaName)
	alias := func(noun, written any) { r.RegisterTypeAlias(reflect.TypeOf(noun), reflect.TypeOf(written)) }
	alias(loquat.EventID(0), eventIDText(""))
	alias(loquat.RequestStatus(""), statusText(""))
	alias(loquat.Model{}, modelText{})
	alias(loquat.ToolCall{}, toolCallText{})
	s := schemas{r}
	s.addAttachments()
	s.addEvents()
	s.addElements()
	return s
}

// schemaName writes `problem` and `toolCallText` as Problem and ToolCall.
func schemaName(t reflect.Type, hint string) string {
	return strings.Replace(strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Text"), "Ui", "UI", 1)
}

// eventIDText is how JSON shows a loquat.EventID.
type eventIDText string

func (eventIDText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^[0-9]{16}$`, Description: "An id of the event log: 16 decimal digits."}
}

// statusText is how JSON shows a loquat.RequestStatus.
type statusText string

func (statusText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{string(loquat.StatusQueued), string(loquat.StatusRunning),
		string(loquat.StatusCompleted), string(loquat.StatusFailed), string(loquat.StatusCancelled)}}
}

// modelText is how JSON shows a loquat.Model.
type modelText struct {
	_    struct{} `additionalProperties:"true"`
	ID   string   `json:"id"`
	Name string   `json:"name,omitempty"`
}

// toolCallText is how JSON shows a loquat.ToolCall.
type toolCallText struct {
	_        struct{}     `additionalProperties:"true"`
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionText `json:"function"`
}

type functionText struct {
	_         struct{} `additionalProperties:"true"`
	Name      string   `json:"name"`
	Arguments string   `json:"arguments"`
}

// of returns the schema of v's type, a reference where it is a struct.
func (s schemas) of(v any) *huma.Schema {
	return s.registry.Schema(reflect.TypeOf(v), true, "")
}

// requiresBody reports whether a body of v's type has fields that cannot be left out.
func (s schemas) requiresBody(v any) bool {
	schema := s.of(v)
	if schema.Ref != "" {
		schema = s.registry.SchemaFromRef(schema.Ref)
	}
	return len(schema.Required) > 0
}

// open lets the objects of all schemas but these hold more than they list, for
// answers only grow; and no list of an answer or a body is ever null.
func (s schemas) open(closed map[string]bool) {
	for name, schema := range s.registry.Map() {
		if !closed[schemaPrefix+name] && schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil
		}
		for _, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
			describeDefault(p)
		}
	}
}

// describeDefault puts the default of a field into its description. Generators of clients
// take a field with the keyword `default` for one that is always there.
func describeDefault(field *huma.Schema) {
	if field.Default == nil {
		return
	}
	if text, err := json.Marshal(field.Default); err == nil {
		field.Description = strings.TrimSpace(fmt.Sprintf("%s Default: %s.", field.Description, text))
	}
	field.Default = nil
}

// check holds a decoded JSON value against a schema. A null at an optional name is
// the same as leaving it out. Of a union without a discriminator it checks nothing: package
// chat checks attachments.
func (s schemas) check(f *faults, schema *huma.Schema, at string, v any) {
	for schema.Ref != "" {
		schema = s.registry.SchemaFromRef(schema.Ref)
	}
	if schema.Discriminator != nil {
		s.checkUnion(f, schema, at, v)
		return
	}
	switch schema.Type {
	case huma.TypeObject:
		s.checkObject(f, schema, at, v)
	case huma.TypeArray:
		list, ok := v.([]any)
		if !ok {
			f.add(at, "has to be a list, not %s", kindOf(v))
			return
		}
		for i, item := range list {
			s.check(f, schema.Items, fmt.Sprintf("%s[%d]", at, i), item)
		}
	case huma.TypeString:
		checkString(f, schema, at, v)
	case huma.TypeInteger, huma.TypeNumber:
		checkNumber(f, schema, at, v)
	case huma.TypeBoolean:
		if _, ok := v.(bool); !ok {
			f.add(at, "has to be true or false, not %s", kindOf(v))
		}
	}
}

// checkUnion checks a value against its variant. A variant that is unknown may hold anything.
func (s schemas) checkUnion(f *faults, schema *huma.Schema, at string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		f.add(at, "has to be an object, not %s", kindOf(v))
		return
	}
	value, _ := object[schema.Discriminator.PropertyName].(string)
	if ref := schema.Discriminator.Mapping[value]; ref != "" {
		s.check(f, refTo(strings.TrimPrefix(ref, schemaPrefix)), at, v)
	}
}

func (s schemas) checkObject(f *faults, schema *huma.Schema, at string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		f.add(at, "has to be an object, not %s", kindOf(v))
		return
	}
	for _, name := range schema.Required {
		if _, ok := object[name]; !ok {
			f.add(at+"."+name, "is missing")
		}
	}
	for name, value := range object {
		field, known := schema.Properties[name]
		switch {
		case !known && schema.AdditionalProperties == false && f.full():
		case !known && schema.AdditionalProperties == false:
			f.add(joinName(at, name), "is no field here; there are %s", strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", "))
		case known && (value != nil || slices.Contains(schema.Required, name)):
			s.check(f, field, at+"."+name, value)
		}
	}
}

func checkString(f *faults, schema *huma.Schema, at string, v any) {
	text, ok := v.(string)
	switch {
	case !ok:
		f.add(at, "has to be a string, not %s", kindOf(v))
	case len(schema.Enum) > 0 && !slices.Contains(schema.Enum, v):
		f.add(at, "has to be one of %s, not %q", enumText(schema.Enum), loquat.Clip(text, loquat.Excerpt))
	case schema.MaxLength != nil && utf8.RuneCountInString(text) > *schema.MaxLength:
		f.add(at, "has at most %d characters", *schema.MaxLength)
	case schema.Pattern != "" && !regexp.MustCompile(schema.Pattern).MatchString(text):
		f.add(at, "has to match %s, unlike %q", schema.Pattern, loquat.Clip(text, loquat.Excerpt))
	}
}

func checkNumber(f *faults, schema *huma.Schema, at string, v any) {
	n, ok := v.(float64)
	switch {
	case !ok && schema.Type == huma.TypeInteger, ok && schema.Type == huma.TypeInteger && n != math.Trunc(n):
		f.add(at, "has to be an integer, not %s", kindOf(v))
	case !ok:
		f.add(at, "has to be a number, not %s", kindOf(v))
	case schema.Minimum != nil && n < *schema.Minimum:
		f.add(at, "is at least %v, not %v", *schema.Minimum, n)
	case schema.Maximum != nil && n > *schema.Maximum:
		f.add(at, "is at most %v, not %v", *schema.Maximum, n)
	}
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case float64:
		if v != math.Trunc(v) {
			return "a fraction"
		}
	}
	return "a number"
}

func enumText(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}
