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
)

// compiledIn returns what is compiled in, in the order in which it is loaded. To add a
// plugin to the binary, add it here. Nothing that a backend says may repeat secrets.
func compiledIn(limits config.Limits, log *slog.Logger, secrets *config.Masker) []plugin.Plugin {
	return []plugin.Plugin{
		provider.New(provider.Options{Logger: log, MaxResponseBytes: limits.MaxResponseBytes, UserAgent: "loquat/" + version(), Secrets: secrets}),
		builtin.Attachments{},
		builtin.RequestOptions{},
		builtin.CompactRange{},
	}
}

// chosen returns those plugins that a configuration lists, or all when it lists none. An
// extension comes with the plugin that brings it.
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

// withProcesses adds those plugins that a configuration lists by their directory, and
// brings all into its order. One that came along with another stays behind it.
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

// processes are those plugins that have to be started.
func processes(plugins []plugin.Plugin) []plugin.Process {
	var out []plugin.Process
	for _, p := range plugins {
		if v, ok := p.(plugin.Process); ok {
			out = append(out, v)
		}
	}
	return out
}

// loaded says of plugins what the check of a configuration wants to know.
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

// The provider package does not know the contract that it satisfies.
var (
	_ plugin.Plugin   = (*provider.Provider)(nil)
	_ plugin.Provider = (*provider.Provider)(nil)
	_ plugin.Elements = (*provider.Provider)(nil)
	_ plugin.Tagger   = (*provider.Provider)(nil)
	_ config.Owner    = (*provider.Provider)(nil)
)
