package chat

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/ui"
)

// scene is what plugins are told when they are asked for elements: an agent with the
// overrides of a session. Which of these are offered only the elements tell, so here
// all count that no rule forbids.
type scene struct {
	effective
	agentID   string
	overrides loquat.Object // as they stand in the session
	base      loquat.Object
	concealed loquat.Object            // the effective config without its secrets
	states    map[string]loquat.Object // of the application plugins, by name
	models    []loquat.Model
	tags      []string
}

// newScene prepares to ask about an agent. With models it may wait for the backend to
// list them; else those count that are known.
func (s *Service) newScene(ctx context.Context, agentID string, overrides loquat.Object, models bool) (scene, error) {
	base, _, err := s.config.Base(agentID)
	if err != nil {
		return scene{}, err
	}
	offers := config.SchemaOffers(s.schema, base)
	for key := range overrides {
		if !slices.ContainsFunc(offers, func(o config.Offer) bool { return o.Key == key }) && s.unknownToSchemas(key) {
			offers = append(offers, config.Offer{Key: key})
		}
	}
	sc := scene{agentID: agentID, overrides: overrides, base: base}
	if sc.effective, err = s.effectiveWith(agentID, s.fitting(overrides, base, offers)); err != nil {
		return scene{}, err
	}
	if sc.states, err = s.applicationStates(ctx); err != nil {
		return scene{}, err
	}
	s.hear(ctx, sc)
	sc.concealed = s.config.Conceal(sc.config, s.concealing())
	sc.models = s.models.look(sc.effective).models
	if models {
		sc.models = s.models.soon(ctx, sc.effective)
	}
	sc.tags = s.gatherer.Tags(s.corePlugins(sc), sc.concealed, sc.models)
	return sc, nil
}

func (s *Service) unknownToSchemas(key string) bool {
	return !slices.ContainsFunc(s.schema, func(f config.Field) bool {
		return f.Key == key || strings.HasPrefix(f.Key, key+".")
	})
}

func (s *Service) corePlugins(sc scene) []plugin.Plugin {
	return s.plugins.Core(sc.config.String("provider"))
}

// applicationStates reads what the application plugins keep.
func (s *Service) applicationStates(ctx context.Context) (map[string]loquat.Object, error) {
	applications := s.plugins.Applications()
	if len(applications) == 0 {
		return nil, nil
	}
	states := map[string]loquat.Object{}
	err := s.store.View(ctx, func(r *store.Reader) (err error) {
		for _, p := range applications {
			if states[p.Name()], err = r.PluginState(p.Name()); err != nil {
				return err
			}
		}
		return nil
	})
	return states, err
}

// gather asks plugins for their elements.
func (s *Service) gather(ctx context.Context, sc scene, plugins []plugin.Plugin) []loquat.Object {
	return s.gatherer.Gather(ctx, plugins, func(p plugin.Plugin) ui.Input {
		return ui.Input{State: sc.states[p.Name()], Config: sc.concealed, Tags: sc.tags, Models: sc.models}
	})
}

// hear asks those plugins for their elements that have not shown any yet, before anybody
// is told the settings that these may call secret. Meanwhile they are told no more than
// the settings that schemas know; application plugins are asked for all that they have.
func (s *Service) hear(ctx context.Context, sc scene) {
	unheard := s.gatherer.Unheard(slices.Concat(s.corePlugins(sc), s.plugins.Applications()))
	if len(unheard) == 0 {
		return
	}
	known := s.config.Conceal(sc.config, s.concealing())
	maps.DeleteFunc(known, func(key string, _ json.RawMessage) bool { return key != "provider" && s.unknownToSchemas(key) })
	s.gatherer.Gather(ctx, unheard, func(p plugin.Plugin) ui.Input {
		in := ui.Input{State: sc.states[p.Name()]}
		if p.Kind() != plugin.KindApplication {
			in.Config = known
		}
		return in
	})
}

// gatherAll asks core and application plugins side by side. Where both have a setting
// of one key, that of the later plugin counts, at the place of the core's.
func (s *Service) gatherAll(ctx context.Context, sc scene) []loquat.Object {
	var application []loquat.Object
	var asked sync.WaitGroup
	asked.Go(func() { application = s.gather(ctx, sc, s.plugins.Applications()) })
	elements := s.gather(ctx, sc, s.corePlugins(sc))
	asked.Wait()
	places := map[string]int{}
	for i, e := range elements {
		if key := settingKey(e); key != "" {
			places[key] = i
		}
	}
	for _, e := range application {
		i, again := places[settingKey(e)]
		switch {
		case !again:
			elements = append(elements, e)
		case s.placeOf(e) > s.placeOf(elements[i]):
			elements[i] = e
		}
	}
	return elements
}

