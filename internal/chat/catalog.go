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

// Models returns the models of an agent's backend, or of the backend that a session uses with
// its overrides.
func (c *Catalog) Models(ctx context.Context, agentID, sessionID string, refresh bool) ([]loquat.Model, error) {
	if sessionID == "" {
		agentID = cmp.Or(agentID, loquat.DefaultAgent)
		if err := c.settings.CheckAgent("query.agent_id", agentID); err != nil {
			return nil, err
		}
		return c.settings.Models(ctx, agentID, nil, refresh)
	}
	h, err := readHead(ctx, c.store, sessionID)
	if err != nil {
		return nil, err
	}
	return c.settings.Models(ctx, cmp.Or(agentID, h.AgentID), overridesOf(h), refresh)
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

// NamedModels returns all names that Named knows.
func (c *Catalog) NamedModels(ctx context.Context) []settings.NamedModel {
	return c.settings.NamedModels(ctx)
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
