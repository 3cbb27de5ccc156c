package storetest

import (
	"errors"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// pluginStates checks that a plugin's state is replaced as a whole, belongs to that plugin
// alone, and is there after reopening.
func pluginStates(t *testing.T, open Open) {
	s := start(t, open)
	state := func(s *store.Store, plugin string) (n string) {
		view(t, s, func(r *store.Reader) error {
			state, err := r.PluginState(plugin)
			n = string(state["n"])
			return err
		})
		return n
	}
	if got := state(s, "a"); got != "" {
		t.Errorf("a plugin without state has %s", got)
	}
	for _, n := range []int{1, 2} {
		update(t, s, func(tx *store.Tx) error { return tx.SetPluginState("a", loquat.Object{}.Set("n", n)) })
	}
	update(t, s, func(tx *store.Tx) error { return tx.SetPluginState("b", loquat.Object{}.Set("n", 3)) })
	failure := errors.New("failed")
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.SetPluginState("a", loquat.Object{}.Set("n", 4)), failure)
	}); !errors.Is(err, failure) {
		t.Errorf("a failed update: %v", err)
	}
	s.Close()
	s = start(t, open)
	if a, b := state(s, "a"), state(s, "b"); a != "2" || b != "3" {
		t.Errorf("after reopening, the plugins have %s and %s", a, b)
	}
}
