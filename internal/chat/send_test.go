package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

const opening = "message_appended* checkpoint* request_started "

// The order of events within a request is the specification's, in each of its forms.
func TestOrderOfEvents(t *testing.T) {
	add := tool{"add", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		if call.Progress != nil {
			call.Progress("half", nil, nil)
		}
		return plugin.ToolResult{Content: "3"}, nil
	}}
	broken := tool{"broken", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) { panic("ouch") }}
	for _, c := range []struct {
		name   string
		phases []phase
		send   loquat.Send
		story  string
		status loquat.RequestStatus
		end    string
	}{
		{
			name:   "a streamed reply",
			phases: []phase{{chunks: words("Hel", "lo"), reply: loquat.Reply{Content: "Hello"}}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start partial(Hello) assistant_message:end final(Hello) checkpoint request_completed",
			end:    "user:hi | assistant:Hello",
		},
		{
			name:   "a whole reply",
			phases: []phase{{chunks: words("Hel", "lo"), reply: loquat.Reply{Content: "Hello"}}},
			story:  "final(Hello) checkpoint request_completed",
			end:    "user:hi | assistant:Hello",
		},
		{
			name:   "a streamed reply that says nothing",
			phases: []phase{{}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start assistant_message:end final() checkpoint request_completed",
			end:    "user:hi | assistant:",
		},
		{
			name: "a round of tools",
			phases: []phase{
				{reply: loquat.Reply{ToolCalls: calls("add", "nowhere", "broken")}},
				{chunks: words("It is 3."), reply: loquat.Reply{Content: "It is 3."}},
			},
			send: loquat.Send{Stream: new(true)},
			story: "assistant_message:start assistant_message:end final() checkpoint tool_calls " +
				`tool_results(3)(there is no tool named "nowhere")(tool broken failed: ouch) checkpoint ` +
				"assistant_message:start partial(It is 3.) assistant_message:end final(It is 3.) checkpoint request_completed",
			end: `user:hi | assistant: | tool:3 | tool:there is no tool named "nowhere" | tool:tool broken failed: ouch | assistant:It is 3.`,
		},
		{
			name: "arguments that cannot be read",
			phases: []phase{
				{reply: loquat.Reply{ToolCalls: []loquat.ToolCall{{ID: "a", Name: "add", Arguments: "[1]"}, {ID: "b", Name: "add", Arguments: `{"a":`}, {ID: "c", Name: "add"}}}},
				{reply: loquat.Reply{Content: "3"}},
			},
			story: "final() checkpoint tool_calls " +
				"tool_results(the arguments of add are not valid: they have to be a JSON object)" +
				"(the arguments of add are not valid: they have to be a JSON object: unexpected end of JSON input)(3) checkpoint " +
				"final(3) checkpoint request_completed",
			end: "user:hi | assistant: | tool:the arguments of add are not valid: they have to be a JSON object" +
				" | tool:the arguments of add are not valid: they have to be a JSON object: unexpected end of JSON input | tool:3 | assistant:3",
		},
		{
			name: "streamed tools",
			phases: []phase{
				{reply: loquat.Reply{ToolCalls: calls("add")}},
				{reply: loquat.Reply{Content: "3"}},
			},
			send: loquat.Send{StreamTools: true},
			story: "final() checkpoint tool_calls tool_partial:start tool_partial:stream tool_partial:end tool_results(3) checkpoint " +
				"final(3) checkpoint request_completed",
			end: "user:hi | assistant: | tool:3 | assistant:3",
		},
		{
			name: "too many rounds",
			phases: []phase{
				{reply: loquat.Reply{ToolCalls: calls("add")}}, {reply: loquat.Reply{ToolCalls: calls("add")}},
				{reply: loquat.Reply{ToolCalls: calls("add")}}, {reply: loquat.Reply{ToolCalls: calls("add")}},
			},
			story: strings.Repeat("final() checkpoint tool_calls tool_results(3) checkpoint ", 3) +
				"error(the model asked for more than 3 rounds of tools; raise limits.max_tool_rounds to allow more) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi" + strings.Repeat(" | assistant: | tool:3", 3),
		},
		{
			name:   "an error before any text",
			phases: []phase{{err: loquat.Errorf(loquat.CodeBackendError, "no such model, key hunter2")}},
			send:   loquat.Send{Stream: new(true)},
			story:  "error(no such model, key ***) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi",
		},
		{
			name:   "an error after text keeps it",
			phases: []phase{{chunks: words("Hel"), err: loquat.Errorf(loquat.CodeBackendError, "cut")}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start partial(Hel) assistant_message:end final(Hel) checkpoint error(cut) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi | assistant:Hel (error)",
		},
		{
			name:   "an error after an empty start closes the phase",
			phases: []phase{{chunks: words(""), err: loquat.Errorf(loquat.CodeBackendError, "cut")}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start assistant_message:end error(cut) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi",
		},
		{
			name:   "an error inside the server is not shown",
			phases: []phase{{err: errors.New("secret path")}},
			story:  "error(the request failed inside the server; its log says more) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi",
		},
		{
			name: "a recovered stream starts afresh",
			phases: []phase{{chunks: []loquat.Chunk{
				{Text: "Hel"}, {Retry: &loquat.Retry{Attempt: 1, Cause: loquat.CauseStream}}, {Restarted: true}, {Text: "Hello"},
			}, err: loquat.Errorf(loquat.CodeBackendError, "cut")}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start partial(Hel) retry_scheduled partial(Hello) assistant_message:end final(Hello) checkpoint error(cut) request_completed",
			status: loquat.StatusFailed,
			end:    "user:hi | assistant:Hello (error)",
		},
		{
			name:   "U+0000 is replaced",
			phases: []phase{{chunks: words("a\x00"), reply: loquat.Reply{Content: "a\x00"}}},
			send:   loquat.Send{Stream: new(true)},
			story:  "assistant_message:start partial(a\ufffd) assistant_message:end final(a\ufffd) checkpoint request_completed",
			end:    "user:hi | assistant:a\ufffd",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, add, broken)
			for _, p := range c.phases {
				r.provider.then(p)
			}
			s := r.create(loquat.NewSession{})
			c.send.Content = text("hi")
			q := r.ended(r.send(s.SessionID, c.send).RequestID)
			if want := cmpOr(c.status, loquat.StatusCompleted); q.Status != want {
				t.Errorf("status %s, want %s", q.Status, want)
			}
			if got := story(joinPartials(r.log(s.SessionID, s.CursorEventID))); got != opening+c.story {
				t.Errorf("events\n%s\nwant\n%s", got, opening+c.story)
			}
			after := r.snapshot(s.SessionID)
			if got := transcript(after.Messages); got != c.end {
				t.Errorf("messages %s\nwant     %s", got, c.end)
			}
		})
	}
}

func cmpOr[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// joinPartials makes runs of partials one, so that what a test expects does not
// depend on how they were grouped for the disk.
func joinPartials(events []loquat.Event) []loquat.Event { return loquat.MergeIncrements(events) }

func TestUsageOfADeadStreamIsKept(t *testing.T) {
	r := newRig(t)
	usage := loquat.Object{}.Set("usage", map[string]int{"total_tokens": 7}).Set("usage_total_tokens", 7).Set("finish_reason", "x")
	r.provider.then(phase{chunks: words("Hel"), err: loquat.Errorf(loquat.CodeBackendError, "cut"), usage: usage})
	s := r.create(loquat.NewSession{})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)}).RequestID)
	m := r.snapshot(s.SessionID).Messages[1]
	if string(m.Metadata["usage_total_tokens"]) != "7" || m.Metadata["usage"] == nil || m.Metadata["finish_reason"] != nil {
		t.Errorf("metadata %s", m.Metadata)
	}
	if m.Metadata.String("provider") != "main" || m.Metadata.String("model") != "m1" {
		t.Errorf("the kept text does not say who made it: %s", m.Metadata)
	}
}

