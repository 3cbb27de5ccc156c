-- Long sessions are copied in several transactions. deleted is 3 while the copy is a draft
-- that readers do not see. edited_rev: the newest revision that changed or removed a message.
ALTER TABLE sessions ADD COLUMN edited_rev INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_in_copy ON sessions (sid) WHERE deleted = 3;

-- Finds ended versions without reading the current ones.
CREATE INDEX messages_ended ON messages (sid, rev_to) WHERE rev_to IS NOT NULL;
