-- A program without this step takes slots as before: it does not wait for the end of a start.
-- least: 7

-- starting_until: the last start has not ended, and counts as ended at this time.
ALTER TABLE slots ADD COLUMN starting_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity';
