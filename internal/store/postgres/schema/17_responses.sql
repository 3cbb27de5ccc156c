-- discard_owner: the session is deleted when the process of this owner (see requests) has ended. NULL:
-- it is kept.
-- least: 7
ALTER TABLE sessions ADD COLUMN discard_owner TEXT COLLATE "C";
CREATE INDEX sessions_to_discard ON sessions (sid) WHERE discard_owner IS NOT NULL AND deleted = 0;

-- The index of the last message that the session had when the request started: what the request
-- answers. NULL in rows of older programs, and if the request waited in a queue.
ALTER TABLE requests ADD COLUMN last_index BIGINT;
