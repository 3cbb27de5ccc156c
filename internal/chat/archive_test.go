package chat_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
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
	return digestOf(t, s)
}

func digestOf(t rapid.TB, s archive.Session) [32]byte {
	t.Helper()
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

// Two imports of the same sessions at the same time store each once, and none fails.
func TestConcurrentImports(t *testing.T) {
	r := newRig(t)
	items := func(yield func(archive.Item, error) bool) {
		for i := range 30 {
			s := archive.Session{SessionID: fmt.Sprint("s", i), AgentID: "default", Messages: []loquat.Message{{ID: "m", Role: "user"}}}
			if !yield(archive.Item{Session: s}, nil) {
				return
			}
		}
	}
	reports := make(chan loquat.ImportReport, 4)
	for range cap(reports) {
		go func() {
			report, err := r.Import(t.Context(), items, chat.ImportOptions{})
			report.Error += fmt.Sprint(err)
			reports <- report
		}()
	}
	imported := 0
	for range cap(reports) {
		report := <-reports
		if imported += report.Imported; report.Failed > 0 || report.Imported+report.Skipped != 30 {
			t.Errorf("%+v", report)
		}
	}
	if imported != 30 {
		t.Errorf("%d sessions were imported", imported)
	}
}

// The images of a file may have any order: a repeat of the import skips the session.
func TestImportWithImagesInAnyOrder(t *testing.T) {
	r := newRig(t)
	s := archive.Session{SessionID: "s", AgentID: "default", Alternatives: []loquat.AlternativeNode{{Index: 1, Within: loquat.OfSession, InPlace: true}, {Index: 1, Within: loquat.OfSession}}}
	message := func(id string, images ...string) loquat.Message {
		var attachments []loquat.Object
		for _, image := range images {
			attachments = append(attachments, loquat.Object{}.Set("type", "image").Set("asset_id", image))
		}
		return loquat.Message{ID: id, Role: "user", Metadata: loquat.Object{}.Set("attachments", attachments)}
	}
	s.Messages = []loquat.Message{message("m1", "z", "b", "y"), message("m2", "a")}
	s.Alternatives[1].Messages = []loquat.Message{message("m3", "x", "w", "b")}
	for i, id := range []string{"w", "x", "y", "a", "z", "b"} {
		image := archivetest.Image(byte(i))
		image.AssetID = id
		s.Images = append(s.Images, image)
	}
	for _, want := range []string{loquat.ImportStored, loquat.ImportSkipped} {
		report, err := r.Import(t.Context(), only(s), chat.ImportOptions{})
		if err != nil || report.Sessions[0].Status != want || len(report.Sessions[0].Notes) > 0 {
			t.Fatalf("%+v, %v; want %s", report, err, want)
		}
	}
	stored, _, err := r.Archived(t.Context(), "s")
	if err != nil || len(stored.Images) != 6 || stored.Images[0].AssetID != "b" || stored.Images[5].AssetID != "x" {
		t.Errorf("%+v, %v", stored.Images, err)
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
		end := func(i int) loquat.Message {
			return loquat.Message{ID: fmt.Sprint("k", i), Role: "assistant", Content: fmt.Sprint("kept ", i)}
		}
		s.Alternatives = []loquat.AlternativeNode{{Index: 1, Within: loquat.OfSession, InPlace: true}, {Index: 1, Within: loquat.OfSession}, {Index: 2, Within: 1, InPlace: true}, {Index: 2, Within: 1, Messages: []loquat.Message{end(0)}}}
		for i := range 700 {
			s.Alternatives[1].Messages = append(s.Alternatives[1].Messages, end(i+1))
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
		if found, getErr := r.Session(t.Context(), s.SessionID); getErr == nil && (len(found.Messages) != 1200 || digest(t, r, s.SessionID) != digestOf(t, s)) || getErr != nil && loquat.CodeOf(getErr) != loquat.CodeNotFound {
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

// The alternatives of an imported session are those of the archive, and a switch puts their messages in
// place, in whatever order. The session stays one that archives can carry.
func TestAlternativesOfImportedSessions(t *testing.T) {
	from, to := newRig(t), newRig(t)
	sessions := archivetest.Sessions()
	switched := 0
	for i := range 60 {
		s := sessions.Example(i)
		if report, err := from.Import(t.Context(), only(s), chat.ImportOptions{}); err != nil || report.Imported != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		for turn := range 6 {
			list, err := from.Alternatives(t.Context(), s.SessionID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Alternatives) == 0 {
				break
			}
			from.switchTo(s.SessionID, list.Alternatives[turn*7%len(list.Alternatives)])
			switched++
		}
		exported, _, err := from.Archived(t.Context(), s.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := messageIDs(t, s), messageIDs(t, exported); !slices.Equal(a, b) {
			t.Fatalf("session %d has the messages %q after switches, and %q before", i, b, a)
		}
		if report, err := to.Import(t.Context(), only(exported), chat.ImportOptions{}); err != nil || report.Imported != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		if digest(t, to, s.SessionID) != digestOf(t, exported) {
			t.Errorf("session %d differs after switches", i)
		}
	}
	if switched < 50 {
		t.Errorf("only %d switches", switched)
	}
}

// switchTo puts an alternative in place and checks the messages.
func (r *rig) switchTo(session string, a loquat.Alternative) {
	r.t.Helper()
	want, err := r.Alternative(r.t.Context(), session, a.AlternativeID)
	if err != nil {
		r.t.Fatal(err)
	}
	before := r.snapshot(session).Messages[:a.Index]
	if _, err := r.SwitchAlternative(r.t.Context(), chat.Call{}, session, a.AlternativeID); err != nil {
		r.t.Fatal(err)
	}
	if got := r.snapshot(session).Messages; transcript(got) != transcript(append(slices.Clone(before), want.Messages...)) {
		r.t.Fatalf("after the switch to %s: %s", a.AlternativeID, transcript(got))
	}
}

// messageIDs returns the ids of all messages of a session, sorted.
func messageIDs(t *testing.T, s archive.Session) (ids []string) {
	t.Helper()
	_ = s.EachMessage(func(_ string, m *loquat.Message) error {
		ids = append(ids, m.ID)
		return nil
	})
	slices.Sort(ids)
	return ids
}

// Alternatives that are not a tree are refused, with their place.
func TestImportOfFaultyAlternatives(t *testing.T) {
	r := newRig(t)
	m := func(ids ...string) (out []loquat.Message) {
		for _, id := range ids {
			out = append(out, loquat.Message{ID: id, Role: "user"})
		}
		return out
	}
	const session = loquat.OfSession
	for name, c := range map[string]struct {
		nodes []loquat.AlternativeNode
		want  string
	}{
		"behind the end":    {[]loquat.AlternativeNode{{Index: 4, Within: session, InPlace: true}}, "alternatives[0].index"},
		"before the parent": {[]loquat.AlternativeNode{{Index: 1, Within: session, Messages: m("a")}, {Index: 1, Within: 0, InPlace: true}}, "alternatives[1].index"},
		"behind the parent": {[]loquat.AlternativeNode{{Index: 1, Within: session, Messages: m("a")}, {Index: 3, Within: 0, InPlace: true}}, "alternatives[1].index"},
		"unknown parent":    {[]loquat.AlternativeNode{{Index: 1, Within: 7, InPlace: true}}, "alternatives[0].within"},
		"in what is there":  {[]loquat.AlternativeNode{{Index: 1, Within: session, InPlace: true}, {Index: 2, Within: 0, InPlace: true}}, "alternatives[1].within"},
		"itself":            {[]loquat.AlternativeNode{{Index: 1, Within: 0, Messages: m("a")}}, "alternatives[0].index"},
		"no messages":       {[]loquat.AlternativeNode{{Index: 1, Within: session}}, "alternatives[0] must have messages"},
		"none in place":     {[]loquat.AlternativeNode{{Index: 1, Within: session, Messages: m("a")}}, "0 in place and 1 kept"},
		"two in place":      {[]loquat.AlternativeNode{{Index: 1, Within: session, Messages: m("a")}, {Index: 1, Within: session, InPlace: true}, {Index: 1, Within: session, InPlace: true}}, "2 in place"},
		"none kept":         {[]loquat.AlternativeNode{{Index: 1, Within: session, InPlace: true}}, "1 in place and 0 kept"},
		"an id twice":       {[]loquat.AlternativeNode{{Index: 1, Within: session, InPlace: true}, {Index: 1, Within: session, Messages: m("m1")}}, "alternatives[1].messages[0].id is also the id of messages[1]"},
	} {
		s := archive.Session{SessionID: "s", AgentID: "default", Messages: m("m0", "m1", "m2"), Alternatives: c.nodes}
		report, err := r.Import(t.Context(), only(s), chat.ImportOptions{})
		if err != nil || report.Failed != 1 || !strings.Contains(report.Sessions[0].Error, c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, report.Sessions, err, c.want)
		}
	}
	s := archive.Session{SessionID: "s", AgentID: "default", Origin: loquat.Origin{SourceSessionID: "not an id"}}
	if report, err := r.Import(t.Context(), only(s), chat.ImportOptions{}); err != nil || report.Failed != 1 || !strings.Contains(report.Sessions[0].Error, "source_session_id") {
		t.Errorf("%+v, %v", report, err)
	}
}
