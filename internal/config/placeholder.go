package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
)

// RedactObject returns an object whose secrets are replaced by {"set": true}. Secrets are
// recognized by their names, by the schema, and as user parts of URLs. A session may have
// secrets of its own, such as an api_key in its request_options.
func RedactObject(o loquat.Object, schema Schema) loquat.Object {
	r := &secretFinder{schema: schema}
	return r.layer(o)
}

// RestoreSecrets returns given with its placeholders replaced by the secrets of before. So a
// client can write back what it read. A placeholder is {"set": true}, or a URL with *** as
// its user part. A placeholder for a secret of base, over which the object is merged, is
// left out.
func RestoreSecrets(given, before, base loquat.Object) loquat.Object {
	out := make(loquat.Object, len(given))
	for key, value := range given {
		if len(before[key]) == 0 && shows(key, value, base[key]) {
			continue
		}
		out[key] = restoreValue(key, value, before[key], base[key])
	}
	return out
}

// shows reports whether a value is the placeholder of a secret.
func shows(key string, given, secret json.RawMessage) bool {
	if len(secret) == 0 {
		return false
	}
	if loquat.SecretName(key) && isPlaceholder(given) {
		return true
	}
	var text, known string
	return json.Unmarshal(given, &text) == nil && json.Unmarshal(secret, &known) == nil &&
		hasPlaceholder(text) && (&secretFinder{}).userParts(known) == text
}

func restoreValue(key string, given, before, base json.RawMessage) json.RawMessage {
	if shows(key, given, before) {
		return before
	}
	if o, ok := asObject(given); ok {
		inner, _ := asObject(before)
		under, _ := asObject(base)
		return encode(RestoreSecrets(o, inner, under))
	}
	var list, inner []json.RawMessage
	if len(given) == 0 || given[0] != '[' || json.Unmarshal(given, &list) != nil || json.Unmarshal(before, &inner) != nil {
		return given
	}
	for i := range min(len(list), len(inner)) {
		list[i] = restoreValue("", list[i], inner[i], nil)
	}
	return encode(list)
}

// isPlaceholder reports whether a value is {"set": true} or {"set": false}.
func isPlaceholder(raw json.RawMessage) bool {
	o, ok := asObject(raw)
	if !ok || len(o) != 1 {
		return false
	}
	set := string(o["set"])
	return set == "true" || set == "false"
}

func hasPlaceholder(text string) bool { return strings.Contains(text, "://"+placeholder+"@") }

// Placeholders reports the placeholders in a client's overrides for which the session has no
// secret. It ignores base_url, which clients choose by its redacted form.
func Placeholders(location string, overrides loquat.Object) []loquat.FieldError {
	ch := &checker{}
	for key, value := range overrides {
		if key != "base_url" {
			ch.placeholders(join(location, loquat.Clip(key, loquat.Excerpt)), key, value)
		}
	}
	return ch.fieldErrors()
}

func (ch *checker) placeholders(place, key string, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	const remedy = "send the secret itself, or leave the key out"
	switch raw[0] {
	case '{':
		if loquat.SecretName(key) && isPlaceholder(raw) {
			ch.fault(place, "stands for a secret that the session does not have; %s", remedy)
			return
		}
		o, _ := asObject(raw)
		for inner, value := range o {
			ch.placeholders(join(place, loquat.Clip(inner, loquat.Excerpt)), inner, value)
		}
	case '[':
		var list []json.RawMessage
		mustDecode(raw, &list)
		for i, value := range list {
			ch.placeholders(fmt.Sprintf("%s[%d]", place, i), "", value)
		}
	case '"':
		var text string
		mustDecode(raw, &text)
		if hasPlaceholder(text) {
			ch.fault(place, "has %s for the user part of a URL that the session does not have; %s", placeholder, remedy)
		}
	}
}
