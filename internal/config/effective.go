package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// serviceKeys are the keys of the service itself. The config of a request never has them: plugins get that config,
// without the secrets of its providers alone.
var serviceKeys = namesBut(Keys(), "plugin_cache_dir")

// namesBut returns the first parts of the keys of a schema, without one.
func namesBut(s Schema, except string) (names []string) {
	for _, f := range s {
		if name, _, _ := strings.Cut(f.Key, "."); name != except && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// agent is one resolved agent: the merged layers below a session's overrides.
type agent struct {
	providerID string
	base       loquat.Object
}

// resolveAgents gives each agent its provider and its base config.
func resolveAgents(raw loquat.Object) (map[string]*agent, []Problem) {
	providers, layers := objectsIn(raw, "providers"), objectsIn(raw, "agents")
	if len(layers) == 0 && len(providers) > 0 {
		if len(providers) > 1 {
			return nil, []Problem{{Path: "agents", Message: fmt.Sprintf(
				"is missing, and there are %d providers; add agents.default with provider set to one of %s", len(providers), names(providers))}}
		}
		layers = map[string]loquat.Object{loquat.DefaultAgent: {}}
	}
	var faults problemList
	if _, ok := layers[loquat.DefaultAgent]; !ok && len(layers) > 1 {
		faults.fault("agents", "has %d agents and none named default; name one of them default", len(layers))
	}
	agents := map[string]*agent{}
	for id, layer := range inOrder(layers) {
		providerID := layer.String("provider")
		if _, named := layer["provider"]; !named && len(providers) == 1 {
			providerID = names(providers)
		}
		provider, ok := providers[providerID]
		if !ok {
			faults.unknownProvider(id, layer, providers)
			continue
		}
		agents[id] = &agent{providerID: providerID, base: baseConfig(raw, provider, layer)}
	}
	return agents, faults.list()
}

// unknownProvider reports an agent whose provider does not exist. The schema reports a value
// of the wrong kind.
func (l *problemList) unknownProvider(agentID string, layer loquat.Object, providers map[string]loquat.Object) {
	what := "is missing"
	if value, given := layer["provider"]; given {
		if !decodes[string](value) {
			return
		}
		what = fmt.Sprintf("names %q, which is not among the providers", loquat.Clip(layer.String("provider"), loquat.Excerpt))
	}
	remedy := "add it under providers"
	if len(providers) > 0 {
		remedy = "must be one of " + names(providers)
	}
	l.fault("agents."+agentID+".provider", "%s; %s", what, remedy)
}

// objectsIn returns the objects in the object at key. Check reports other values.
func objectsIn(raw loquat.Object, key string) map[string]loquat.Object {
	objects := map[string]loquat.Object{}
	all := raw.Object(key)
	for id := range all {
		if o := all.Object(id); o != nil {
			objects[id] = o
		}
	}
	return objects
}

func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// baseConfig merges the layers of the file. `provider` is a selector in a provider's layer,
// but a provider_id in an agent's layer.
func baseConfig(top, provider, agent loquat.Object) loquat.Object {
	base := Merge(Merge(top, provider), agent)
	delete(base, "provider")
	if selector, ok := provider["provider"]; ok {
		base["provider"] = selector
	}
	for _, key := range serviceKeys {
		delete(base, key)
	}
	return base
}

// UseOnly makes a provider the only one, and its agent the only agent.
func (c *Config) UseOnly(providerID string, provider loquat.Object) {
	c.raw = c.raw.Clone().Set("providers", map[string]loquat.Object{providerID: provider})
	delete(c.raw, "agents")
	c.agents, c.agentFaults = resolveAgents(c.raw)
	c.providers = resolveProviders(c.raw)
}

// resolveProviders gives each provider its base config: that of an agent with no settings of its own.
func resolveProviders(raw loquat.Object) map[string]loquat.Object {
	all := map[string]loquat.Object{}
	for id, provider := range objectsIn(raw, "providers") {
		all[id] = baseConfig(raw, provider, nil)
	}
	return all
}

// Providers returns the provider_ids, sorted.
func (c *Config) Providers() []string { return slices.Sorted(maps.Keys(c.providers)) }

// Provider returns the config of a provider without the settings of an agent. The caller may change
// the top level.
func (c *Config) Provider(providerID string) (loquat.Object, bool) {
	base, ok := c.providers[providerID]
	return maps.Clone(base), ok
}

// Agents returns the agent_ids, sorted.
func (c *Config) Agents() []string { return slices.Sorted(maps.Keys(c.agents)) }

// HasAgent reports whether Base finds an agent.
func (c *Config) HasAgent(agentID string) bool {
	_, ok := c.agent(agentID)
	return ok
}

func (c *Config) agent(agentID string) (a *agent, ok bool) {
	a, ok = c.agents[agentID]
	if !ok && agentID == loquat.DefaultAgent && len(c.agents) == 1 {
		for _, only := range c.agents {
			a, ok = only, true
		}
	}
	return a, ok
}

// Base returns the base config of an agent, which must not be changed, and the provider_id that
// it uses. If there is only one agent, it is also found under the name of the default agent,
// for sessions that name none.
func (c *Config) Base(agentID string) (base loquat.Object, providerID string, err error) {
	a, ok := c.agent(agentID)
	if !ok {
		return nil, "", loquat.Errorf(loquat.CodeInvalid, "the agent %q is not configured; the agents are: %s", loquat.Clip(agentID, loquat.Excerpt), names(c.agents))
	}
	return a.base, a.providerID, nil
}

// Effective returns the config for a request of a session with these overrides, and its
// provider_id. The caller may change the top level. Overrides of null, and of keys that no
// session may override, are ignored.
func (c *Config) Effective(agentID string, overrides loquat.Object) (effective loquat.Object, providerID string, err error) {
	base, providerID, err := c.Base(agentID)
	if err != nil {
		return nil, "", err
	}
	effective = make(loquat.Object, len(base)+len(overrides))
	maps.Copy(effective, base)
	for key, value := range overrides {
		if isNull(value) || neverOverridable(key) {
			continue
		}
		effective[key] = mergeValue(base[key], value)
	}
	return effective, providerID, nil
}

// Merge returns under with over on top: objects merge deeply, all other values, including
// null, replace. It changes neither.
func Merge(under, over loquat.Object) loquat.Object {
	merged := make(loquat.Object, len(under)+len(over))
	maps.Copy(merged, under)
	for key, value := range over {
		merged[key] = mergeValue(under[key], value)
	}
	return merged
}

func mergeValue(under, over json.RawMessage) json.RawMessage {
	below, ok := asObject(under)
	if !ok {
		return over
	}
	above, ok := asObject(over)
	if !ok {
		return over
	}
	return encode(Merge(below, above))
}

func asObject(raw json.RawMessage) (loquat.Object, bool) {
	var o loquat.Object
	err := json.Unmarshal(raw, &o)
	return o, err == nil && o != nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
