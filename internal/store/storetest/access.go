package storetest

import (
	"reflect"
	"testing"
	"time"

	"loquat/internal/store"
)

// keysAndCodes: what is kept comes back as it was, also after a reopening.
func keysAndCodes(t *testing.T, open Open) {
	s := start(t, open)
	at := time.Date(2026, 11, 21, 10, 0, 0, 123e6, time.UTC)
	token := store.Key{ID: "k1", Kind: "token", Name: "laptop ☂", Scope: "session", SessionID: "s", Digest: [32]byte{1}, CreatedAt: at, ExpiresAt: at.Add(time.Hour)}
	device := store.Key{ID: "k2", Kind: "device", Name: "phone", Scope: "read", Digest: [32]byte{2}, CreatedAt: at.Add(time.Second)}
	browser := store.Key{ID: "k0", Kind: "browser", Scope: "read", Digest: [32]byte{3}, Bearer: [32]byte{2}, CreatedAt: at.Add(time.Second), ExpiresAt: at.Add(time.Minute)}
	code := store.Code{Public: "A7", Digest: [32]byte{4}, Scope: "full", ExpiresAt: at.Add(time.Minute)}
	other := store.Code{Public: "B8", Digest: [32]byte{5}, Scope: "read", ExpiresAt: at}
	update(t, s, func(tx *store.Tx) error {
		for _, k := range []store.Key{device, token, browser} {
			if err := tx.AddKey(k); err != nil {
				return err
			}
		}
		if err := tx.SetCode(other); err != nil {
			return err
		}
		return tx.SetCode(code)
	})
	check := func(s *store.Store, keys []store.Key, codes []store.Code) {
		t.Helper()
		view(t, s, func(r *store.Reader) error {
			gotKeys, err := r.Keys()
			if err != nil {
				return err
			}
			gotCodes, err := r.Codes()
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(gotKeys, keys) || !reflect.DeepEqual(gotCodes, codes) {
				t.Errorf("kept are\n%v\n%v, want\n%v\n%v", gotKeys, gotCodes, keys, codes)
			}
			return nil
		})
	}
	check(s, []store.Key{token, browser, device}, []store.Code{code, other})

	// Two keys of one secret cannot be.
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		return tx.AddKey(store.Key{ID: "k9", Kind: "token", Digest: token.Digest, CreatedAt: at})
	}); err == nil {
		t.Error("a second key of the same digest was kept")
	}

	code.Wrong, device.UsedOn = 3, "2026-11-21"
	update(t, s, func(tx *store.Tx) error {
		for _, err := range []error{
			tx.SetCode(code), tx.DropCode("B8"), tx.DropCode("unknown"),
			tx.UseKey("k2", device.UsedOn), tx.RemoveKey("k1"), tx.RemoveKey("unknown"),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	check(s, []store.Key{browser, device}, []store.Code{code})
	view(t, s, func(r *store.Reader) error {
		c, ok, err := r.Code("A7")
		if err != nil || !ok || c != code {
			t.Errorf("the code is %v, %v, %v", c, ok, err)
		}
		if _, ok, err := r.Code("B8"); ok || err != nil {
			t.Errorf("a code that was dropped: %v, %v", ok, err)
		}
		return nil
	})
}
