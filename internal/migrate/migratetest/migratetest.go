// Package migratetest fills stores for tests of moves.
package migratetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Fill fills a store with sessions of turns: a user message, a request with increments, and
// its reply. A turn has 10 events, of which 4 are increments. A session has 2 more than its turns.
func Fill(tb testing.TB, s *store.Store, sessions, turns int) {
	tb.Helper()
	const together = 50 // sessions of one transaction
	for first := 0; first < sessions; first += together {
		err := s.Update(context.Background(), func(tx *store.Tx) error {
			for n := first; n < min(sessions, first+together); n++ {
				if err := AddSession(tx, fmt.Sprintf("session-%06d", n), turns, s.Owner()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// AddSession adds a session. The requests belong to owner.
func AddSession(tx *store.Tx, id string, turns int, owner string) error {
	h, err := tx.CreateSession(id, "default", loquat.Object{}.Set("title", "About "+id))
	if err != nil {
		return err
	}
	if err := tx.SetUser(&h, "ünïcödé \"user\""); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated, AgentID: h.AgentID}, &h, nil); err != nil {
		return err
	}
	if err := tx.Checkpoint(&h, nil, false); err != nil {
		return err
	}
	for turn := range turns {
		if err := AddTurn(tx, &h, fmt.Sprintf("%s-%d", id, turn), owner); err != nil {
			return err
		}
	}
	return nil
}

// reply is the text of a reply, with characters that databases treat differently.
var reply = strings.Repeat("Fine weather, \"quoted\", \\ and \x00 and ünïcödé. ", 8)

// AddTurn adds a turn to a session.
func AddTurn(tx *store.Tx, h *store.Head, id, owner string) error {
	question := loquat.Message{ID: "user-" + id, Role: loquat.RoleUser, Content: "What about " + id + "?", CreatedAt: tx.Now}
	index, err := tx.AppendMessage(h, question)
	if err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.MessageAppended, Index: &index, Message: question.AsDelta()}, h, nil); err != nil {
		return err
	}
	if err := tx.Checkpoint(h, nil, false); err != nil {
		return err
	}
	q := store.Request{Request: loquat.Request{RequestID: "request-" + id}, Send: []byte("{}"), Answer: []byte(`{"request_id": "request-` + id + `"}`)}
	if err := tx.AddRunning(h, &q, owner); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.RequestStarted}, h, &q); err != nil {
		return err
	}
	for part := range 4 {
		e := loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: reply[part*10 : part*10+10]}}
		if _, err := tx.Publish(e, h, &q); err != nil {
			return err
		}
	}
	m := loquat.Message{ID: "reply-" + id, Role: loquat.RoleAssistant, Content: reply + id, CreatedAt: tx.Now, Metadata: loquat.Object{}.Set("tokens", 12)}
	if _, err := tx.AppendMessage(h, m); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}, h, &q); err != nil {
		return err
	}
	if err := tx.Checkpoint(h, &q, false); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.RequestCompleted}, h, &q); err != nil {
		return err
	}
	return tx.EndRequest(&q, loquat.StatusCompleted, "")
}

// update runs an update.
func update(tb testing.TB, s *store.Store, fn func(*store.Tx) error) {
	tb.Helper()
	if err := s.Update(context.Background(), fn); err != nil {
		tb.Fatal(err)
	}
}

// change changes a session.
func change(tb testing.TB, s *store.Store, id string, fn func(*store.Tx, *store.Head) error) {
	tb.Helper()
	update(tb, s, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err == nil {
			err = fn(tx, &h)
		}
		if err == nil {
			err = tx.Checkpoint(&h, nil, false)
		}
		return err
	})
}

// AddEverything adds what few sessions have: versions of messages, deleted sessions, large
// texts, requests that wait and that run, credentials, answers and states.
func AddEverything(tb testing.TB, s *store.Store) {
	tb.Helper()
	for _, id := range []string{"edited", "deleted", "large", "running", "waiting", "gone", "empty", "\x00 odd \u2028 ids/äöü"} {
		update(tb, s, func(tx *store.Tx) error { return AddSession(tx, id, 3, s.Owner()) })
	}
	addVersions(tb, s)
	change(tb, s, "large", func(tx *store.Tx, h *store.Head) error {
		m := loquat.Message{ID: "large", Role: loquat.RoleAssistant, Content: strings.Repeat("48 MiB \x00 ", 48<<20/9), CreatedAt: tx.Now,
			Metadata: loquat.Object{}.Set("raw", strings.Repeat("x", 5<<20)).Set("small", 1)}
		_, err := tx.AppendMessage(h, m)
		return err
	})
	update(tb, s, func(tx *store.Tx) error {
		h, err := tx.Head("deleted")
		if err == nil {
			err = tx.DeleteSession(&h)
		}
		return err
	})
	addRequest(tb, s, "running", "a node that is gone")
	addRequest(tb, s, "waiting", "")
	update(tb, s, func(tx *store.Tx) error {
		if err := tx.StoreReplay("key \x00", "POST", "/sessions", store.Replay{BodyHash: [32]byte{1}, Result: []byte{}}); err != nil {
			return err
		}
		return tx.SetPluginState("notes", loquat.Object{}.Set("n", int64(1)<<60))
	})
	addCredentials(tb, s)
}

// addVersions changes and removes messages.
func addVersions(tb testing.TB, s *store.Store) {
	tb.Helper()
	change(tb, s, "edited", func(tx *store.Tx, h *store.Head) error {
		if _, err := tx.ModifyMessage(h, 1, "", "changed \x00"); err != nil {
			return err
		}
		tx.Describe(h, "other", loquat.Object{}.Set("title", "again"))
		return tx.DeleteMessages(h, []int{0, 3})
	})
	change(tb, s, "empty", func(tx *store.Tx, h *store.Head) error {
		tx.Describe(h, "", loquat.Object{})
		if _, err := tx.AppendMessage(h, loquat.Message{ID: "", Role: loquat.RoleUser, Content: "", CreatedAt: tx.Now}); err != nil {
			return err
		}
		_, err := tx.DeleteFrom(h, 4)
		return err
	})
}

// addRequest adds a request that runs at an owner, or waits if owner is "".
func addRequest(tb testing.TB, s *store.Store, session, owner string) {
	tb.Helper()
	update(tb, s, func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		q := store.Request{Request: loquat.Request{RequestID: "open-" + session}, Send: []byte(`{"text": "\u0000"}`), Answer: []byte("{}")}
		if owner == "" {
			return tx.EnqueueRequest(&h, &q, store.AtTheEnd)
		}
		if err := tx.AddRunning(&h, &q, owner); err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q); err != nil {
			return err
		}
		_, err = tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: "half"}}, &h, &q)
		return err
	})
}

func addCredentials(tb testing.TB, s *store.Store) {
	tb.Helper()
	day := time.Now().Add(24 * time.Hour)
	revision, err := s.CredentialsRevision(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	_, _, err = s.ChangeCredentials(context.Background(), loquat.CredentialChange{
		Revision: revision,
		Add: []loquat.Credential{
			{ID: "t1", Kind: "token", Name: "laptop", Scope: "full", Digest: [32]byte{1}, CreatedAt: time.Now().Add(-time.Hour)},
			{ID: "d1", Kind: "device", Name: "phone \x00", Scope: "chat", Digest: [32]byte{2}, CreatedAt: time.Now(), ExpiresAt: day},
		},
		Codes: []loquat.PairingCode{{Public: "abc", Digest: [32]byte{3}, Scope: "chat", ExpiresAt: day, Wrong: 2}},
	})
	if err != nil {
		tb.Fatal(err)
	}
}
