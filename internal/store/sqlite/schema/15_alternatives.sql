-- The alternatives at an index of a session's messages. n: its number in the session. holder: the
-- session, or the hidden session of the alternative in which it hangs. at_index: the index of its first
-- message among those of the holder. after_id: the message_id of the message before; a program that does
-- not know this table may have removed that message. kept: the hidden session with its messages; NULL
-- while they are the end of the holder's. The deleted of a hidden session is 4.
CREATE TABLE alternatives (
  sid INTEGER NOT NULL,
  n INTEGER NOT NULL,
  holder INTEGER NOT NULL,
  at_index INTEGER NOT NULL,
  after_id TEXT NOT NULL,
  kept INTEGER,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (sid, n)
) WITHOUT ROWID;
CREATE INDEX alternatives_by_holder ON alternatives (holder, at_index);
