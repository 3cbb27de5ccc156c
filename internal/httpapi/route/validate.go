package route

import (
	"fmt"
	"loquat/internal/strictjson"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"loquat"
)

// The library's messages come after a location: "body.limit has to be an integer". Names in
// JSON are case-sensitive.
func init() {
	huma.ValidateStrictCasing = true
	validation.MsgExpectedString = "has to be a string"
	validation.MsgExpectedBoolean = "has to be true or false"
	validation.MsgExpectedInteger = "has to be an integer"
	validation.MsgExpectedNumber = "has to be a number"
	validation.MsgExpectedArray = "has to be a list"
	validation.MsgExpectedObject = "has to be an object"
	validation.MsgExpectedOneOf = "has to be one of %s"
	validation.MsgExpectedMatchPattern = "has to match %s"
	validation.MsgExpectedMinimumNumber = "is at least %v"
	validation.MsgExpectedMaximumNumber = "is at most %v"
	validation.MsgExpectedMinLength = "needs a length of at least %d"
	validation.MsgExpectedMaxLength = "needs a length of at most %d"
	validation.MsgExpectedMinItems = "needs at least %d items"
	validation.MsgExpectedMaxItems = "needs at most %d items"
	validation.MsgExpectedRFC3339DateTime = "has to be a time of RFC 3339"
}

// Validate adds the faults of a decoded JSON value of v's type to f.
func (s Schemas) Validate(f *loquat.FieldErrors, v any, at string, value any) {
	w := walk{schemas: s, faults: f, path: huma.NewPathBuffer([]byte(at), len(at))}
	w.value(s.of(v), value)
}

// walk validates a value. huma.Validate checks each text, number and boolean. The walk
// through objects and lists is done here, because huma keeps every fault in memory, places a
// missing field at its object, and has no null that means absent.
type walk struct {
	schemas Schemas
	faults  *loquat.FieldErrors
	path    *huma.PathBuffer
	found   huma.ValidateResult // reused
}

// value checks a value against a schema. A union without a discriminator may hold anything:
// package chat checks attachments.
func (w *walk) value(schema *huma.Schema, value any) {
	for schema.Ref != "" {
		schema = w.schemas.registry.SchemaFromRef(schema.Ref)
	}
	if schema.Discriminator != nil {
		w.union(schema, value)
		return
	}
	switch value := value.(type) {
	case map[string]any:
		if schema.Type == huma.TypeObject {
			w.object(schema, value)
			return
		}
	case []any:
		if schema.Type == huma.TypeArray {
			w.list(schema, value)
			return
		}
	}
	if schema.Type != "" {
		w.huma(schema, value)
	}
}

// huma validates a value, but not the values within it, and reports the first fault.
func (w *walk) huma(schema *huma.Schema, value any) {
	w.found.Reset()
	huma.Validate(w.schemas.registry, schema, w.path, huma.ModeWriteToServer, value, &w.found)
	if len(w.found.Errors) == 0 || w.faults.Full() {
		return
	}
	message := w.found.Errors[0].Error()
	if detail, ok := w.found.Errors[0].(*huma.ErrorDetail); ok {
		message = detail.Message
	}
	w.faults.Add(w.path.String(), "%s", message+notThis(schema, message, value))
}

// notThis repeats the value that is wrong, shortened.
func notThis(schema *huma.Schema, message string, value any) string {
	text, isText := value.(string)
	switch {
	case strings.HasPrefix(message, "needs "):
		return ""
	case isText && schema.Type == huma.TypeString:
		return fmt.Sprintf(", not %q", loquat.Clip(text, loquat.Excerpt))
	case strings.HasPrefix(message, "is at "):
		return fmt.Sprintf(", not %v", value)
	}
	return ", not " + kindOf(value)
}

// union checks a value against its variant. An unknown variant may hold anything.
func (w *walk) union(schema *huma.Schema, value any) {
	object, ok := value.(map[string]any)
	if !ok {
		w.huma(&huma.Schema{Type: huma.TypeObject}, value)
		return
	}
	name, _ := object[schema.Discriminator.PropertyName].(string)
	if ref := schema.Discriminator.Mapping[name]; ref != "" {
		w.value(RefTo(strings.TrimPrefix(ref, SchemaPrefix)), value)
	}
}

// list checks the length of a list and its items.
func (w *walk) list(schema *huma.Schema, list []any) {
	if schema.MinItems != nil || schema.MaxItems != nil {
		length := &huma.Schema{Type: huma.TypeArray, MinItems: schema.MinItems, MaxItems: schema.MaxItems, Items: &huma.Schema{}}
		length.PrecomputeMessages()
		w.huma(length, list)
	}
	for i, item := range list {
		w.path.PushIndex(i)
		w.value(schema.Items, item)
		w.path.Pop()
	}
}

// object checks the fields of an object. A null at an optional name counts as absent.
func (w *walk) object(schema *huma.Schema, object map[string]any) {
	for _, name := range schema.Required {
		if _, given := object[name]; !given && !w.faults.Full() {
			w.faults.Add(w.path.With(name), "is missing")
		}
	}
	for name, value := range object {
		field, known := schema.Properties[name]
		switch {
		case known && (value != nil || slices.Contains(schema.Required, name)):
			w.path.Push(name)
			w.value(field, value)
			w.path.Pop()
		case !known:
			w.additional(schema, name, value)
		}
	}
}

// additional checks a field that the schema does not name.
func (w *walk) additional(schema *huma.Schema, name string, value any) {
	switch rule := schema.AdditionalProperties.(type) {
	case bool:
		if !rule && !w.faults.Full() {
			w.faults.Add(strictjson.Join(w.path.String(), name), "%s", strictjson.Unknown(name, slices.Sorted(maps.Keys(schema.Properties))))
		}
	case *huma.Schema:
		at := strictjson.Join(w.path.String(), name) // Pop does not know names with dots
		inside := walk{schemas: w.schemas, faults: w.faults, path: huma.NewPathBuffer([]byte(at), len(at))}
		inside.value(rule, value)
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
