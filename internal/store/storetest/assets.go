package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/store"
)

func assetOf(id, content string) loquat.Asset {
	return loquat.Asset{AssetID: id, MediaType: "image/png", Size: int64(len(content)), SHA256: content, Name: id + ".png"}
}

// showing returns a message with these assets attached.
func showing(tx *store.Tx, content string, ids ...string) loquat.Message {
	var list []loquat.Object
	for _, id := range ids {
		list = append(list, loquat.Object{}.Set("type", "image").Set("asset_id", id))
	}
	m := message(tx, content)
	if len(list) > 0 {
		m.Metadata = loquat.Object{}.Set(loquat.MetaAttachments, list)
	}
	return m
}

// changeSession changes a session in one transaction with a checkpoint.
func changeSession(t *testing.T, s *store.Store, id string, fn func(*store.Tx, *store.Head) error) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		if err := fn(tx, &h); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// assets checks the owners of assets and what a deletion frees.
func assets(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 1)
	changeSession(t, s, "a", func(tx *store.Tx, h *store.Head) error {
		for _, a := range []loquat.Asset{assetOf("1", "x"), assetOf("2", "x"), assetOf("3", "y")} {
			if err := tx.AddAsset(*h, a); err != nil {
				return err
			}
		}
		_, err := tx.AppendMessage(h, showing(tx, "see", "1", "1", "nothing"))
		return err
	})
	update(t, s, func(tx *store.Tx) error { // a copy gets the assets of its messages
		_, err := finish(tx, "a", "b", store.Draft{}, nil)
		return err
	})
	view(t, s, func(r *store.Reader) error {
		b, err := r.Head("b")
		if err != nil {
			return err
		}
		if got, err := r.Asset(b, "1"); err != nil || got != assetOf("1", "x") {
			t.Errorf("asset of the copy: %+v, %v", got, err)
		}
		if _, err := r.Asset(b, "3"); loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("an asset that no copied message names: %v", err)
		}
		if index, used, err := r.AssetUse(b, "1"); index != 1 || !used || err != nil {
			t.Errorf("used by %d, %v, %v", index, used, err)
		}
		return nil
	})
	changeSession(t, s, "a", func(tx *store.Tx, h *store.Head) error { return tx.RemoveAsset(*h, assetOf("3", "y")) })
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("a")
		if err == nil {
			err = tx.DeleteSession(&h)
		}
		return err
	})
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	view(t, s, func(r *store.Reader) error {
		if rest, err := r.FreedFiles("x", 10); err != nil || !slices.Equal(rest, []string{"y"}) {
			t.Errorf("freed after x %q, %v", rest, err)
		}
		for hash, want := range map[string]bool{"x": true, "y": false} {
			if owned, err := r.Owned(hash); owned != want || err != nil {
				t.Errorf("%s is owned: %v, %v", hash, owned, err)
			}
		}
		return nil
	})
	freedAre(t, s, "x", "y")
	update(t, s, func(tx *store.Tx) error { return tx.SettleFile("y", true) }) // it lost its owner after the caller looked
	freedAre(t, s, "x", "y")
	update(t, s, func(tx *store.Tx) error { return errors.Join(tx.SettleFile("x", true), tx.SettleFile("y", false)) })
	freedAre(t, s)
}

// freedAre checks which hashes FreedFiles returns.
func freedAre(t *testing.T, s *store.Store, want ...string) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		if freed, err := r.FreedFiles("", 10); err != nil || !slices.Equal(freed, want) {
			t.Errorf("freed %q, want %q (%v)", freed, want, err)
		}
		return nil
	})
}

// assetUses makes random changes of messages. It compares AssetUse with the messages
// themselves.
func assetUses(t *testing.T, open Open) {
	s := start(t, open)
	session := 0
	ids := []string{"1", "2", "3"}
	rapid.Check(t, func(rt *rapid.T) {
		session++
		name := fmt.Sprint("uses-", session)
		create(t, s, name, 0)
		var now []string
		for step := range rapid.IntRange(1, 10).Draw(rt, "steps") {
			update(t, s, func(tx *store.Tx) error {
				h, err := tx.Head(name)
				if err != nil {
					return err
				}
				if rapid.Bool().Draw(rt, "with images") {
					named := rapid.SliceOfN(rapid.SampledFrom(ids), 1, 3).Draw(rt, "assets")
					text := fmt.Sprint("text ", step)
					now = append(now, text)
					_, err = tx.AppendMessage(&h, showing(tx, text, named...))
				} else {
					now, err = change(rt, tx, &h, now, step)
				}
				if err != nil {
					return err
				}
				return tx.Checkpoint(&h, nil, false)
			})
		}
		view(t, s, func(r *store.Reader) error {
			h, err := r.Head(name)
			if err != nil {
				return err
			}
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil {
				return err
			}
			for _, id := range ids {
				want := slices.IndexFunc(messages, func(m loquat.Message) bool { return slices.Contains(m.AssetIDs(), id) })
				index, used, err := r.AssetUse(h, id)
				if err != nil {
					return err
				}
				if used != (want >= 0) || used && index != want {
					rt.Fatalf("asset %s is used by %d, %v; want %d", id, index, used, want)
				}
			}
			return nil
		})
	})
}
