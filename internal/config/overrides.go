package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"loquat"
)

// requestOptions is the key of extra parameters, which its own plugin sends.
const requestOptions = "request_options"

// reservedOptions are the fields of a call that the service itself decides.
var reservedOptions = []string{"messages", "model", "stream"}

func requestOptionFaults(path string, raw json.RawMessage) []Problem {
	options, ok := asObject(raw)
	if !ok {
		return []Problem{{Path: path, Message: fmt.Sprintf("is %s; must be an object", describe(raw))}}
	}
	var faults []Problem
	for _, key := range reservedOptions {
		if _, ok := options[key]; ok {
			faults = append(faults, Problem{Path: join(path, key), Message: "is set by the service itself; every other parameter is allowed"})
		}
	}
	return faults
}

// neverOverridable are keys that no session may change, whatever its elements say.
func neverOverridable(key string) bool {
	return key == "provider" || key == "plugin_cache_dir" || secretKey(key) || slices.Contains(serviceKeys, key)
}

// OverridableKeys returns the keys of a schema that a session may override: all but
// secrets and the service's own, and base_url only where there is a choice of it.
func OverridableKeys(schema Schema, base loquat.Object) []string {
	_, choice := base["endpoint_options"]
	keys := []string{requestOptions}
	for _, f := range schema {
		switch {
		case f.Secret, neverOverridable(f.Key), f.Key == "endpoint_options":
		case f.Key == "base_url" && !choice:
		default:
			keys = append(keys, topKey(f.Key))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// CheckOverrides finds what a session may not override: keys that are not among
// the allowed, and values that do not fit. A null is no override and fits. The
// locations are below location, such as body.metadata.overrides.
func CheckOverrides(location string, overrides, base loquat.Object, schema Schema, allowed []string) []loquat.FieldError {
	ch := &checker{}
	for key, value := range overrides {
		place := join(location, key)
		switch {
		case neverOverridable(key):
			ch.fault(place, "can never be overridden by a session")
		case key != requestOptions && !slices.Contains(allowed, key):
			ch.fault(place, "is not among the settings of this agent%s", suggestion(key, schemaOf(allowed)))
		case isNull(value):
		case key == "base_url":
			checkBaseURL(ch, place, value, base)
		default:
			ch.overriddenValue(location, key, value, schema)
		}
	}
	var faults []loquat.FieldError
	for _, p := range InOrder(ch.problems) {
		faults = append(faults, loquat.FieldError{Location: p.Path, Message: p.Message})
	}
	return faults
}

// overriddenValue checks a value against the schema; keys that are in no schema are
// the business of their elements.
func (ch *checker) overriddenValue(location, key string, value json.RawMessage, schema Schema) {
	field, inner := schema.at(key)
	if field == nil && len(inner) == 0 {
		if key == requestOptions {
			ch.problems = append(ch.problems, requestOptionFaults(join(location, key), value)...)
		}
		return
	}
	ch.object(location, loquat.Object{key: value}, schema)
}

func schemaOf(keys []string) Schema {
	var s Schema
	for _, key := range keys {
		s = append(s, Field{Key: key})
	}
	return s
}

// checkBaseURL keeps a session from sending the agent's secrets elsewhere.
func checkBaseURL(ch *checker, place string, value json.RawMessage, base loquat.Object) {
	var allowed []string
	if configured := base.String("base_url"); configured != "" {
		allowed = append(allowed, configured)
	}
	options := base.Object("endpoint_options")
	for _, label := range slices.Sorted(maps.Keys(options)) {
		allowed = append(allowed, options.String(label))
	}
	var chosen string
	if json.Unmarshal(value, &chosen) != nil || !slices.Contains(allowed, chosen) {
		ch.fault(place, "is not among the endpoints of this agent; must be the configured base_url or one of endpoint_options")
	}
}
