package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Toolset is the tools that could be called at one moment. A phase of a request takes
// one: what the model was shown is what its calls find.
type Toolset struct {
	tools   map[string]Tool
	schemas []json.RawMessage
	owners  map[string]Plugin // by the name of the tool
}

// Tools gathers what all toolboxes offer now, in the order of the plugins. Where two
// offer one name, the one that is loaded first has it.
func (r *Registry) Tools() *Toolset {
	set := &Toolset{tools: map[string]Tool{}, owners: map[string]Plugin{}}
	for _, p := range r.plugins {
		box, ok := p.(Toolbox)
		if !ok {
			continue
		}
		for _, t := range box.Tools() {
			if _, taken := set.tools[t.Name()]; taken {
				continue
			}
			set.tools[t.Name()], set.owners[t.Name()] = t, p
			set.schemas = append(set.schemas, t.Schema())
		}
	}
	return set
}

// Tool returns the tool of that name.
func (s *Toolset) Tool(name string) (Tool, bool) {
	t, ok := s.tools[name]
	return t, ok
}

// Schemas returns the schemas of all tools, in the order of the plugins.
func (s *Toolset) Schemas() []json.RawMessage { return s.schemas }

// Status returns how p is, the tools included that another plugin has in its place.
// A plugin that has nothing to say about itself is running.
func (r *Registry) Status(p Plugin) Status {
	status := Status{State: StateRunning}
	if v, ok := p.(Reporter); ok {
		status = v.Status()
	}
	box, ok := p.(Toolbox)
	if !ok {
		return status
	}
	set := r.Tools()
	status.Problems = slices.Clone(status.Problems)
	for _, t := range box.Tools() {
		if owner, ok := set.owners[t.Name()]; ok && owner != p {
			status.Problems = append(status.Problems, fmt.Sprintf("tool %q is left out: plugin %s, which is listed before, offers one of this name", t.Name(), owner.Name()))
		}
	}
	return status
}

// ToolNames returns the names of the tools that models can call of p now.
func (r *Registry) ToolNames(p Plugin) []string {
	names := []string{}
	box, ok := p.(Toolbox)
	if !ok {
		return names
	}
	set := r.Tools()
	for _, t := range box.Tools() {
		if set.owners[t.Name()] == p && !slices.Contains(names, t.Name()) {
			names = append(names, t.Name())
		}
	}
	return names
}
