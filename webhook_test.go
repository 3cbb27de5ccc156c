package loquat_test

import (
	"testing"

	"loquat"
)

// A webhook is sent the events that it asks for: those of its user, and of its types.
func TestEventsOfWebhook(t *testing.T) {
	for name, c := range map[string]struct {
		of   loquat.Webhook
		user string
		kind loquat.EventType
		want [2]bool // by its user, by its type
	}{
		"all of all users":          {loquat.Webhook{}, "ann", loquat.Final, [2]bool{true, true}},
		"all of nobody":             {loquat.Webhook{}, "", loquat.QueueChanged, [2]bool{true, true}},
		"no partials":               {loquat.Webhook{}, "", loquat.Partial, [2]bool{true, false}},
		"no partials of tools":      {loquat.Webhook{}, "", loquat.ToolPartial, [2]bool{true, false}},
		"of its user and type":      {loquat.Webhook{User: "ann", Types: []string{"final", "error"}}, "ann", loquat.ErrorEvent, [2]bool{true, true}},
		"of another user and type":  {loquat.Webhook{User: "ann", Types: []string{"final"}}, "bob", loquat.ErrorEvent, [2]bool{false, false}},
		"of nobody, but not of ann": {loquat.Webhook{User: "ann"}, "", loquat.Final, [2]bool{false, true}},
	} {
		if got := [2]bool{c.of.Wants(c.user), c.of.WantsType(c.kind)}; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
