package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Toolset holds the tools that could be called at one moment. A phase of a request uses
// one Toolset throughout, so the model's calls find the tools that the model was shown.
type Toolset struct {
	tools   map[string]Tool
	schemas []json.RawMessage
	owners  map[string]Plugin // the plugins of the tools that models are shown, by tool name
	absent  []string          // plugins that do not run and have no known tool, with their states
}

// Tools returns the tools that all toolboxes offer now, in the order of the plugins. If
// two plugins offer the same name, the one loaded first wins. Tools of a failed plugin
// are not shown to models but can be called; the call's error explains the failure.
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

// show adds the tools of p whose names are not taken yet.
func (s *Toolset) show(p Plugin, tools []Tool) {
	for _, t := range tools {
		if _, taken := s.tools[t.Name()]; taken {
			continue
		}
		s.tools[t.Name()], s.owners[t.Name()] = t, p
		s.schemas = append(s.schemas, t.Schema())
	}
}

// Tool returns the tool with a name.
func (s *Toolset) Tool(name string) (Tool, bool) {
	t, ok := s.tools[name]
	return t, ok
}

// Schemas returns the schemas of the tools that models are shown, in the order of the
// plugins.
func (s *Toolset) Schemas() []json.RawMessage { return s.schemas }

// Absent returns the names and states of plugins that do not run and may have more tools.
func (s *Toolset) Absent() string { return strings.Join(s.absent, ", ") }

// Status returns the status of p. Its problems include tools that are left out because another plugin took the name.
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
			status.Problems = append(status.Problems, fmt.Sprintf("tool %q is left out: plugin %s, which is listed before it, offers a tool of the same name", t.Name(), owner.Name()))
		}
	}
	return status
}

// ToolNames returns the names of the tools of p that models can call now.
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
