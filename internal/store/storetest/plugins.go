package storetest

import (
	"errors"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// What a plugin keeps is replaced as a whole, is its own, and survives a reopening.
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
		t.Errorf("a plugin that keeps nothing has %s", got)
	}
	for _, n := range []int{1, 2} {
		update(t, s, func(tx *store.Tx) error { return tx.SetPluginState("a", loquat.Object{}.Set("n", n)) })
	}
	update(t, s, func(tx *store.Tx) error { return tx.SetPluginState("b", loquat.Object{}.Set("n", 3)) })
	spoil := errors.New("spoilt")
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.SetPluginState("a", loquat.Object{}.Set("n", 4)), spoil)
	}); !errors.Is(err, spoil) {
		t.Errorf("a spoilt update: %v", err)
	}
	s.Close()
	s = start(t, open)
	if a, b := state(s, "a"), state(s, "b"); a != "2" || b != "3" {
		t.Errorf("after a reopening the plugins keep %s and %s", a, b)
	}
}
