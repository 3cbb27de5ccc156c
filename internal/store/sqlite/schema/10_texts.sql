-- Large texts of messages, in pieces. SQLite holds a row twice in memory while it is written or
-- read, so no row may be large. A text never changes; copies of a message share it.
CREATE TABLE texts (
  text_id INTEGER NOT NULL,
  piece INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (text_id, piece)
) WITHOUT ROWID;

-- Which values of a message are large texts. field: the key in the metadata, or '' for the
-- content. The row of the message then lacks them.
CREATE TABLE message_texts (
  message INTEGER NOT NULL,
  field TEXT NOT NULL,
  text_id INTEGER NOT NULL,
  size INTEGER NOT NULL,
  PRIMARY KEY (message, field)
) WITHOUT ROWID;
CREATE INDEX message_texts_by_text ON message_texts (text_id);

-- The size of the texts of a message.
ALTER TABLE messages ADD COLUMN text_bytes INTEGER NOT NULL DEFAULT 0;

-- A text is removed with the last message that has it.
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN OLD.text_bytes > 0 BEGIN
  DELETE FROM message_texts WHERE message = OLD.id;
END;
CREATE TRIGGER message_texts_removed AFTER DELETE ON message_texts
WHEN NOT EXISTS (SELECT 1 FROM message_texts WHERE text_id = OLD.text_id) BEGIN
  DELETE FROM texts WHERE text_id = OLD.text_id;
END;
