package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/plugin"
)

// An override that was made for one agent does not apply to another: its endpoint never gets
// the other agent's key. Overrides from before do not prevent other changes.
func TestOverridesOfAnotherAgent(t *testing.T) {
	r := newRig(t)
	cfg, problems := config.Parse([]byte(`{
		"providers": {
			"main": {"provider": "fake", "model": "m1", "base_url": "https://main.example/v1", "api_key": "key-of-main"},
			"open": {"provider": "fake", "model": "m1", "base_url": "https://open.example/v1", "endpoint_options": {"other": "https://other.example/v1"}}
		},
		"agents": {"default": {"provider": "main"}, "choosy": {"provider": "open"}}
	}`), config.ProcessEnvironment())
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	r.config = cfg
	r.restart()
	s := r.create(loquat.NewSession{AgentID: "choosy", Metadata: object(t, `{"overrides": {"base_url": "https://other.example/v1"}}`)})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
	agent := "default"
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{AgentID: &agent}); err != nil {
		t.Fatal(err)
	}
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
	seen := r.provider.seen()
	for i, want := range []string{"https://other.example/v1", "https://main.example/v1"} {
		if got := seen[i].Config.String("base_url"); got != want {
			t.Errorf("request %d goes to %s, want %s", i, got, want)
		}
	}
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: object(t, `{"overrides": {"model": "m2"}}`)}); err != nil {
		t.Errorf("an override beside one that no longer counts: %v", err)
	}
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: object(t, `{"overrides": {"base_url": "https://other.example/v1"}}`)}); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("the override itself: %v", err)
	}
}

func TestSendToAnAgentThatIsGone(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{AgentID: "quiet"})
	r.config = mustConfig(t, `{"providers": {"main": {"provider": "fake", "model": "m1"}}, "agents": {"default": {"provider": "main"}, "other": {"provider": "main"}}}`)
	r.restart()
	before := r.store.Last()
	if _, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text("hi")}); loquat.CodeOf(err) != loquat.CodeInvalid || !strings.Contains(err.Error(), "quiet") {
		t.Errorf("got %v", err)
	}
	if r.store.Last() != before {
		t.Error("something was stored")
	}
}

func mustConfig(t *testing.T, s string) *config.Config {
	t.Helper()
	cfg, problems := config.Parse([]byte(s), config.ProcessEnvironment())
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	return cfg
}

// What a tool says that JSON cannot hold is left out, and harms nothing.
func TestToolThatSaysNonsense(t *testing.T) {
	nan := math.NaN()
	r := newRig(t, tool{"odd", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		call.Progress("half", &nan, &nan)
		return plugin.ToolResult{Content: "done", Metadata: loquat.Object{"broken": json.RawMessage(`{`), "fine": json.RawMessage(`1`)}}, nil
	}})
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("odd")}})
	s := r.create(loquat.NewSession{})
	q := r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), StreamTools: true}).RequestID)
	m := r.snapshot(s.SessionID).Messages[2]
	if q.Status != loquat.StatusCompleted || m.Content != "done" || string(m.Metadata["fine"]) != "1" || m.Metadata["broken"] != nil {
		t.Errorf("request %s, message %q, metadata %s", q.Status, m.Content, m.Metadata)
	}
}

// U+0000 is replaced also where metadata is passed on as it came.
func TestNoNulInMetadata(t *testing.T) {
	odd := func() loquat.Object { return loquat.Object{"said\x00": json.RawMessage(`["\u0000"]`)} }
	r := newRig(t, tool{"odd", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: "done", Metadata: odd()}, nil
	}})
	r.provider.then(phase{chunks: []loquat.Chunk{{Text: "a", Extra: odd()}}, reply: loquat.Reply{Content: "a", ToolCalls: calls("odd"), Metadata: odd()}})
	s := r.create(loquat.NewSession{})
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)}).RequestID)
	messages := r.snapshot(s.SessionID).Messages
	for _, m := range messages[1:3] {
		if got := string(m.Metadata["said\ufffd"]); got != `["\ufffd"]` {
			t.Errorf("the %s message has %s", m.Role, m.Metadata)
		}
	}
	for _, e := range r.log(s.SessionID, s.CursorEventID) {
		if rec, err := e.Encode(); err != nil || strings.Contains(string(rec.Body), `\u0000`) {
			t.Errorf("an event is %s, %v", rec.Body, err)
		}
	}
}