func TestCancelWhileStreaming(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("one ", "two "), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 2)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "two") })
	for i := range 2 { // a second cancel changes nothing
		out, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID)
		if err != nil || i == 0 && !out.Accepted {
			t.Fatalf("cancel: %+v, %v", out, err)
		}
	}
	if got := r.ended(q.RequestID).Status; got != loquat.StatusCancelled {
		t.Errorf("status %s", got)
	}
	want := opening + "assistant_message:start partial(one two ) assistant_message:end final(one two ) checkpoint request_cancelled request_completed"
	if got := story(joinPartials(r.log(s.SessionID, s.CursorEventID))); got != want {
		t.Errorf("events\n%s\nwant\n%s", got, want)
	}
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:hi | assistant:one two  (cancelled)" {
		t.Errorf("messages %s", got)
	}
	out, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID)
	if err != nil || out.Accepted || out.Body.Status != loquat.StatusCancelled {
		t.Errorf("cancel after the end: %+v, %v", out, err)
	}
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, "nobody"); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("cancel of nobody: %v", err)
	}
}

// flagCancelled stores a cancel without cancelling the worker, as in the moment after the
// 202 or in a process that dies then.
func (r *rig) flagCancelled(requestID string) {
	r.t.Helper()
	err := r.store.Update(r.t.Context(), func(tx *store.Tx) error {
		row, err := tx.Request(requestID)
		if err != nil {
			return err
		}
		return tx.FlagCancelled(&row)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// From the 202 of a cancel on, request_cancelled is the only end, also of a reply that
// comes to its own end at that moment.
func TestCancelAtTheLastMoment(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("all"), gate: gate, reply: loquat.Reply{Content: "all"}})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "all") })
	r.flagCancelled(q.RequestID)
	tick(gate, 1)
	if got := r.ended(q.RequestID).Status; got != loquat.StatusCancelled {
		t.Errorf("status %s", got)
	}
	want := opening + "assistant_message:start partial(all) assistant_message:end final(all) checkpoint request_cancelled request_completed"
	if got := story(joinPartials(r.log(s.SessionID, s.CursorEventID))); got != want {
		t.Errorf("events\n%s\nwant\n%s", got, want)
	}
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:hi | assistant:all (cancelled)" {
		t.Errorf("messages %s", got)
	}
}

