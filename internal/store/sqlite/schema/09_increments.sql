-- Increments (partial and tool_partial events), many to a row, which package store encodes.
-- last_event_id: the newest of the row's increments. A row without rid is a shared row: it
-- holds the increments of one commit, of any requests. A row with rid holds increments of that
-- request. Such rows are made from shared rows, a segment of the log at a time; segment is the
-- segment's highest event id.
CREATE TABLE increments (
  last_event_id INTEGER PRIMARY KEY,
  rid INTEGER,
  segment INTEGER NOT NULL DEFAULT 0,
  entries INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX increments_by_request ON increments (rid, last_event_id) WHERE rid IS NOT NULL;

-- sorted_event_id: the end of the last segment. Shared rows are above it, other rows are not.
ALTER TABLE log ADD COLUMN sorted_event_id INTEGER NOT NULL DEFAULT 0;

-- thinned: 1 once the increments of an ended request are removed.
DROP INDEX requests_to_thin;
CREATE INDEX requests_unthinned ON requests (sid, rid) WHERE thinned = 0;
