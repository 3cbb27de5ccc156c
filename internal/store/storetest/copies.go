package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// finish finishes the copy of a session and publishes it.
func finish(tx *store.Tx, from, to string, d store.Draft, upTo *int) (store.Head, error) {
	source, err := tx.Head(from)
	if err != nil {
		return store.Head{}, err
	}
	h, err := tx.FinishCopy(source, d, to, "default", loquat.Object{}, upTo)
	if err != nil {
		return store.Head{}, err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated, AgentID: h.AgentID}, &h, nil); err != nil {
		return store.Head{}, err
	}
	return h, tx.Checkpoint(&h, nil, false)
}

// long is a number of messages that takes several transactions to copy.
const long = 1200

// copies checks copies whose source changes between the transactions.
func copies(t *testing.T, open Open) {
	s := start(t, open)
	middle := long / 2
	for _, c := range []struct {
		name  string
		upTo  *int
		count int
		meanwhile
	}{
		{"nothing", nil, long, func(*store.Tx, *store.Head) error { return nil }},
		{"up to an index", &middle, middle + 1, func(*store.Tx, *store.Head) error { return nil }},
		{"appended", nil, long + 1, func(tx *store.Tx, h *store.Head) error { return failure(tx.AppendMessage(h, message(tx, "new"))) }},
		{"modified", nil, 0, func(tx *store.Tx, h *store.Head) error { return failure(tx.ModifyMessage(h, 1, "", "other")) }},
		{"deleted", nil, 0, func(tx *store.Tx, h *store.Head) error { return tx.DeleteMessages(h, []int{1, 3}) }},
		{"dropped", nil, 0, func(tx *store.Tx, _ *store.Head) error { return tx.DropDrafts(tx.Now.Add(time.Hour)) }},
		{"cut off", nil, 0, func(tx *store.Tx, h *store.Head) error { return failure(tx.DeleteFrom(h, long-1)) }},
	} {
		from, to := "source "+c.name, "copy "+c.name
		create(t, s, from, long)
		changeSession(t, s, from, func(tx *store.Tx, h *store.Head) error { return tx.DeleteMessages(h, []int{0}) })
		changeSession(t, s, from, func(tx *store.Tx, h *store.Head) error { return failure(tx.AppendMessage(h, message(tx, "last"))) })
		d, err := s.PrepareCopy(t.Context(), from, to, c.upTo)
		if err != nil || !d.Begun() {
			t.Fatalf("%s: begun %v, %v", c.name, d.Begun(), err)
		}
		unseen(t, s, to)
		changeSession(t, s, from, c.meanwhile)
		err = s.Update(t.Context(), func(tx *store.Tx) error { return failure(finish(tx, from, to, d, c.upTo)) })
		if c.count > 0 && err == nil {
			sameMessages(t, s, from, to, c.count)
			continue
		}
		if c.count > 0 || !errors.Is(err, store.ErrSourceChanged) {
			t.Errorf("%s: finished with %v", c.name, err)
		}
		unseen(t, s, to)
		dropped(t, s, d)
	}
}

type meanwhile func(*store.Tx, *store.Head) error

func failure[T any](_ T, err error) error { return err }

// unseen checks that readers cannot see a draft.
func unseen(t *testing.T, s *store.Store, id string) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		if _, err := r.Head(id); loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("%s can be read: %v", id, err)
		}
		if deleted, err := r.Deletion(id); deleted != 0 || err != nil {
			t.Errorf("%s was deleted at %s, %v", id, deleted, err)
		}
		heads, _, err := r.Heads(store.SessionFilter{}, store.Place{}, 1000)
		if slices.ContainsFunc(heads, func(h store.Head) bool { return h.SessionID == id }) {
			t.Errorf("%s is listed", id)
		}
		return err
	})
	if got := events(t, s, 0, store.Filter{SessionID: id}, 10); len(got) != 0 {
		t.Errorf("%s has events: %v", id, got)
	}
}

func sameMessages(t *testing.T, s *store.Store, from, to string, count int) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		source, err := r.Head(from)
		if err != nil {
			return err
		}
		h, err := r.Head(to)
		if err != nil {
			return err
		}
		want, err := r.Messages(source, source.Rev, 0, count)
		if err != nil {
			return err
		}
		got, err := r.Messages(h, h.Rev, 0, -1)
		if !slices.Equal(contents(got), contents(want)) || h.Count != count || len(got) != count {
			t.Errorf("%s has %d messages, its head counts %d, want %d; or others", to, len(got), h.Count, count)
		}
		return err
	})
	// The copy can be changed like any session.
	changeSession(t, s, to, func(tx *store.Tx, h *store.Head) error {
		index, err := tx.AppendMessage(h, message(tx, "more"))
		if index != count {
			t.Errorf("appended to %s at %d, want %d", to, index, count)
		}
		return err
	})
}

// dropped drops a draft and checks that its rows are removed.
func dropped(t *testing.T, s *store.Store, d store.Draft) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error { return tx.DropDraft(d) })
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	view(t, s, func(r *store.Reader) error {
		rest, err := r.Messages(d.Head, d.Head.Rev, 0, -1)
		if len(rest) != 0 {
			t.Errorf("%d messages of a dropped draft are left", len(rest))
		}
		return err
	})
}