// A request that is cancelled before its worker has begun asks no model.
func TestCancelAtTheFirstMoment(t *testing.T) {
	slow := &slowReads{}
	r := newRigOn(t, func(db store.Driver) store.Driver { slow.Driver = db; return slow })
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "old"}}}) // which the worker reads
	held := make(chan struct{})
	slow.hold.Store(&held)
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	r.flagCancelled(q.RequestID)
	slow.hold.Store(nil)
	close(held)
	if got := r.ended(q.RequestID).Status; got != loquat.StatusCancelled || len(r.provider.seen()) != 0 {
		t.Errorf("status %s; the model was asked %d times", got, len(r.provider.seen()))
	}
	want := opening + "request_cancelled request_completed"
	if got := story(r.log(s.SessionID, s.CursorEventID)); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestCancelInATool(t *testing.T) {
	started := make(chan struct{})
	quick := tool{"quick", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: "done"}, nil
	}}
	slow := tool{"slow", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
		close(started)
		<-ctx.Done()
		return plugin.ToolResult{}, ctx.Err()
	}}
	r := newRig(t, quick, slow)
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("quick", "slow")}})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), StreamTools: true})
	<-started
	r.waitFor("the quick tool", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "tool_partial:end") })
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID); err != nil {
		t.Fatal(err)
	}
	r.ended(q.RequestID)
	messages := r.snapshot(s.SessionID).Messages
	if len(messages) != 4 || messages[2].Content != "done" || !strings.Contains(messages[3].Content, "unknown") || !messages[3].Metadata.Bool("is_error") {
		t.Errorf("messages %s", transcript(messages))
	}
	if got := story(r.log(s.SessionID, s.CursorEventID)); !strings.HasSuffix(got, "checkpoint request_cancelled request_completed") {
		t.Errorf("events %s", got)
	}
}

func TestBusy(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("slow"), gate: gate, reply: loquat.Reply{Content: "slow"}})
	s := r.create(loquat.NewSession{})
	first := r.send(s.SessionID, loquat.Send{Content: text("first"), Stream: new(true)})
	for name, change := range map[string]func() error{
		"send": func() error {
			_, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text("x")})
			return err
		},
		"append": func() error {
			_, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: "user"})
			return err
		},
		"modify": func() error {
			_, err := r.ModifyMessage(t.Context(), chat.Call{}, s.SessionID, 0, "x")
			return err
		},
		"delete": func() error {
			_, err := r.DeleteMessages(t.Context(), chat.Call{}, s.SessionID, []int{0})
			return err
		},
	} {
		e, ok := errors.AsType[*loquat.Error](change())
		if !ok || e.Code != loquat.CodeBusy || e.RequestID != first.RequestID {
			t.Errorf("%s while a request runs: %v", name, e)
		}
	}
	snapshot := r.snapshot(s.SessionID)
	if snapshot.ActiveRequestID != first.RequestID {
		t.Errorf("active request %q", snapshot.ActiveRequestID)
	}
	// A change of metadata is fine, and leaves the cursor before the increments.
	after, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: loquat.Object{}.Set("a", 1)})
	if err != nil || after.CursorEventID != snapshot.CursorEventID || after.Checkpoint <= snapshot.Checkpoint {
		t.Errorf("metadata while a request runs: cursor %s, checkpoint %s, %v", after.CursorEventID, after.Checkpoint, err)
	}
	if told := r.log(s.SessionID, after.Checkpoint-1)[0]; told.Type != loquat.Checkpoint || told.RequestID != "" || told.AgentID != "default" || string(told.Metadata["a"]) != "1" {
		t.Errorf("of the change of metadata the log tells %+v", told)
	}
	fork, err := r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{})
	if err != nil || transcript(fork.Messages) != "user:first" {
		t.Errorf("fork while a request runs: %s, %v", transcript(fork.Messages), err)
	}
	tick(gate, 2)
	r.ended(first.RequestID)
}

