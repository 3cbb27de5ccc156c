-- source_session_id: the session of which this one is a fork. source_index: the index of the last
-- message that it has copied.
ALTER TABLE sessions ADD COLUMN source_session_id TEXT;
ALTER TABLE sessions ADD COLUMN source_index INTEGER;
