package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Toolset is the tools that could be called at one moment. A phase of a request takes
// one: what the model was shown is what its calls find.
type Toolset struct {
	tools   map[string]Tool
	schemas []json.RawMessage
	owners  map[string]Plugin // of tools that models are shown, by name
	absent  []string          // plugins that do not run and have no known tool, with their states
}

// Tools gathers what all toolboxes offer now, in the order of the plugins. Where two
// offer one name, the one that is loaded first has it. The tools of a plugin that has
// failed are not shown to models, but can be found: their error says what is wrong.
func (r *Registry) Tools() *Toolset {
	set := &Toolset{tools: map[string]Tool{}, owners: map[string]Plugin{}}
	var hidden []Tool
	for _, p := range r.plugins {
		box, ok := p.(Toolbox)
		if !ok {
			continue
		}
		tools, state := box.Tools(), StatusOf(p).State
		switch {
		case state == StateFailed:
			hidden = append(hidden, tools...)
		default:
			set.show(p, tools)
		}
		if len(tools) == 0 && state != StateRunning {
			set.absent = append(set.absent, fmt.Sprintf("%s (%s)", p.Name(), state))
		}
	}
	for _, t := range hidden {
		if _, taken := set.tools[t.Name()]; !taken {
			set.tools[t.Name()] = t
		}
	}
	return set
}

// show adds the tools of a plugin whose names are free.
func (s *Toolset) show(p Plugin, tools []Tool) {
	for _, t := range tools {
		if _, taken := s.tools[t.Name()]; taken {
			continue
		}
		s.tools[t.Name()], s.owners[t.Name()] = t, p
		s.schemas = append(s.schemas, t.Schema())
	}
}

// Tool returns the tool of that name.
func (s *Toolset) Tool(name string) (Tool, bool) {
	t, ok := s.tools[name]
	return t, ok
}

// Schemas returns the schemas of the tools that models are shown, in the order of the
// plugins.
func (s *Toolset) Schemas() []json.RawMessage { return s.schemas }

// Absent names the plugins that may have more tools but do not run, with their states.
func (s *Toolset) Absent() string { return strings.Join(s.absent, ", ") }

// Status returns how p is, the tools included that another plugin has in its place.
func (r *Registry) Status(p Plugin) Status {
	status := StatusOf(p)
	box, ok := p.(Toolbox)
	if !ok || status.State == StateFailed {
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
