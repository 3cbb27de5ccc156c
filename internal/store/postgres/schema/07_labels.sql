-- What the metadata of a session says about its place in lists; see loquat.Labels.
ALTER TABLE sessions ADD COLUMN archived BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN pinned BIGINT NOT NULL DEFAULT 0;

-- The tags of the sessions that are not deleted, with the columns that order their lists.
CREATE TABLE session_tags (
  tag BYTEA NOT NULL,
  archived BIGINT NOT NULL,
  pinned BIGINT NOT NULL,
  checkpoint_event_id BIGINT NOT NULL,
  sid BIGINT NOT NULL,
  PRIMARY KEY (tag, archived, pinned, checkpoint_event_id, sid)
);
CREATE INDEX session_tags_by_session ON session_tags (sid);

-- Sessions of older versions may use these keys for something else, and have texts that jsonb
-- refuses.
DO $$
DECLARE
  session RECORD;
  described JSONB;
  tags TEXT[];
BEGIN
  FOR session IN SELECT sid, metadata, checkpoint_event_id FROM sessions WHERE deleted = 0
      AND (position('"pinned"'::bytea IN metadata) > 0 OR position('"archived"'::bytea IN metadata) > 0 OR position('"tags"'::bytea IN metadata) > 0) LOOP
    BEGIN
      described := convert_from(session.metadata, 'UTF8')::jsonb;
    EXCEPTION WHEN data_exception OR invalid_text_representation THEN
      CONTINUE;
    END;
    UPDATE sessions SET archived = coalesce(described->'archived' = 'true'::jsonb, false)::int, pinned = coalesce(described->'pinned' = 'true'::jsonb, false)::int
      WHERE sid = session.sid AND (described ? 'archived' OR described ? 'pinned');
    CONTINUE WHEN jsonb_typeof(described->'tags') IS DISTINCT FROM 'array';
    SELECT array_agg(DISTINCT t #>> '{}') INTO tags FROM jsonb_array_elements(described->'tags') t;
    CONTINUE WHEN tags IS NULL OR jsonb_array_length(described->'tags') > 32
      OR EXISTS (SELECT 1 FROM jsonb_array_elements(described->'tags') t WHERE jsonb_typeof(t) <> 'string' OR length(t #>> '{}') NOT BETWEEN 1 AND 64);
    INSERT INTO session_tags (tag, archived, pinned, checkpoint_event_id, sid)
      SELECT convert_to(tag, 'UTF8'), s.archived, s.pinned, s.checkpoint_event_id, s.sid FROM unnest(tags) tag, sessions s WHERE s.sid = session.sid;
  END LOOP;
END $$;

DROP INDEX sessions_by_change;
CREATE INDEX sessions_by_place ON sessions (archived, pinned, checkpoint_event_id) WHERE deleted = 0;
-- Most sessions have the default agent, so the index above lists them as well.
CREATE INDEX sessions_by_agent ON sessions (agent_id, archived, pinned, checkpoint_event_id) WHERE deleted = 0 AND agent_id <> 'default'::bytea;
