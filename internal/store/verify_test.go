package store_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// Each rule finds the violation that its case makes. An intact database has none.
func TestVerify(t *testing.T) {
	breaks := map[string]string{
		"the log has one row":                                             `INSERT INTO log (store_id, last_event_id) VALUES ('another', 1000)`,
		"no event is above the newest id given":                           `INSERT INTO events (event_id, sid, type, rev, omit_messages, at, body) SELECT 5000, sid, 'x', 0, 0, 0, '{"type":"x","session_id":"notes"}' FROM sessions`,
		"ids of other logs are not used":                                  `INSERT INTO foreign_ids (above, below) VALUES (0, 2)`,
		"cursors of sessions are events that were given":                  `UPDATE sessions SET checkpoint_event_id = 5000`,
		"removed events are below the newest id given":                    `UPDATE sessions SET gone_event_id = 5000`,
		"removed events of the log are below the newest id given":         `UPDATE log SET gone_event_id = 5000`,
		"a cursor is a checkpoint of its session":                         `UPDATE sessions SET cursor_event_id = 1`,
		"sessions have as many messages as they say":                      `UPDATE sessions SET message_count = 7`,
		"messages and revisions belong together":                          `UPDATE messages SET rev_from = 99, rev_to = NULL`,
		"versions of a message do not overlap":                            `INSERT INTO messages (sid, seq, rev_from, rev_to, message_id, role, content, created_at) SELECT sid, seq, 0, 50, message_id, role, content, 0 FROM messages`,
		"messages are found by their index":                               `INSERT INTO message_runs (sid, first_index, first_seq) SELECT sid, 0, 5 FROM sessions`,
		"kept alternatives have their messages":                           `INSERT INTO alternatives (sid, n, holder, at_index, after_id, kept, created_at) SELECT sid, 1, sid, 0, '', sid, 0 FROM sessions`,
		"alternatives hang in messages":                                   `INSERT INTO alternatives (sid, n, holder, at_index, after_id, kept, created_at) SELECT sid, 1, 99, 0, '', NULL, 0 FROM sessions`,
		"messages belong to sessions":                                     `INSERT INTO messages (sid, seq, rev_from, rev_to, message_id, role, content, created_at) VALUES (99, 0, 0, 1, 'm', 'user', '', 0)`,
		"events belong to sessions":                                       `UPDATE events SET sid = 99 WHERE event_id = 1`,
		"events belong to requests of their session":                      `UPDATE events SET rid = 99 WHERE event_id = 1`,
		"revisions of events were made":                                   `UPDATE events SET rev = 99 WHERE event_id = 1`,
		"large texts belong to messages":                                  `INSERT INTO message_texts (message, field, text_id, size) VALUES (99, '', 1, 1)`,
		"messages have their large texts":                                 `UPDATE messages SET text_bytes = 7`,
		"large texts are whole":                                           `INSERT INTO message_texts (message, field, text_id, size) SELECT id, '', 1, 7 FROM messages`,
		"large texts are in use":                                          `INSERT INTO texts (text_id, piece, body) VALUES (1, 0, x'00')`,
		"messages of events: event 0000000000000001 has 0 of 1":           `UPDATE events SET type = 'final', body = '{"type":"final","session_id":"notes","stored":{"seq":7,"count":1,"rev":1,"bytes":9}}' WHERE event_id = 1`,
		"requests belong to sessions":                                     `INSERT INTO requests (request_id, sid, status) VALUES ('r', 99, 'queued')`,
		"requests have ended or run":                                      `INSERT INTO requests (request_id, sid, status) SELECT 'r', sid, 'completed' FROM sessions`,
		"a session runs one request":                                      `DROP INDEX requests_running; INSERT INTO requests (request_id, sid, status) SELECT 'q', sid, 'running' FROM sessions UNION ALL SELECT 'r', sid, 'running' FROM sessions`,
		"increments of one request are sorted":                            `INSERT INTO increments (last_event_id, rid, segment, entries, body) VALUES (1, 1, 0, 1, x'00')`,
		"increments belong to requests":                                   `INSERT INTO increments (last_event_id, rid, segment, entries, body) VALUES (1, 99, 1, 1, x'00')`,
		"increments 0000000000000001: increments up to":                   `INSERT INTO increments (last_event_id, rid, segment, entries, body) VALUES (1, 99, 1, 1, x'00')`,
		"images belong to sessions":                                       `INSERT INTO assets (sid, asset_id, sha256, media_type, size, name, created_at) VALUES (99, 'a', 'x', 'image/png', 1, '', 0)`,
		"event 0000000000000001: the body of a session_created event has": `UPDATE events SET body = '{"type":"session_created","bogus":1}' WHERE event_id = 1`,
		"message":                                       `UPDATE messages SET metadata = '{"a'`,
		"session notes: is not valid JSON":              `UPDATE sessions SET metadata = x'ff00'`,
		"state of plugin notes: is not valid JSON":      `INSERT INTO plugin_states (plugin, state, updated_at) VALUES ('notes', '{', 0)`,
		"events belong to sessions: cannot be verified": `DROP TABLE requests; ALTER TABLE events RENAME COLUMN sid TO other`,
	}
	for _, name := range store.RuleNames() {
		if breaks[name] == "" {
			t.Errorf("no case breaks %q", name)
		}
	}
	for name, statements := range breaks {
		t.Run(name, func(t *testing.T) {
			driver, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(t.Context(), driver, store.Options{Logger: slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			createIn(t, s, "notes")
			err = s.Update(t.Context(), func(tx *store.Tx) error {
				h, err := tx.Head("notes")
				if err != nil {
					return err
				}
				if _, err := tx.AppendMessage(&h, loquat.Message{ID: "m", Role: "user"}); err != nil {
					return err
				}
				return tx.Checkpoint(&h, nil, false)
			})
			if err != nil {
				t.Fatal(err)
			}
			if found := verify(t, driver); len(found) > 0 {
				t.Fatalf("sound data have %v", found)
			}
			err = driver.Write(t.Context(), func(q store.SQL) error {
				for _, statement := range strings.Split(statements, "; ") {
					if _, err := q.Exec(statement); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			found := verify(t, driver)
			if !slices.ContainsFunc(found, func(text string) bool { return strings.HasPrefix(text, name) }) {
				t.Errorf("found %v", found)
			}
		})
	}
}

func verify(t *testing.T, driver store.Driver) (found []string) {
	t.Helper()
	err := driver.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { found = append(found, problem) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
