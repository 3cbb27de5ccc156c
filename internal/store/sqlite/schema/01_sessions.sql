-- Sessions, requests and the log. Times are microseconds since 1970 in UTC.

-- One row: the id of this log, the highest event id ever assigned, and the highest event
-- id that retention removed.
CREATE TABLE log (
  store_id TEXT NOT NULL,
  last_event_id INTEGER NOT NULL DEFAULT 0,
  gone_event_id INTEGER NOT NULL DEFAULT 0
);

-- deleted: 0 the session exists, 1 it was deleted, 2 its rows are removed as well.
-- gone_event_id: the highest of its events that retention removed.
CREATE TABLE sessions (
  sid INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL UNIQUE,
  agent_id TEXT NOT NULL,
  metadata BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  rev INTEGER NOT NULL DEFAULT 0,
  cursor_event_id INTEGER NOT NULL DEFAULT 0,
  checkpoint_event_id INTEGER NOT NULL DEFAULT 0,
  message_count INTEGER NOT NULL DEFAULT 0,
  message_bytes INTEGER NOT NULL DEFAULT 0,
  next_seq INTEGER NOT NULL DEFAULT 0,
  gone_event_id INTEGER NOT NULL DEFAULT 0,
  deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_change ON sessions (checkpoint_event_id) WHERE deleted = 0;
CREATE INDEX sessions_to_sweep ON sessions (sid) WHERE deleted = 1;

-- Agent and metadata of a session, from revision rev_from until the next row.
CREATE TABLE descriptions (
  sid INTEGER NOT NULL,
  rev_from INTEGER NOT NULL,
  agent_id TEXT NOT NULL,
  metadata BLOB NOT NULL,
  PRIMARY KEY (sid, rev_from)
) WITHOUT ROWID;

-- One row per version of a message. seq orders the messages and is never renumbered.
CREATE TABLE messages (
  id INTEGER PRIMARY KEY,
  sid INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  rev_from INTEGER NOT NULL,
  rev_to INTEGER,
  message_id TEXT NOT NULL,
  role TEXT NOT NULL,
  content TEXT NOT NULL,
  metadata BLOB,
  created_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX messages_now ON messages (sid, seq) WHERE rev_to IS NULL;
CREATE INDEX messages_by_version ON messages (sid, seq, rev_from);

-- thinned: 1 once the superseded increments are removed. mark: the last event of the
-- closed steps.
CREATE TABLE requests (
  rid INTEGER PRIMARY KEY,
  request_id TEXT NOT NULL UNIQUE,
  sid INTEGER NOT NULL,
  status TEXT NOT NULL,
  owner TEXT NOT NULL DEFAULT '',
  cancelled INTEGER NOT NULL DEFAULT 0,
  mark INTEGER NOT NULL DEFAULT 0,
  gone_event_id INTEGER NOT NULL DEFAULT 0,
  thinned INTEGER NOT NULL DEFAULT 0,
  queue_order INTEGER NOT NULL DEFAULT 0,
  send BLOB,
  body_hash BLOB,
  answer BLOB,
  started_at INTEGER,
  ended_at INTEGER,
  error TEXT
);
CREATE UNIQUE INDEX requests_running ON requests (sid) WHERE status = 'running';
CREATE INDEX requests_queued ON requests (sid, queue_order) WHERE status = 'queued';
CREATE INDEX requests_unended ON requests (sid, queue_order) WHERE status IN ('queued', 'running');
CREATE INDEX requests_to_thin ON requests (rid) WHERE thinned = 0 AND ended_at IS NOT NULL;

CREATE TABLE events (
  event_id INTEGER PRIMARY KEY,
  sid INTEGER NOT NULL,
  rid INTEGER,
  type TEXT NOT NULL,
  rev INTEGER NOT NULL,
  omit_messages INTEGER NOT NULL,
  at INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX events_by_session ON events (sid, event_id);
CREATE INDEX events_by_request ON events (rid, event_id) WHERE rid IS NOT NULL;

CREATE TABLE answers (
  idempotency_key TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  at INTEGER NOT NULL,
  body_hash BLOB NOT NULL,
  result BLOB NOT NULL,
  PRIMARY KEY (idempotency_key, method, path)
) WITHOUT ROWID;
CREATE INDEX answers_by_age ON answers (at);
