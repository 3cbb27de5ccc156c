package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"loquat"
	"loquat/internal/dburl"
)

// Redacted returns the configuration with the defaults of the service and of the owners.
// Secrets are replaced by {"set": true}. If there are process plugins, so are values that no
// owner knows, because only the processes know which of them are secret.
func (c *Config) Redacted(owners ...Owner) loquat.Object {
	r := c.secretFinder(owners)
	r.knownOnly = slices.ContainsFunc(c.Plugins, isProcess)
	return r.whole(c.withDefaults(r.owned))
}

// Secrets returns every secret value that the configuration holds.
func (c *Config) Secrets(owners ...Owner) []string {
	r := c.secretFinder(owners)
	r.whole(c.raw)
	secrets := slices.Concat(r.found, c.fileSecrets)
	slices.Sort(secrets)
	return slices.Compact(secrets)
}

// SecretsOf returns every secret value that the configuration holds at the keys of a
// schema, and at those that are secret by name.
func (c *Config) SecretsOf(schema Schema) []string {
	r := &secretFinder{schema: schema, fromFiles: c.fileSecrets}
	r.whole(c.raw)
	return r.found
}

// SecretsIn returns the secret values in a dictionary that are recognizable by their names
// or as user parts of URLs.
func SecretsIn(o loquat.Object) []string {
	r := &secretFinder{}
	r.layer(o)
	return r.found
}

// Redact returns an effective config whose secrets are replaced by {"set": true}.
func (c *Config) Redact(effective loquat.Object, schema Schema) loquat.Object {
	r := &secretFinder{schema: schema, fromFiles: c.fileSecrets}
	return r.layer(effective)
}

// RedactAt redacts the value at a path of an effective config as Redact does.
func (c *Config) RedactAt(path []string, value json.RawMessage, schema Schema) json.RawMessage {
	r := &secretFinder{schema: schema, fromFiles: c.fileSecrets}
	if len(value) == 0 {
		return json.RawMessage("null")
	}
	if secretAt(schema, path) {
		return r.hide(value)
	}
	return r.value(path[len(path)-1], strings.Join(path, "."), value)
}

func (c *Config) secretFinder(owners []Owner) *secretFinder {
	owned := Loaded{Owners: owners}.schema()
	return &secretFinder{owned: owned, schema: slices.Concat(Keys(), owned), fromFiles: c.fileSecrets}
}

// secretFinder replaces the secrets in a configuration and collects them.
type secretFinder struct {
	owned, schema Schema
	fromFiles     []string // values from files, which are secret everywhere
	knownOnly     bool     // redact values of keys that the schema does not have
	found         []string
}

// layer redacts an object that has the keys of the schema.
func (r *secretFinder) layer(o loquat.Object) loquat.Object {
	out := make(loquat.Object, len(o))
	for key, value := range o {
		field, inner := r.schema.at(key)
		if r.knownOnly && field == nil && len(inner) == 0 && key != "provider" {
			out[key] = r.hide(value)
			continue
		}
		out[key] = r.value(key, key, value)
	}
	return out
}

// whole redacts a configuration: its own keys, and the layers in it.
func (r *secretFinder) whole(o loquat.Object) loquat.Object {
	out := r.layer(o)
	for _, key := range []string{"providers", "agents"} {
		entries, ok := asObject(o[key])
		if !ok {
			continue
		}
		for id, entry := range entries {
			if layer, ok := asObject(entry); ok {
				entries[id] = encode(r.layer(layer))
			} else {
				entries[id] = r.value(id, "", entry)
			}
		}
		out[key] = encode(entries)
	}
	return out
}

