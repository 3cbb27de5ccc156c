package settings

import (
	"context"
	"slices"
	"strings"
	"sync"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
)

// Named returns the settings of a call whose model is named in a request: by the id of an agent, by
// provider_id/model, or by a model of the default provider, which is that of the agent default.
func (r *Resolver) Named(ctx context.Context, name string) (Resolved, error) {
	cfg := r.config.Now()
	if cfg.HasAgent(name) {
		return r.Resolve(ctx, name, nil)
	}
	providerID, model, ok := strings.Cut(name, "/")
	if _, known := cfg.Provider(providerID); !ok || !known || model == "" {
		var err error
		if _, providerID, err = cfg.Base(loquat.DefaultAgent); err != nil {
			return Resolved{}, err
		}
		model = name
	}
	return r.ofProvider(cfg, providerID, model)
}

// ofProvider returns the settings of a provider, without those of an agent. model "" keeps the
// configured model.
func (r *Resolver) ofProvider(cfg *config.Config, providerID, model string) (Resolved, error) {
	base, _ := cfg.Provider(providerID)
	p, ok := r.plugins.Provider(base.String("provider"))
	if !ok {
		return Resolved{}, errNoPlugin(providerID, base)
	}
	if model != "" {
		base["model"] = loquat.Quote(model)
	}
	return Resolved{ProviderID: providerID, Provider: p, Config: base}, nil
}

// Params returns what the features add to the parameters of a call with these settings.
func (r *Resolver) Params(ctx context.Context, resolved Resolved) (loquat.Object, error) {
	req := loquat.LLMRequest{ProviderID: resolved.ProviderID, Config: resolved.Config}
	err := r.plugins.EditParams(ctx, &req)
	return req.Params, err
}

// NamedModel is a model by a name that Named knows.
type NamedModel struct {
	Name  string
	Owner string       // the provider_id; "loquat" for an agent
	Model loquat.Model // as the backend describes it; for an agent only its ID
}

// OfAgent reports whether the name is that of an agent.
func (m NamedModel) OfAgent() bool { return m.Owner == agentsOwner }

// agentsOwner is the Owner of agents.
const agentsOwner = "loquat"

// NamedModels returns all names of models: the agents, the models of the default provider, and the
// models of all providers with their provider_id. Of a backend that does not list its models in time,
// the configured model is included.
func (r *Resolver) NamedModels(ctx context.Context) []NamedModel {
	var out []NamedModel
	for _, a := range r.Agents() {
		out = append(out, NamedModel{Name: a.AgentID, Owner: agentsOwner, Model: loquat.Model{ID: a.AgentID}})
	}
	cfg := r.config.Now()
	ids := cfg.Providers()
	lists := make([][]loquat.Model, len(ids))
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() { lists[i] = r.modelsOf(ctx, cfg, id) })
	}
	asking.Wait()
	taken := map[string]bool{}
	for _, m := range out {
		taken[m.Name] = true
	}
	add := func(prefix, owner string, models []loquat.Model) {
		for _, m := range models {
			if name := prefix + m.ID; !taken[name] {
				taken[name] = true
				out = append(out, NamedModel{Name: name, Owner: owner, Model: m})
			}
		}
	}
	if _, id, err := cfg.Base(loquat.DefaultAgent); err == nil {
		add("", id, lists[slices.Index(ids, id)])
	}
	for i, id := range ids {
		add(id+"/", id, lists[i])
	}
	return out
}

// modelsOf returns the models of a provider, also the configured one.
func (r *Resolver) modelsOf(ctx context.Context, cfg *config.Config, providerID string) []loquat.Model {
	resolved, err := r.ofProvider(cfg, providerID, "")
	if err != nil {
		return nil
	}
	models := r.models.soon(ctx, resolved)
	configured := resolved.Config.String("model")
	if configured == "" || slices.ContainsFunc(models, func(m loquat.Model) bool { return m.ID == configured }) {
		return models
	}
	return append([]loquat.Model{{ID: configured}}, models...)
}

// Relayer returns the provider's own way to relay requests, or an error if it has none.
func (r Resolved) Relayer() (plugin.Relayer, error) {
	if v, ok := r.Provider.(plugin.Relayer); ok {
		return v, nil
	}
	return nil, loquat.Invalid("body.model", "belongs to provider %q, whose plugin cannot relay requests", r.ProviderID)
}
