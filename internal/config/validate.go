package config

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/strictjson"
)

// Loaded describes the program for which a configuration is checked.
type Loaded struct {
	Compiled  []string // references of the plugins that are compiled in
	Providers []string // those of them that provide models
	Selectors []string // names of the loaded providers
	Owners    []Owner  // the loaded plugins that own keys
	Insecure  bool     // whether others may reach the server without tokens

	DebugInsecure bool // whether others may read profiles
}

// schema returns the keys that every layer may have.
func (l Loaded) schema() Schema {
	all := AgentKeys()
	for _, owner := range l.Owners {
		all = append(all, owner.ConfigSchema()...)
	}
	return all
}

// Check returns all problems of the configuration, sorted by place.
func (c *Config) Check(loaded Loaded) []Problem {
	owned := loaded.schema()
	ch := &checker{processes: slices.ContainsFunc(c.Plugins, isProcess)}
	// If no provider is loaded, that one problem replaces warnings about its unknown keys.
	ch.noProviderKnown = len(loaded.Selectors) == 0

	ch.object("", c.raw, slices.Concat(Keys(), owned))
	layer := slices.Concat(Schema{{Key: "provider", Kind: String}}, owned)
	ch.layers("providers", c.raw, layer)
	ch.layers("agents", c.raw, layer)

	c.checkProviders(ch, loaded)
	c.checkRequired(ch, loaded)
	c.checkPlugins(ch, loaded.Compiled)
	c.checkServer(ch, loaded)
	c.checkRolesUsed(ch)
	c.checkAssets(ch)
	c.checkBridge(ch)

	redactor := NewRedactor(c.Secrets(loaded.Owners...))
	problems := InOrder(c.agentFaults, ch.list())
	for i := range problems {
		problems[i].Message = redactor.Redact(problems[i].Message)
	}
	return problems
}

// checkProviders checks that there is at least one provider, and that each selects a loaded
// plugin.
func (c *Config) checkProviders(ch *checker, loaded Loaded) {
	selectors := loaded.Selectors
	if len(selectors) == 0 {
		ch.fault("plugins", "names no plugin that provides models; add %s, or leave plugins out", strings.Join(loaded.Providers, " or "))
		return
	}
	if _, given := c.raw["providers"]; !given && len(c.Bridge.Servers) == 0 {
		ch.fault("providers", "is missing; must have at least one provider, such as {\"main\": {\"provider\": %q, \"model\": \"…\"}}", selectors[0])
	} else if providers := c.raw.Object("providers"); given && providers != nil && len(providers) == 0 {
		ch.fault("providers", "is empty; must have at least one provider")
	}
	for id, provider := range inOrder(objectsIn(c.raw, "providers")) {
		path := "providers." + id + ".provider"
		selector, given := provider["provider"]
		switch {
		case !given:
			ch.fault(path, "is missing; must be one of %s", choiceOf(selectors))
		case kindFault(String, selector) == "" && !slices.Contains(selectors, provider.String("provider")):
			ch.fault(path, "is %q, which no loaded plugin provides; must be one of %s", loquat.Clip(provider.String("provider"), loquat.Excerpt), choiceOf(selectors))
		}
	}
}

// choiceOf lists selectors, and says what the usual one is for.
func choiceOf(selectors []string) string {
	list := strings.Join(selectors, ", ")
	if slices.Contains(selectors, DefaultSelector) {
		list += "; " + DefaultSelector + " is for every backend with a chat-completions API, such as those of OpenAI and Ollama"
	}
	return list
}

