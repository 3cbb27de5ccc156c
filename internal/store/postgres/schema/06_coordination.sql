-- What nodes share besides the log: short-lived, so nothing is lost when a crash or a failover
-- empties these tables. Unlogged tables cost no write to the disk and no wait for a standby.

-- Attempts to guess a credential. key: the kind of attempt and the address. until: when all
-- attempts of the address are forgotten.
CREATE UNLOGGED TABLE debts (
  key TEXT COLLATE "C" PRIMARY KEY,
  until TIMESTAMPTZ NOT NULL
);
CREATE INDEX debts_by_end ON debts (until);

-- The pacing of requests to backends. scope: the SHA-256 of a base_url. slot_at: the newest
-- start that a node has reserved. started_at: the last start. No start before paused_until.
CREATE UNLOGGED TABLE slots (
  scope BYTEA PRIMARY KEY,
  slot_at TIMESTAMPTZ NOT NULL,
  started_at TIMESTAMPTZ NOT NULL DEFAULT '-infinity',
  paused_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
