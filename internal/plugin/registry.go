package plugin

import (
	"context"
	"fmt"
	"slices"

	"loquat"
)

// Registry holds the loaded plugins. The list never changes after NewRegistry. The tools
// of a plugin may change; Tools returns the current ones.
type Registry struct {
	plugins   []Plugin
	providers map[string]Provider
}

// NewRegistry returns a registry of plugins, in their order. If several providers have
// the same selector, the first one is used. A name that is listed twice is an error.
func NewRegistry(plugins ...Plugin) (*Registry, error) {
	r := &Registry{providers: map[string]Provider{}}
	seen := map[string]bool{}
	for _, p := range plugins {
		if seen[p.Name()] {
			return nil, fmt.Errorf("plugin %s is listed twice", p.Name())
		}
		seen[p.Name()] = true
		r.plugins = append(r.plugins, p)
		if v, ok := p.(Provider); ok {
			if _, taken := r.providers[v.Selector()]; !taken {
				r.providers[v.Selector()] = v
			}
		}
	}
	return r, nil
}

// Plugins returns the loaded plugins, in order.
func (r *Registry) Plugins() []Plugin { return r.plugins }

// Only returns a registry with the providers and those of the other plugins whose name is allowed.
func (r *Registry) Only(allowed func(name string) bool) *Registry {
	denied := func(p Plugin) bool { return p.Kind() != KindProvider && !allowed(p.Name()) }
	if !slices.ContainsFunc(r.plugins, denied) {
		return r
	}
	return &Registry{plugins: slices.DeleteFunc(slices.Clone(r.plugins), denied), providers: r.providers}
}

// Provider returns the provider with a selector.
func (r *Registry) Provider(selector string) (Provider, bool) {
	p, ok := r.providers[selector]
	return p, ok
}

// Models returns the models of a provider's backend. A panic of the provider becomes an error.
func Models(ctx context.Context, p Provider, config loquat.Object) (models []loquat.Model, err error) {
	err = contain(func() (err error) {
		models, err = p.Models(ctx, config)
		return err
	})
	return models, err
}

// EditRequest lets every feature edit req, in order. What they change in its messages changes
// no other call.
func (r *Registry) EditRequest(ctx context.Context, req *loquat.LLMRequest) error {
	owned := false
	for _, p := range r.plugins {
		if e, ok := p.(RequestEditor); ok {
			if v, ok := p.(ParamsEditor); !owned && (!ok || v.EditsMessages()) {
				if err := req.OwnMessages(ctx); err != nil {
					return err
				}
				owned = true
			}
			if err := e.EditRequest(ctx, req); err != nil {
				return fmt.Errorf("plugin %s: %w", p.Name(), err)
			}
		}
	}
	return nil
}

// EditParams lets the features that neither read nor change messages edit the parameters of req, in
// order.
func (r *Registry) EditParams(ctx context.Context, req *loquat.LLMRequest) error {
	for _, p := range r.plugins {
		e, ok := p.(RequestEditor)
		if v, only := p.(ParamsEditor); ok && only && !v.EditsMessages() {
			if err := e.EditRequest(ctx, req); err != nil {
				return fmt.Errorf("plugin %s: %w", p.Name(), err)
			}
		}
	}
	return nil
}