// value redacts the value of a key, whose name in the schema is schemaKey.
func (r *secretFinder) value(key, schemaKey string, raw json.RawMessage) json.RawMessage {
	field, _ := r.schema.at(schemaKey)
	secret := loquat.SecretName(key) || field != nil && field.Secret
	switch {
	case secret && field != nil && field.Kind == Labels && raw[0] == '{':
		labels, _ := asObject(raw)
		for label, v := range labels {
			labels[label] = r.hide(v)
		}
		return encode(labels)
	case secret:
		return r.hide(raw)
	}
	switch raw[0] {
	case '{':
		o, _ := asObject(raw)
		for inner, v := range o {
			o[inner] = r.value(inner, join(schemaKey, inner), v)
		}
		return encode(o)
	case '[':
		var list []json.RawMessage
		mustDecode(raw, &list)
		for i, v := range list {
			list[i] = r.value("", "", v)
		}
		return encode(list)
	case '"':
		var s string
		mustDecode(raw, &s)
		if slices.Contains(r.fromFiles, s) {
			return r.hide(raw)
		}
		if schemaKey == "store.url" || schemaKey == "store.listen_url" {
			u := dburl.Redact(s)
			r.found = append(r.found, u.Passwords...)
			return loquat.Quote(u.Text)
		}
		return loquat.Quote(r.userParts(s))
	}
	return raw
}

// hide collects the strings and numbers of a secret value and returns its placeholder.
func (r *secretFinder) hide(raw json.RawMessage) json.RawMessage {
	set := !isNull(raw) && string(raw) != `""`
	r.collect(raw)
	return encode(map[string]bool{"set": set})
}

func (r *secretFinder) collect(raw json.RawMessage) {
	switch raw[0] {
	case '{':
		o, _ := asObject(raw)
		if isSchema(o) {
			return
		}
		for _, v := range o {
			r.collect(v)
		}
	case '[':
		var list []json.RawMessage
		mustDecode(raw, &list)
		for _, v := range list {
			r.collect(v)
		}
	case '"':
		var s string
		mustDecode(raw, &s)
		if s != "" {
			r.found = append(r.found, s)
		}
	case 't', 'f', 'n':
	default:
		r.found = append(r.found, string(raw))
	}
}

// isSchema reports whether an object is a JSON schema, for example of a property called
// password. The words of a schema are not secrets: redacting "string" would damage every text.
func isSchema(o loquat.Object) bool {
	types := []string{o.String("type")}
	_ = json.Unmarshal(o["type"], &types) // which may be a list
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool {
		return !slices.Contains([]string{"array", "boolean", "integer", "null", "number", "object", "string"}, t)
	})
}

// userPart matches the part before the last @ of a URL's authority.
var userPart = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\s]*)@`)

// userParts hides the user parts of the URLs in s.
func (r *secretFinder) userParts(s string) string {
	return userPart.ReplaceAllStringFunc(s, func(match string) string {
		parts := userPart.FindStringSubmatch(match)
		r.found = append(r.found, parts[2])
		if _, password, ok := strings.Cut(parts[2], ":"); ok && password != "" {
			r.found = append(r.found, password)
			if plain, err := url.PathUnescape(password); err == nil {
				r.found = append(r.found, plain)
			}
		}
		return parts[1] + placeholder + "@"
	})
}

// withDefaults returns the dictionary with the defaults filled in.
func (c *Config) withDefaults(owned Schema) loquat.Object {
	full := c.raw.Clone()
	setDefault(full, "server.data_dir", encode(c.Server.DataDir))
	setDefault(full, "plugin_cache_dir", encode(c.PluginCache()))
	for _, f := range Keys() {
		if f.Default != nil {
			setDefault(full, f.Key, encode(f.Default))
		}
	}
	agents := loquat.Object{}
	for id, a := range c.agents {
		agents.Set(id, map[string]string{"provider": a.providerID})
	}
	full["agents"] = mergeGiven(encode(agents), full["agents"])
	providers := loquat.Object{}
	for id, provider := range objectsIn(c.raw, "providers") {
		for _, f := range owned {
			if _, above := c.raw[topKey(f.Key)]; f.Default != nil && !above {
				setDefault(provider, f.Key, encode(f.Default))
			}
		}
		providers[id] = encode(provider)
	}
	full["providers"] = mergeValue(full["providers"], encode(providers))
	return full
}

// mergeGiven merges the given values, if there are any, over the defaults.
func mergeGiven(under, given json.RawMessage) json.RawMessage {
	if given == nil {
		return under
	}
	return mergeValue(under, given)
}

func topKey(key string) string {
	top, _, _ := strings.Cut(key, ".")
	return top
}

// setDefault sets a dotted key unless a value exists on its path.
func setDefault(o loquat.Object, key string, value json.RawMessage) {
	top, rest, deeper := strings.Cut(key, ".")
	current, given := o[top]
	switch {
	case !deeper && !given:
		o[top] = value
	case deeper && !given:
		inner := loquat.Object{}
		setDefault(inner, rest, value)
		o[top] = encode(inner)
	case deeper:
		if inner, ok := asObject(current); ok {
			setDefault(inner, rest, value)
			o[top] = encode(inner)
		}
	}
}

// placeholder replaces a secret in a text.
const placeholder = "***"

// minSecret is the length in bytes below which a value is not redacted. Redacting every "a"
// would make the text unreadable and show the secret.
const minSecret = 4

// Redactor removes known secrets from foreign texts, such as a backend's errors. The zero
// value and nil redact nothing. A Redactor is safe for concurrent use.
type Redactor struct {
	adding sync.Mutex
	forms  atomic.Pointer[[]string] // of the secrets, the longest first
}

// NewRedactor redacts the given values.
func NewRedactor(secrets []string) *Redactor {
	m := &Redactor{}
	m.Add(secrets)
	return m
}

// With returns a Redactor that also redacts the given values. Values that are added to m later
// are not added to the new Redactor.
func (m *Redactor) With(secrets []string) *Redactor {
	out := &Redactor{}
	if known := m.known(); known != nil {
		out.forms.Store(&known)
	}
	if len(secrets) > 0 {
		out.Add(secrets)
	}
	return out
}

// Add adds values to redact: as they are, as encoded in JSON strings, and as encoded in URLs.
// For "Bearer x", x alone is redacted too. Values under 4 bytes are not redacted.
func (m *Redactor) Add(secrets []string) {
	m.adding.Lock()
	defer m.adding.Unlock()
	forms := map[string]bool{}
	for _, known := range m.known() {
		forms[known] = true
	}
	for _, s := range secrets {
		if token, ok := strings.CutPrefix(s, "Bearer "); ok {
			secrets = append(slices.Clip(secrets), token)
		}
	}
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		quoted, _ := json.Marshal(s)
		for _, form := range []string{s, strings.Trim(string(quoted), `"`), string(loquat.Quote(s)[1 : len(loquat.Quote(s))-1]), url.QueryEscape(s), url.PathEscape(s)} {
			forms[form] = true
		}
	}
	all := slices.Sorted(maps.Keys(forms))
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	m.forms.Store(&all)
}

