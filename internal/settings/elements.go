package settings

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

// Context is the input for plugins that are asked for elements: an agent with the overrides of
// a session. Only the elements say which overrides are offered, so a Context includes every
// override that no rule forbids.
type Context struct {
	Resolved
	Redacted loquat.Object // the effective config without its secrets

	configured *config.Config // with which all of it is resolved
	agentID    string
	overrides  loquat.Object // of the session, unchecked
	base       loquat.Object
	states     map[string]loquat.Object // of the application plugins, by name
	models     []loquat.Model
	tags       []string
}

// Context returns the context of an agent with overrides. With models it may wait for the
// backend to list its models. Otherwise it uses the cached list, regardless of its age.
func (r *Resolver) Context(ctx context.Context, agentID string, overrides loquat.Object, models bool) (Context, error) {
	cfg := r.config.Now()
	base, _, err := cfg.Base(agentID)
	if err != nil {
		return Context{}, err
	}
	offers := config.SchemaOffers(r.schema, base)
	for key := range overrides {
		if !slices.ContainsFunc(offers, func(o config.Offer) bool { return o.Key == key }) && r.isUnknownToSchemas(key) {
			offers = append(offers, config.Offer{Key: key})
		}
	}
	pc := Context{configured: cfg, agentID: agentID, overrides: overrides, base: base}
	if pc.Resolved, err = r.resolveWith(cfg, agentID, r.accepted(overrides, base, offers)); err != nil {
		return Context{}, err
	}
	if pc.states, err = r.applicationStates(ctx); err != nil {
		return Context{}, err
	}
	r.askUnseen(ctx, pc)
	pc.Redacted = cfg.Redact(pc.Config, r.secretSchema())
	pc.models = r.models.look(pc.Resolved).models
	if models {
		pc.models = r.models.soon(ctx, pc.Resolved)
	}
	pc.tags = r.gatherer.Tags(r.corePlugins(pc), pc.Redacted, pc.models)
	return pc, nil
}

func (r *Resolver) isUnknownToSchemas(key string) bool {
	return !slices.ContainsFunc(r.schema, func(f config.Field) bool {
		return f.Key == key || strings.HasPrefix(f.Key, key+".")
	})
}

func (r *Resolver) corePlugins(pc Context) []plugin.Plugin {
	return r.plugins.Core(pc.Config.String("provider"))
}

// pluginsOf returns all plugins whose elements belong to a context.
func (r *Resolver) pluginsOf(pc Context) []plugin.Plugin {
	return slices.Concat(r.corePlugins(pc), r.plugins.Applications())
}

// complete reports whether every plugin of a context returns its elements at the moment.
func (r *Resolver) complete(pc Context) bool {
	plugins := r.pluginsOf(pc)
	return len(r.gatherer.Unheard(plugins)) == 0 && len(r.gatherer.Missing(plugins)) == 0
}

// applicationStates reads the stored states of the application plugins.
func (r *Resolver) applicationStates(ctx context.Context) (map[string]loquat.Object, error) {
	applications := r.plugins.Applications()
	if len(applications) == 0 {
		return nil, nil
	}
	return store.Read(ctx, r.store, func(tx *store.Reader) (states map[string]loquat.Object, err error) {
		states = map[string]loquat.Object{}
		for _, p := range applications {
			if states[p.Name()], err = tx.PluginState(p.Name()); err != nil {
				return nil, err
			}
		}
		return states, nil
	})
}

// Elements asks some plugins for their elements in a context.
func (r *Resolver) Elements(ctx context.Context, pc Context, plugins []plugin.Plugin) []loquat.Object {
	return r.gatherer.Gather(ctx, plugins, pc.input)
}

// LastElements is Elements with the last elements of the plugins that do not answer.
func (r *Resolver) LastElements(ctx context.Context, pc Context, plugins []plugin.Plugin) []loquat.Object {
	return r.gatherer.GatherLast(ctx, plugins, pc.input)
}

func (pc Context) input(p plugin.Plugin) ui.Input {
	return ui.Input{State: pc.states[p.Name()], Config: pc.Redacted, Tags: pc.tags, Models: pc.models}
}