// placeOf is where in the order of plugins that of an element stands.
func (s *Service) placeOf(e loquat.Object) int {
	return slices.IndexFunc(s.plugins.Plugins(), func(p plugin.Plugin) bool { return p.Name() == e.String("plugin") })
}

// settingKey is the key of a config element, "" of others.
func settingKey(e loquat.Object) string {
	if e.String("ui_type") != "config" {
		return ""
	}
	return e.String("key")
}

// settings are the config elements among elements whose values count, with the offers
// that they make to sessions.
func (s *Service) settings(elements []loquat.Object) (settings []loquat.Object, offers []config.Offer) {
	for _, e := range elements {
		offer := config.Offer{Key: e.String("key"), Path: ui.ConfigPath(e)}
		if settingKey(e) == "" || !offer.Overridable(s.schema) {
			continue
		}
		settings = append(settings, e)
		if !e.Bool("secret") {
			offers = append(offers, offer)
		}
	}
	return settings, offers
}

// settle returns what a request runs with: the overrides that the elements offer, and
// all values where their elements have their config_path.
func (s *Service) settle(sc scene, elements []loquat.Object) (effective, error) {
	settings, offers := s.settings(elements)
	overrides := s.fitting(sc.overrides, sc.base, append(offers, requestOptionsOffer))
	out, err := s.effectiveWith(sc.agentID, overrides)
	if err != nil {
		return effective{}, err
	}
	layers := ui.Layers{Overrides: overrides, Base: sc.base}
	out.config = ui.WriteThrough(out.config, settings, ui.Values(settings, layers))
	return out, nil
}

// requestOptionsOffer may be overridden also where the plugin is not loaded that shows
// an element for it.
var requestOptionsOffer = config.Offer{Key: "request_options"}

// settled asks the plugins and settles. It waits for no backend.
func (s *Service) settled(ctx context.Context, agentID string, overrides loquat.Object) (effective, error) {
	sc, err := s.newScene(ctx, agentID, overrides, false)
	if err != nil {
		return effective{}, err
	}
	return s.settle(sc, s.gatherAll(ctx, sc))
}

// faultsOf finds what is wrong with overrides that are to be written: their rules are
// those of the configuration and those of the elements that offer them.
func (s *Service) faultsOf(given loquat.Object, sc scene, elements []loquat.Object, location string) []loquat.FieldError {
	settings, offers := s.settings(elements)
	faults := config.CheckOverrides(location, given, sc.base, s.concealing(), append(offers, requestOptionsOffer), s.missing(sc))
	faults = append(faults, config.Placeholders(location, given)...)
	for _, e := range settings {
		key := e.String("key")
		place := location + "." + loquat.Clip(key, loquat.Excerpt)
		told := slices.ContainsFunc(faults, func(f loquat.FieldError) bool {
			return f.Location == place || strings.HasPrefix(f.Location, place+".")
		})
		path := ui.ConfigPath(e)
		if told || key == "base_url" || len(path) > 0 && path[0] == "base_url" { // its rule is config's
			continue
		}
		if err := ui.CheckValue(e, given[key]); err != nil {
			faults = append(faults, loquat.FieldError{Location: place, Message: err.Error()})
		}
	}
	return faults
}

// missing says which plugins do not give their settings at the moment, "" when all do.
func (s *Service) missing(sc scene) string {
	silent := s.gatherer.Missing(slices.Concat(s.corePlugins(sc), s.plugins.Applications()))
	return s.masker.Mask(strings.Join(silent, "; "))
}

// learnSecrets remembers which settings their elements call secret: from now on no other
// plugin is told them, and they are masked.
func (s *Service) learnSecrets(elements []loquat.Object) {
	var learned config.Schema
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range elements {
		if !e.Bool("secret") {
			continue
		}
		for _, path := range []string{e.String("key"), strings.Join(ui.ConfigPath(e), ".")} {
			known := slices.ContainsFunc(s.secrets, func(f config.Field) bool { return f.Key == path })
			if path != "" && !known && len(s.secrets) < ui.MaxElements {
				field := config.Field{Key: path, Kind: config.Any, Secret: true}
				s.secrets, learned = append(s.secrets, field), append(learned, field)
			}
		}
	}
	if len(learned) > 0 {
		s.masker.Add(s.config.SecretsOf(learned))
	}
}

// concealing is the schema by which secrets are told: that of the plugins, and what
// elements have called secret.
func (s *Service) concealing() config.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.schema, s.secrets)
}
