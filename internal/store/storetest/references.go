package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/store"
)

// drawMessages draws messages of an event, small or large enough for a reference.
func drawMessages(rt *rapid.T, tx *store.Tx) (out []loquat.Message) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "<b> & \"quotes\" \\ \n\u2028\x01", "\xff not UTF-8", "😀é"}), rapid.String())
	long := rapid.SampledFrom([]int{1, 1, 40, 400, 90_000})
	value := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) json.RawMessage { return loquat.Quote(text.Draw(t, "string")) }),
		rapid.SampledFrom([]json.RawMessage{[]byte(`null`), []byte(`true`), []byte("{ \"a\" : [1, 2.50,\n \"<\"] }"), []byte(`[{"id":"1","function":{"name":"f","arguments":"{}"}}]`), []byte("\"\x94\"")}),
	)
	keys := rapid.SampledFrom([]string{loquat.MetaReasoning, loquat.MetaToolCalls, loquat.MetaDisplay, loquat.MetaUsage, "<key>", "\u2028"})
	for i := range rapid.IntRange(1, 3).Draw(rt, "messages") {
		content := text.Draw(rt, "text")
		m := loquat.Message{ID: fmt.Sprint("m", i), Role: rapid.SampledFrom([]string{loquat.RoleAssistant, loquat.RoleTool}).Draw(rt, "role"), CreatedAt: tx.Now}
		if content != "" {
			m.Content = string(bytes.Repeat([]byte(content), max(1, long.Draw(rt, "long")/len(content))))
		}
		m.Metadata = rapid.MapOfN(keys, value, 0, 4).Draw(rt, "metadata")
		out = append(out, m)
	}
	return out
}

// publishDrawn publishes some events with messages, and changes messages between them. It
// returns the events' JSON.
func publishDrawn(t *testing.T, rt *rapid.T, s *store.Store, session string, q *store.Request) (encoded [][]byte) {
	for range rapid.IntRange(1, 4).Draw(rt, "events") {
		changeSession(t, s, session, func(tx *store.Tx, h *store.Head) error {
			e := loquat.Event{Type: rapid.SampledFrom([]loquat.EventType{loquat.Final, loquat.ToolResults}).Draw(rt, "type"), Messages: drawMessages(rt, tx)}
			for _, m := range e.Messages {
				if _, err := tx.AppendMessage(h, m); err != nil {
					return err
				}
			}
			if _, err := tx.Publish(e, h, q); err != nil {
				return err
			}
			e.SessionID, e.RequestID = session, q.RequestID
			rec, err := e.Encode()
			encoded = append(encoded, rec.Body)
			return err
		})
		if !rapid.Bool().Draw(rt, "change") {
			continue
		}
		changeSession(t, s, session, func(tx *store.Tx, h *store.Head) error {
			i := rapid.IntRange(0, h.Count-1).Draw(rt, "index")
			switch rapid.IntRange(0, 2).Draw(rt, "how") {
			case 0:
				return second(tx.ModifyMessage(h, i, "", "changed"))
			case 1:
				return tx.DeleteMessages(h, []int{i})
			}
			return second(tx.DeleteFrom(h, i))
		})
	}
	return encoded
}

// eventsWithMessages checks that a follower that is level, and a reader of the database, get the
// same bodies of final and tool_results events, also when the messages are changed or removed
// later.
func eventsWithMessages(t *testing.T, open Open) {
	s := start(t, open)
	want := map[string][]loquat.Record{}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		session, request := fmt.Sprint("s", n), fmt.Sprint("r", n)
		create(t, s, session, rapid.IntRange(0, 2).Draw(rt, "before"))
		since := s.Last()
		var q store.Request
		update(t, s, func(tx *store.Tx) (err error) {
			_, q, err = enqueue(tx, session, request, loquat.BusyQueue, store.AtTheEnd)
			return err
		})
		encoded := publishDrawn(t, rt, s, session, &q)
		level, err := s.Events(t.Context(), since, store.Filter{RequestID: request}, store.Bounds{Events: 100})
		if err != nil || len(level) != len(encoded) {
			rt.Fatalf("%d events, %v", len(level), err)
		}
		for i, rec := range level {
			if !bytes.Equal(rec.Body, encoded[i]) {
				rt.Fatalf("a follower gets\n%q, not\n%q", rec.Body, encoded[i])
			}
		}
		var stored []loquat.Record
		view(t, s, func(r *store.Reader) error {
			stored = nil
			return r.EachRequestEvent(q, since, false, func(rec loquat.Record) error {
				stored = append(stored, rec)
				return nil
			})
		})
		if message := sameEvents(stored, level); message != "" {
			rt.Fatal(message)
		}
		want[session] = level
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	requireStored(t, open, want)
}

// requireStored fails the test if the database has other events with messages than want, by
// session.
func requireStored(t *testing.T, open Open, want map[string][]loquat.Record) {
	t.Helper()
	driver := open(t)
	s, err := store.Open(t.Context(), driver, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	requireSound(t, driver)
	got := map[string][]loquat.Record{}
	for since := loquat.EventID(0); since < s.Last(); {
		page, err := s.Events(t.Context(), since, store.Filter{}, store.Bounds{Events: 70})
		if err != nil || len(page) == 0 {
			t.Fatalf("%d events, %v", len(page), err)
		}
		since = page[len(page)-1].ID
		for _, rec := range page {
			if rec.RequestID != "" {
				got[rec.SessionID] = append(got[rec.SessionID], rec)
			}
		}
	}
	for session, level := range want {
		if message := sameEvents(got[session], level); message != "" {
			t.Errorf("session %s: %s", session, message)
		}
	}
}

// sameEvents describes how events differ.
func sameEvents(got, want []loquat.Record) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d events, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if g.ID != w.ID || g.Type != w.Type || g.Rev != w.Rev || !g.At.Equal(w.At) || !bytes.Equal(g.Body, w.Body) {
			return fmt.Sprintf("event %s of revision %d is\n%.2000q, want %s of revision %d,\n%.2000q", g.ID, g.Rev, g.Body, w.ID, w.Rev, w.Body)
		}
	}
	return ""
}

// eventsInWindows checks that events whose messages are stored once end a window as their
// bodies do, not as the references.
func eventsInWindows(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "s", 0)
	const events, size = 150, 10_000
	for i := range events {
		changeSession(t, s, "s", func(tx *store.Tx, h *store.Head) error {
			m := message(tx, string(bytes.Repeat([]byte{'a' + byte(i%26)}, size)))
			m.ID = fmt.Sprint(i)
			if _, err := tx.AppendMessage(h, m); err != nil {
				return err
			}
			return second(tx.Publish(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}, h, nil))
		})
	}
	level, err := s.Events(t.Context(), 0, store.Filter{SessionID: "s"}, store.Bounds{Events: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	var got []loquat.Record
	for since := loquat.EventID(0); since < s.Last(); {
		page, err := s.Events(t.Context(), since, store.Filter{SessionID: "s"}, store.Bounds{Events: 1000, Bytes: 10 * size})
		bytes := 0
		for _, rec := range page {
			bytes += len(rec.Body)
		}
		if err != nil || len(page) == 0 || bytes > 10*size {
			t.Fatalf("a window of %d events with %d bytes, %v", len(page), bytes, err)
		}
		got, since = append(got, page...), page[len(page)-1].ID
	}
	if message := sameEvents(got, level); message != "" {
		t.Error(message)
	}
}
