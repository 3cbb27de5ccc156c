package storetest

import (
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// anyText stores text that some databases refuse or change: zero bytes, bytes that are not
// UTF-8, backslashes, both forms of a letter with an accent. Ids that differ in such bytes only
// are different, and are ordered by their bytes.
func anyText(t *testing.T, open Open) {
	odd := []string{"", "a", "A", "a\x00b", "a\x00", "\x00", "\xff\xfe", `\x41`, `\000`, "\u00e9", "e\u0301", "?", "$1", "'", "x\u0000\U0001f34b"}
	s := start(t, open)
	for _, id := range odd {
		create(t, s, "s"+id, 0)
		update(t, s, func(tx *store.Tx) error { return addText(tx, "s"+id, id) })
	}
	view(t, s, func(r *store.Reader) error {
		for _, id := range odd {
			h, err := r.Head("s" + id)
			if err != nil {
				return err
			}
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil {
				return err
			}
			if len(messages) != 1 || messages[0].Content != strings.Repeat(id, 3) || messages[0].Metadata.String("text") != "\x00 and "+strings.ToValidUTF8(id, "") {
				t.Errorf("%q: messages %+v", id, messages)
			}
			if a, err := r.Asset(h, id); err != nil || a.Name != id {
				t.Errorf("%q: asset %+v, %v", id, a, err)
			}
		}
		for _, missing := range []string{"s\x00\x00", "s\xff"} {
			if _, err := r.Head(missing + "-"); loquat.CodeOf(err) != loquat.CodeNotFound {
				t.Errorf("%q: %v", missing, err)
			}
		}
		return nil
	})
	orderOfText(t, s, odd)
}

// addText stores a text wherever a session can have it.
func addText(tx *store.Tx, session, text string) error {
	h, err := tx.Head(session)
	if err != nil {
		return err
	}
	m := message(tx, strings.Repeat(text, 3))
	m.Metadata = loquat.Object{}.Set("text", "\x00 and "+strings.ToValidUTF8(text, ""))
	if _, err := tx.AppendMessage(&h, m); err != nil {
		return err
	}
	if err := tx.AddAsset(h, loquat.Asset{AssetID: text, SHA256: "hash", MediaType: "image/png", Name: text}); err != nil {
		return err
	}
	if _, err := tx.Publish(partial(strings.ToValidUTF8(text, "?")), &h, nil); err != nil {
		return err
	}
	if err := tx.StoreReplay(text, "POST", "/"+text, store.Replay{Result: []byte(text)}); err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// orderOfText checks that ids are stored as they are and are ordered by their bytes.
func orderOfText(t *testing.T, s *store.Store, odd []string) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		for _, id := range odd {
			if err := tx.SetPluginState("p"+id, loquat.Object{}.Set("text", "\x00")); err != nil {
				return err
			}
		}
		return nil
	})
	for _, id := range odd {
		revision, err := s.CredentialsRevision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, stored, err := s.ChangeCredentials(t.Context(), loquat.CredentialChange{Revision: revision, Codes: []loquat.PairingCode{{Public: id, Scope: "full"}}})
		if err != nil || !stored {
			t.Fatalf("%q: stored %v, %v", id, stored, err)
		}
	}
	stored, err := s.LoadCredentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, code := range stored.Codes {
		got = append(got, code.Public)
	}
	want := slices.Sorted(slices.Values(odd))
	if !slices.Equal(got, want) {
		t.Errorf("codes are in the order %q, want %q", got, want)
	}
}