func TestQueueAndInterrupt(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("slow"), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	running := r.send(s.SessionID, loquat.Send{Content: text("running"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "slow") })
	queued := r.send(s.SessionID, loquat.Send{Content: text("queued"), OnBusy: loquat.BusyQueue})
	dropped := r.send(s.SessionID, loquat.Send{Content: text("dropped"), OnBusy: loquat.BusyQueue})
	if queued.Status != loquat.StatusQueued {
		t.Errorf("status %s", queued.Status)
	}
	if out, err := r.Requests.Cancel(t.Context(), chat.Call{}, dropped.RequestID); err != nil || !out.Accepted || out.Body.Status != loquat.StatusCancelled {
		t.Errorf("cancel of a queued send: %+v, %v", out, err)
	}
	urgent := r.send(s.SessionID, loquat.Send{Content: text("urgent"), OnBusy: loquat.BusyInterrupt})
	for _, q := range []string{running.RequestID, queued.RequestID, urgent.RequestID} {
		r.ended(q)
	}
	want := "user:running | assistant:slow (cancelled) | user:urgent | assistant:ok | user:queued | assistant:ok"
	if got := transcript(r.snapshot(s.SessionID).Messages); got != want {
		t.Errorf("messages %s\nwant     %s", got, want)
	}
	var of []loquat.Event
	for _, e := range r.log(s.SessionID, 0) {
		if e.RequestID == dropped.RequestID {
			of = append(of, e)
		}
	}
	if got := story(of); got != "request_started request_cancelled request_completed" {
		t.Errorf("a send that was cancelled while queued: %s", got)
	}
}

func TestTooManyQueued(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{hang: true})
	s := r.create(loquat.NewSession{})
	r.send(s.SessionID, loquat.Send{Content: text("running")})
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text(fmt.Sprint(n)), OnBusy: loquat.BusyQueue})
	}
	if n != 11 || loquat.CodeOf(err) != loquat.CodeRateLimited {
		t.Errorf("queued send %d: %v", n, err)
	}
}

func TestRegenerateAndEdit(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "q"}, {Role: "assistant", Content: "bad"}}})
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{}); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("a send that answers an answer: %v", err)
	}
	one, zero, nine := 1, 0, 9
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{DeleteFrom: &nine}); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("delete_from out of range: %v", err)
	}
	r.ended(r.send(s.SessionID, loquat.Send{DeleteFrom: &one}).RequestID)
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:q | assistant:ok" {
		t.Errorf("regenerated: %s", got)
	}
	want := "messages_deleted* checkpoint* request_started final(ok) checkpoint request_completed"
	if got := story(r.log(s.SessionID, s.CursorEventID)); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	r.ended(r.send(s.SessionID, loquat.Send{DeleteFrom: &zero, Content: text("better q")}).RequestID)
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:better q | assistant:ok" {
		t.Errorf("edited: %s", got)
	}
}

