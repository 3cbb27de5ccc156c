package plugin

import (
	"context"
	"fmt"

	"loquat"
)

// Registry is what is loaded. The list of plugins does not change once it is made;
// what a plugin offers may, see Tools.
type Registry struct {
	plugins   []Plugin
	providers map[string]Provider
}

// NewRegistry loads plugins in their order. The first plugin that offers a provider
// of some selector has it.
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

// Plugins returns what is loaded, in order.
func (r *Registry) Plugins() []Plugin { return r.plugins }

// Provider returns the provider that selector chooses.
func (r *Registry) Provider(selector string) (Provider, bool) {
	p, ok := r.providers[selector]
	return p, ok
}

// Models asks a provider what its backend offers, and makes an error of its panic.
func Models(ctx context.Context, p Provider, config loquat.Object) (models []loquat.Model, err error) {
	err = contain(func() (err error) {
		models, err = p.Models(ctx, config)
		return err
	})
	return models, err
}

// EditRequest lets every feature edit req, in order.
func (r *Registry) EditRequest(ctx context.Context, req *loquat.LLMRequest) error {
	for _, p := range r.plugins {
		if e, ok := p.(RequestEditor); ok {
			if err := e.EditRequest(ctx, req); err != nil {
				return fmt.Errorf("plugin %s: %w", p.Name(), err)
			}
		}
	}
	return nil
}
