package storetest

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// largeMessages are messages whose content, or a value of whose metadata, is stored in pieces.
func largeMessages(now time.Time) []loquat.Message {
	text := strings.Repeat("quotes \" and \\, lines\n, 😀 and é\u2028", 150_000)
	return []loquat.Message{
		{ID: "content", Role: loquat.RoleAssistant, Content: text, CreatedAt: now},
		{ID: "small", Role: loquat.RoleTool, Content: "done", Metadata: loquat.Object{}.Set("tool_call_id", "1"), CreatedAt: now},
		{ID: "reasoning", Role: loquat.RoleAssistant, Content: "yes", CreatedAt: now, Metadata: loquat.Object{
			"a": []byte(`1`), "reasoning": loquat.Quote(text), "z": []byte(`{"b":[2]}`)}},
	}
}

// createLarge creates the session "large" with largeMessages and one final that has them. It returns
// the event as it was published.
func createLarge(t *testing.T, s *store.Store) loquat.Event {
	t.Helper()
	var e loquat.Event
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.CreateSession("large", "default", nil)
		if err != nil {
			return err
		}
		e = loquat.Event{Type: loquat.Final, SessionID: "large", Messages: largeMessages(tx.Now)}
		for _, m := range e.Messages {
			if _, err := tx.AppendMessage(&h, m); err != nil {
				return err
			}
		}
		if _, err := tx.Publish(e, &h, nil); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	return e
}

// requireEvent fails the test if the first event does not have the JSON of e.
func requireEvent(t *testing.T, s *store.Store, f store.Filter, e loquat.Event) {
	t.Helper()
	want, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Events(t.Context(), 0, f, store.Bounds{Events: 1})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d events, %v", len(got), err)
	}
	if got[0].Type != e.Type || got[0].Rev != 0 || !bytes.Equal(got[0].Body, want.Body) {
		t.Fatalf("the event is %s with %d bytes, want %s with %d:\n%.300s\n%.300s", got[0].Type, len(got[0].Body), e.Type, len(want.Body), got[0].Body, want.Body)
	}
}

func requireMessages(t *testing.T, s *store.Store, id string, want []loquat.Message) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		got, err := r.Messages(h, h.Rev, 0, -1)
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("session %s has other messages", id)
		}
		return err
	})
}

// countTexts returns the number of rows that hold large texts.
func countTexts(t *testing.T, driver store.Driver) (n int) {
	t.Helper()
	err := driver.Read(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(`SELECT (SELECT count(*) FROM texts) + (SELECT count(*) FROM message_texts)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		return errors.Join(rows.Scan(&n), rows.Err())
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func requireSound(t *testing.T, driver store.Driver) {
	t.Helper()
	err := driver.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { t.Error(problem) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// largeTexts checks that large messages and the events that have them read as they were
// written: from memory, from the database, after changes of the session, in copies of it, and
// until the last use of a text is removed.
func largeTexts(t *testing.T, open Open) {
	driver := open(t)
	s, err := store.Open(t.Context(), driver, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := createLarge(t, s)
	of := store.Filter{SessionID: "large"}
	requireEvent(t, s, of, e)
	requireEvent(t, s, store.Filter{}, e)
	requireMessages(t, s, "large", e.Messages)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	driver = open(t)
	if s, err = store.Open(t.Context(), driver, store.Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { requireEvent(t, s, of, e) })
		readers.Go(func() { requireMessages(t, s, "large", e.Messages) })
	}
	readers.Wait()
	requireSound(t, driver)

	update(t, s, func(tx *store.Tx) error {
		_, err := finish(tx, "large", "copy", store.Draft{}, nil)
		return err
	})
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return failure(tx.ModifyMessage(h, 2, "", "no")) })
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return tx.DeleteMessages(h, []int{0}) })
	left := largeMessages(e.Messages[0].CreatedAt)[1:]
	left[1].Content = "no"
	requireMessages(t, s, "large", left)
	requireEvent(t, s, of, e)
	requireMessages(t, s, "copy", e.Messages)
	requireSound(t, driver)

	for _, id := range []string{"large", "copy"} {
		update(t, s, func(tx *store.Tx) error {
			h, err := tx.Head(id)
			if err != nil {
				return err
			}
			return tx.DeleteSession(&h)
		})
		if err := s.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id == "large" {
			requireMessages(t, s, "copy", e.Messages)
		}
		requireSound(t, driver)
	}
	if n := countTexts(t, driver); n > 0 {
		t.Errorf("%d rows of texts are left", n)
	}
}

// failedLargeText checks that an update that fails leaves nothing of a large text, and that
// the event that gets its id is read as itself.
func failedLargeText(t *testing.T, open Open) {
	driver := open(t)
	s, err := store.Open(t.Context(), driver, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := errors.New("refused")
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.CreateSession("failed", "default", nil)
		if err != nil {
			return err
		}
		m := largeMessages(tx.Now)[0]
		m.Content = strings.ToUpper(m.Content)
		if _, err := tx.AppendMessage(&h, m); err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}, &h, nil); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if n := countTexts(t, driver); n > 0 {
		t.Errorf("%d rows of texts are left", n)
	}
	requireEvent(t, s, store.Filter{}, createLarge(t, s))
}

// uncleanLargeTexts checks that an event whose large metadata is on several lines, or is not
// valid UTF-8, is read as it would be if it were small: on one line and valid.
func uncleanLargeTexts(t *testing.T, open Open) {
	s, err := store.Open(t.Context(), open(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := `"` + strings.Repeat("x", 4<<20) + `"`
	for id, value := range map[string]string{"lines": "[1,\r\n  " + text + "\n]", "invalid": `["` + "\xff" + `",` + text + `]`} {
		e := loquat.Event{Type: loquat.ToolResults, SessionID: id}
		update(t, s, func(tx *store.Tx) error {
			h, err := tx.CreateSession(id, "default", nil)
			if err != nil {
				return err
			}
			m := loquat.Message{ID: id, Role: loquat.RoleTool, CreatedAt: tx.Now, Metadata: loquat.Object{"structured": []byte(value)}}
			if _, err := tx.AppendMessage(&h, m); err != nil {
				return err
			}
			e.Messages = []loquat.Message{m}
			return failure(tx.Publish(e, &h, nil))
		})
		requireEvent(t, s, store.Filter{SessionID: id}, e)
	}
}

// agedLargeTexts checks that a text is removed with the last version and event that have it.
func agedLargeTexts(t *testing.T, open Open) {
	driver, s := startForgetful(t, open)
	createLarge(t, s)
	age(t, s)
	requireMessages(t, s, "large", largeMessages(messageTime(t, s, "large")))
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return tx.DeleteMessages(h, []int{0, 2}) })
	age(t, s)
	if n := countTexts(t, driver); n > 0 {
		t.Errorf("%d rows of texts are left", n)
	}
	requireSound(t, driver)
}

func messageTime(t *testing.T, s *store.Store, id string) (at time.Time) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		messages, err := r.Messages(h, h.Rev, 0, 1)
		if err == nil {
			at = messages[0].CreatedAt
		}
		return err
	})
	return at
}
