-- user_id: the user to whom the session belongs; empty: it belongs to nobody.
ALTER TABLE sessions ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
-- Where there are no users, the other indexes list all sessions.
CREATE INDEX sessions_by_user ON sessions (user_id, archived, pinned, checkpoint_event_id) WHERE deleted = 0 AND user_id <> '';

-- user_id: with scope user, the user for whom the key acts. session_id is then one that no session can
-- have, so that older programs show the key nothing.
ALTER TABLE access_keys ADD COLUMN user_id TEXT NOT NULL DEFAULT '';

-- user_id: with scope user, the user of the device that claims the code.
ALTER TABLE pairing_codes ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
