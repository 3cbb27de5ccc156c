// Package plugin holds the contracts between the service and what plugs into it,
// and the registry of what is loaded. A plugin is a plain value with a name; each
// of its powers is an interface of one or two methods, found by assertion.
//
// It promises that the order of plugins is the order of the configuration, and that
// a name is loaded once. It knows nothing of processes: a plugin that runs as one
// stands behind the same contracts.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"loquat"
)

// Plugin is what every plugin is.
type Plugin interface {
	// Name is the reference by which the configuration's `plugins` names it.
	Name() string
}

// Provider is a plugin that runs models.
type Provider interface {
	// Selector is the value of a provider config's `provider` that chooses it.
	Selector() string
	// Chat runs one phase. It ends with a chunk whose Reply is set, or an error;
	// waits and recoveries are its own. A cancelled ctx closes its connection at once.
	Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error]
	// Models asks the backend what it offers; none, without an error, when the
	// backend cannot say.
	Models(ctx context.Context, config loquat.Object) ([]loquat.Model, error)
}

// RequestEditor is a feature that edits the calls of models before they are made.
type RequestEditor interface {
	EditRequest(ctx context.Context, req *loquat.LLMRequest) error
}

// Toolbox is a plugin that offers tools.
type Toolbox interface {
	Tools() []Tool
}

// Tool is what a model may call.
type Tool interface {
	// Schema is the tool in the chat-completions convention:
	// {type: "function", function: {name, description, parameters}}.
	Schema() json.RawMessage
	// Call runs it. An error is no fatal failure: its text becomes the tool message.
	Call(ctx context.Context, call ToolCall) (ToolResult, error)
}

// ToolCall is one call of a tool.
type ToolCall struct {
	ID        string
	Name      string
	Arguments json.RawMessage // a JSON object
	Config    loquat.Object   // effective config of the request
	SessionID string
	RequestID string

	// Progress reports a part of the output while the tool runs. It may be nil.
	Progress func(part string, progress, total *float64)
}

// ToolResult is what a tool answers.
type ToolResult struct {
	Content  string
	Metadata loquat.Object // such as display; may be nil
	IsError  bool
}

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
