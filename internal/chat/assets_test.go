package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/plugin"
)

// picture is a PNG that differs from those of other numbers.
func picture(n int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, n%1000+1, n/1000+1))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func (r *rig) upload(sessionID string, n int) loquat.Asset {
	r.t.Helper()
	a, err := r.Assets.StoreAsset(r.t.Context(), sessionID, "", "image/png", bytes.NewReader(picture(n)))
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// files counts the files that are kept, after a cleanup.
func (r *rig) files() (n int) {
	r.t.Helper()
	if err := r.Cleanup(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	n, err := r.countImages()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) wantPicture(sessionID, assetID string, n int) {
	r.t.Helper()
	a, content, err := r.Assets.OpenAsset(r.t.Context(), sessionID, assetID)
	if err != nil {
		r.t.Errorf("open %s of %s: %v", assetID, sessionID, err)
		return
	}
	defer content.Close()
	got, err := io.ReadAll(content)
	if err != nil || !bytes.Equal(got, picture(n)) || a.Size != int64(len(got)) {
		r.t.Errorf("asset %s is not picture %d: %v", assetID, n, err)
	}
}

// showing is a message with these images.
func showing(ids ...string) loquat.NewMessage {
	m := loquat.NewMessage{Role: loquat.RoleUser, Content: "see"}
	for _, id := range ids {
		m.Attachments = append(m.Attachments, json.RawMessage(`{"type":"image","asset_id":"`+id+`"}`))
	}
	return m
}

func wantCode(t testing.TB, what string, err error, code loquat.Code, says string) {
	t.Helper()
	e, ok := errors.AsType[*loquat.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Detail, says) {
		t.Errorf("%s: %v, want %s with %q", what, err, code, says)
	}
}

func TestAssetsAreOwnedBySessions(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	other := r.create(loquat.NewSession{})
	one, same, two := r.upload(s.SessionID, 1), r.upload(s.SessionID, 1), r.upload(s.SessionID, 2)
	theirs := r.upload(other.SessionID, 1)
	if one.AssetID == same.AssetID || one.SHA256 != same.SHA256 || r.files() != 2 {
		t.Errorf("assets %+v, %+v in %d files", one, same, r.files())
	}
	r.wantPicture(s.SessionID, one.AssetID, 1)
	_, _, err := r.Assets.OpenAsset(t.Context(), other.SessionID, one.AssetID)
	wantCode(t, "an asset of another session", err, loquat.CodeNotFound, one.AssetID)
	_, err = r.AppendMessage(t.Context(), chat.Call{}, other.SessionID, showing(theirs.AssetID, one.AssetID))
	wantCode(t, "a message with an asset of another session", err, loquat.CodeInvalid, "body.attachments[1].asset_id")
	_, err = r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Messages: []loquat.NewMessage{showing(one.AssetID)}})
	wantCode(t, "a new session with an asset", err, loquat.CodeInvalid, "body.messages[0].attachments[0].asset_id")
	_, err = r.Assets.StoreAsset(t.Context(), "nobody", "", "", bytes.NewReader(picture(9)))
	wantCode(t, "an upload to no session", err, loquat.CodeNotFound, "nobody")

	for _, a := range []string{one.AssetID, two.AssetID} {
		if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, a); err != nil {
			t.Error(err)
		}
	}
	if n := r.files(); n != 1 {
		t.Errorf("%d files, and two sessions have picture 1", n)
	}
	r.wantPicture(s.SessionID, same.AssetID, 1)
	r.wantPicture(other.SessionID, theirs.AssetID, 1)
}

