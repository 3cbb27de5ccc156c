-- Several nodes write the log. Every transaction that writes first locks the row of the log and
-- then updates the row of its node, whose batch numbers the node's transactions: after a
-- connection was cut during COMMIT, it shows whether that transaction committed.
--
-- unsorted_entries and unsorted_bytes: what the shared rows of increments hold. timeline: that
-- of the server which wrote last; a server that was promoted has another one. cuts: how often
-- ids were skipped, because the log had lost events.
ALTER TABLE log DROP COLUMN batch, DROP COLUMN owner, DROP COLUMN owner_name, DROP COLUMN lease_until,
  ADD COLUMN unsorted_entries BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN unsorted_bytes BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN timeline TEXT COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN cuts BIGINT NOT NULL DEFAULT 0;

UPDATE log SET
  last_event_id = greatest(last_event_id, (SELECT max(last_event_id) FROM increments)),
  unsorted_entries = (SELECT coalesce(sum(entries), 0) FROM increments WHERE rid IS NULL),
  unsorted_bytes = (SELECT coalesce(sum(octet_length(body)), 0) FROM increments WHERE rid IS NULL);

-- The holds of nodes. owner: the owner in requests. epoch: grows with every hold, from
-- log.epoch. ended_at: the node ended, or others took over after lease_until; it writes nothing
-- any more. Rows of the past stay for a while, because of batch.
CREATE TABLE nodes (
  owner TEXT COLLATE "C" PRIMARY KEY,
  epoch BIGINT NOT NULL,
  node_id TEXT COLLATE "C" NOT NULL,
  name BYTEA NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  started_at TIMESTAMPTZ NOT NULL,
  seen_at TIMESTAMPTZ NOT NULL,
  lease_until TIMESTAMPTZ NOT NULL,
  ended_at TIMESTAMPTZ,
  batch BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE INDEX nodes_ended ON nodes (ended_at) WHERE ended_at IS NOT NULL;

-- The number of changes of shared state, of which nodes keep copies.
CREATE TABLE revisions (
  kind TEXT COLLATE "C" PRIMARY KEY,
  revision BIGINT NOT NULL
);
