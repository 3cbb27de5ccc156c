package mcphost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/ui"
)

// Report is the result of checking a plugin.
type Report struct {
	Name, Version, Kind string
	Command             string // quoted for a shell
	Protocol            string // the negotiated protocol version
	Tools               []ReportedTool
	Elements            []string // kind and name of each
	Faults              []string // each with its place
	Warnings            []string // valid, but probably not intended
}

// ReportedTool is a tool of a plugin.
type ReportedTool struct {
	Name        string
	Description string
	Use         string // model, ui, actions, transforms, or "" if it is left out
}

// uiTimeout is how long listing the elements may take.
const uiTimeout = 2 * time.Second

// Check starts the plugin of a directory once, calls the tools that Loquat itself calls, and
// reports all faults. It does not run actions, because they have effects.
func Check(ctx context.Context, dir string, opts Options) Report {
	p := New(dir, opts)
	r := Report{Name: p.Name(), Version: p.manifest.Version, Kind: p.Kind()}
	if p.manifest.Command != "" {
		r.Command = p.commandLine()
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
	r.checkUI(ctx, p, s)
	for _, name := range p.manifest.Transforms {
		if p.lists(name) {
			r.checkTransform(ctx, p, name)
		}
	}
	if why := s.reason(); why != nil {
		r.fault("process", "%v", why)
	}
	return r
}

func (r *Report) fault(place, format string, args ...any) {
	r.Faults = append(r.Faults, place+": "+fmt.Sprintf(format, args...))
}

// list adds the process's tools and their uses to the report.
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

// checkUI asks for the elements without a config and with one, as /ui/schema does.
func (r *Report) checkUI(ctx context.Context, p *Plugin, s *session) {
	without := p.show(ctx, s, nil)
	with := p.show(ctx, s, loquat.Object{}.Set("model", "sample"))
	r.Elements = slices.Concat(without.names, with.names)
	slices.Sort(r.Elements)
	r.Elements = slices.Compact(r.Elements)
	r.Faults = append(r.Faults, once(without.faults, with.faults)...)
	r.Warnings = append(r.Warnings, once(without.warnings, with.warnings)...)
}

// once merges the messages of the two calls. A message of only one call names that call.
func once(without, with []string) (said []string) {
	for _, text := range without {
		if !slices.Contains(with, text) {
			text += " (when called without a config)"
		}
		said = append(said, text)
	}
	for _, text := range with {
		if !slices.Contains(without, text) {
			said = append(said, text+" (when called with a config)")
		}
	}
	return said
}

// shown is the result of asking for all elements.
type shown struct{ names, faults, warnings []string }

// show calls all tools under `ui`.
func (p *Plugin) show(ctx context.Context, s *session, effective loquat.Object) (out shown) {
	var all []loquat.Object
	for _, name := range p.manifest.UI {
		if !p.lists(name) {
			continue
		}
		began := time.Now()
		elements, err := p.elements(ctx, s, name, ui.Input{Config: effective, Models: []loquat.Model{{ID: "sample"}}})
		if err != nil {
			out.faults = append(out.faults, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if took := time.Since(began); took > uiTimeout {
			out.faults = append(out.faults, fmt.Sprintf("%s: it took more than %v, the most it may take", name, uiTimeout))
		}
		normalized, faults := ui.Normalize([]ui.Contribution{{Plugin: p.Name(), Elements: elements}})
		for _, f := range faults {
			out.faults = append(out.faults, fmt.Sprintf("%s: element %s: %s", name, f.Element, f.Message))
		}
		for _, e := range normalized {
			out.names = append(out.names, described(e))
		}
		all = append(all, elements...)
		out.warnings = append(out.warnings, forbidden(normalized)...)
	}
	for _, f := range ui.Lint(all, p.manifest.Actions) {
		out.warnings = append(out.warnings, fmt.Sprintf("element %s: %s", f.Element, f.Message))
	}
	return out
}

// described returns an element's kind and name.
func described(e loquat.Object) string {
	text := e.String("ui_type") + " " + cmp.Or(e.String("key"), e.String("id"), e.String("data"))
	if e.String("ui_type") == "config" {
		text += " (" + cmp.Or(e.String("type"), "without type") + ")"
	}
	return strings.TrimSpace(text)
}

// forbidden returns a warning for each config element that no session may override,
// although it is not secret.
func forbidden(elements []loquat.Object) (warnings []string) {
	for _, e := range elements {
		key := e.String("key")
		offer := config.Offer{Key: key, Path: ui.ConfigPath(e)}
		if e.String("ui_type") == "config" && !e.Bool("secret") && !offer.Overridable(nil) {
			warnings = append(warnings, fmt.Sprintf("element %s: no session can ever change this key or its config_path; choose another", key))
		}
	}
	return warnings
}

// checkTransform calls a transform with a small sample request.
func (r *Report) checkTransform(ctx context.Context, p *Plugin, name string) {
	req := &loquat.LLMRequest{
		SessionID: "sample", RequestID: "sample", Config: loquat.Object{}.Set("model", "sample"),
		Messages: []loquat.Message{{ID: "sample", Role: loquat.RoleUser, Content: "Hello", CreatedAt: time.Now().UTC()}},
	}
	if err := p.transform(ctx, name, req); err != nil {
		r.fault(name, "%v", err)
	}
}
