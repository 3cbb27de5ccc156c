package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// heldRig is a rig whose tool "hold" returns when the test sends to the channel.
func heldRig(t *testing.T) (*rig, chan struct{}) {
	gate := make(chan struct{})
	return newRig(t, tool{"hold", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
		select {
		case <-gate:
			return plugin.ToolResult{Content: "held"}, nil
		case <-ctx.Done():
			return plugin.ToolResult{}, ctx.Err()
		}
	}}), gate
}

// hold starts a request on a session that runs the tool "hold".
func (r *rig) hold(session string) loquat.SendResult {
	r.t.Helper()
	r.provider.then(phase{reply: loquat.Reply{Content: "Wait.", ToolCalls: calls("hold")}})
	sent := r.send(session, loquat.Send{Content: text("begin")})
	r.waitFor("the tool", func() bool { return strings.HasSuffix(story(r.log(session, 0)), "tool_calls") })
	return sent
}

// hang starts a request whose call of the model does not end. It returns when the model was called;
// otherwise the next request could get this call.
func (r *rig) hang(session string, p loquat.Send) loquat.SendResult {
	r.t.Helper()
	r.provider.then(phase{hang: true})
	called := len(r.provider.seen())
	sent := r.send(session, p)
	r.waitFor("the call of the model", func() bool { return len(r.provider.seen()) > called })
	return sent
}

func (r *rig) steer(session, content string) loquat.SendResult {
	r.t.Helper()
	sent := r.send(session, loquat.Send{Content: text(content), OnBusy: loquat.BusySteer})
	if sent.Status != loquat.StatusQueued {
		r.t.Errorf("a send that steers is %s", sent.Status)
	}
	return sent
}

func (r *rig) queue(session string) string {
	r.t.Helper()
	q, err := r.Requests.Queue(r.t.Context(), session)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, w := range q.Queue {
		out = append(out, w.OnBusy+":"+w.Message.Content)
	}
	return strings.Join(out, " ")
}

func TestSteer(t *testing.T) {
	r, gate := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	first, second := r.steer(s.SessionID, "shorter"), r.steer(s.SessionID, "in French")
	since := r.log(s.SessionID, 0)
	gate <- struct{}{}
	r.ended(running.RequestID)
	want := "user:begin | assistant:Wait. | tool:held | user:shorter | user:in French | assistant:ok"
	if got := transcript(r.snapshot(s.SessionID).Messages); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if asked := r.provider.seen(); len(asked) != 2 || transcript(asked[1].Messages)+" | assistant:ok" != want {
		t.Errorf("the model was called %d times, at last with %s", len(asked), transcript(asked[len(asked)-1].Messages))
	}
	took := "message_appended* checkpoint* request_started request_completed "
	if got := story(r.log(s.SessionID, since[len(since)-1].EventID)); got != "tool_results(held) checkpoint "+took+took+"queue_changed* final(ok) checkpoint request_completed" {
		t.Errorf("events %s", got)
	}
	for _, sent := range []loquat.SendResult{first, second} {
		q := r.ended(sent.RequestID)
		if q.Status != loquat.StatusCompleted || q.SteeredInto != running.RequestID || q.StartedAt == nil || q.EndedAt == nil {
			t.Errorf("a request that steered: %+v", q)
		}
		_, err := r.Requests.ChangeQueued(t.Context(), chat.Call{}, s.SessionID, sent.RequestID, loquat.QueuedPatch{Content: text("late")})
		if loquat.CodeOf(err) != loquat.CodeConflict {
			t.Errorf("a change of a message that was taken in: %v", err)
		}
	}
}

// Without a further call of the model the first send that steers runs by itself, and takes the
// others with it, before what queues.
func TestSteerWithoutAnotherCall(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{reply: loquat.Reply{Content: "done"}, gate: gate})
	s := r.create(loquat.NewSession{})
	r.send(s.SessionID, loquat.Send{Content: text("begin")})
	queued := r.send(s.SessionID, loquat.Send{Content: text("later"), OnBusy: loquat.BusyQueue})
	first, second := r.steer(s.SessionID, "shorter"), r.steer(s.SessionID, "in French")
	if got := r.queue(s.SessionID); got != "steer:shorter steer:in French queue:later" {
		t.Errorf("the queue is %s", got)
	}
	gate <- struct{}{}
	r.ended(queued.RequestID)
	want := "user:begin | assistant:done | user:shorter | user:in French | assistant:ok | user:later | assistant:ok"
	if got := transcript(r.snapshot(s.SessionID).Messages); got != want {
		t.Errorf("messages\n%s\nwant\n%s", got, want)
	}
	if a, b := r.ended(first.RequestID), r.ended(second.RequestID); a.SteeredInto != "" || b.SteeredInto != first.RequestID {
		t.Errorf("the first went into %q, the second into %q", a.SteeredInto, b.SteeredInto)
	}
	if left := r.queue(s.SessionID); left != "" {
		t.Errorf("left in the queue: %s", left)
	}
}

