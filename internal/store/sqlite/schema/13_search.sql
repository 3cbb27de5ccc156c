-- The full-text index; package store writes it. The rows have no text, only the tokens of an item.
CREATE VIRTUAL TABLE search_index USING fts5(tokens, content='', contentless_delete=1, detail=none, tokenize='ascii');
-- Fewer merges, and none that has to be done at once: that would hold up a commit.
INSERT INTO search_index (search_index, rank) VALUES ('automerge', 8);
INSERT INTO search_index (search_index, rank) VALUES ('crisismerge', 32);

-- Messages with an id above indexed_to are not in the index yet.
CREATE TABLE search_state (
  indexed_to INTEGER NOT NULL
);
INSERT INTO search_state (indexed_to) SELECT coalesce(max(id), 0) FROM messages;

-- Other items whose index entries are missing or may be wrong. The triggers add an item in the
-- transaction of the change. An item is a message row's id times two (its content; its reasoning
-- is one above), or a session's sid plus 2^52 (its title).
CREATE TABLE search_queue (
  item INTEGER PRIMARY KEY
);

-- The id of a row that was deleted may be given again.
CREATE TRIGGER messages_to_index AFTER INSERT ON messages
WHEN NEW.rev_to IS NULL AND NEW.id <= (SELECT indexed_to FROM search_state) BEGIN
  INSERT INTO search_queue (item) VALUES (NEW.id * 2) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER messages_to_index_again AFTER UPDATE OF rev_to ON messages
WHEN NEW.id <= (SELECT indexed_to FROM search_state) BEGIN
  INSERT INTO search_queue (item) VALUES (NEW.id * 2) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER messages_to_forget AFTER DELETE ON messages
WHEN OLD.rev_to IS NULL AND OLD.id <= (SELECT indexed_to FROM search_state) BEGIN
  INSERT INTO search_queue (item) VALUES (OLD.id * 2) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER titles_to_index AFTER UPDATE OF metadata ON sessions
WHEN NEW.metadata IS NOT OLD.metadata AND (instr(NEW.metadata, CAST('"title"' AS BLOB)) > 0 OR instr(OLD.metadata, CAST('"title"' AS BLOB)) > 0) BEGIN
  INSERT INTO search_queue (item) VALUES (NEW.sid + 4503599627370496) ON CONFLICT DO NOTHING;
END;

INSERT INTO search_queue (item) SELECT id * 2 FROM messages WHERE rev_to IS NULL ORDER BY id;
INSERT INTO search_queue (item) SELECT sid + 4503599627370496 FROM sessions
  WHERE deleted = 0 AND instr(metadata, CAST('"title"' AS BLOB)) > 0 ORDER BY sid;
