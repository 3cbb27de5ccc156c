package chat_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/chat"
)

// Whatever is done to sessions and their images, each session has the images that the
// model says, bytes are kept once and as long as a session has them, and what a message
// uses cannot be deleted.
func TestAssetModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: some thousand deeds, each on disk")
	}
	r := newRig(t)
	rapid.Check(t, func(t *rapid.T) {
		g := &gallery{r: r}
		defer g.clear()
		g.create(t)
		t.Repeat(map[string]func(*rapid.T){
			"":               g.check,
			"create":         g.create,
			"upload":         g.upload,
			"upload again":   g.upload,
			"attach":         g.attach,
			"send":           g.send,
			"modify":         g.modify,
			"delete message": g.deleteMessage,
			"delete asset":   g.deleteAsset,
			"fork":           g.fork,
			"delete session": g.deleteSession,
			"crash":          g.crash,
			"count files":    g.countFiles,
		})
		g.countFiles(t)
	})
}

// gallery is a service and the images that it should have.
type gallery struct {
	r        *rig
	n        int // requests so far
	sessions []*wall
}

// wall is what the model knows of a session.
type wall struct {
	id       string
	assets   map[string]int // which picture, by asset_id
	messages [][]string     // the assets that each message shows
}

func (w *wall) shows(id string) int {
	return slices.IndexFunc(w.messages, func(ids []string) bool { return slices.Contains(ids, id) })
}

func (g *gallery) some(t *rapid.T) *wall {
	if len(g.sessions) == 0 {
		t.Skip("no session is left")
	}
	return rapid.SampledFrom(g.sessions).Draw(t, "session")
}

// asset draws an asset of any session.
func (g *gallery) asset(t *rapid.T) string {
	var ids []string
	for _, w := range g.sessions {
		ids = append(ids, slices.Sorted(maps.Keys(w.assets))...)
	}
	if len(ids) == 0 {
		t.Skip("no asset for it")
	}
	return rapid.SampledFrom(ids).Draw(t, "asset")
}

func (g *gallery) create(*rapid.T) {
	g.sessions = append(g.sessions, &wall{id: g.r.create(loquat.NewSession{}).SessionID, assets: map[string]int{}})
}

func (g *gallery) upload(t *rapid.T) {
	w, n := g.some(t), rapid.IntRange(1, 4).Draw(t, "picture")
	a, err := g.r.Assets.StoreAsset(g.r.t.Context(), w.id, "", "", bytes.NewReader(picture(n)))
	if err != nil {
		t.Fatal(err)
	}
	w.assets[a.AssetID] = n
}

// fits holds an answer to a message with an asset against the model.
func (w *wall) fits(t *rapid.T, id string, err error) bool {
	_, has := w.assets[id]
	if has && err != nil || !has && loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Fatalf("a message with asset %s, which the session has: %v: %v", id, has, err)
	}
	return has
}

func (g *gallery) attach(t *rapid.T) {
	w, id := g.some(t), g.asset(t)
	_, err := g.r.AppendMessage(g.r.t.Context(), chat.Call{}, w.id, showing(id))
	if w.fits(t, id, err) {
		w.messages = append(w.messages, []string{id})
	}
}

// send asks for a reply, perhaps instead of some messages.
func (g *gallery) send(t *rapid.T) {
	w, id := g.some(t), g.asset(t)
	g.n++
	p := loquat.Send{RequestID: fmt.Sprint(w.id, "-", g.n), Attachments: showing(id).Attachments}
	keep := len(w.messages)
	if keep > 0 && rapid.Bool().Draw(t, "delete some") {
		keep = rapid.IntRange(0, keep-1).Draw(t, "delete from")
		p.DeleteFrom = &keep
	}
	_, err := g.r.Requests.Send(g.r.t.Context(), chat.Call{}, w.id, p)
	if !w.fits(t, id, err) {
		return
	}
	g.r.ended(p.RequestID)
	w.messages = append(slices.Clone(w.messages[:keep]), []string{id}, nil)
}

func (g *gallery) message(t *rapid.T) (*wall, int) {
	w := g.some(t)
	if len(w.messages) == 0 {
		t.Skip("no message for it")
	}
	return w, rapid.IntRange(0, len(w.messages)-1).Draw(t, "index")
}

func (g *gallery) modify(t *rapid.T) {
	w, i := g.message(t)
	if _, err := g.r.ModifyMessage(g.r.t.Context(), chat.Call{}, w.id, i, "other words"); err != nil {
		t.Fatal(err)
	}
}

func (g *gallery) deleteMessage(t *rapid.T) {
	w, i := g.message(t)
	if _, err := g.r.DeleteMessages(g.r.t.Context(), chat.Call{}, w.id, []int{i}); err != nil {
		t.Fatal(err)
	}
	w.messages = slices.Delete(slices.Clone(w.messages), i, i+1)
}

func (g *gallery) deleteAsset(t *rapid.T) {
	w, id := g.some(t), g.asset(t)
	err := g.r.Assets.DeleteAsset(g.r.t.Context(), w.id, id)
	_, has := w.assets[id]
	want := loquat.Code("")
	switch {
	case !has:
		want = loquat.CodeNotFound
	case w.shows(id) >= 0:
		want = loquat.CodeConflict
	default:
		delete(w.assets, id)
	}
	if loquat.CodeOf(err) != want {
		t.Fatalf("delete %s: %v, want %q", id, err, want)
	}
}

func (g *gallery) fork(t *rapid.T) {
	w, last := g.message(t)
	s, err := g.r.ForkSession(g.r.t.Context(), chat.Call{}, w.id, loquat.Fork{UpToIndex: &last})
	if err != nil {
		t.Fatal(err)
	}
	copied := &wall{id: s.SessionID, assets: map[string]int{}, messages: slices.Clone(w.messages[:last+1])}
	for _, ids := range copied.messages {
		for _, id := range ids {
			copied.assets[id] = w.assets[id]
		}
	}
	g.sessions = append(g.sessions, copied)
}

func (g *gallery) deleteSession(t *rapid.T) {
	w := g.some(t)
	if err := g.r.DeleteSession(g.r.t.Context(), chat.Call{}, w.id); err != nil {
		t.Fatal(err)
	}
	g.sessions = slices.DeleteFunc(g.sessions, func(o *wall) bool { return o == w })
}

func (g *gallery) crash(*rapid.T) {
	dead := g.r.Service
	g.r.restart()
	dead.Stop(expired())
}

func (g *gallery) check(t *rapid.T) {
	for _, w := range g.sessions {
		for id, n := range w.assets {
			a, content, err := g.r.Assets.OpenAsset(g.r.t.Context(), w.id, id)
			if err != nil {
				t.Fatalf("asset %s of %s: %v", id, w.id, err)
			}
			content.Close()
			if a.Size != int64(len(picture(n))) {
				t.Fatalf("asset %s of %s is %+v", id, w.id, a)
			}
		}
	}
}

func (g *gallery) countFiles(t *rapid.T) {
	pictures := map[int]bool{}
	for _, w := range g.sessions {
		for _, n := range w.assets {
			pictures[n] = true
		}
	}
	if n := g.r.files(); n != len(pictures) {
		t.Fatalf("%d files for %d pictures", n, len(pictures))
	}
}

func (g *gallery) clear() {
	for _, w := range g.sessions {
		_ = g.r.DeleteSession(g.r.t.Context(), chat.Call{}, w.id)
	}
	g.sessions = nil
}
