package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"loquat"
)

// kindPluginStates is the kind of shared state of the states of plugins.
const kindPluginStates = "plugin states"

// OnPluginStates calls fn within a second after another node changed the state of a plugin. It
// must be called before the first update.
func (s *Store) OnPluginStates(fn func()) {
	s.OnChanged(kindPluginStates, func(context.Context) error { fn(); return nil })
}

// PluginState returns the stored state of a plugin, or nil.
func (r *Reader) PluginState(plugin string) (loquat.Object, error) {
	raw, err := r.rawPluginState(plugin)
	if raw == nil || err != nil {
		return nil, err
	}
	var state loquat.Object
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("state of plugin %s: %w", plugin, asDamage(err))
	}
	return state, nil
}

// rawPluginState returns the stored state of a plugin in JSON, or nil.
func (r *Reader) rawPluginState(plugin string) (raw []byte, err error) {
	err = one(r.q, `SELECT state FROM plugin_states WHERE plugin = ?`, []any{plugin}, &raw)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read the state of plugin %s: %w", plugin, err)
	}
	return raw, nil
}

// ReplacePluginState is SetPluginState if the stored state still is former. Otherwise it changes
// nothing and returns false.
func (tx *Tx) ReplacePluginState(plugin string, former, state loquat.Object) (replaced bool, err error) {
	raw, err := tx.rawPluginState(plugin)
	if err != nil {
		return false, err
	}
	var expected []byte
	if former != nil {
		if expected, err = json.Marshal(former); err != nil {
			return false, fmt.Errorf("encode the state of plugin %s: %w", plugin, err)
		}
	}
	if !bytes.Equal(raw, expected) {
		return false, nil
	}
	return true, tx.SetPluginState(plugin, state)
}

// SetPluginState replaces the stored state of a plugin.
func (tx *Tx) SetPluginState(plugin string, state loquat.Object) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the state of plugin %s: %w", plugin, err)
	}
	err = tx.exec(`INSERT INTO plugin_states (plugin, state, updated_at) VALUES (?, ?, ?)
		ON CONFLICT (plugin) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at`, plugin, raw, micros(tx.Now))
	if err != nil {
		return fmt.Errorf("write the state of plugin %s: %w", plugin, err)
	}
	tx.MarkChanged(kindPluginStates)
	return nil
}
