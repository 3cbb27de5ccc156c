-- What the metadata of a session says about its place in lists; see loquat.Labels.
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;

-- The tags of the sessions that are not deleted, with the columns that order their lists.
CREATE TABLE session_tags (
  tag TEXT NOT NULL,
  archived INTEGER NOT NULL,
  pinned INTEGER NOT NULL,
  checkpoint_event_id INTEGER NOT NULL,
  sid INTEGER NOT NULL,
  PRIMARY KEY (tag, archived, pinned, checkpoint_event_id, sid)
) WITHOUT ROWID;
CREATE INDEX session_tags_by_session ON session_tags (sid);

-- Sessions of older versions may use these keys for something else.
UPDATE sessions SET archived = coalesce(json_type(CAST(metadata AS TEXT), '$.archived') = 'true', 0),
    pinned = coalesce(json_type(CAST(metadata AS TEXT), '$.pinned') = 'true', 0)
  WHERE deleted = 0 AND json_valid(CAST(metadata AS TEXT));
WITH given AS (
  SELECT sid, archived, pinned, checkpoint_event_id, json_extract(CAST(metadata AS TEXT), '$.tags') AS tags FROM sessions
  WHERE deleted = 0 AND CASE WHEN json_valid(CAST(metadata AS TEXT)) THEN json_type(CAST(metadata AS TEXT), '$.tags') END = 'array'
)
INSERT INTO session_tags (tag, archived, pinned, checkpoint_event_id, sid)
  SELECT DISTINCT t.value, g.archived, g.pinned, g.checkpoint_event_id, g.sid FROM given g, json_each(g.tags) t
  WHERE json_array_length(g.tags) <= 32
    AND NOT EXISTS (SELECT 1 FROM json_each(g.tags) o WHERE o.type <> 'text' OR length(o.value) NOT BETWEEN 1 AND 64);

DROP INDEX sessions_by_change;
CREATE INDEX sessions_by_place ON sessions (archived, pinned, checkpoint_event_id) WHERE deleted = 0;
-- Most sessions have the default agent, so the index above lists them as well.
CREATE INDEX sessions_by_agent ON sessions (agent_id, archived, pinned, checkpoint_event_id) WHERE deleted = 0 AND agent_id <> 'default';
