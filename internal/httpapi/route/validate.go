package route

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
)

// Validate adds what is wrong with a decoded JSON value of v's type to f.
func (s Schemas) Validate(f *FieldErrors, v any, at string, value any) {
	s.check(f, s.Of(v), at, value)
}

// check holds a decoded JSON value against a schema. A null at an optional name is
// the same as leaving it out. Of a union without a discriminator it checks nothing: package
// chat checks attachments.
func (s Schemas) check(f *FieldErrors, schema *huma.Schema, at string, v any) {
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
			f.Add(at, "has to be a list, not %s", kindOf(v))
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
			f.Add(at, "has to be true or false, not %s", kindOf(v))
		}
	}
}

// checkUnion checks a value against its variant. A variant that is unknown may hold anything.
func (s Schemas) checkUnion(f *FieldErrors, schema *huma.Schema, at string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		f.Add(at, "has to be an object, not %s", kindOf(v))
		return
	}
	value, _ := object[schema.Discriminator.PropertyName].(string)
	if ref := schema.Discriminator.Mapping[value]; ref != "" {
		s.check(f, RefTo(strings.TrimPrefix(ref, SchemaPrefix)), at, v)
	}
}

func (s Schemas) checkObject(f *FieldErrors, schema *huma.Schema, at string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		f.Add(at, "has to be an object, not %s", kindOf(v))
		return
	}
	for _, name := range schema.Required {
		if _, ok := object[name]; !ok {
			f.Add(at+"."+name, "is missing")
		}
	}
	for name, value := range object {
		field, known := schema.Properties[name]
		switch {
		case !known && schema.AdditionalProperties == false && f.full():
		case !known && schema.AdditionalProperties == false:
			f.Add(JoinName(at, name), "is no field here; there are %s", strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", "))
		case known && (value != nil || slices.Contains(schema.Required, name)):
			s.check(f, field, at+"."+name, value)
		}
	}
}

func checkString(f *FieldErrors, schema *huma.Schema, at string, v any) {
	text, ok := v.(string)
	switch {
	case !ok:
		f.Add(at, "has to be a string, not %s", kindOf(v))
	case len(schema.Enum) > 0 && !slices.Contains(schema.Enum, v):
		f.Add(at, "has to be one of %s, not %q", enumText(schema.Enum), loquat.Clip(text, loquat.Excerpt))
	case schema.MaxLength != nil && utf8.RuneCountInString(text) > *schema.MaxLength:
		f.Add(at, "has at most %d characters", *schema.MaxLength)
	case schema.Pattern != "" && !regexp.MustCompile(schema.Pattern).MatchString(text):
		f.Add(at, "has to match %s, unlike %q", schema.Pattern, loquat.Clip(text, loquat.Excerpt))
	}
}

func checkNumber(f *FieldErrors, schema *huma.Schema, at string, v any) {
	n, ok := v.(float64)
	switch {
	case !ok && schema.Type == huma.TypeInteger, ok && schema.Type == huma.TypeInteger && n != math.Trunc(n):
		f.Add(at, "has to be an integer, not %s", kindOf(v))
	case !ok:
		f.Add(at, "has to be a number, not %s", kindOf(v))
	case schema.Minimum != nil && n < *schema.Minimum:
		f.Add(at, "is at least %v, not %v", *schema.Minimum, n)
	case schema.Maximum != nil && n > *schema.Maximum:
		f.Add(at, "is at most %v, not %v", *schema.Maximum, n)
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
