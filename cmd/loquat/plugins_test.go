package main

import (
	"log/slog"
	"testing"

	"loquat/internal/config"
	"loquat/internal/plugin"
)

// A key with a Label is one that sessions set with an element, and only the plugin itself makes its elements.
func TestLabelledKeysHaveElements(t *testing.T) {
	for _, p := range compiledIn(config.Limits{}, slog.New(slog.DiscardHandler), nil) {
		owner, ok := p.(config.Owner)
		if _, shows := p.(plugin.Elements); !ok || shows {
			continue
		}
		for _, f := range owner.ConfigSchema() {
			if f.Label != "" {
				t.Errorf("%s: the key %s has a Label, and no client shows it: implement plugin.Elements, as internal/provider does in elements.go", p.Name(), f.Key)
			}
		}
	}
}
