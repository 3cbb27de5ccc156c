package ui

import (
	"encoding/json"

	"loquat"
)

// The sources of a value, highest first.
const (
	SourceOverride      = "override"
	SourceConfig        = "config"
	SourceUIDefault     = "ui_default"
	SourceSchemaDefault = "schema_default"
	SourceNone          = "none"
)

// Value is the effective value of a config element: null, from none, when nothing is
// found.
type Value struct {
	Value  json.RawMessage `json:"value"`
	Source string          `json:"source"`
}

// Layers is where values come from.
type Layers struct {
	Overrides loquat.Object // metadata.overrides of the session
	Base      loquat.Object // the config below the session
	Defaults  loquat.Object // of the config schema, by key
}

// Effective returns the value of a config element. A null in any layer counts as
// nothing: it is how an override is taken back and a setting unset.
func Effective(element loquat.Object, layers Layers) Value {
	key := element.String("key")
	candidates := []struct {
		source string
		value  json.RawMessage
	}{
		{SourceOverride, layers.Overrides[key]},
		{SourceConfig, layers.Base[key]},
		{SourceConfig, valueAt(layers.Base, ConfigPath(element))},
		{SourceUIDefault, element["default"]},
		{SourceSchemaDefault, layers.Defaults[key]},
	}
	for _, c := range candidates {
		if !isNull(c.value) {
			return Value{Value: c.value, Source: c.source}
		}
	}
	return Value{Value: json.RawMessage("null"), Source: SourceNone}
}

// Values returns the values of the config elements among elements, by key.
func Values(elements []loquat.Object, layers Layers) map[string]Value {
	values := map[string]Value{}
	for _, element := range elements {
		if key := element.String("key"); isConfig(element) && key != "" {
			values[key] = Effective(element, layers)
		}
	}
	return values
}

// WriteThrough puts the values that a session or the configuration chose at the
// config_path of their elements, so that a request runs with what clients are shown.
// Defaults are for display only. Overrides go in last, so that they win where two
// elements share a place. It returns a copy when anything changes.
func WriteThrough(effective loquat.Object, elements []loquat.Object, values map[string]Value) loquat.Object {
	for _, source := range []string{SourceConfig, SourceOverride} {
		for _, element := range elements {
			key := element.String("key")
			path := ConfigPath(element)
			value := values[key]
			if !isConfig(element) || value.Source != source || len(path) == 0 || len(path) == 1 && path[0] == key {
				continue
			}
			top := effective[path[0]]
			if set := withValue(top, path[1:], value.Value); string(set) != string(top) {
				effective = effective.Clone()
				if effective == nil {
					effective = loquat.Object{}
				}
				effective[path[0]] = set
			}
		}
	}
	return effective
}

// ConfigPath returns the keys of an element's config_path; none when it has none.
func ConfigPath(element loquat.Object) []string {
	p, err := parsePath(element.String("config_path"))
	if err != nil || p.root != "" && p.root != RootConfig {
		return nil
	}
	return p.keys
}

// valueAt returns the value below o, or nil.
func valueAt(o loquat.Object, keys []string) json.RawMessage {
	if len(keys) == 0 {
		return nil
	}
	raw := o[keys[0]]
	for _, key := range keys[1:] {
		var object loquat.Object
		var list []json.RawMessage
		switch {
		case json.Unmarshal(raw, &object) == nil:
			raw = object[key]
		case json.Unmarshal(raw, &list) == nil:
			i, ok := index(key)
			if !ok || i >= len(list) {
				return nil
			}
			raw = list[i]
		default:
			return nil
		}
	}
	return raw
}

// withValue returns raw with value below it. Objects that are missing on the way are
// made, and what is neither object nor list gives way to one.
func withValue(raw json.RawMessage, keys []string, value json.RawMessage) json.RawMessage {
	if len(keys) == 0 {
		return value
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		i, ok := index(keys[0])
		if !ok || i >= len(list) { // a list has no place for it
			return raw
		}
		list[i] = withValue(list[i], keys[1:], value)
		return encode(list, raw)
	}
	var object loquat.Object
	if json.Unmarshal(raw, &object) != nil || object == nil {
		object = loquat.Object{}
	}
	object[keys[0]] = withValue(object[keys[0]], keys[1:], value)
	return encode(object, raw)
}

// encode writes v, or keeps what was there when it cannot be written.
func encode(v any, was json.RawMessage) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return was
	}
	return raw
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
