-- Large texts of messages, in pieces, so that no row is large. A text never changes; copies of
-- a message share it.
CREATE TABLE texts (
  text_id BIGINT NOT NULL,
  piece BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (text_id, piece)
);

-- Which values of a message are large texts. field: the key in the metadata, or '' for the
-- content. The row of the message then lacks them.
CREATE TABLE message_texts (
  message BIGINT NOT NULL,
  field BYTEA NOT NULL,
  text_id BIGINT NOT NULL,
  size BIGINT NOT NULL,
  PRIMARY KEY (message, field)
);
CREATE INDEX message_texts_by_text ON message_texts (text_id);

-- The size of the texts of a message.
ALTER TABLE messages ADD COLUMN text_bytes BIGINT NOT NULL DEFAULT 0;

-- A text is removed with the last message that has it.
CREATE FUNCTION remove_message_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM message_texts WHERE message = OLD.id;
  RETURN NULL;
END $$;
CREATE TRIGGER messages_removed AFTER DELETE ON messages FOR EACH ROW WHEN (OLD.text_bytes > 0)
  EXECUTE FUNCTION remove_message_texts();

CREATE FUNCTION remove_unused_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM texts WHERE text_id = OLD.text_id AND NOT EXISTS (SELECT 1 FROM message_texts WHERE text_id = OLD.text_id);
  RETURN NULL;
END $$;
CREATE TRIGGER message_texts_removed AFTER DELETE ON message_texts FOR EACH ROW
  EXECUTE FUNCTION remove_unused_text();
