-- A file may be a copy that was taken of another while that was in use. copied: 1 until
-- it is opened for the first time, when it becomes a log of its own. server_id: the
-- first store_id of the logs that this one goes back to; '' is its own.
ALTER TABLE log ADD COLUMN copied INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log ADD COLUMN server_id TEXT NOT NULL DEFAULT '';

-- The ids between two events that this log never gave, because those that it is a copy
-- of may have.
CREATE TABLE foreign_ids (
  above INTEGER PRIMARY KEY,
  below INTEGER NOT NULL
);
