package config

import (
	"cmp"
	"encoding/json"
	"slices"

	"loquat"
	"loquat/internal/strictjson"
)

// requestOptions is the key of extra request parameters. A plugin of its own sends them.
const requestOptions = "request_options"

// requestOptions checks extra request parameters and reports whether they are valid.
func (ch *checker) requestOptions(path string, raw json.RawMessage) bool {
	options, ok := asObject(raw)
	if !ok {
		ch.fault(path, "is %s; must be an object", strictjson.Kind(raw))
		return false
	}
	valid := true
	for key := range inOrder(options) {
		if loquat.IsReservedParam(key) {
			ch.fault(join(path, key), "is set by the service itself; every other parameter is allowed")
			valid = false
		}
	}
	return valid
}

// neverOverridable lists keys that no session may override, even if elements offer them.
func neverOverridable(key string) bool {
	return key == "provider" || key == "plugin_cache_dir" || loquat.SecretName(key) || slices.Contains(serviceKeys, key)
}

// Offer is a setting that sessions may override. Key is the key in their overrides. Path is
// where the value applies in the config; nil means at Key.
type Offer struct {
	Key  string
	Path []string
}

func (o Offer) path() []string {
	if len(o.Path) == 0 {
		return []string{o.Key}
	}
	return o.Path
}

// ChoosesEndpoint reports whether the offer sets base_url.
func (o Offer) ChoosesEndpoint() bool { return o.path()[0] == "base_url" }

// SchemaOffers returns the settings that the schemas allow sessions to override: all but
// secrets and the service's own keys. base_url is included only if there is a choice.
func SchemaOffers(schema Schema, base loquat.Object) []Offer {
	_, choice := base["endpoint_options"]
	offers := []Offer{{Key: requestOptions}}
	for _, f := range schema {
		o := Offer{Key: topKey(f.Key)}
		if o.Overridable(schema) && (choice || f.Key != "base_url") {
			offers = append(offers, o)
		}
	}
	return offers
}

// Overridable reports whether a session may set the offer's value. It may not set secrets,
// the service's own keys, or keys that decide where secrets are sent.
func (o Offer) Overridable(schema Schema) bool {
	path := o.path()
	return !neverOverridable(o.Key) && !neverOverridable(path[0]) && path[0] != "endpoint_options" &&
		(path[0] != "base_url" || len(path) == 1) && !secretAt(schema, path)
}

// secretAt reports whether the value at a path is a secret or part of one.
func secretAt(schema Schema, path []string) bool {
	for _, key := range path {
		field, inner := schema.at(key)
		if loquat.SecretName(key) || field != nil && field.Secret {
			return true
		}
		schema = inner
	}
	return false
}

// CheckOverrides returns a field error for each override that is not offered or whose value
// is not valid. Null removes an override and is always valid. location is the prefix of the
// errors' locations, such as body.metadata.overrides. If some offers could not be read,
// missing says why. The list is not bounded: loquat.InvalidFields bounds it.
func CheckOverrides(location string, overrides, base loquat.Object, schema Schema, offers []Offer, missing string) []loquat.FieldError {
	ch := &checker{problemList: problemList{unbounded: true}}
	for key, value := range overrides {
		place := join(location, loquat.Clip(key, loquat.Excerpt))
		i := slices.IndexFunc(offers, func(o Offer) bool { return o.Key == key })
		offer := Offer{Key: key}
		if i >= 0 {
			offer = offers[i]
		}
		switch {
		case !offer.Overridable(schema):
			ch.fault(place, "can never be overridden by a session")
		case isNull(value): // always allowed, so that an override that is no longer offered can be removed
		case i < 0 && key != requestOptions && missing != "":
			ch.fault(place, "is not among the settings of this agent that are known at the moment; %s", missing)
		case i < 0 && key != requestOptions:
			ch.fault(place, "is not among the settings of this agent%s", strictjson.Hint(key, schemaOf(offers).topKeys()))
		case offer.ChoosesEndpoint():
			checkBaseURL(ch, place, value, base)
		default:
			ch.overriddenValue(place, offer.path(), value, schema)
		}
	}
	return ch.fieldErrors()
}

// fieldErrors returns the problems sorted by place.
func (ch *checker) fieldErrors() (faults []loquat.FieldError) {
	for _, p := range ch.list() {
		faults = append(faults, loquat.FieldError{Location: p.Path, Message: p.Message})
	}
	slices.SortStableFunc(faults, func(a, b loquat.FieldError) int { return cmp.Compare(a.Location, b.Location) })
	return faults
}

// overriddenValue checks a new value for a path. Values that no schema describes are checked
// by their element.
func (ch *checker) overriddenValue(place string, path []string, value json.RawMessage, schema Schema) {
	if path[0] == requestOptions {
		whole := value
		for _, key := range slices.Backward(path[1:]) {
			whole = encode(loquat.Object{key: whole})
		}
		if !ch.requestOptions(place, whole) {
			return
		}
	}
	var field *Field
	inner := schema
	for _, key := range path {
		field, inner = inner.at(key)
	}
	if field != nil {
		ch.value(place, value, *field)
	}
	below, isObject := asObject(value)
	ch.refuseSecrets(place, value, inner)
	switch {
	case len(inner) == 0 || path[0] == requestOptions: // which take any parameter
	case isObject:
		ch.object(place, below, inner)
	case field == nil:
		ch.fault(place, "is %s; must be an object", strictjson.Kind(value))
	}
}

// refuseSecrets reports values within an override that an element marks as secret.
func (ch *checker) refuseSecrets(place string, value json.RawMessage, schema Schema) {
	o, _ := asObject(value)
	for key, inner := range o {
		field, deeper := schema.at(key)
		if field != nil && field.Secret && !isNull(inner) {
			ch.fault(join(place, key), "is a secret of a plugin, which can never be overridden by a session")
		} else {
			ch.refuseSecrets(join(place, key), inner, deeper)
		}
	}
}

func schemaOf(offers []Offer) Schema {
	var s Schema
	for _, o := range offers {
		s = append(s, Field{Key: o.Key})
	}
	return s
}

// checkBaseURL allows only configured endpoints, so that a session cannot send the agent's
// secrets to another host.
func checkBaseURL(ch *checker, place string, value json.RawMessage, base loquat.Object) {
	if _, ok := Endpoint(base, value); !ok {
		ch.fault(place, "is not among the endpoints of this agent; must be the configured base_url or one of endpoint_options")
	}
}
