package storetest

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// alternatives checks that kept messages, with their large texts and images, survive the retention of
// what they were copied from, come back as they were, and go with their session.
func alternatives(t *testing.T, open Open) {
	driver, s := startForgetful(t, open)
	createLarge(t, s)
	all := largeMessages(messageTime(t, s, "large"))
	shown := assetOf("1", "x")
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error {
		if err := tx.AddAsset(*h, shown); err != nil {
			return err
		}
		m := showing(tx, "see", "1")
		m.CreatedAt = all[0].CreatedAt
		all = append(all, m)
		return failure(tx.AppendMessage(h, m))
	})
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { // the first end is kept
		return errors.Join(failure(tx.KeepFrom(h, 1)), failure(tx.AppendMessage(h, message(tx, "other"))))
	})
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return tx.RemoveAsset(*h, shown) })
	age(t, s)
	kept := requireAlternatives(t, s, "large", 2)
	requireFirst(t, s, "large", kept, all[1])
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error {
		removed, err := tx.KeepInPlace(h, kept)
		if err != nil || len(removed) != 1 {
			t.Errorf("removed %v, %v", removed, err)
		}
		return tx.PutInPlace(h, kept, func(m loquat.Message) error {
			now, err := tx.Messages(*h, h.Rev, 0, -1)
			if err == nil && (len(now) != h.Count || now[len(now)-1].ID != m.ID) {
				t.Errorf("with message %s the session has %d of %d messages", m.ID, len(now), h.Count)
			}
			return err
		})
	})
	requireMessages(t, s, "large", all)
	requireImage(t, s, "large", 3, shown)
	requireSound(t, driver)
	age(t, s)
	requireMessages(t, s, "large", all)
	requireSound(t, driver)
	requireGone(t, s, driver)
	requireBound(t, s)
}

// requireBound fails unless a session has at most loquat.MaxAlternatives. The first that is kept at an index makes two.
func requireBound(t *testing.T, s *store.Store) {
	t.Helper()
	create(t, s, "many", 2)
	for left := loquat.MaxAlternatives - 2; left > 0; left -= 20 { // a transaction must not last long
		changeSession(t, s, "many", func(tx *store.Tx, h *store.Head) (err error) {
			for range min(left, 20) {
				err = cmp.Or(err, failure(tx.KeepFrom(h, 1)), failure(tx.AppendMessage(h, message(tx, "end"))))
			}
			return err
		})
	}
	requireAlternatives(t, s, "many", loquat.MaxAlternatives-1)
	for _, step := range []struct {
		index int
		want  loquat.Code
	}{{0, loquat.CodeConflict}, {1, ""}, {1, loquat.CodeConflict}} {
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head("many")
			if err != nil {
				return err
			}
			_, err = tx.KeepFrom(&h, step.index)
			return errors.Join(err, failure(tx.AppendMessage(&h, message(tx, "end"))))
		})
		if loquat.CodeOf(err) != step.want && (err != nil || step.want != "") {
			t.Errorf("another one at %d: %v, want %q", step.index, err, step.want)
		}
	}
	requireAlternatives(t, s, "many", loquat.MaxAlternatives)
}

// requireGone fails unless alternatives go with the message before them, and with their session.
func requireGone(t *testing.T, s *store.Store, driver store.Driver) {
	t.Helper()
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return tx.DeleteMessages(h, []int{0}) })
	requireAlternatives(t, s, "large", 0)
	changeSession(t, s, "large", func(tx *store.Tx, h *store.Head) error { return failure(tx.KeepFrom(h, 0)) })
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("large")
		if err != nil {
			return err
		}
		return tx.DeleteSession(&h)
	})
	age(t, s)
	requireSound(t, driver)
	err := driver.Read(t.Context(), func(q store.SQL) error {
		for _, table := range []string{"messages", "message_texts", "texts", "alternatives", "assets", "asset_uses"} {
			requireEmpty(t, q, table)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requireImage fails unless a session has an image that the message at an index uses.
func requireImage(t *testing.T, s *store.Store, id string, index int, want loquat.Asset) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		if got, err := r.Asset(h, want.AssetID); err != nil || got != want {
			t.Errorf("the image of a message that came back: %+v, %v", got, err)
		}
		if i, used, err := r.AssetUse(h, want.AssetID); i != index || !used || err != nil {
			t.Errorf("the image is used by %d, %v, %v", i, used, err)
		}
		return nil
	})
}

// requireFirst fails unless an alternative begins with a message.
func requireFirst(t *testing.T, s *store.Store, id string, a store.Alternative, want loquat.Message) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		if got, err := r.MessagesOf(h, a); err != nil || len(got) != a.Count || got[0].ID != want.ID {
			t.Errorf("the first message is %v, %v", got, err)
		}
		if got, err := r.Preview(h, a); err != nil || got != want.Content {
			t.Errorf("the preview is %q, %v", got, err)
		}
		return nil
	})
}

// startForgetful is start with the shortest retention.
func startForgetful(t *testing.T, open Open) (store.Driver, *store.Store) {
	t.Helper()
	driver := open(t)
	s, err := store.Open(t.Context(), driver, store.Options{Retention: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return driver, s
}

// age removes everything that is no longer needed. The retention of the store must be very short.
func age(t *testing.T, s *store.Store) {
	t.Helper()
	time.Sleep(5 * time.Millisecond)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// requireAlternatives fails unless a session has so many alternatives. It returns the first.
func requireAlternatives(t *testing.T, s *store.Store, id string, count int) (first store.Alternative) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		found, err := r.Alternatives(h, nil)
		if err == nil && len(found) != count {
			t.Fatalf("%d alternatives, want %d", len(found), count)
		}
		if count > 0 {
			first = found[0]
		}
		return err
	})
	return first
}

func requireEmpty(t *testing.T, q store.SQL, table string) {
	t.Helper()
	rows, err := q.Query(`SELECT count(*) FROM ` + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	if rows.Next() {
		err = rows.Scan(&n)
	}
	if err != nil || n > 0 {
		t.Errorf("%d rows of %s are left, %v", n, table, err)
	}
}
