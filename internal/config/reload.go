package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// atStart are the keys, and the objects of keys, that are read only when a server starts.
var atStart = []string{
	"plugins", "required_plugins", "plugin_cache_dir", "server.listen", "server.debug_listen", "server.data_dir", "server.tls",
	"store", "assets", "bridge", "push", "webhooks", "telemetry",
	"limits.max_connections", "limits.max_connections_per_address", "limits.max_asset_bytes", "limits.max_response_bytes", "limits.max_inflight_bytes", "limits.max_inflight_bytes_per_token",
}

// NeedsRestart reports whether a change of a key of the service counts only after a restart.
func NeedsRestart(key string) bool {
	return slices.ContainsFunc(atStart, func(at string) bool { return key == at || strings.HasPrefix(key, at+".") })
}

// Reloaded returns the configuration that a server uses after a reload: next, but for the keys that
// need a restart, which it keeps.
func (c *Config) Reloaded(next *Config, env Environment) *Config {
	raw := next.raw.Clone()
	for _, key := range atStart {
		path := strings.Split(key, ".")
		raw = withAt(raw, path, at(c.raw, path))
	}
	merged := New(raw, env)
	merged.fileSecrets = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.fileSecrets, next.fileSecrets)))) // requests may still run with the old ones
	return merged
}

// at returns the value at a path, or nil.
func at(o loquat.Object, path []string) json.RawMessage {
	for _, key := range path[:len(path)-1] {
		o = o.Object(key)
	}
	return o[path[len(path)-1]]
}

// withAt returns a copy of o with a value at a path. A value of nil removes what is there.
func withAt(o loquat.Object, path []string, value json.RawMessage) loquat.Object {
	out := o.Clone()
	if out == nil {
		out = loquat.Object{}
	}
	if len(path) > 1 {
		inner := withAt(out.Object(path[0]), path[1:], value)
		value = nil
		if len(inner) > 0 {
			value = encode(inner)
		}
	}
	if value == nil {
		delete(out, path[0])
	} else {
		out[path[0]] = value
	}
	return out
}

// Change is a key whose value differs between two configurations.
type Change struct {
	Key     string          // with dots, such as providers.main.model
	Value   json.RawMessage // the new one, with {"set": true} for secrets; nil if there is none any more
	Restart bool            // it counts only after a restart
}

// changeDepth is how many names the key of a Change has at most, as in agents.<id>.<key>.
const changeDepth = 3

// Changes returns what differs in next, sorted by key. Lists differ as a whole.
func (c *Config) Changes(next *Config, owners ...Owner) []Change {
	shown := next.secretFinder(owners)
	shown.knownOnly = slices.ContainsFunc(next.Plugins, isProcess)
	var out []Change
	differing(nil, c.raw, next.raw, shown.whole(next.raw), func(path []string, value json.RawMessage) {
		change := Change{Value: value}
		for _, name := range path {
			change.Key = join(change.Key, name)
		}
		change.Restart = NeedsRestart(change.Key)
		out = append(out, change)
	})
	return out
}

// differing calls report with the path of each value that differs, and with the value that shown has there.
func differing(path []string, before, after, shown loquat.Object, report func(path []string, value json.RawMessage)) {
	for _, name := range slices.Sorted(maps.Keys(Merge(before, after))) {
		was, is := before[name], after[name]
		if bytes.Equal(canonical(was), canonical(is)) {
			continue
		}
		here := append(slices.Clip(path), name)
		a, wasObject := asObject(was)
		b, isObject := asObject(is)
		if len(here) < changeDepth && (wasObject || was == nil) && (isObject || is == nil) && len(a)+len(b) > 0 {
			differing(here, a, b, shown.Object(name), report)
			continue
		}
		report(here, shown[name])
	}
}

// canonical returns a value in one form, whatever the order of its names and its spaces.
func canonical(raw json.RawMessage) []byte {
	if raw == nil {
		return nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return raw
	}
	return encode(v)
}
