package chat_test

import (
	"errors"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/config"
)

// regenerate sends without a message and waits for the reply.
func (r *rig) regenerate(session string, from int) {
	r.t.Helper()
	r.ended(r.send(session, loquat.Send{DeleteFrom: &from, Keep: true}).RequestID)
}

// The image of a kept message cannot be deleted until the alternative is removed.
func TestImageOfAnAlternative(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	image := r.upload(s.SessionID, 1).AssetID
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, showing(image)); err != nil {
		t.Fatal(err)
	}
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("without it"), DeleteFrom: new(0), Keep: true}).RequestID)
	list, err := r.Alternatives(t.Context(), s.SessionID, nil)
	if err != nil || len(list.Alternatives) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image); loquat.CodeOf(err) != loquat.CodeConflict || !strings.Contains(err.Error(), "alternative") {
		t.Errorf("the deletion of an image that a kept message shows: %v", err)
	}
	if err := r.RemoveAlternative(t.Context(), chat.Call{}, s.SessionID, list.Alternatives[0].AlternativeID); err != nil {
		t.Fatal(err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image); err != nil {
		t.Errorf("the deletion of an image that nothing shows: %v", err)
	}
}

// Kept replies count for storage_bytes until they are removed.
func TestKeptRepliesUseStorage(t *testing.T) {
	r := newRig(t)
	call := chat.Call{By: chat.By{User: "ann", Rules: config.Role{Bounds: config.Bounds{StorageBytes: 3<<20 + 4096}}}}
	s := r.create(loquat.NewSession{User: "ann"})
	again := loquat.Send{DeleteFrom: new(1), Keep: true}
	for n := range 4 {
		r.provider.then(phase{reply: loquat.Reply{Content: strings.Repeat("x", 1<<20)}})
		p := again
		if n == 0 {
			p = loquat.Send{Content: text("much")}
		}
		sent, err := r.Requests.Send(t.Context(), call, s.SessionID, p)
		if err != nil {
			t.Fatalf("send %d: %v", n, err)
		}
		r.ended(sent.Body.RequestID)
	}
	_, err := r.Requests.Send(t.Context(), call, s.SessionID, again)
	if refused, ok := errors.AsType[*loquat.Error](err); !ok || refused.Bound != "storage_bytes" {
		t.Fatalf("with three kept replies: %v", err)
	}
	list, err := r.Alternatives(t.Context(), s.SessionID, new(1))
	if err != nil || len(list.Alternatives) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, a := range list.Alternatives[:2] {
		if err := r.RemoveAlternative(t.Context(), call, s.SessionID, a.AlternativeID); err != nil {
			t.Fatal(err)
		}
	}
	if sent, err := r.Requests.Send(t.Context(), call, s.SessionID, again); err != nil {
		t.Errorf("with one kept reply: %v", err)
	} else {
		r.ended(sent.Body.RequestID)
	}
}

// A switch brings back at most maxSwitch bytes; the messages stay where they are.
func TestLargeAlternative(t *testing.T) {
	r := newRig(t)
	large := strings.Repeat("twelve bytes", 3<<20)
	r.provider.then(phase{reply: loquat.Reply{Content: large}})
	s := r.create(loquat.NewSession{})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("much")}).RequestID)
	r.regenerate(s.SessionID, 1)
	list, err := r.Alternatives(t.Context(), s.SessionID, new(1))
	if err != nil || len(list.Alternatives) != 2 || !strings.HasPrefix(list.Alternatives[0].Preview, "twelve bytes") || len(list.Alternatives[0].Preview) > 1000 {
		t.Fatalf("%+v, %v", list, err)
	}
	id := list.Alternatives[0].AlternativeID
	if _, err := r.SwitchAlternative(t.Context(), chat.Call{}, s.SessionID, id); loquat.CodeOf(err) != loquat.CodeTooLarge {
		t.Errorf("a switch to 36 MiB: %v", err)
	}
	got, err := r.Alternative(t.Context(), s.SessionID, id)
	if err != nil || len(got.Messages) != 1 || got.Messages[0].Content != large {
		t.Errorf("the large reply has %d messages, %v", len(got.Messages), err)
	}
	if now := transcript(r.snapshot(s.SessionID).Messages); now != "user:much | assistant:ok" {
		t.Errorf("messages %s", now)
	}
}
