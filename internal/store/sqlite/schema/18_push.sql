-- Web Push.

-- One row: the key pair with which the server signs its calls of push services, and the last event
-- whose notifications were all sent.
CREATE TABLE push_server (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  private_key TEXT NOT NULL,
  public_key TEXT NOT NULL,
  sent_event_id INTEGER NOT NULL
);

-- The subscriptions of browsers. owner is the key_id of a token or of a browser session, or the
-- name of a token of the configuration; it is empty for a server that needs no tokens.
CREATE TABLE push_subscriptions (
  subscription_id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  p256dh TEXT NOT NULL,
  auth TEXT NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX push_subscriptions_by_owner ON push_subscriptions (owner, created_at);
