-- The full-text index; package store writes it. tokens have no positions.
-- least: 7
CREATE TABLE search_index (
  item BIGINT PRIMARY KEY,
  tokens TSVECTOR NOT NULL
);
CREATE INDEX search_index_by_token ON search_index USING GIN (tokens) WITH (gin_pending_list_limit = 256);

-- Messages with an id above indexed_to are not in the index yet. Ids rise in the order of commits,
-- because a transaction locks the log before it adds messages, also in an older program.
CREATE TABLE search_state (
  indexed_to BIGINT NOT NULL
);
INSERT INTO search_state (indexed_to) SELECT coalesce(max(id), 0) FROM messages;

-- Other items whose index entries are missing or may be wrong. The triggers add an item in the
-- transaction of the change, also when an older program makes it. An item is a message row's id
-- times two (its content; its reasoning is one above), or a session's sid plus 2^52 (its title).
CREATE TABLE search_queue (
  item BIGINT PRIMARY KEY
);

CREATE FUNCTION queue_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.id <= (SELECT indexed_to FROM search_state) THEN
    INSERT INTO search_queue (item) VALUES (OLD.id * 2) ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER messages_to_index_again AFTER UPDATE OF rev_to ON messages FOR EACH ROW EXECUTE FUNCTION queue_message();
CREATE TRIGGER messages_to_forget AFTER DELETE ON messages FOR EACH ROW WHEN (OLD.rev_to IS NULL) EXECUTE FUNCTION queue_message();

CREATE FUNCTION queue_title() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO search_queue (item) VALUES (NEW.sid + 4503599627370496) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER titles_to_index AFTER UPDATE OF metadata ON sessions FOR EACH ROW
  WHEN (NEW.metadata IS DISTINCT FROM OLD.metadata AND (position('"title"'::bytea IN NEW.metadata) > 0 OR position('"title"'::bytea IN OLD.metadata) > 0))
  EXECUTE FUNCTION queue_title();

INSERT INTO search_queue (item) SELECT id * 2 FROM messages WHERE rev_to IS NULL ORDER BY id;
INSERT INTO search_queue (item) SELECT sid + 4503599627370496 FROM sessions
  WHERE deleted = 0 AND position('"title"'::bytea IN metadata) > 0 ORDER BY sid;
