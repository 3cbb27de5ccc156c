package config_test

import (
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

// Backends that read JSON without regard to case take "Stream" for "stream". So no
// spelling of a reserved parameter can be set, neither in a file nor by a session.
func TestReservedParamsInAnySpelling(t *testing.T) {
	for _, name := range []string{"messages", "Messages", "MESSAGES", "meſſages", "model", "Model", "MODEL", "stream", "Stream", "STREAM", "ſtream"} {
		file := loquat.Object{}.Set("providers", map[string]any{"main": map[string]any{"provider": "generic", "model": "m", "request_options": map[string]any{name: true}}})
		var found []string
		for _, p := range config.New(file, world{}.env()).Check(around) {
			found = append(found, p.String())
		}
		if want := "providers.main.request_options." + name + ": is set by the service itself"; !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("in a file %q: %v", name, found)
		}
		options := loquat.Object{}.Set(name, true)
		for place, o := range map[string]struct {
			overrides loquat.Object
			offer     config.Offer
		}{
			"o.request_options." + name: {loquat.Object{}.Set("request_options", options), config.Offer{Key: "request_options"}},
			"o.mine." + name:            {loquat.Object{}.Set("mine", true), config.Offer{Key: "mine", Path: []string{"request_options", name}}},
		} {
			if got := config.CheckOverrides("o", o.overrides, nil, nil, []config.Offer{o.offer}, ""); len(got) != 1 || got[0].Location != place {
				t.Errorf("in an override %q: %v, want a fault at %s", name, got, place)
			}
		}
	}
	for _, name := range []string{"stream_options", "Models", "modell", "message", " stream", "tools"} {
		if got := config.CheckOverrides("o", loquat.Object{}.Set("request_options", loquat.Object{}.Set(name, true)), nil, nil, nil, ""); len(got) != 0 {
			t.Errorf("%q is refused: %v", name, got)
		}
	}
}
