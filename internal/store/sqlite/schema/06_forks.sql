-- Long sessions are copied in pieces: deleted is 3 while the copy is made and nobody
-- sees it. edited_rev is the newest revision that changed or removed a message.
ALTER TABLE sessions ADD COLUMN edited_rev INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_in_copy ON sessions (sid) WHERE deleted = 3;

-- Finds the versions that have ended without a look at those that hold.
CREATE INDEX messages_ended ON messages (sid, rev_to) WHERE rev_to IS NOT NULL;