func TestRepeats(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	other := r.create(loquat.NewSession{})
	send := func(session, key, request string, body byte) (chat.Answer[loquat.SendResult], error) {
		return r.Requests.Send(t.Context(), chat.Call{IdempotencyKey: key, Method: "POST", Path: "/" + session, BodyHash: [32]byte{body}, IfMatch: nil},
			session, loquat.Send{Content: text("hi"), RequestID: request})
	}
	first, err := send(s.SessionID, "key", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	r.ended(first.Body.RequestID)
	named, err := send(s.SessionID, "", "mine", 1)
	if err != nil {
		t.Fatal(err)
	}
	r.ended("mine")
	if again, err := send(s.SessionID, "key", "", 1); err != nil || again != first {
		t.Errorf("repeated key: %+v, %v; first %+v", again, err, first)
	}
	if again, err := send(s.SessionID, "", "mine", 1); err != nil || again != named {
		t.Errorf("repeated request_id: %+v, %v; first %+v", again, err, named)
	}
	if _, err := send(s.SessionID, "key", "", 2); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("a key with another body: %v", err)
	}
	if _, err := send(s.SessionID, "", "mine", 2); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("a request_id with another body: %v", err)
	}
	if _, err := send(other.SessionID, "", "mine", 1); loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("a request_id in another session: %v", err)
	}
	if n := len(r.snapshot(s.SessionID).Messages); n != 4 {
		t.Errorf("%d messages after two sends and two repeats", n)
	}
	// A failure is not remembered, and a remembered answer beats a stale precondition.
	stale := &chat.Match{IDs: []loquat.EventID{1}}
	call := chat.Call{IdempotencyKey: "p", Method: "POST", Path: "/messages", IfMatch: stale}
	if _, err := r.AppendMessage(t.Context(), call, s.SessionID, loquat.NewMessage{Role: "user"}); loquat.CodeOf(err) != loquat.CodePreconditionFailed {
		t.Errorf("stale precondition: %v", err)
	}
	call.IfMatch = &chat.Match{IDs: []loquat.EventID{1, r.snapshot(s.SessionID).Checkpoint}}
	done, err := r.AppendMessage(t.Context(), call, s.SessionID, loquat.NewMessage{Role: "user"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.AppendMessage(t.Context(), call, s.SessionID, loquat.NewMessage{Role: "user"})
	if err != nil || again.Body.Index != done.Body.Index || again.Checkpoint != done.Checkpoint || again.Body.Message.ID != done.Body.Message.ID {
		t.Errorf("repeat %+v, %v; first %+v", again, err, done)
	}
}

// A session is created with its first send, or not at all.
func TestCreateWithSend(t *testing.T) {
	r := newRig(t)
	call := chat.Call{IdempotencyKey: "key", Method: "POST", Path: "/sessions", BodyHash: [32]byte{1}}
	create := func() (loquat.Snapshot, error) {
		return r.CreateSession(t.Context(), call, loquat.NewSession{SessionID: "mine", Messages: []loquat.NewMessage{{Role: "system", Content: "be brief"}}, Send: &loquat.Send{Content: text("hi"), RequestID: "first", Stream: new(false)}})
	}
	s, err := create()
	if err != nil {
		t.Fatal(err)
	}
	if got := transcript(s.Messages); got != "system:be brief | user:hi" || s.ActiveRequestID != "first" {
		t.Errorf("answered %s, active request %q", got, s.ActiveRequestID)
	}
	r.ended("first")
	if got := transcript(r.snapshot("mine").Messages); got != "system:be brief | user:hi | assistant:ok" {
		t.Errorf("ended with %s", got)
	}
	want := "session_created* checkpoint* message_appended* checkpoint* request_started final(ok) checkpoint request_completed"
	if got := story(r.log("mine", 0)); got != want {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	if got := story(r.log("mine", s.CursorEventID)); got != "request_started final(ok) checkpoint request_completed" {
		t.Errorf("events after the cursor: %s", got)
	}
	again, err := create()
	if err != nil || again.CursorEventID != s.CursorEventID || again.ActiveRequestID != "first" {
		t.Errorf("repeat %+v, %v; first %+v", again, err, s)
	}
	if n := len(r.provider.seen()); n != 1 {
		t.Errorf("%d calls of the backend", n)
	}
}

func TestCreateWithSendRefused(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), RequestID: "taken"}).RequestID)
	for _, c := range []struct {
		name, place string
		send        loquat.Send
		code        loquat.Code
	}{
		{"nothing to answer", "body.send.content", loquat.Send{}, loquat.CodeInvalid},
		{"unknown policy", "body.send.on_busy", loquat.Send{Content: text("hi"), OnBusy: "wait"}, loquat.CodeInvalid},
		{"an image of no session", "body.send.attachments[0].asset_id", loquat.Send{Attachments: []json.RawMessage{[]byte(`{"type": "image", "asset_id": "x"}`)}}, loquat.CodeInvalid},
		{"messages that are not there", "body.send.delete_from", loquat.Send{Content: text("hi"), DeleteFrom: new(3)}, loquat.CodeInvalid},
		{"a request of another session", "", loquat.Send{Content: text("hi"), RequestID: "taken"}, loquat.CodeConflict},
	} {
		before := r.store.Last()
		_, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{SessionID: "new", Send: &c.send})
		if loquat.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
		if e, ok := errors.AsType[*loquat.Error](err); !ok || c.place != "" && (len(e.Fields) != 1 || e.Fields[0].Location != c.place || !strings.HasPrefix(e.Detail, c.place)) {
			t.Errorf("%s: names %+v", c.name, e)
		}
		if _, err := r.Session(t.Context(), "new"); loquat.CodeOf(err) != loquat.CodeNotFound || r.store.Last() != before {
			t.Errorf("%s: left a session behind: %v", c.name, err)
		}
	}
}

