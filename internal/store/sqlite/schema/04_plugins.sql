-- What application plugins keep, a JSON object each.
CREATE TABLE plugin_states (
  plugin TEXT PRIMARY KEY,
  state BLOB NOT NULL,
  updated_at INTEGER NOT NULL
) WITHOUT ROWID;