func TestUsedAssetsStay(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: loquat.RoleUser, Content: "first"}}})
	a, b := r.upload(s.SessionID, 1), r.upload(s.SessionID, 2)
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, showing(b.AssetID, a.AssetID)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ModifyMessage(t.Context(), chat.Call{}, s.SessionID, 1, "changed"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "used", r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID), loquat.CodeConflict, "message 1 ")
	if _, err := r.DeleteMessages(t.Context(), chat.Call{}, s.SessionID, []int{0}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "used after the indices moved", r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID), loquat.CodeConflict, "message 0 ")

	fork, err := r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	r.wantPicture(fork.SessionID, a.AssetID, 1)
	if err := r.DeleteSession(t.Context(), chat.Call{}, s.SessionID); err != nil {
		t.Fatal(err)
	}
	if n := r.files(); n != 2 {
		t.Errorf("%d files; the fork has two", n)
	}
	r.wantPicture(fork.SessionID, b.AssetID, 2)
	wantCode(t, "used by the fork", r.Assets.DeleteAsset(t.Context(), fork.SessionID, a.AssetID), loquat.CodeConflict, "message 0 ")
	zero := 0
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, fork.SessionID, loquat.Send{Content: text("again"), DeleteFrom: &zero}); err != nil {
		t.Fatal(err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), fork.SessionID, a.AssetID); err != nil {
		t.Errorf("no message is left that uses it: %v", err)
	}
	if err := r.DeleteSession(t.Context(), chat.Call{}, fork.SessionID); err != nil {
		t.Fatal(err)
	}
	if n := r.files(); n != 0 {
		t.Errorf("%d files, and no session is left", n)
	}
}

func TestAssetsOfQueuedSends(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	a := r.upload(s.SessionID, 1)
	gate := make(chan struct{})
	r.provider.then(phase{gate: gate, reply: loquat.Reply{Content: "ok"}})
	r.provider.then(phase{gate: gate, reply: loquat.Reply{Content: "ok"}})
	send := func(id string) {
		p := loquat.Send{RequestID: id, Attachments: showing(a.AssetID).Attachments, OnBusy: loquat.BusyQueue}
		if id == "first" {
			p = loquat.Send{RequestID: id, Content: text("first")}
		}
		if _, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, p); err != nil {
			t.Fatal(err)
		}
	}
	send("first")
	send("queued")
	wantCode(t, "queued", r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID), loquat.CodeConflict, "request queued")
	gate <- struct{}{}
	r.ended("first")
	wantCode(t, "started", r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID), loquat.CodeConflict, "message 2 ")
	send("cancelled")
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, "cancelled"); err != nil {
		t.Fatal(err)
	}
	gate <- struct{}{}
	r.ended("queued")
	if _, err := r.DeleteMessages(t.Context(), chat.Call{}, s.SessionID, []int{2}); err != nil {
		t.Fatal(err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID); err != nil {
		t.Errorf("a cancelled send uses nothing: %v", err)
	}
}

