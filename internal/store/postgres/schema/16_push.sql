-- Web Push: the key pair of the server with the last event whose notifications were all sent, and
-- the subscriptions of browsers.
-- least: 7
CREATE TABLE push_server (
  id BIGINT PRIMARY KEY CHECK (id = 1),
  private_key TEXT COLLATE "C" NOT NULL,
  public_key TEXT COLLATE "C" NOT NULL,
  sent_event_id BIGINT NOT NULL
);

CREATE TABLE push_subscriptions (
  subscription_id TEXT COLLATE "C" PRIMARY KEY,
  owner TEXT COLLATE "C" NOT NULL,
  endpoint BYTEA NOT NULL,
  p256dh TEXT COLLATE "C" NOT NULL,
  auth TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX push_subscriptions_by_owner ON push_subscriptions (owner, created_at);
