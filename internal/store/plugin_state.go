package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"loquat"
)

// PluginState returns the stored state of a plugin, or nil.
func (r *Reader) PluginState(plugin string) (loquat.Object, error) {
	var raw []byte
	err := one(r.q, `SELECT state FROM plugin_states WHERE plugin = ?`, []any{plugin}, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of plugin %s: %w", plugin, err)
	}
	var state loquat.Object
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("state of plugin %s: %w", plugin, asDamage(err))
	}
	return state, nil
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
	return nil
}
