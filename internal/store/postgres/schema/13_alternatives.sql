-- The alternatives at an index of a session's messages. n: its number in the session. holder: the
-- session, or the hidden session of the alternative in which it hangs. at_index: the index of its first
-- message among those of the holder. after_id: the message_id of the message before; a program that does
-- not know this table may have removed that message. kept: the hidden session with its messages; NULL
-- while they are the end of the holder's. The deleted of a hidden session is 4.
-- least: 7
CREATE TABLE alternatives (
  sid BIGINT NOT NULL,
  n BIGINT NOT NULL,
  holder BIGINT NOT NULL,
  at_index BIGINT NOT NULL,
  after_id TEXT COLLATE "C" NOT NULL,
  kept BIGINT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (sid, n)
);
CREATE INDEX alternatives_by_holder ON alternatives (holder, at_index);
