-- The state of each application plugin, a JSON object.
CREATE TABLE plugin_states (
  plugin TEXT PRIMARY KEY,
  state BLOB NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;