// A reply that cannot be written ends its request all the same.
func TestReplyThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{chunks: words("text"), reply: loquat.Reply{Content: "text", Metadata: loquat.Object{"broken": json.RawMessage(`{`)}}})
	s := r.create(loquat.NewSession{})
	q := r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)}).RequestID)
	if q.Status != loquat.StatusFailed {
		t.Errorf("request %s", q.Status)
	}
	r.provider.then(phase{chunks: words("text"), usage: loquat.Object{"usage": json.RawMessage(`{`)}, err: loquat.Errorf(loquat.CodeBackendError, "cut")})
	if q := r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)}).RequestID); q.Status != loquat.StatusFailed {
		t.Errorf("request with broken usage: %s", q.Status)
	}
}

// panicking is a provider with a programmer's mistake.
type panicking struct{ fake }

func (*panicking) Name() string     { return "test.panicking" }
func (*panicking) Kind() string     { return plugin.KindTool }
func (*panicking) Selector() string { return "panicking" }
func (*panicking) Chat(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(func(loquat.Chunk, error) bool) { panic("ouch") }
}

func TestProviderThatPanics(t *testing.T) {
	r := newRig(t)
	var err error
	if r.registry, err = plugin.NewRegistry(&panicking{}); err != nil {
		t.Fatal(err)
	}
	r.config = mustConfig(t, `{"providers": {"main": {"provider": "panicking", "model": "m1"}}}`)
	r.restart()
	s := r.create(loquat.NewSession{})
	if q := r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID); q.Status != loquat.StatusFailed || strings.Contains(q.Error, "ouch") {
		t.Errorf("request %s: %s", q.Status, q.Error)
	}
}

// Whoever follows sees the ends of requests that a shutdown cuts off.
func TestFollowersSeeTheEnds(t *testing.T) {
	r := newRig(t)
	r.provider.then(phase{chunks: words("half"), hang: true})
	s := r.create(loquat.NewSession{})
	r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	seen := make(chan string)
	go func() {
		var all []loquat.Event
		for at := s.CursorEventID; ; {
			w, err := r.events(feed.Query{SessionID: s.SessionID, Since: &at, Wait: 30 * time.Second})
			if err != nil {
				seen <- story(all)
				return
			}
			for _, rec := range w.Events {
				e, err := rec.Decode()
				if err != nil {
					t.Error(err)
				}
				all = append(all, e)
			}
			at = w.Cursor
		}
	}()
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "half") })
	r.Stop(expired())
	if got := <-seen; !strings.HasSuffix(got, "final(half) checkpoint error(the server was shut down while the request ran) request_completed") {
		t.Errorf("the follower saw %s", got)
	}
}

// Progress that a tool reports after its result is dropped: tool_partial end was the last
// event of the call.
func TestProgressAfterTheEnd(t *testing.T) {
	late := make(chan func(string, *float64, *float64), 1)
	r := newRig(t, tool{"early", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		late <- call.Progress
		return plugin.ToolResult{Content: "done"}, nil
	}}, tool{"slow", func(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		call.Progress("half", nil, nil)
		<-ctx.Done()
		return plugin.ToolResult{}, ctx.Err()
	}})
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("early", "slow")}})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), StreamTools: true})
	progress := <-late
	r.waitFor("the end of the early one and the progress of the slow one", func() bool {
		got := story(r.log(s.SessionID, 0))
		return strings.Contains(got, "tool_partial:end") && strings.Contains(got, "tool_partial:stream")
	})
	progress("late", nil, nil)
	if _, err := r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID); err != nil {
		t.Fatal(err)
	}
	r.ended(q.RequestID)
	for _, e := range r.log(s.SessionID, 0) {
		if e.Type == loquat.ToolPartial && e.Phase == loquat.PhaseStream && *e.Payload.Part != "half" {
			t.Errorf("progress %q after the end of its call", *e.Payload.Part)
		}
	}
}
