-- Webhooks, and what of the log their deliveries were made from. types is a JSON list; empty: all types.
-- user_id: only events of this user's sessions; empty: all. Only events
-- after since_event_id are sent. old_secret signs too, until old_until.
CREATE TABLE webhooks (
  webhook_id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  description TEXT NOT NULL,
  types TEXT NOT NULL,
  user_id TEXT NOT NULL,
  secret TEXT NOT NULL,
  old_secret TEXT NOT NULL,
  old_until INTEGER NOT NULL,
  disabled TEXT NOT NULL,
  since_event_id INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE webhook_log (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  read_event_id INTEGER NOT NULL
);

-- What is not delivered. failed: 0 it is tried again at next_at, 1 it is given up.
CREATE TABLE webhook_deliveries (
  webhook_id TEXT NOT NULL,
  event_id INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  type TEXT NOT NULL,
  body BLOB NOT NULL,
  failed INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL,
  error TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (webhook_id, event_id)
) WITHOUT ROWID;
CREATE INDEX webhook_deliveries_by_session ON webhook_deliveries (webhook_id, session_id, event_id) WHERE failed = 0;
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_id, event_id) WHERE failed = 1;

-- Who changed what: see package loquat, AuditEntry. target is what was changed, detail is JSON.
CREATE TABLE audit (
  audit_id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  actor BLOB NOT NULL,
  detail BLOB NOT NULL
);
CREATE INDEX audit_by_target ON audit (target, audit_id);