// requiredOf returns the required keys of a provider with a selector: those that its plugin and the
// features own. Those of the plugins of other providers are not required.
func (l Loaded) requiredOf(selector string) (fields []Field) {
	for _, owner := range l.Owners {
		if p, ok := owner.(interface{ Selector() string }); ok && p.Selector() != selector && slices.Contains(l.Selectors, selector) {
			continue
		}
		for _, f := range owner.ConfigSchema() {
			if f.Required && f.Key != "provider" {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// checkRequired checks the required keys in each provider's merged config.
func (c *Config) checkRequired(ch *checker, loaded Loaded) {
	bases := map[string][]loquat.Object{}
	for _, a := range c.agents {
		bases[a.providerID] = append(bases[a.providerID], a.base)
	}
	for id, provider := range inOrder(objectsIn(c.raw, "providers")) {
		merged := bases[id]
		if len(merged) == 0 {
			merged = []loquat.Object{baseConfig(c.raw, provider, nil)}
		}
		for _, field := range loaded.requiredOf(provider.String("provider")) {
			missing := func(base loquat.Object) bool { _, ok := base[field.Key]; return !ok }
			if slices.ContainsFunc(merged, missing) {
				ch.fault("providers."+id+"."+field.Key, "is missing; must be a %s", field.Kind)
			}
		}
	}
}

func (c *Config) checkAssets(ch *checker) {
	switch a := c.Assets; {
	case a.URL != "" && c.Store.URL == "":
		ch.fault("assets.url", "is given without store.url; without a database the images are files in the data directory. Set store.url, or remove assets.url")
	case a.URL == "" && a.AccessKeyID+a.SecretAccessKey != "":
		ch.fault("assets.url", "is missing; the credentials in assets are for it")
	case a.AccessKeyID == "" && a.SecretAccessKey != "":
		ch.fault("assets.access_key_id", "is missing; assets.secret_access_key belongs to it")
	case a.AccessKeyID != "" && a.SecretAccessKey == "":
		ch.fault("assets.secret_access_key", "is missing; assets.access_key_id belongs to it")
	}
}

func (c *Config) checkPlugins(ch *checker, compiled []string) {
	for i, entry := range c.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if err := checkPlugin(entry, compiled); err != nil {
			ch.fault(path, "%v", err)
		} else if slices.Contains(c.Plugins[:i], entry) {
			ch.fault(path, "is %q, which is listed already; list it once", loquat.Clip(entry, loquat.Excerpt))
		}
	}
	for i, entry := range c.Required {
		path := fmt.Sprintf("required_plugins[%d]", i)
		shown := loquat.Clip(entry, loquat.Excerpt)
		if !slices.Contains(c.Plugins, entry) && !(c.Plugins == nil && slices.Contains(compiled, entry)) {
			ch.fault(path, "is %q, which is not loaded; add it to plugins, or remove it here", shown)
		} else if slices.Contains(c.Required[:i], entry) {
			ch.fault(path, "is %q, which is listed already; list it once", shown)
		}
	}
}

// strongTokenLength is the length from which a token counts as hard to guess. Guessing is only
// slowed down, because valid tokens must work meanwhile.
const strongTokenLength = 16

func (c *Config) checkServer(ch *checker, loaded Loaded) {
	s := c.Server
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		ch.fault("server.tls", "has only one of cert_file and key_file; must have both or neither")
	}
	for i, t := range s.AuthTokens {
		if len(t.Token) < strongTokenLength {
			ch.warn(fmt.Sprintf("server.auth_tokens[%d].token", i), "is short enough to be guessed; use at least %d random characters, or a token of `loquat token new NAME`", strongTokenLength)
		}
	}
	if !s.Closed() && !loaded.Insecure && checkListen(s.Listen) == nil && !IsLoopback(s.Listen) {
		ch.fault("server.listen", "is %s, which others can reach, and there are no server.auth_tokens; add a token there, make one with `loquat token new NAME`, accept the tokens of another system with server.jwt, listen on 127.0.0.1, or start with --insecure", s.Listen)
	}
	if s.DebugListen != "" && !loaded.DebugInsecure && checkListen(s.DebugListen) == nil && !IsLoopback(s.DebugListen) {
		ch.fault("server.debug_listen", "is %s, which others can reach, and profiles need no token; listen on 127.0.0.1 and reach it through ssh -L, or start with --debug-insecure", s.DebugListen)
	}
	if overlap(s.Listen, s.DebugListen) { // the second listener would fail, or get the calls for the first
		ch.fault("server.debug_listen", "is %s, and the server itself listens on %s; choose another port", s.DebugListen, s.Listen)
	}
}

func (c *Config) checkBridge(ch *checker) {
	if c.Bridge.URL == "" {
		return
	}
	if c.Bridge.ServerID == "" {
		ch.fault("bridge.server_id", "is missing; with bridge.url it must name this server")
	}
	if c.Bridge.Token == "" {
		ch.fault("bridge.token", "is missing; with bridge.url it must be the token that the bridge expects of this server")
	}
}

// CheckBridgeServers checks what `loquat bridge` requires.
func (c *Config) CheckBridgeServers() []Problem {
	ch := &checker{}
	if len(c.Bridge.Servers) == 0 {
		ch.fault("bridge.servers", "is missing; must have the servers that may forward to this bridge, such as {\"my-server\": \"its token\"}")
	}
	for id, token := range inOrder(c.Bridge.Servers) {
		if id == "" || token == "" {
			ch.fault(join("bridge.servers", id), "must have a name and a token that are not empty")
		}
	}
	return ch.list()
}

// inOrder iterates over a map by its keys, so that the listed problems are always the same.
func inOrder[M ~map[string]V, V any](m M) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// checker gathers problems.
type checker struct {
	problemList
	processes       bool // there are plugins whose keys are known only while they run
	noProviderKnown bool // nothing that is loaded knows the keys of providers
}

// unknown warns of a key that no schema has.
func (ch *checker) unknown(path, suggestion string) {
	switch {
	case ch.noProviderKnown:
	case ch.processes:
		ch.warn(path, "is not checked: no compiled-in plugin knows it, but a plugin that is a process may%s", suggestion)
	default:
		ch.warn(path, "is known to no loaded part%s", suggestion)
	}
}

// layers checks every object in the map at key.
func (ch *checker) layers(key string, raw loquat.Object, schema Schema) {
	for id, value := range inOrder(raw.Object(key)) {
		path := key + "." + id
		layer, ok := asObject(value)
		switch {
		case id == "":
			ch.fault(path, "has an empty name; must have one")
		case !ok:
			ch.fault(path, "is %s; must be an object", strictjson.Kind(value))
		default:
			ch.object(path, layer, schema)
		}
	}
}

// object checks the keys of one object against a schema whose dots lead deeper.
func (ch *checker) object(path string, o loquat.Object, schema Schema) {
	for key, value := range inOrder(o) {
		if isNull(value) {
			continue
		}
		place := join(path, key)
		field, inner := schema.at(key)
		if key == requestOptions {
			if !ch.requestOptions(place, value) {
				continue
			}
		}
		switch {
		case field == nil && len(inner) == 0 && key == requestOptions:
			ch.warn(place, "is not sent, because the plugin that owns it is not loaded; add it to plugins")
		case field == nil && len(inner) == 0:
			ch.unknown(place, strictjson.Hint(key, schema.topKeys()))
		case field != nil:
			ch.value(place, value, *field)
		}
		if len(inner) == 0 {
			continue
		}
		if below, ok := asObject(value); ok {
			ch.object(place, below, inner)
		} else if field == nil {
			ch.fault(place, "is %s; must be an object", strictjson.Kind(value))
		}
	}
}

// CheckObject returns all problems of an object that may have only the keys of a schema, sorted
// by place.
func CheckObject(o loquat.Object, schema Schema) []Problem {
	ch := &checker{}
	known := loquat.Object{}
	for key, value := range inOrder(o) {
		if field, _ := schema.at(key); field != nil {
			known[key] = value
		} else {
			ch.fault(key, "%s", strictjson.Unknown(key, schema.topKeys()))
		}
	}
	ch.object("", known, schema)
	for _, f := range schema {
		if f.Required && isNull(o[f.Key]) {
			ch.fault(f.Key, "is missing; must be a %s", f.Kind)
		}
	}
	return InOrder(ch.list())
}

// at returns the field of a key, and the schema of the object there.
func (s Schema) at(key string) (field *Field, inner Schema) {
	for i, f := range s {
		if f.Key == key {
			field = &s[i]
		} else if rest, ok := strings.CutPrefix(f.Key, key+"."); ok {
			f.Key = rest
			inner = append(inner, f)
		}
	}
	return field, inner
}

// value checks one value against its field.
func (ch *checker) value(path string, raw json.RawMessage, f Field) {
	if f.Kind == DelayMap {
		ch.checkDelayMap(path, raw)
		return
	}
	if fault := valueFault(raw, f); fault != "" {
		ch.fault(path, "%s", fault)
	}
}

// checkDelayMap reports each wrong code as a problem of its own; ParseDelayMap joins them.
func (ch *checker) checkDelayMap(path string, raw json.RawMessage) {
	codes, ok := asObject(raw)
	if !ok {
		ch.fault(path, "%s", kindFault(DelayMap, raw))
	}
	for _, key := range slices.Sorted(maps.Keys(codes)) {
		if _, _, err := parseStatusDelays(key, codes[key]); err != nil {
			ch.fault(join(path, key), "%v", err)
		}
	}
}

// valueFault says what is wrong with a value and what is allowed, or "".
func valueFault(raw json.RawMessage, f Field) string {
	if fault := kindFault(f.Kind, raw); fault != "" {
		return fault
	}
	switch f.Kind {
	case String:
		var s string
		mustDecode(raw, &s)
		if len(f.Enum) > 0 && !slices.Contains(f.Enum, s) {
			return fmt.Sprintf("is %q; must be one of %s", loquat.Clip(s, loquat.Excerpt), strings.Join(f.Enum, ", "))
		}
	case Number, Integer:
		var v float64
		mustDecode(raw, &v)
		if f.Min != nil && v < *f.Min || f.Max != nil && v > *f.Max {
			return fmt.Sprintf("is %s; must be %s", loquat.Clip(string(raw), loquat.Excerpt), f.Bounds())
		}
	}
	if f.Check != nil {
		if err := f.Check(raw); err != nil {
			return err.Error()
		}
	}
	return ""
}

// Bounds says which values Min and Max allow.
func (f Field) Bounds() string {
	switch {
	case f.Max == nil:
		return fmt.Sprintf("at least %s", encode(*f.Min))
	case f.Min == nil:
		return fmt.Sprintf("at most %s", encode(*f.Max))
	}
	return fmt.Sprintf("from %s to %s", encode(*f.Min), encode(*f.Max))
}

// kindFault says that a value is not of its kind, or "".
func kindFault(kind Kind, raw json.RawMessage) string {
	must := func(ok bool, what string) string {
		if ok {
			return ""
		}
		return fmt.Sprintf("is %s; must be %s", strictjson.Kind(raw), what)
	}
	switch kind {
	case String:
		return must(decodes[string](raw), "a string")
	case Number:
		return must(decodes[float64](raw), "a number")
	case Integer:
		if decodes[float64](raw) && !decodes[int64](raw) {
			return fmt.Sprintf("is %s; must be an integer", loquat.Clip(string(raw), loquat.Excerpt))
		}
		return must(decodes[int64](raw), "an integer")
	case Boolean:
		return must(decodes[bool](raw), "true or false")
	case Object:
		return must(decodes[loquat.Object](raw), "an object")
	case Strings:
		return must(elementsDecode[string](raw), "a list of strings")
	case Objects:
		return must(elementsDecode[loquat.Object](raw), "a list of objects")
	case Labels:
		var values loquat.Object
		ok := decodes[loquat.Object](raw) && json.Unmarshal(raw, &values) == nil
		for _, v := range values {
			ok = ok && (isNull(v) || decodes[string](v))
		}
		return must(ok, "an object of strings")
	case Delays:
		if _, err := ParseDelays(raw); err != nil {
			return err.Error()
		}
	case DelayMap:
		if _, err := ParseDelayMap(raw); err != nil {
			return err.Error()
		}
	}
	return ""
}

// decodes reports whether raw is a T. Null is none: to leave a key out is how a
// configuration says nothing.
func decodes[T any](raw json.RawMessage) bool {
	var v T
	return !isNull(raw) && json.Unmarshal(raw, &v) == nil
}

func elementsDecode[T any](raw json.RawMessage) bool {
	var list []json.RawMessage
	if isNull(raw) || json.Unmarshal(raw, &list) != nil {
		return false
	}
	return !slices.ContainsFunc(list, func(v json.RawMessage) bool { return !decodes[T](v) })
}

// topKeys returns the keys of an object with a schema.
func (s Schema) topKeys() []string {
	var keys []string
	for _, f := range s {
		keys = append(keys, topKey(f.Key))
	}
	return keys
}
