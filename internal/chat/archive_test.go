package chat_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// only yields one session.
func only(s archive.Session) iter.Seq2[archive.Item, error] {
	return func(yield func(archive.Item, error) bool) { yield(archive.Item{Place: "here", Session: s}, nil) }
}

// digest returns the digest of a session on the server.
func digest(t rapid.TB, r *rig, id string) [32]byte {
	t.Helper()
	s, _, err := r.Archived(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := archive.Digest(s)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// A session that was imported is the same session when it is exported and imported elsewhere.
func TestImportedSessionsStayTheSame(t *testing.T) {
	from, to := newRig(t), newRig(t)
	sessions := archivetest.Sessions()
	for i := range 40 {
		s := sessions.Example(i)
		if report, err := from.Import(t.Context(), only(s), chat.ImportOptions{}); err != nil || report.Imported != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		exported, _, err := from.Archived(t.Context(), s.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{loquat.ImportStored, loquat.ImportSkipped} {
			report, err := to.Import(t.Context(), only(exported), chat.ImportOptions{})
			if err != nil || report.Sessions[0].Status != want {
				t.Fatalf("%+v, %v; want %s", report, err, want)
			}
		}
		if digest(t, from, s.SessionID) != digest(t, to, s.SessionID) {
			t.Errorf("session %d differs", i)
		}
	}
}

// An import that is interrupted at any write leaves no part of a session, and can be repeated.
func TestInterruptedImport(t *testing.T) {
	g := &gauge{}
	r := newRigOn(t, func(db store.Driver) store.Driver { g.Driver = db; return g })
	for stop := 1; ; stop++ {
		image := archivetest.Image(byte(stop))
		image.AssetID = "a"
		s := archive.Session{SessionID: fmt.Sprint("s", stop), AgentID: "default", Images: []archive.Image{image}}
		for i := range 1200 {
			s.Messages = append(s.Messages, loquat.Message{ID: fmt.Sprint("m", i), Role: "user", Content: fmt.Sprint("message ", i)})
		}
		s.Messages[7].Metadata = loquat.Object{}.Set("attachments", []loquat.Object{loquat.Object{}.Set("type", "image").Set("asset_id", "a")})
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		g.beforeWrites(func() {
			if writes++; writes == stop {
				cancel()
			}
		})
		report, err := r.Import(ctx, only(s), chat.ImportOptions{})
		g.beforeWrites(nil)
		interrupted := ctx.Err() != nil
		cancel()
		if found, getErr := r.Session(t.Context(), s.SessionID); getErr == nil && len(found.Messages) != 1200 || getErr != nil && loquat.CodeOf(getErr) != loquat.CodeNotFound {
			t.Fatalf("interrupted at write %d: %d messages, %v", stop, len(found.Messages), getErr)
		}
		if !interrupted {
			if err != nil || report.Imported != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			if stop < 5 {
				t.Errorf("the import had %d writes only", stop)
			}
			return
		}
		if report, err := r.Import(t.Context(), only(s), chat.ImportOptions{}); err != nil || report.Imported+report.Skipped != 1 {
			t.Fatalf("the repeat after write %d: %+v, %v", stop, report, err)
		}
	}
}
