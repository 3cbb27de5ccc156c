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

// Value is the resolved value of a config element and its source. If no layer has a value,
// it is null with SourceNone.
type Value = loquat.ConfigValue

// Layers holds the settings from which values are resolved.
type Layers struct {
	Overrides loquat.Object // metadata.overrides of the session
	Base      loquat.Object // the configuration without the session's overrides
	Defaults  loquat.Object // of the config schema, by key
}

// ResolveValue returns the value of a config element. A null in a layer counts as no value:
// it removes an override or a setting.
func ResolveValue(element loquat.Object, layers Layers) Value {
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

// Values resolves the values of the config elements among elements, by key.
func Values(elements []loquat.Object, layers Layers) map[string]Value {
	values := map[string]Value{}
	for _, element := range elements {
		if key := element.String("key"); isConfig(element) && key != "" {
			values[key] = ResolveValue(element, layers)
		}
	}
	return values
}

// WriteThrough sets each value from an override or from the configuration at the
// config_path of its element, so that a request runs with the values that clients see.
// Defaults are only displayed. Overrides are set last, so that they win if two elements
// have the same config_path. If anything changes, the result is a copy.
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
			if set := setAt(top, path[1:], value.Value); string(set) != string(top) {
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

// ConfigPath returns the keys of an element's config_path, or nil if it has none.
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
			i, ok := parseIndex(key)
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

// setAt returns raw with value set at keys. It creates missing objects on the way, and
// replaces values that are neither object nor list.
func setAt(raw json.RawMessage, keys []string, value json.RawMessage) json.RawMessage {
	if len(keys) == 0 {
		return value
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && list != nil {
		i, ok := parseIndex(keys[0])
		if !ok || i >= len(list) { // lists do not grow
			return raw
		}
		list[i] = setAt(list[i], keys[1:], value)
		return encodeOr(list, raw)
	}
	var object loquat.Object
	if json.Unmarshal(raw, &object) != nil || object == nil {
		object = loquat.Object{}
	}
	object[keys[0]] = setAt(object[keys[0]], keys[1:], value)
	return encodeOr(object, raw)
}

// encodeOr encodes v as JSON. If v cannot be encoded, it returns fallback.
func encodeOr(v any, fallback json.RawMessage) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return fallback
	}
	return raw
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