// A repeat of a send that was taken in gets the first answer.
func TestRepeatedSteer(t *testing.T) {
	r, gate := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	p := loquat.Send{Content: text("shorter"), OnBusy: loquat.BusySteer, RequestID: "mine"}
	first := r.send(s.SessionID, p)
	gate <- struct{}{}
	r.ended(running.RequestID)
	if again := r.send(s.SessionID, p); again != first {
		t.Errorf("the repeat is answered %+v, the send was %+v", again, first)
	}
	if n := len(r.snapshot(s.SessionID).Messages); n != 5 {
		t.Errorf("%d messages", n)
	}
}

func TestRollback(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(r *rig, session string) loquat.SendResult
		story string // of the events of the end
	}{
		"while tools run": {
			func(r *rig, session string) loquat.SendResult { return r.hold(session) },
			"messages_deleted* checkpoint* request_cancelled request_completed",
		},
		"while a reply streams": {
			func(r *rig, session string) loquat.SendResult {
				r.provider.then(phase{chunks: words("half"), hang: true})
				sent := r.send(session, loquat.Send{Content: text("begin"), Stream: new(true)})
				r.waitFor("the text", func() bool { return strings.Contains(story(r.log(session, 0)), "half") })
				return sent
			},
			"assistant_message:end messages_deleted* checkpoint* request_cancelled request_completed",
		},
		"before the reply begins": {
			func(r *rig, session string) loquat.SendResult {
				return r.hang(session, loquat.Send{Content: text("begin")})
			},
			"messages_deleted* checkpoint* request_cancelled request_completed",
		},
		"of a request without a message": {
			func(r *rig, session string) loquat.SendResult {
				return r.hang(session, loquat.Send{DeleteFrom: new(1)})
			},
			"request_cancelled request_completed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := heldRig(t)
			s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "earlier"}, {Role: "assistant", Content: "reply"}}})
			running := c.begin(r, s.SessionID)
			before := transcript(r.snapshot(s.SessionID).Messages)
			log := r.log(s.SessionID, 0)
			again := r.send(s.SessionID, loquat.Send{Content: text("again"), OnBusy: loquat.BusyRollback})
			if q := r.ended(running.RequestID); q.Status != loquat.StatusCancelled {
				t.Errorf("the request that was rolled back is %s", q.Status)
			}
			r.ended(again.RequestID)
			kept, _, _ := strings.Cut(before, " | user:begin")
			if got := transcript(r.snapshot(s.SessionID).Messages); got != kept+" | user:again | assistant:ok" {
				t.Errorf("messages %s", got)
			}
			if got := story(r.log(s.SessionID, log[len(log)-1].EventID)); got != "queue_changed* "+c.story+" message_appended* checkpoint* request_started queue_changed* final(ok) checkpoint request_completed" {
				t.Errorf("events %s", got)
			}
		})
	}
}

// A rollback takes back what steered the request, and leaves what waits.
func TestRollbackOfSteered(t *testing.T) {
	r, gate := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	r.steer(s.SessionID, "shorter")
	r.provider.then(phase{hang: true})
	gate <- struct{}{}
	r.waitFor("the second call", func() bool { return len(r.provider.seen()) == 2 })
	queued := r.send(s.SessionID, loquat.Send{Content: text("later"), OnBusy: loquat.BusyQueue})
	r.steer(s.SessionID, "and this")
	r.send(s.SessionID, loquat.Send{Content: text("one"), OnBusy: loquat.BusyRollback})
	r.ended(running.RequestID)
	r.ended(queued.RequestID)
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:one | user:and this | assistant:ok | user:later | assistant:ok" {
		t.Errorf("messages %s", got)
	}
}

