package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v2 "github.com/go-json-experiment/json"

	"loquat"
)

// Faults are the faults of a text that is valid JSON: keys that are not known and values of
// a wrong type. At most loquat.MaxFieldErrors are collected; one more counts the rest.
type Faults []loquat.FieldError

func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = strings.TrimSpace(fault.Location + " " + fault.Message)
	}
	return strings.Join(texts, "; ")
}

// Decode decodes JSON into the struct to which v points. It returns a *SyntaxError, or the
// Faults of all keys and values that v cannot hold.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	err := v2.Unmarshal(data, v, v2.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var found loquat.FieldErrors
	walk(&found, "", reflect.TypeOf(v), data)
	if len(found.List()) == 0 { // v itself refuses a value
		found.Add("", "cannot be used: %v", err)
	}
	faults := Faults(found.List())
	if len(faults) > loquat.MaxFieldErrors {
		faults[loquat.MaxFieldErrors].Location = "the text"
	}
	return faults
}

// walk collects the faults of a value that must fit a type.
func walk(found *loquat.FieldErrors, path string, t reflect.Type, raw json.RawMessage) {
	for t.Kind() == reflect.Pointer {
		if t = t.Elem(); string(raw) == "null" {
			return
		}
	}
	var members loquat.Object
	var items []json.RawMessage
	switch {
	case decodesItself(reflect.PointerTo(t)):
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
			found.Add(path, "cannot be %s: %v", Kind(raw), err)
		}
	case t.Kind() == reflect.Struct && json.Unmarshal(raw, &members) == nil:
		walkMembers(found, path, fieldsOf(t), members)
	case t.Kind() == reflect.Map && json.Unmarshal(raw, &members) == nil:
		for _, key := range slices.Sorted(maps.Keys(members)) {
			walk(found, Join(path, key), t.Elem(), members[key])
		}
	case t.Kind() == reflect.Slice && json.Unmarshal(raw, &items) == nil:
		for i, item := range items {
			walk(found, fmt.Sprintf("%s[%d]", path, i), t.Elem(), item)
		}
	case v2.Unmarshal(raw, reflect.New(t).Interface()) != nil:
		found.Add(path, "is %s; must be %s", shown(raw), wanted(t))
	}
}

// decodesItself reports whether a type has a method that decodes it.
func decodesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func walkMembers(found *loquat.FieldErrors, path string, fields map[string]reflect.Type, members loquat.Object) {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if t, known := fields[key]; known {
			walk(found, Join(path, key), t, members[key])
		} else {
			found.Add(Join(path, key), "%s", Unknown(key, slices.Sorted(maps.Keys(fields))))
		}
	}
}

// fieldsOf returns the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// shown returns a number or the kind of another value.
func shown(raw json.RawMessage) string {
	if kind := Kind(raw); kind != "a number" {
		return kind
	}
	return loquat.Clip(string(raw), loquat.Excerpt)
}

// wanted describes the values that a type holds.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an integer in its range"
}
