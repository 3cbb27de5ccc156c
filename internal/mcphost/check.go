package mcphost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/ui"
)

// Report is what a check has found out about a plugin.
type Report struct {
	Name, Version, Kind string
	Command             string // as a shell would take it
	Protocol            string // the version of the protocol that was agreed on
	Tools               []ReportedTool
	Faults              []string // each with its place
}

// ReportedTool is a tool of a plugin.
type ReportedTool struct {
	Name        string
	Description string
	Use         string // model, ui, actions, transforms, or "" when it is left out
}

// uiPatience is how long elements may take, see Elements.
const uiPatience = 2 * time.Second

// Check starts the plugin of a directory once, calls what Loquat would call, and says
// what is wrong. Actions are not run: they do things.
func Check(ctx context.Context, dir string, opts Options) Report {
	p := New(dir, opts)
	r := Report{Name: p.Name(), Version: p.manifest.Version, Kind: p.Kind()}
	if p.manifest.Command != "" {
		r.Command = p.CommandLine()
	}
	for _, f := range p.faults {
		r.Faults = append(r.Faults, f.String())
	}
	if len(p.faults) > 0 {
		return r
	}
	s, err := p.begin(ctx)
	if err != nil {
		r.fault("start", "%v", err)
		return r
	}
	defer s.stop()
	r.Protocol = s.mcp.InitializeResult().ProtocolVersion
	r.Faults = append(r.Faults, p.Status().Problems...)
	r.list(p)
	for _, name := range p.manifest.UI {
		r.checkUI(ctx, p, name)
	}
	for _, name := range p.manifest.Transforms {
		r.checkTransform(ctx, p, name)
	}
	if why := s.reason(); why != nil {
		r.fault("process", "%v", why)
	}
	return r
}

func (r *Report) fault(place, format string, args ...any) {
	r.Faults = append(r.Faults, place+": "+fmt.Sprintf(format, args...))
}

// list takes over what the process lists, and what becomes of it.
func (r *Report) list(p *Plugin) {
	uses := map[string]string{}
	for _, t := range p.Tools() {
		uses[t.Name()] = "model"
	}
	for place, name := range p.manifest.places() {
		uses[name], _, _ = strings.Cut(place, "[")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listed {
		r.Tools = append(r.Tools, ReportedTool{Name: l.Name, Description: l.Description, Use: uses[l.Name]})
	}
	slices.SortFunc(r.Tools, func(a, b ReportedTool) int { return cmp.Compare(a.Name, b.Name) })
}

// checkUI asks for elements as the two forms of the schema do.
func (r *Report) checkUI(ctx context.Context, p *Plugin, name string) {
	for form, config := range map[string]loquat.Object{
		"without a config": nil, "with a config": loquat.Object{}.Set("model", "sample"),
	} {
		place := fmt.Sprintf("%s, called %s", name, form)
		began := time.Now()
		elements, err := p.elements(ctx, name, ui.Input{Config: config, Models: []loquat.Model{{ID: "sample"}}})
		if err != nil {
			r.fault(place, "%v", err)
			continue
		}
		if took := time.Since(began); took > uiPatience {
			r.fault(place, "it took %v; it has %v", took.Round(time.Millisecond), uiPatience)
		}
		_, faults := ui.Normalize([]ui.Contribution{{Plugin: p.Name(), Elements: elements}})
		for _, f := range faults {
			r.fault(place, "element %s: %s", f.Element, f.Message)
		}
	}
}

// checkTransform has a small call of a model edited.
func (r *Report) checkTransform(ctx context.Context, p *Plugin, name string) {
	req := &loquat.LLMRequest{
		SessionID: "sample", RequestID: "sample", Config: loquat.Object{}.Set("model", "sample"),
		Messages: []loquat.Message{{ID: "sample", Role: loquat.RoleUser, Content: "Hello", CreatedAt: time.Now().UTC()}},
	}
	if err := p.transform(ctx, name, req); err != nil {
		r.fault(name, "%v", err)
	}
}