// A rollback holds when the server dies after it was answered, before the request has ended.
func TestRollbackSurvivesACrash(t *testing.T) {
	r, _ := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	r.change(running.RequestID, func(tx *store.Tx, row *store.Request) error {
		send := strings.Replace(string(row.Send), "{", `{"roll_back":true,`, 1)
		return errors.Join(tx.SetSend(row, []byte(send)), tx.FlagCancelled(row))
	})
	dead := r.Service
	r.restart()
	if q := r.ended(running.RequestID); q.Status != loquat.StatusCancelled {
		t.Errorf("it ended as %s", q.Status)
	}
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "" {
		t.Errorf("messages %s", got)
	}
	dead.Stop(expired())
}

// A request that an older program started has not noted where its messages begin.
func TestRollbackOfAnOlderRequest(t *testing.T) {
	r, gate := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	r.change(running.RequestID, func(tx *store.Tx, row *store.Request) error {
		send := strings.Replace(string(row.Send), `"from":0`, `"other":0`, 1)
		if send == string(row.Send) {
			t.Errorf("the row has %s", send)
		}
		return tx.SetSend(row, []byte(send))
	})
	_, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text("again"), OnBusy: loquat.BusyRollback})
	if loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("a rollback of a request of an older program: %v", err)
	}
	gate <- struct{}{}
	if q := r.ended(running.RequestID); q.Status != loquat.StatusCompleted {
		t.Errorf("it ended as %s", q.Status)
	}
}

func TestChangeQueued(t *testing.T) {
	r, gate := heldRig(t)
	s, other := r.create(loquat.NewSession{}), r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	image := r.upload(s.SessionID, 1).AssetID
	first := r.send(s.SessionID, loquat.Send{Content: text("first"), Metadata: loquat.Object{}.Set("kept", 1).Set("gone", 2), OnBusy: loquat.BusyQueue, Stream: new(true)})
	second := r.send(s.SessionID, loquat.Send{Content: text("second"), OnBusy: loquat.BusyQueue})
	change := func(session, request string, p loquat.QueuedPatch) (loquat.QueuedSend, error) {
		out, err := r.Requests.ChangeQueued(t.Context(), chat.Call{}, session, request, p)
		return out.Body, err
	}
	before, err := r.Requests.Queue(t.Context(), s.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := change(s.SessionID, first.RequestID, loquat.QueuedPatch{
		Content: text("changed"), Stream: new(false), StreamTools: new(true), Attachments: showing(image).Attachments,
		Metadata: loquat.Object{"gone": json.RawMessage("null")}.Set("new", 3),
	})
	if err != nil || got.Message.Content != "changed" || got.Stream || !got.StreamTools || got.OnBusy != loquat.BusyQueue {
		t.Errorf("changed to %+v, %v", got, err)
	}
	if was := before.Queue[0].Message; got.Message.ID != was.ID || !got.Message.CreatedAt.Equal(was.CreatedAt) {
		t.Errorf("another message: %+v, was %+v", got.Message, was)
	}
	if m := got.Message.Metadata; string(m["kept"]) != "1" || m["gone"] != nil || string(m["new"]) != "3" || !strings.Contains(string(m["attachments"]), image) {
		t.Errorf("metadata %s", m)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image); loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("the deletion of an image that a queued send shows: %v", err)
	}
	if got, err := change(s.SessionID, first.RequestID, loquat.QueuedPatch{Attachments: []json.RawMessage{}}); err != nil || got.Message.Metadata["attachments"] != nil {
		t.Errorf("without its image: %+v, %v", got, err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image); err != nil {
		t.Errorf("the deletion of an image that nothing shows: %v", err)
	}
	for name, c := range map[string]struct {
		session, request string
		patch            loquat.QueuedPatch
		code             loquat.Code
	}{
		"of a session without it":        {other.SessionID, first.RequestID, loquat.QueuedPatch{}, loquat.CodeNotFound},
		"that nobody made":               {s.SessionID, "nobody", loquat.QueuedPatch{}, loquat.CodeNotFound},
		"of no session":                  {"nowhere", first.RequestID, loquat.QueuedPatch{}, loquat.CodeNotFound},
		"that runs":                      {s.SessionID, running.RequestID, loquat.QueuedPatch{}, loquat.CodeConflict},
		"to a policy that stops another": {s.SessionID, first.RequestID, loquat.QueuedPatch{OnBusy: loquat.BusyInterrupt}, loquat.CodeInvalid},
		"to an image of no session":      {s.SessionID, first.RequestID, loquat.QueuedPatch{Attachments: showing("missing").Attachments}, loquat.CodeInvalid},
		"to two lists of attachments": {s.SessionID, first.RequestID, loquat.QueuedPatch{
			Attachments: showing("a").Attachments, Metadata: loquat.Object{}.Set("attachments", showing("b").Attachments)}, loquat.CodeInvalid},
	} {
		if _, err := change(c.session, c.request, c.patch); loquat.CodeOf(err) != c.code {
			t.Errorf("a change of a request %s: %v", name, err)
		}
	}
	if got, err := change(s.SessionID, second.RequestID, loquat.QueuedPatch{OnBusy: loquat.BusySteer}); err != nil || got.OnBusy != loquat.BusySteer {
		t.Errorf("to steer: %+v, %v", got, err)
	}
	if got := r.queue(s.SessionID); got != "steer:second queue:changed" {
		t.Errorf("the queue is %s", got)
	}
	gate <- struct{}{}
	r.ended(first.RequestID)
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:begin | assistant:Wait. | tool:held | user:second | assistant:ok | user:changed | assistant:ok" {
		t.Errorf("messages %s", got)
	}
}