// A repeat gets the first answer, even after the session was deleted.
func TestRepeatsOutliveTheSession(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{SessionID: "mine"})
	call := func(path string) chat.Call {
		return chat.Call{IdempotencyKey: "key", Method: "POST", Path: path}
	}
	changes := map[string]func() (any, error){
		"create": func() (any, error) {
			return r.CreateSession(t.Context(), call("/sessions"), loquat.NewSession{Metadata: object(t, `{"a": 1}`)})
		},
		"fork": func() (any, error) {
			return r.ForkSession(t.Context(), call("/fork"), s.SessionID, loquat.Fork{Metadata: object(t, `{"overrides": {"model": "m3"}}`)})
		},
		"append": func() (any, error) {
			return r.AppendMessage(t.Context(), call("/messages"), s.SessionID, loquat.NewMessage{Role: "user", Content: "x"})
		},
		"upload": func() (any, error) {
			return r.Assets.AddAsset(t.Context(), call("/assets"), s.SessionID, "", "", bytes.NewReader(picture(1)))
		},
		"send": func() (any, error) {
			return r.Requests.Send(t.Context(), call("/send"), s.SessionID, loquat.Send{Content: text("hi"), RequestID: "request"})
		},
		"cancel": func() (any, error) { return r.Requests.Cancel(t.Context(), call("/cancel"), "request") },
	}
	first := map[string]any{}
	for _, name := range []string{"create", "fork", "append", "upload", "send", "cancel"} { // the last two need what is before
		var err error
		if first[name], err = changes[name](); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	r.ended("request")
	if err := r.DeleteSession(t.Context(), chat.Call{}, s.SessionID); err != nil {
		t.Fatal(err)
	}
	before := r.store.Last()
	for name, change := range changes {
		if again, err := change(); err != nil || fmt.Sprint(again) != fmt.Sprint(first[name]) {
			t.Errorf("%s was answered %v, and now %v, %v", name, first[name], again, err)
		}
	}
	if r.store.Last() != before || r.files() != 0 {
		t.Error("the repeats changed something")
	}
}

// A repeat by request_id counts as long as its session lives. Afterwards the answer is
// that of every route of a deleted session.
func TestSendRepeatedAfterItsSessionWasDeleted(t *testing.T) {
	r := newRig(t)
	deleted, living := r.create(loquat.NewSession{SessionID: "deleted"}), r.create(loquat.NewSession{SessionID: "living"})
	send := func(session, request, content string) error {
		_, err := r.Requests.Send(t.Context(), chat.Call{Method: "POST", BodyHash: [32]byte{content[0]}}, session,
			loquat.Send{Content: text(content), RequestID: request, OnBusy: loquat.BusyQueue})
		return err
	}
	r.provider.then(phase{chunks: words("ok")})
	r.provider.then(phase{hang: true})
	for _, request := range []string{"ended", "running", "queued"} {
		if err := send(deleted.SessionID, request, "hi"); err != nil {
			t.Fatal(err)
		}
		if request == "ended" {
			r.ended(request)
		}
	}
	if err := send(living.SessionID, "alive", "hi"); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteSession(t.Context(), chat.Call{}, deleted.SessionID); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		for _, tt := range []struct {
			name, session, request, content string
			want                            loquat.Code
		}{
			{"of an ended request", "deleted", "ended", "hi", loquat.CodeNotFound},
			{"of a running request", "deleted", "running", "hi", loquat.CodeNotFound},
			{"of a queued request", "deleted", "queued", "hi", loquat.CodeNotFound},
			{"with another body", "deleted", "ended", "other", loquat.CodeNotFound},
			{"with the request_id of a living session", "deleted", "alive", "hi", loquat.CodeNotFound},
			{"to a session that never was", "never", "alive", "hi", loquat.CodeNotFound},
			{"to a living session, with the request_id of the deleted one", "living", "ended", "hi", loquat.CodeConflict},
			{"to a living session, with its own request_id", "living", "alive", "hi", ""},
		} {
			if err := send(tt.session, tt.request, tt.content); loquat.CodeOf(err) != tt.want {
				t.Errorf("%s: a repeat %s: got %v, want %q", when, tt.name, err, tt.want)
			}
		}
	}
	check("at once")
	if err := r.store.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after the cleanup")
	r.restart()
	check("after a restart")
}

// A process that dies leaves requests running and queued. The next one ends the
// former and starts the latter before it serves anybody.
func TestAfterACrash(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("half"), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	running := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "half") })
	queued := r.send(s.SessionID, loquat.Send{Content: text("next"), OnBusy: loquat.BusyQueue})
	dead := r.Service
	r.restart()
	if q := r.ended(running.RequestID); q.Status != loquat.StatusFailed || q.Error == "" {
		t.Errorf("the request that was cut off: %+v", q)
	}
	r.ended(queued.RequestID)
	want := "user:hi | assistant:half (interrupted) | user:next | assistant:ok"
	if got := transcript(r.snapshot(s.SessionID).Messages); got != want {
		t.Errorf("messages %s\nwant     %s", got, want)
	}
	// What the dead process still tries to say is fenced off.
	before := len(r.log(s.SessionID, 0))
	dead.Stop(expired())
	if after := len(r.log(s.SessionID, 0)); after != before {
		t.Errorf("the dead process published %d events", after-before)
	}
}

// A cancel that was acknowledged wins over a crash.
func TestCancelBeforeACrash(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("half"), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "half") })
	r.flagCancelled(q.RequestID)
	r.restart()
	if got := r.ended(q.RequestID).Status; got != loquat.StatusCancelled {
		t.Errorf("status %s", got)
	}
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:hi | assistant:half (cancelled)" {
		t.Errorf("messages %s", got)
	}
}

