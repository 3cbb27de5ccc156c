// Package settings resolves the settings of a request and of the clients' views: agents, the
// overrides of a session, the effective config, the elements of plugins and the models of
// backends.
//
// It promises that an override counts only while the agent offers it; that settings are
// resolved once and cached until something that they depend on changes; and that no plugin and
// no client gets a secret. It stores nothing: package chat stores overrides. It does not know
// requests or HTTP.
//
// Its caches (resolved settings, lists of models, which settings elements call secret) are in
// memory; a new process asks the plugins and backends again. Nodes that share a store each have
// their own: they come from the node's own plugins and backends. What they take from the store,
// the states of plugins and the overrides of sessions, is read again when it changes.
package settings

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// Options configure a Resolver.
type Options struct {
	Store    *store.Store // holds the states of application plugins
	Config   *config.Live
	Plugins  *plugin.Registry
	Logger   *slog.Logger
	Redactor *config.Redactor // gets the secrets that elements name
}

// Resolver resolves settings. It is safe for concurrent use.
type Resolver struct {
	store    *store.Store
	config   *config.Live
	plugins  *plugin.Registry
	schema   config.Schema // of all plugins
	redactor *config.Redactor
	gatherer *plugin.Gatherer
	models   *modelCache
	resolved *cache

	mu      sync.Mutex
	secrets config.Schema // settings that elements call secret
}

// New returns a resolver. It does not ask plugins yet.
func New(opts Options) *Resolver {
	r := &Resolver{store: opts.Store, config: opts.Config, plugins: opts.Plugins, redactor: opts.Redactor, resolved: newCache()}
	r.models = newModelCache(r.Invalidate)
	r.gatherer = plugin.NewGatherer(r.plugins, opts.Logger, r.learnSecrets)
	for _, p := range r.plugins.Plugins() {
		if owner, ok := p.(config.Owner); ok {
			r.schema = append(r.schema, owner.ConfigSchema()...)
		}
		if n, ok := p.(plugin.Notifier); ok {
			n.OnChange(r.Invalidate)
		}
	}
	return r
}

// Resolved holds the settings of a request.
type Resolved struct {
	ProviderID string
	Provider   plugin.Provider
	Config     loquat.Object // the effective config
	Redacted   loquat.Object // Config with secrets as {"set": true}; only Resolve sets it
}

// Agents returns the agents that a session may use.
func (r *Resolver) Agents() []loquat.Agent {
	out := []loquat.Agent{}
	cfg := r.config.Now()
	for _, id := range cfg.Agents() {
		if base, providerID, err := cfg.Base(id); err == nil {
			out = append(out, loquat.Agent{AgentID: id, ProviderID: providerID, Model: base.String("model")})
		}
	}
	return out
}

// CheckAgent returns an error that names the known agents when there is no such agent.
func (r *Resolver) CheckAgent(location, agentID string) error {
	cfg := r.config.Now()
	if _, _, err := cfg.Base(agentID); err != nil {
		return loquat.Invalid(location, "is %q, which is not an agent; the agents are: %s", loquat.Clip(agentID, loquat.Excerpt), strings.Join(cfg.Agents(), ", "))
	}
	return nil
}

// ResolveStatic resolves with the schemas of the plugins, without asking a plugin. Overrides
// that only an element offers do not count.
func (r *Resolver) ResolveStatic(agentID string, overrides loquat.Object) (Resolved, error) {
	cfg := r.config.Now()
	if len(overrides) == 0 { // the schemas of all plugins need not be searched
		return r.resolveWith(cfg, agentID, nil)
	}
	base, _, err := cfg.Base(agentID)
	if err != nil {
		return Resolved{}, err
	}
	return r.resolveWith(cfg, agentID, r.accepted(overrides, base, config.SchemaOffers(r.schema, base)))
}

// resolveWith resolves with overrides that were already checked against the same configuration.
func (r *Resolver) resolveWith(cfg *config.Config, agentID string, overrides loquat.Object) (Resolved, error) {
	effective, providerID, err := cfg.Effective(agentID, overrides)
	if err != nil {
		return Resolved{}, err
	}
	p, ok := r.plugins.Provider(effective.String("provider"))
	if !ok {
		return Resolved{}, errNoPlugin(providerID, effective)
	}
	return Resolved{ProviderID: providerID, Provider: p, Config: effective}, nil
}

func errNoPlugin(providerID string, cfg loquat.Object) error {
	return loquat.Errorf(loquat.CodeUnavailable, "provider %q needs a plugin for %q, and none is loaded", providerID, cfg.String("provider"))
}

// Resolve returns the settings of a request: the base config, the overrides that elements
// offer, and each value at its element's config_path. It waits for plugins, not for backends. The last
// elements of a plugin that does not answer count.
// The result is cached, see cache.
func (r *Resolver) Resolve(ctx context.Context, agentID string, overrides loquat.Object) (Resolved, error) {
	return r.resolved.get(ctx, agentID, overrides, func(ctx context.Context) (Resolved, bool, error) {
		pc, err := r.Context(ctx, agentID, overrides, false)
		if err != nil {
			return Resolved{}, false, err
		}
		out, err := r.resolveFrom(pc, r.gatherAll(ctx, pc, r.LastElements))
		return out, err == nil && r.complete(pc), err
	})
}

// resolveFrom resolves with the elements that the plugins returned for a context.
func (r *Resolver) resolveFrom(pc Context, elements []loquat.Object) (Resolved, error) {
	settings, offers := r.settingsAmong(elements)
	overrides := r.accepted(pc.overrides, pc.base, append(offers, requestOptionsOffer))
	out, err := r.resolveWith(pc.configured, pc.agentID, overrides)
	if err != nil {
		return Resolved{}, err
	}
	out.Config = writeThrough(out.Config, settings, overrides, pc.base)
	out.Redacted = pc.configured.Redact(out.Config, r.secretSchema())
	return out, nil
}

// Reconfigure makes the change of the configuration count: no cached settings and lists of models of
// the one before are used any more.
func (r *Resolver) Reconfigure() {
	r.mu.Lock()
	r.redactor.Add(r.config.Now().SecretsOf(r.secrets))
	r.mu.Unlock()
	r.models.forget()
	r.Invalidate()
}

// Invalidate drops all cached settings. Call it when something changed that they may depend on.
func (r *Resolver) Invalidate() { r.resolved.invalidate() }
