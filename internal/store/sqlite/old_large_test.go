package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// A database in which an earlier version stored a large reply in one row, and its event in
// another, reads as before. Copies and further large replies work too.
func TestLargeRepliesOfEarlierVersions(t *testing.T) {
	dir := t.TempDir()
	files, err := filepath.Glob("schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", filepath.Join(dir, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	version := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_texts.sql") {
			break
		}
		step, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Exec(string(step)); err != nil {
			t.Fatal(file, err)
		}
		version++
	}
	m := loquat.Message{ID: "old", Role: loquat.RoleAssistant, Content: strings.Repeat("an old \"reply\"\n", 400_000), CreatedAt: time.Unix(1, 0).UTC()}
	old, err := loquat.Event{Type: loquat.Final, SessionID: "s", Messages: []loquat.Message{m}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loquat.Event{Type: loquat.Checkpoint, SessionID: "s"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO log (store_id, last_event_id) VALUES ('x', 2)`, nil},
		{`INSERT INTO sessions (sid, session_id, agent_id, metadata, created_at, updated_at, rev, cursor_event_id, checkpoint_event_id, message_count, message_bytes, next_seq)
			VALUES (1, 's', 'default', '{}', 0, 0, 2, 2, 2, 1, ?, 1)`, []any{len(m.Content) + 128}},
		{`INSERT INTO descriptions (sid, rev_from, agent_id, metadata) VALUES (1, 1, 'default', '{}')`, nil},
		{`INSERT INTO messages (sid, seq, rev_from, message_id, role, content, created_at) VALUES (1, 0, 2, ?, ?, ?, ?)`, []any{m.ID, m.Role, m.Content, m.CreatedAt.UnixMicro()}},
		{`INSERT INTO events (event_id, sid, type, rev, omit_messages, at, body) VALUES (1, 1, 'final', 0, 0, 0, ?), (2, 1, 'checkpoint', 2, 0, 0, ?)`, []any{old.Body, checkpoint.Body}},
	} {
		if _, err := raw.Exec(c.query, c.args...); err != nil {
			t.Fatal(c.query, err)
		}
	}
	if _, err := raw.Exec(fmt.Sprint(`PRAGMA user_version = `, version)); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}

	db := open(t, dir)
	s, err := store.Open(t.Context(), db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	added := m
	added.ID = "new"
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("s")
		if err != nil {
			return err
		}
		if _, err := tx.AppendMessage(&h, added); err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{added}}, &h, nil); err != nil {
			return err
		}
		if err := tx.Checkpoint(&h, nil, false); err != nil {
			return err
		}
		fork, err := tx.FinishCopy(h, store.Draft{}, "fork", "default", nil, nil)
		if err != nil {
			return err
		}
		return tx.Checkpoint(&fork, nil, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []loquat.Message{m, added} {
		events, err := s.Events(t.Context(), loquat.EventID(2*i), store.Filter{}, store.Bounds{Events: 1})
		if err != nil || len(events) != 1 {
			t.Fatal(len(events), err)
		}
		e, err := events[0].Decode()
		if err != nil || !reflect.DeepEqual(e.Messages, []loquat.Message{want}) {
			t.Errorf("event %d is %.200s, %v", i, events[0].Body, err)
		}
	}
	err = s.View(t.Context(), func(r *store.Reader) error {
		for _, id := range []string{"s", "fork"} {
			h, err := r.Head(id)
			if err != nil {
				return err
			}
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(messages, []loquat.Message{m, added}) {
				t.Errorf("session %s has other messages", id)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { t.Error(problem) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