// After a crash in a tool round, results that clients have seen are kept. The other calls
// get a message that their outcome is unknown.
func TestCrashInATool(t *testing.T) {
	unknown := "tool:" + loop.UnknownOutcome(loquat.Message{}, loquat.ToolCall{}).Content
	for _, c := range []struct {
		streamed bool
		end      string
	}{
		{true, "user:hi | assistant: | tool:done | " + unknown},
		{false, "user:hi | assistant: | " + unknown + " | " + unknown},
	} {
		t.Run(fmt.Sprintf("streamed %v", c.streamed), func(t *testing.T) {
			answered := make(chan struct{})
			r := newRig(t, tool{"quick", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
				defer close(answered)
				return plugin.ToolResult{Content: "done"}, nil
			}}, tool{"slow", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
				<-ctx.Done()
				return plugin.ToolResult{}, ctx.Err()
			}})
			r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("quick", "slow")}})
			s := r.create(loquat.NewSession{})
			q := r.send(s.SessionID, loquat.Send{Content: text("hi"), StreamTools: c.streamed})
			<-answered
			if c.streamed {
				r.waitFor("the quick tool", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "tool_partial:end") })
			}
			r.restart()
			if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed {
				t.Errorf("request %+v", got)
			}
			if got := transcript(r.snapshot(s.SessionID).Messages); got != c.end {
				t.Errorf("messages %s\nwant     %s", got, c.end)
			}
			want := "tool_results(" + strings.NewReplacer("tool:", "", " | ", ")(").Replace(strings.TrimPrefix(c.end, "user:hi | assistant: | ")) +
				") checkpoint error(the server stopped unexpectedly while the request ran) request_completed"
			if got := story(r.log(s.SessionID, 0)); !strings.HasSuffix(got, want) {
				t.Errorf("events %s\nwant at the end %s", got, want)
			}
		})
	}
}

// A stop or a crash in a round with tools of both sides says nothing of the tools that the client runs: it was
// not asked for them yet.
func TestCutRoundWithToolsOfTheClient(t *testing.T) {
	unknown := loop.UnknownOutcome(loquat.Message{}, loquat.ToolCall{}).Content
	for name, cut := range map[string]func(*rig, loquat.SendResult){
		"a crash": func(r *rig, _ loquat.SendResult) { r.restart() },
		"a stop": func(r *rig, q loquat.SendResult) {
			if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			called := make(chan struct{})
			r := newRig(t, tool{"slow", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
				close(called)
				<-ctx.Done()
				return plugin.ToolResult{}, ctx.Err()
			}})
			r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("theirs", "slow")}})
			s := r.create(loquat.NewSession{})
			q, err := r.Requests.Respond(t.Context(), chat.Call{}, s.SessionID, chat.Respond{
				Model: "default", Messages: []loquat.NewMessage{{Role: loquat.RoleUser, Content: "hi"}},
				Settings: chat.RunSettings{Tools: []json.RawMessage{json.RawMessage(`{"type": "function", "function": {"name": "theirs"}}`)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			<-called
			cut(r, q.Body)
			r.ended(q.Body.RequestID)
			got := r.snapshot(s.SessionID).Messages
			if text := transcript(got); text != "user:hi | assistant: | tool:"+unknown || got[2].Metadata.String(loquat.MetaToolName) != "slow" {
				t.Errorf("messages %s", text)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("a", "b"), gate: gate, reply: loquat.Reply{Content: "ab"}})
	r.provider.then(phase{chunks: words("half"), hang: true})
	quick, stuck := r.create(loquat.NewSession{}), r.create(loquat.NewSession{})
	finishes := r.send(quick.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	<-r.provider.entered
	left := r.send(stuck.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	waits := r.send(stuck.SessionID, loquat.Send{Content: text("later"), OnBusy: loquat.BusyQueue})
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(stuck.SessionID, 0)), "half") })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the grace is as long as the quick one takes
		defer cancel()
		tick(gate, 3)
		for range 4000 {
			if q, err := r.Requests.Request(t.Context(), finishes.RequestID); err != nil || q.Status.Ended() {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r.Stop(ctx)
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, quick.SessionID, loquat.Send{Content: text("late")}); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a send during the shutdown: %v", err)
	}
	for id, want := range map[string]loquat.RequestStatus{
		finishes.RequestID: loquat.StatusCompleted, left.RequestID: loquat.StatusFailed, waits.RequestID: loquat.StatusQueued,
	} {
		if q, err := r.Requests.Request(t.Context(), id); err != nil || q.Status != want {
			t.Errorf("request is %s, %v; want %s", q.Status, err, want)
		}
	}
	if got := transcript(r.snapshot(stuck.SessionID).Messages); got != "user:hi | assistant:half (interrupted)" {
		t.Errorf("messages %s", got)
	}
	r.restart()
	r.ended(waits.RequestID)
}

