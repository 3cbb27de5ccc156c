package chat

import (
	"context"
	"slices"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/ui"
)

// UISchema returns what the core plugins show for a session: its provider, and the
// extensions, features and tools that are loaded.
func (s *Service) UISchema(ctx context.Context, sessionID string) ([]loquat.Object, error) {
	sc, err := s.sceneOf(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	return s.gather(ctx, sc, s.corePlugins(sc)), nil
}

// ApplicationUISchema returns what the application plugins show, or the one that is
// named: for a session, or, without one, all that they ever do.
func (s *Service) ApplicationUISchema(ctx context.Context, sessionID, name string) ([]loquat.Object, error) {
	var sc scene
	var err error
	if sessionID != "" {
		sc, err = s.sceneOf(ctx, sessionID)
	} else {
		sc.states, err = s.applicationStates(ctx)
	}
	if err != nil {
		return nil, err
	}
	var plugins []plugin.Plugin
	for _, p := range s.plugins.Applications() {
		if name == "" || p.Name() == name {
			plugins = append(plugins, p)
		}
	}
	return s.gather(ctx, sc, plugins), nil
}

// sceneOf prepares to ask about a session.
func (s *Service) sceneOf(ctx context.Context, sessionID string) (scene, error) {
	h, err := s.head(ctx, sessionID)
	if err != nil {
		return scene{}, err
	}
	return s.newScene(ctx, h.AgentID, h.Metadata.Object(loquat.MetaOverrides), true)
}

func (s *Service) head(ctx context.Context, sessionID string) (h store.Head, err error) {
	err = s.store.View(ctx, func(r *store.Reader) (err error) {
		h, err = r.Head(sessionID)
		return err
	})
	return h, err
}

// ConfigValues returns the effective value of every setting of a session, with where
// it comes from. Of secrets it says only whether they are set.
func (s *Service) ConfigValues(ctx context.Context, sessionID string) (map[string]ui.Value, error) {
	sc, err := s.sceneOf(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	elements := s.gatherAll(ctx, sc)
	_, offers := s.settings(elements)
	values := ui.Values(elements, ui.Layers{
		Overrides: s.fitting(sc.overrides, sc.base, append(offers, requestOptionsOffer)), Base: sc.base, Defaults: s.schemaDefaults(),
	})
	secrets := s.concealing()
	for _, e := range elements {
		key := settingKey(e)
		if v, ok := values[key]; ok {
			v.Value = s.config.ConcealAt([]string{key}, v.Value, secrets)
			if path := ui.ConfigPath(e); len(path) > 0 {
				v.Value = s.config.ConcealAt(path, v.Value, secrets)
			}
			values[key] = v
		}
	}
	return values, nil
}

// schemaDefaults are the defaults that the schemas of the plugins name, by key.
func (s *Service) schemaDefaults() loquat.Object {
	defaults := loquat.Object{}
	for _, f := range s.schema {
		if f.Default != nil {
			defaults.Set(f.Key, f.Default)
		}
	}
	return defaults
}

// PluginInfo is a loaded plugin and how it is.
type PluginInfo struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	plugin.Status
	Tools   []string `json:"tools"`
	Actions []string `json:"actions"`
}

// Plugins lists what is loaded, in order.
func (s *Service) Plugins() []PluginInfo {
	out := []PluginInfo{}
	for _, p := range s.plugins.Plugins() {
		info := PluginInfo{
			Name: p.Name(), Kind: p.Kind(), Status: s.plugins.Status(p),
			Tools: s.plugins.ToolNames(p), Actions: plugin.ActionsOf(p),
		}
		info.Problems = slices.Concat(info.Problems, s.gatherer.Problems(p), s.absences.problems(p.Name()))
		for i, text := range info.Problems {
			info.Problems[i] = s.masker.Mask(text)
		}
		info.Detail = s.masker.Mask(info.Detail)
		out = append(out, info)
	}
	return out
}
