package storetest

import (
	"errors"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// pushSubscriptions checks that the keys are made once, and that subscriptions are replaced, bounded
// and removed with their credential.
func pushSubscriptions(t *testing.T, open Open) {
	s := start(t, open)
	first := pushKeysOnce(t, s)
	add := func(id, owner, auth string) {
		t.Helper()
		if err := s.AddPushSubscription(t.Context(), loquat.PushSubscription{ID: id, Owner: owner, Endpoint: "https://push.example/" + id + "/☂", P256dh: "k", Auth: auth}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // the time of the next one is later
	}
	create(t, s, "session", 1)
	add("a", "k1", "1")
	before, sent := pushState(t, s)
	if len(before) != 1 || sent != s.Last() || before[0].Endpoint != "https://push.example/a/☂" {
		t.Errorf("after the first: %v, sent up to %s", before, sent)
	}
	create(t, s, "later", 1)
	add("a", "k1", "2")
	after, again := pushState(t, s)
	if len(after) != 1 || after[0].Auth != "2" || !after[0].CreatedAt.Equal(before[0].CreatedAt) || again != s.Last() {
		t.Errorf("replaced: %v, sent up to %s", after, again)
	}
	add("b", "k2", "1")
	add("a", "k2", "3") // the browser has another token now
	if list, _ := pushState(t, s); len(list) != 2 || list[0].Owner != "k2" || list[0].CreatedAt.Equal(before[0].CreatedAt) {
		t.Errorf("with another owner: %v", list)
	}
	stale := before[0]
	if err := s.DropPushSubscription(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		add(string(rune('c'+i)), "k2", "1")
	}
	add("z", "", "1")
	s.Close()
	s = start(t, open)
	var ids string
	list, _ := pushState(t, s)
	for _, p := range list {
		ids += p.ID
	}
	if ids != "cdefghijklz" {
		t.Errorf("stored are the subscriptions %s", ids)
	}
	if err := s.RemovePushSubscription(t.Context(), "k1", "c"); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("a subscription of another owner: %v", err)
	}
	revision, err := s.CredentialsRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, stored, err := s.ChangeCredentials(t.Context(), loquat.CredentialChange{Revision: revision, Remove: []string{"k2"}}); err != nil || !stored {
		t.Fatalf("stored %v, %v", stored, err)
	}
	if list, _ := pushState(t, s); len(list) != 1 || list[0].ID != "z" || pushKeys(t, s, loquat.PushKeys{}) != first {
		t.Errorf("after the token was removed: %v", list)
	}
}

// pushKeys returns the stored keys, or made if there are none.
func pushKeys(t *testing.T, s *store.Store, made loquat.PushKeys) loquat.PushKeys {
	t.Helper()
	got, err := s.PushKeys(t.Context(), func() (loquat.PushKeys, error) { return made, nil })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// pushKeysOnce checks that keys are made once, and returns them.
func pushKeysOnce(t *testing.T, s *store.Store) loquat.PushKeys {
	t.Helper()
	failure := errors.New("failed")
	if _, err := s.PushKeys(t.Context(), func() (loquat.PushKeys, error) { return loquat.PushKeys{}, failure }); !errors.Is(err, failure) {
		t.Errorf("keys that cannot be made: %v", err)
	}
	first := loquat.PushKeys{Private: "p", Public: "q"}
	if a, b := pushKeys(t, s, first), pushKeys(t, s, loquat.PushKeys{Private: "other", Public: "other"}); a != first || b != first {
		t.Errorf("the keys are %v and %v", a, b)
	}
	return first
}

// pushState returns what PushState returns.
func pushState(t *testing.T, s *store.Store) (list []loquat.PushSubscription, sent loquat.EventID) {
	t.Helper()
	view(t, s, func(r *store.Reader) (err error) {
		list, sent, err = r.PushState()
		return err
	})
	return list, sent
}