// The end of a stream that came in very many pieces costs no more than their size, and
// not its square: it is written where everybody's changes are.
func TestEndOfALongStream(t *testing.T) {
	const few, many = 1_000, 8_000
	var short, long time.Duration
	for range 3 { // a busy machine may spoil one comparison
		short, long = max(endOf(t, few), 10*time.Millisecond), endOf(t, many)
		if long <= 3*many/few*short {
			return
		}
	}
	t.Errorf("the end took %v after %d pieces, and %v after %d", short, few, long, many)
}

// endOf returns how long the end of a request takes that streamed so many pieces.
func endOf(t *testing.T, pieces int) time.Duration {
	t.Helper()
	r := newRig(t)
	r.provider.then(phase{hang: true})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	const size = 1000
	word := strings.Repeat("x", size)
	err := r.store.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(s.SessionID)
		if err != nil {
			return err
		}
		row, err := tx.Request(q.RequestID)
		for i := 0; err == nil && i < pieces; i++ {
			_, err = tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: word}}, &h, &row)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID); err != nil {
		t.Fatal(err)
	}
	r.waitFor("the end", func() bool { return r.Requests.Running() == 0 })
	took := time.Since(began)
	if n := len(r.snapshot(s.SessionID).Messages[1].Content); n != pieces*size {
		t.Errorf("%d bytes were kept, want %d", n, pieces*size)
	}
	return took
}

// The tokens of a reply count for the bound while it streams. The end of the request does not count them again.
func TestTokensOfARequestThatIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const config = `{"server": {"roles": {"r": {"bounds": {"tokens_per_day": 1000000}}}}, "providers": {"main": {"provider": "fake", "model": "m"}}}`
	r.load(config)
	gate := make(chan struct{})
	long := strings.Repeat("x", 4000)
	r.provider.then(phase{chunks: words(long, long, long), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	call := chat.Call{By: chat.By{Meter: "user ann", Role: "r", Rules: r.config.Server.Roles["r"]}}
	q, err := r.Requests.Send(t.Context(), call, s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	counted := func() (n int64) {
		err := r.store.View(t.Context(), func(rd *store.Reader) error {
			m, err := rd.MeteredToday("user ann", time.Now())
			n = m.Tokens
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tick(gate, 1)
	r.waitFor("the first charge", func() bool { return counted() > 0 })
	tick(gate, 2)
	time.Sleep(1200 * time.Millisecond) // until the meter is due again
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.Body.RequestID); err != nil {
		t.Fatal(err)
	}
	ended := r.ended(q.Body.RequestID)
	if got, want := counted(), ended.Usage.All(); got != want {
		t.Errorf("the meter counted %d tokens, and the request used %d", got, want)
	}
}

// A cancel with a precondition cancels only what its caller has seen.
func TestCancelWithACondition(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{hang: true})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi")})
	_, err := r.Requests.Cancel(t.Context(), chat.Call{IfMatch: &chat.Match{IDs: []loquat.EventID{1}}}, q.RequestID)
	if loquat.CodeOf(err) != loquat.CodePreconditionFailed {
		t.Errorf("a cancel of something older: %v", err)
	}
	if out, err := r.Requests.Cancel(t.Context(), chat.Call{IfMatch: &chat.Match{Any: true}}, q.RequestID); err != nil || !out.Accepted {
		t.Errorf("a cancel of anything: %+v %v", out, err)
	}
	r.ended(q.RequestID)
}

// A deletion that is repeated with its key is answered as before.
func TestRepeatedDeletions(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("ho"), DeleteFrom: new(0), Keep: true}).RequestID)
	list, err := r.Alternatives(t.Context(), s.SessionID, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := list.Alternatives[slices.IndexFunc(list.Alternatives, func(a loquat.Alternative) bool { return !a.InPlace })]
	for _, one := range []struct {
		name   string
		remove func(chat.Call) error
	}{
		{"an alternative", func(c chat.Call) error { return r.RemoveAlternative(t.Context(), c, s.SessionID, kept.AlternativeID) }},
		{"a session", func(c chat.Call) error { return r.DeleteSession(t.Context(), c, s.SessionID) }},
	} {
		call := chat.Call{IdempotencyKey: one.name, Method: "DELETE", Path: "/" + one.name}
		for range 2 {
			if err := one.remove(call); err != nil {
				t.Errorf("%s: %v", one.name, err)
			}
		}
		if err := one.remove(chat.Call{}); loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Errorf("%s without a key: %v", one.name, err)
		}
	}
}
