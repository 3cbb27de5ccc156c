package main

import (
	"log/slog"

	"loquat/internal/builtin"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/provider"
)

// compiledIn is what is compiled in, in the order in which it is loaded. To add a
// plugin to the binary, add it here.
func compiledIn(limits config.Limits, log *slog.Logger) []plugin.Plugin {
	return []plugin.Plugin{
		provider.New(provider.Options{Logger: log, MaxResponseBytes: limits.MaxResponseBytes, UserAgent: "loquat/" + version()}),
		builtin.RequestOptions{},
		builtin.CompactRange{},
	}
}

// chosen returns those plugins that a configuration lists, or all when it lists none.
func chosen(cfg *config.Config, compiled []plugin.Plugin) []plugin.Plugin {
	var out []plugin.Plugin
	for _, p := range compiled {
		if cfg.Loads(p.Name()) {
			out = append(out, p)
		}
	}
	return out
}

// loaded says of plugins what the check of a configuration wants to know.
func loaded(compiled, plugins []plugin.Plugin, insecure bool) config.Loaded {
	out := config.Loaded{Insecure: insecure}
	for _, p := range compiled {
		out.Compiled = append(out.Compiled, p.Name())
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
