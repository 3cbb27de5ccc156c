package chat

import (
	"cmp"
	"context"
	"slices"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/ui"
)

// head reads the head of a session.
func (s *Service) head(ctx context.Context, sessionID string) (store.Head, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (store.Head, error) { return r.Head(sessionID) })
}

// overridesOf returns the overrides of a session.
func overridesOf(h store.Head) loquat.Object { return h.Metadata.Object(loquat.MetaOverrides) }

// Agents returns the agents that a session may use.
func (s *Service) Agents() []loquat.Agent { return s.settings.Agents() }

// Models returns the models that the backend of an agent lists, or that of a session with
// its overrides.
func (s *Service) Models(ctx context.Context, agentID, sessionID string, refresh bool) ([]loquat.Model, error) {
	if sessionID == "" {
		agentID = cmp.Or(agentID, loquat.DefaultAgent)
		if err := s.settings.CheckAgent("query.agent_id", agentID); err != nil {
			return nil, err
		}
		return s.settings.Models(ctx, agentID, nil, refresh)
	}
	h, err := s.head(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return s.settings.Models(ctx, cmp.Or(agentID, h.AgentID), overridesOf(h), refresh)
}

// UISchema returns what the core plugins show for a session: its provider, and the
// extensions, features and tools that are loaded.
func (s *Service) UISchema(ctx context.Context, sessionID string) ([]loquat.Object, error) {
	h, err := s.head(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return s.settings.UISchema(ctx, h.AgentID, overridesOf(h))
}

// ApplicationUISchema returns what the application plugins show, or the one that is
// named: for a session, or, without one, every element that they have.
func (s *Service) ApplicationUISchema(ctx context.Context, sessionID, name string) ([]loquat.Object, error) {
	if sessionID == "" {
		return s.settings.GlobalUISchema(ctx, name)
	}
	h, err := s.head(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return s.settings.ApplicationUISchema(ctx, h.AgentID, overridesOf(h), name)
}

// ConfigValues returns the effective value of every setting of a session, with where
// it comes from. Of secrets it says only whether they are set.
func (s *Service) ConfigValues(ctx context.Context, sessionID string) (map[string]ui.Value, error) {
	h, err := s.head(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return s.settings.Values(ctx, h.AgentID, overridesOf(h))
}

// Plugins lists what is loaded, in order.
func (s *Service) Plugins() []loquat.Plugin {
	out := []loquat.Plugin{}
	for _, p := range s.plugins.Plugins() {
		info := loquat.Plugin{
			Name: p.Name(), Kind: p.Kind(), PluginStatus: s.plugins.Status(p),
			Tools: s.plugins.ToolNames(p), Actions: plugin.ActionsOf(p),
		}
		info.Problems = slices.Concat(info.Problems, s.settings.Problems(p), s.absences.problems(p.Name()))
		for i, text := range info.Problems {
			info.Problems[i] = s.redactor.Redact(text)
		}
		info.Detail = s.redactor.Redact(info.Detail)
		out = append(out, info)
	}
	return out
}