// Version changes when further values are added. Two versions are compared with ==.
func (m *Redactor) Version() any {
	if m == nil {
		return nil
	}
	return m.forms.Load()
}

func (m *Redactor) known() []string {
	if m == nil || m.forms.Load() == nil {
		return nil
	}
	return *m.forms.Load()
}

// Redact returns text with every secret replaced by ***.
func (m *Redactor) Redact(text string) string {
	for _, s := range m.known() {
		text = strings.ReplaceAll(text, s, placeholder)
	}
	return text
}

// RedactJSON redacts strings and member names within a JSON value, however they are escaped. A
// value without secrets is returned unchanged. Numbers are never redacted: a token count may
// equal a password by chance.
func (m *Redactor) RedactJSON(raw json.RawMessage) json.RawMessage {
	if !m.mayHold(raw) {
		return raw
	}
	switch raw[0] {
	case '{':
		var o loquat.Object
		if json.Unmarshal(raw, &o) != nil {
			return raw
		}
		redacted, changed := make(loquat.Object, len(o)), false
		for name, v := range o {
			shown, value := m.Redact(name), m.RedactJSON(v)
			changed = changed || shown != name || !bytes.Equal(value, v)
			redacted[shown] = value
		}
		if changed {
			return encode(redacted)
		}
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return raw
		}
		changed := false
		for i, v := range list {
			list[i] = m.RedactJSON(v)
			changed = changed || !bytes.Equal(list[i], v)
		}
		if changed {
			return encode(list)
		}
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return raw
		}
		if redacted := m.Redact(s); redacted != s {
			return loquat.Quote(redacted)
		}
	}
	return raw
}

// mayHold reports whether a JSON value may contain a secret: literally, or in an escaped
// form.
func (m *Redactor) mayHold(raw json.RawMessage) bool {
	known := m.known()
	if len(known) == 0 || len(raw) == 0 {
		return false
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		return true
	}
	return slices.ContainsFunc(known, func(s string) bool { return bytes.Contains(raw, []byte(s)) })
}