func TestAssetsNeedTheirSwitch(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"allow_image_attachment_base64": false}}`)})
	a := r.upload(s.SessionID, 1)
	_, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Attachments: showing(a.AssetID).Attachments})
	wantCode(t, "inline images are off", err, loquat.CodeInvalid, "allow_image_attachment_base64")
}

func TestImagesOfTools(t *testing.T) {
	draw := tool{"draw", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{
			Content:  "drawn",
			Metadata: loquat.Object{}.Set("attachments", "a tool's own idea"),
			Images:   []plugin.Image{{MediaType: "image/gif", Data: picture(3)}, {MediaType: "image/png", Data: []byte("no image")}},
		}, nil
	}}
	r := newRig(t, draw)
	s := r.create(loquat.NewSession{})
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("draw")}})
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{RequestID: "q", Content: text("draw")}); err != nil {
		t.Fatal(err)
	}
	r.ended("q")
	m := r.snapshot(s.SessionID).Messages[2]
	ids := m.AssetIDs()
	if len(ids) != 1 || !strings.HasPrefix(m.Content, "drawn\n[Image 2 of the tool is left out: ") {
		t.Fatalf("tool message %q with %s", m.Content, m.Metadata["attachments"])
	}
	r.wantPicture(s.SessionID, ids[0], 3)
	wantCode(t, "used by a tool message", r.Assets.DeleteAsset(t.Context(), s.SessionID, ids[0]), loquat.CodeConflict, "message 2 ")
	a, content, err := r.provider.seen()[1].OpenAsset(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if a.MediaType != "image/png" {
		t.Errorf("the phase after the tool opens %+v", a)
	}
}

// A tool that returns images without end keeps nobody busy for as long.
func TestImagesOfToolsAreBounded(t *testing.T) {
	r := newRig(t, tool{"draw", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Images: make([]plugin.Image, 500_000)}, nil
	}})
	s := r.create(loquat.NewSession{})
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("draw")}})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("draw")}).RequestID)
	lines := strings.Split(r.snapshot(s.SessionID).Messages[2].Content, "\n")
	if last := lines[len(lines)-1]; len(lines) != 65 || last != "[499936 more images of the tool are left out: a result may have 64.]" {
		t.Errorf("%d lines, the last is %s", len(lines), last)
	}
}

// Uploads and deletions of the same bytes in many sessions at once never lose bytes that
// a session still has.
func TestAssetsAtOnce(t *testing.T) {
	r := newRig(t)
	const sessions, rounds = 6, 15
	failed := make(chan error, sessions)
	for i := range sessions {
		s := r.create(loquat.NewSession{SessionID: fmt.Sprint("s", i)})
		go func() {
			failed <- func() error {
				for range rounds {
					a, err := r.Assets.StoreAsset(t.Context(), s.SessionID, "", "", bytes.NewReader(picture(1)))
					if err != nil {
						return err
					}
					_, content, err := r.Assets.OpenAsset(t.Context(), s.SessionID, a.AssetID)
					if err != nil {
						return fmt.Errorf("what was just stored: %w", err)
					}
					content.Close()
					if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, a.AssetID); err != nil {
						return err
					}
					if err := r.Cleanup(t.Context()); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range sessions {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if n := r.files(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// Uploads that no message uses are limited in number and removed by age.
func TestUploadsThatNobodyAttaches(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{hang: true})
	s := r.create(loquat.NewSession{})
	running := r.send(s.SessionID, loquat.Send{Content: text("wait")})
	shown, queued := r.upload(s.SessionID, 1), r.upload(s.SessionID, 2)
	other := r.create(loquat.NewSession{})
	used := r.upload(other.SessionID, 1)
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, other.SessionID, showing(used.AssetID)); err != nil {
		t.Fatal(err)
	}
	r.send(s.SessionID, loquat.Send{Attachments: showing(queued.AssetID).Attachments, OnBusy: loquat.BusyQueue})
	for n := 2; n < chat.MaxUploads; n++ {
		r.upload(s.SessionID, 3)
	}
	_, err := r.Assets.StoreAsset(t.Context(), s.SessionID, "", "image/png", bytes.NewReader(picture(4)))
	wantCode(t, "one upload too many", err, loquat.CodeRateLimited, "attach or delete some")
	if n := r.files(); n != 3 {
		t.Errorf("%d files, want those of three pictures", n)
	}
	if err := r.Assets.RemoveUnusedUploads(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.wantPicture(s.SessionID, shown.AssetID, 1) // nothing is old enough

	if err := r.Assets.RemoveUnusedUploads(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Assets.OpenAsset(t.Context(), s.SessionID, shown.AssetID)
	wantCode(t, "an old upload", err, loquat.CodeNotFound, "no asset")
	r.wantPicture(s.SessionID, queued.AssetID, 2)
	r.wantPicture(other.SessionID, used.AssetID, 1)
	if n := r.files(); n != 2 {
		t.Errorf("%d files, want those of the pictures that are used", n)
	}
	r.upload(s.SessionID, 4)
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, running.RequestID); err != nil {
		t.Fatal(err)
	}
	r.ended(running.RequestID)
}
