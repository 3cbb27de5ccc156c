package chat

import (
	"cmp"
	"context"
	"slices"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/store"
	"loquat/internal/ui"
)

// Catalog answers what clients can choose from: agents, models, settings and plugins.
type Catalog struct{ dependencies }

// readHead reads the head of a session.
func readHead(ctx context.Context, s *store.Store, sessionID string) (store.Head, error) {
	return store.Read(ctx, s, func(r *store.Reader) (store.Head, error) { return r.Head(sessionID) })
}

// overridesOf returns the overrides of a session.
func overridesOf(h store.Head) loquat.Object { return h.Metadata.Object(loquat.MetaOverrides) }

// Agents returns the agents that a session may use.
func (c *Catalog) Agents() []loquat.Agent { return c.settings.Agents() }

// AgentsFor returns the agents that a caller may use.
func (c *Catalog) AgentsFor(by By) []loquat.Agent {
	return slices.DeleteFunc(c.Agents(), func(a loquat.Agent) bool { return !by.Rules.AllowsAgent(a.AgentID) })
}

// Models returns the models of an agent's backend that a caller may use, or those of the backend that a
// session uses with its overrides.
func (c *Catalog) Models(ctx context.Context, by By, agentID, sessionID string, refresh bool) ([]loquat.Model, error) {
	var overrides loquat.Object
	if sessionID == "" {
		agentID = cmp.Or(agentID, loquat.DefaultAgent)
		if err := c.settings.CheckAgent("query.agent_id", agentID); err != nil {
			return nil, err
		}
	} else {
		h, err := readHead(ctx, c.store, sessionID)
		if err != nil {
			return nil, err
		}
		agentID, overrides = cmp.Or(agentID, h.AgentID), overridesOf(h)
	}
	if err := by.mayUse(agentID); err != nil {
		return nil, err
	}
	models, err := c.settings.Models(ctx, agentID, overrides, refresh)
	if err != nil || by.Rules.Models == nil {
		return models, err
	}
	resolved, err := c.settings.ResolveStatic(agentID, overrides)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(models), func(m loquat.Model) bool { return !by.Rules.AllowsModel(resolved.ProviderID, m.ID) }), nil
}

// Shown returns those of elements whose plugin a caller may use.
func (c *Catalog) Shown(by By, elements []loquat.Object) []loquat.Object {
	only := c.plugins.Only(by.Rules.AllowsPlugin)
	if only == c.plugins {
		return elements
	}
	return slices.DeleteFunc(slices.Clone(elements), func(e loquat.Object) bool {
		return !slices.ContainsFunc(only.Plugins(), func(p plugin.Plugin) bool { return p.Name() == e.String("plugin") })
	})
}

// Named returns the settings of a call whose model is named in a request, and the parameters that
// features add to it. See settings.Resolver.Named.
func (c *Catalog) Named(ctx context.Context, model string) (settings.Resolved, loquat.Object, error) {
	resolved, err := c.settings.Named(ctx, model)
	if err != nil {
		return settings.Resolved{}, nil, err
	}
	params, err := c.settings.Params(ctx, resolved)
	return resolved, params, err
}

// NamedModels returns the names that Named knows and that a caller may use.
func (c *Catalog) NamedModels(ctx context.Context, by By) []settings.NamedModel {
	return slices.DeleteFunc(c.settings.NamedModels(ctx), func(m settings.NamedModel) bool {
		if m.OfAgent() {
			return !by.Rules.AllowsAgent(m.Name)
		}
		return !by.Rules.AllowsModel(m.Owner, m.Model.ID)
	})
}

// UISchema returns the elements of the core plugins for a session: of its provider, and of the
// loaded extensions, features and tools.
func (c *Catalog) UISchema(ctx context.Context, sessionID string) ([]loquat.Object, error) {
	h, err := readHead(ctx, c.store, sessionID)
	if err != nil {
		return nil, err
	}
	return c.settings.UISchema(ctx, h.AgentID, overridesOf(h))
}

// ApplicationUISchema returns the elements of all application plugins, or of one: those for a
// session, or all of them without a session.
func (c *Catalog) ApplicationUISchema(ctx context.Context, sessionID, name string) ([]loquat.Object, error) {
	if sessionID == "" {
		return c.settings.GlobalUISchema(ctx, name)
	}
	h, err := readHead(ctx, c.store, sessionID)
	if err != nil {
		return nil, err
	}
	return c.settings.ApplicationUISchema(ctx, h.AgentID, overridesOf(h), name)
}

// ConfigValues returns the effective value of every setting of a session, with where
// it comes from. Of secrets it says only whether they are set.
func (c *Catalog) ConfigValues(ctx context.Context, sessionID string) (map[string]ui.Value, error) {
	h, err := readHead(ctx, c.store, sessionID)
	if err != nil {
		return nil, err
	}
	return c.settings.Values(ctx, h.AgentID, overridesOf(h))
}

// Plugins lists what is loaded, in order.
func (c *Catalog) Plugins() []loquat.Plugin {
	out := []loquat.Plugin{}
	for _, p := range c.plugins.Plugins() {
		info := loquat.Plugin{
			Name: p.Name(), Kind: p.Kind(), PluginStatus: c.plugins.Status(p),
			Tools: c.plugins.ToolNames(p), Actions: plugin.ActionsOf(p),
		}
		info.Problems = slices.Concat(info.Problems, c.settings.Problems(p), c.starts.problems(p.Name()))
		for i, text := range info.Problems {
			info.Problems[i] = c.redactor.Redact(text)
		}
		info.Detail = c.redactor.Redact(info.Detail)
		out = append(out, info)
	}
	return out
}
