-- The file may be a backup. copied: 1 until the copy is first opened; then it gets a new
-- store_id. server_id: the store_id of the original log; '' if this log is the original.
ALTER TABLE log ADD COLUMN copied INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log ADD COLUMN server_id TEXT NOT NULL DEFAULT '';

-- Ranges of ids that this log skipped, because the log that it was copied from may have
-- used them.
CREATE TABLE foreign_ids (
  above INTEGER PRIMARY KEY,
  below INTEGER NOT NULL
);
