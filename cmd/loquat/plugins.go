package main

import (
	"log/slog"
	"slices"
	"strings"

	"loquat/internal/builtin"
	"loquat/internal/config"
	"loquat/internal/mcphost"
	"loquat/internal/plugin"
	"loquat/internal/provider"
	"loquat/internal/store"
)

// compiledIn returns the compiled-in plugins in loading order. To add a plugin to the binary,
// add it here. secrets are redacted in text from backends.
func compiledIn(limits config.Limits, log *slog.Logger, secrets *config.Redactor) []plugin.Plugin {
	return []plugin.Plugin{
		provider.New(provider.Options{Logger: log, MaxResponseBytes: limits.MaxResponseBytes, UserAgent: "loquat/" + version(), Secrets: secrets}),
		builtin.Attachments{},
		builtin.RequestOptions{},
		builtin.CompactRange{},
	}
}

// chosen returns the plugins that a configuration lists, or all if it lists none. An extension
// is included with the plugin that contains it.
func chosen(cfg *config.Config, compiled []plugin.Plugin) []plugin.Plugin {
	var out []plugin.Plugin
	for _, p := range compiled {
		extension, ok := p.(plugin.Extension)
		if cfg.Loads(p.Name()) || ok && cfg.Loads(extension.BroughtBy()) {
			out = append(out, p)
		}
	}
	return out
}

// withProcesses adds the plugins that a configuration lists by directory, and sorts all
// plugins in its order. An extension stays behind the plugin that contains it.
func withProcesses(cfg *config.Config, plugins []plugin.Plugin, opts mcphost.Options) []plugin.Plugin {
	var out []plugin.Plugin
	groups := map[string][]plugin.Plugin{}
	leader := ""
	for _, p := range plugins {
		if slices.Contains(cfg.Plugins, p.Name()) {
			leader = p.Name()
		}
		groups[leader] = append(groups[leader], p)
	}
	out = append(out, groups[""]...)
	for _, entry := range cfg.Plugins {
		if dir, ok := strings.CutPrefix(entry, "path:"); ok {
			opts.Required = slices.Contains(cfg.Required, entry)
			out = append(out, mcphost.New(dir, opts))
		}
		out = append(out, groups[entry]...)
	}
	return out
}

// sharePacing makes the pacing of the compiled-in providers hold for all nodes of a store.
func sharePacing(plugins []plugin.Plugin, s *store.Store) {
	if !s.Shared() {
		return
	}
	for _, p := range plugins {
		if v, ok := p.(*provider.Provider); ok {
			v.ShareSlots(s)
		}
	}
}

// processes returns the plugins that run as processes.
func processes(plugins []plugin.Plugin) []plugin.Process {
	var out []plugin.Process
	for _, p := range plugins {
		if v, ok := p.(plugin.Process); ok {
			out = append(out, v)
		}
	}
	return out
}

// loaded returns the facts about plugins that the check of a configuration needs.
func loaded(compiled, plugins []plugin.Plugin, insecure bool) config.Loaded {
	out := config.Loaded{Insecure: insecure}
	for _, p := range compiled {
		out.Compiled = append(out.Compiled, p.Name())
		if _, ok := p.(plugin.Provider); ok {
			out.Providers = append(out.Providers, p.Name())
		}
	}
	for _, p := range plugins {
		if v, ok := p.(plugin.Provider); ok {
			out.Selectors = append(out.Selectors, v.Selector())
		}
		if v, ok := p.(config.Owner); ok {
			out.Owners = append(out.Owners, v)
		}
	}
	return out
}

// The provider package does not import the interfaces that it implements; this checks them.
var (
	_ plugin.Plugin         = (*provider.Provider)(nil)
	_ plugin.Provider       = (*provider.Provider)(nil)
	_ plugin.AttemptCounter = (*provider.Provider)(nil)
	_ plugin.EarlierReader  = (*provider.Provider)(nil)
	_ plugin.Elements       = (*provider.Provider)(nil)
	_ plugin.Tagger         = (*provider.Provider)(nil)
	_ plugin.Relayer        = (*provider.Provider)(nil)
	_ config.Owner          = (*provider.Provider)(nil)
)
