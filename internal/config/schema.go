package config

import (
	"encoding/json"
	"errors"
	"slices"
)

// Kind is the shape of a configuration value.
type Kind string

// The kinds of values. Delays are seconds: `[1, 2.5]` or `"1, 2.5"`.
const (
	String   Kind = "string"
	Number   Kind = "number"
	Integer  Kind = "integer"
	Boolean  Kind = "boolean"
	Object   Kind = "object"    // any object: the key's owner knows what is in it
	Strings  Kind = "strings"   // list of string
	Objects  Kind = "objects"   // list of object
	Labels   Kind = "labels"    // object of string to string
	Delays   Kind = "delays"    // list of seconds, or a comma-separated string of them
	DelayMap Kind = "delay_map" // object of HTTP status code to Delays
	Any      Kind = "any"       // any JSON value: only the field's own Check looks into it
)

// Field describes one key of a flat dictionary or, with dots, of an object in it. Checks,
// redaction, the reference page and the UI use it.
type Field struct {
	Key      string // such as timeout, stream_recovery.mode
	Kind     Kind
	Default  any      // nil when there is none
	Enum     []string // the only values of a String, when not empty
	Min, Max *float64 // bounds of a Number or Integer, inclusive
	Required bool
	Secret   bool
	Doc      string // one sentence for the reference page and the UI
	Label    string // name of the UI element with which a session overrides the key; "" if there is none
	Group    string // what the key belongs to; a part may show the elements of a group together

	// Check finds what Kind and bounds cannot; its error says what is wrong and
	// what is allowed. Optional.
	Check func(raw json.RawMessage) error
}

// Validate returns an error that says what is wrong with a value and what is allowed.
func (f Field) Validate(raw json.RawMessage) error {
	if fault := valueFault(raw, f); fault != "" {
		return errors.New(fault)
	}
	return nil
}

// Schema lists the keys that one part of the program owns.
type Schema []Field

// Field returns the field of a key, which may have dots. It panics if the schema has no such
// field, because the key is a constant in the code.
func (s Schema) Field(key string) Field {
	i := slices.IndexFunc(s, func(f Field) bool { return f.Key == key })
	if i < 0 {
		panic("config: the schema has no key " + key)
	}
	return s[i]
}

// Owner is a part of the program that owns configuration keys: a loaded plugin.
type Owner interface {
	// ConfigSchema returns the keys that are allowed at the top level, under
	// `providers.<id>` and under `agents.<id>`, where later layers win.
	ConfigSchema() Schema
}
