package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	"loquat"
)

// Registry is what is loaded. It does not change once it is made.
type Registry struct {
	plugins   []Plugin
	providers map[string]Provider
	tools     map[string]Tool
	schemas   []json.RawMessage
}

// NewRegistry loads plugins in their order. The first plugin that offers a provider
// or a tool of some name has that name.
func NewRegistry(plugins ...Plugin) (*Registry, error) {
	r := &Registry{providers: map[string]Provider{}, tools: map[string]Tool{}}
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
		if v, ok := p.(Toolbox); ok {
			if err := r.addTools(p.Name(), v); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *Registry) addTools(plugin string, box Toolbox) error {
	for _, t := range box.Tools() {
		var schema struct{ Function struct{ Name string } }
		if err := json.Unmarshal(t.Schema(), &schema); err != nil || schema.Function.Name == "" {
			return fmt.Errorf("plugin %s: a tool schema without function.name", plugin)
		}
		if _, taken := r.tools[schema.Function.Name]; taken {
			continue
		}
		r.tools[schema.Function.Name] = t
		r.schemas = append(r.schemas, t.Schema())
	}
	return nil
}

// Plugins returns what is loaded, in order.
func (r *Registry) Plugins() []Plugin { return r.plugins }

// Provider returns the provider that selector chooses.
func (r *Registry) Provider(selector string) (Provider, bool) {
	p, ok := r.providers[selector]
	return p, ok
}

// Tool returns the tool of that name.
func (r *Registry) Tool(name string) (Tool, bool) {
	t, ok := r.tools[name]
	return t, ok
}

// ToolSchemas returns the schemas of all tools, in the order of the plugins.
func (r *Registry) ToolSchemas() []json.RawMessage { return r.schemas }

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