func TestOrderQueue(t *testing.T) {
	r, gate := heldRig(t)
	s := r.create(loquat.NewSession{})
	running := r.hold(s.SessionID)
	var ids []string
	for _, content := range []string{"a", "b", "c"} {
		ids = append(ids, r.send(s.SessionID, loquat.Send{Content: text(content), OnBusy: loquat.BusyQueue}).RequestID)
	}
	a, b, c := ids[0], ids[1], ids[2]
	order := func(call chat.Call, ids ...string) error {
		_, err := r.Requests.OrderQueue(t.Context(), call, s.SessionID, ids)
		return err
	}
	for _, wrong := range []struct {
		ids  []string
		code loquat.Code
	}{
		{[]string{c, b}, loquat.CodeConflict},
		{nil, loquat.CodeConflict},
		{[]string{c, b, a, running.RequestID}, loquat.CodeConflict},
		{[]string{c, b, "unknown"}, loquat.CodeConflict},
		{[]string{c, b, b}, loquat.CodeInvalid},
	} {
		if err := order(chat.Call{}, wrong.ids...); loquat.CodeOf(err) != wrong.code {
			t.Errorf("the order %v: %v", wrong.ids, err)
		}
	}
	once := chat.Call{IdempotencyKey: "key", Method: "PUT", Path: "/queue"}
	if err := order(once, c, a, b); err != nil {
		t.Fatal(err)
	}
	if got := r.queue(s.SessionID); got != "queue:c queue:a queue:b" {
		t.Errorf("the queue is %s", got)
	}
	if err := order(chat.Call{}, b, c, a); err != nil {
		t.Fatal(err)
	}
	if err := order(once, c, a, b); err != nil { // a repeat changes nothing
		t.Fatal(err)
	}
	urgent := r.send(s.SessionID, loquat.Send{Content: text("urgent"), OnBusy: loquat.BusyInterrupt})
	r.ended(urgent.RequestID)
	r.ended(a)
	want := "user:urgent | assistant:ok | user:b | assistant:ok | user:c | assistant:ok | user:a | assistant:ok"
	if got := transcript(r.snapshot(s.SessionID).Messages); !strings.HasSuffix(got, want) {
		t.Errorf("messages %s", got)
	}
	close(gate)
}

// A queue that is too large for an event is left out of it, whether its sends are read for that or not, and loaded
// instead.
func TestLargeQueue(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{}).SessionID
	running := r.hang(s, loquat.Send{Content: text("hi")})
	for i, size := range []int{loquat.MaxEventQueue / 2, loquat.MaxEventQueue, 1 << 20} {
		content := strings.Repeat("x", size)
		r.send(s, loquat.Send{Content: &content, OnBusy: loquat.BusyQueue})
		log := r.log(s, 0)
		e := log[len(log)-1]
		if e.Type != loquat.QueueChanged || e.QueueOmitted != (i > 0) || len(e.Queue) != 1-min(i, 1) {
			t.Errorf("after %d sends: %s, omitted %v, %d in the queue", i+1, e.Type, e.QueueOmitted, len(e.Queue))
		}
		if q, err := r.Requests.Queue(t.Context(), s); err != nil || len(q.Queue) != i+1 {
			t.Errorf("the queue has %d sends, want %d: %v", len(q.Queue), i+1, err)
		}
	}
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, running.RequestID); err != nil {
		t.Fatal(err)
	}
}