// Missing names the plugins that do not return their elements at the moment, and says why. It is "" if there are none.
func (r *Resolver) Missing(plugins []plugin.Plugin) string {
	return r.redactor.Redact(strings.Join(r.gatherer.Missing(plugins), "; "))
}

// askUnseen asks the plugins that have not returned any element yet. Their elements may call
// settings secret, so this happens before any plugin gets those settings. The asked plugins get
// only settings that schemas know; application plugins are asked for all their elements.
func (r *Resolver) askUnseen(ctx context.Context, pc Context) {
	unseen := r.gatherer.Unheard(r.pluginsOf(pc))
	if len(unseen) == 0 {
		return
	}
	known := pc.configured.Redact(pc.Config, r.secretSchema())
	maps.DeleteFunc(known, func(key string, _ json.RawMessage) bool { return key != "provider" && r.isUnknownToSchemas(key) })
	r.gatherer.Gather(ctx, unseen, func(p plugin.Plugin) ui.Input {
		in := ui.Input{State: pc.states[p.Name()]}
		if p.Kind() != plugin.KindApplication {
			in.Config = known
		}
		return in
	})
}

// gatherAll asks core and application plugins at the same time, by Elements or LastElements. If both have a setting with the
// same key, the setting of the plugin that is listed later counts, at the place of the core
// plugin's.
func (r *Resolver) gatherAll(ctx context.Context, pc Context, ask func(context.Context, Context, []plugin.Plugin) []loquat.Object) []loquat.Object {
	var application []loquat.Object
	var asked sync.WaitGroup
	asked.Go(func() { application = ask(ctx, pc, r.plugins.Applications()) })
	elements := ask(ctx, pc, r.corePlugins(pc))
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
		case r.placeOf(e) > r.placeOf(elements[i]):
			elements[i] = e
		}
	}
	return elements
}

// placeOf returns the place of an element's plugin in the order of plugins.
func (r *Resolver) placeOf(e loquat.Object) int {
	return slices.IndexFunc(r.plugins.Plugins(), func(p plugin.Plugin) bool { return p.Name() == e.String("plugin") })
}

// settingKey returns the key of a config element, and "" for other elements.
func settingKey(e loquat.Object) string {
	if e.String("ui_type") != "config" {
		return ""
	}
	return e.String("key")
}

// UISchema returns the elements of the core plugins: the agent's provider, and the
// extensions, features and tools that are loaded.
func (r *Resolver) UISchema(ctx context.Context, agentID string, overrides loquat.Object) ([]loquat.Object, error) {
	pc, err := r.Context(ctx, agentID, overrides, true)
	if err != nil {
		return nil, err
	}
	defer r.resolved.drop(agentID, overrides) // so that the next request runs with the settings that the client has seen
	return r.Elements(ctx, pc, r.corePlugins(pc)), nil
}

// ApplicationUISchema returns the elements of the application plugins, or of one of them.
func (r *Resolver) ApplicationUISchema(ctx context.Context, agentID string, overrides loquat.Object, name string) ([]loquat.Object, error) {
	pc, err := r.Context(ctx, agentID, overrides, true)
	if err != nil {
		return nil, err
	}
	defer r.resolved.drop(agentID, overrides)
	return r.Elements(ctx, pc, r.applications(name)), nil
}

// GlobalContext returns a context without an agent. In this context application plugins return
// all their elements.
func (r *Resolver) GlobalContext(ctx context.Context) (pc Context, err error) {
	pc.states, err = r.applicationStates(ctx)
	return pc, err
}

// GlobalUISchema returns all elements of the application plugins, or of one of them.
func (r *Resolver) GlobalUISchema(ctx context.Context, name string) ([]loquat.Object, error) {
	pc, err := r.GlobalContext(ctx)
	if err != nil {
		return nil, err
	}
	return r.Elements(ctx, pc, r.applications(name)), nil
}

// applications returns the application plugins with a name, "" for all.
func (r *Resolver) applications(name string) []plugin.Plugin {
	return slices.DeleteFunc(slices.Clone(r.plugins.Applications()), func(p plugin.Plugin) bool { return name != "" && p.Name() != name })
}

// Problems returns what is left out of a plugin's elements, and why.
func (r *Resolver) Problems(p plugin.Plugin) []string { return r.gatherer.Problems(p) }
