package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

func object(t *testing.T, s string) loquat.Object {
	t.Helper()
	var o loquat.Object
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// A request runs with the layers of the configuration in their order, and with the
// options that the feature adds.
func TestEffectiveConfigOfARequest(t *testing.T) {
	for _, c := range []struct {
		name, agent, metadata string
		model, params         string
	}{
		{"the provider's", "", `{}`, "m1", `{"top_p":1}`},
		{"the agent's", "quiet", `{}`, "m2", `{"top_p":1}`},
		{"the session's", "quiet", `{"overrides": {"model": "m3", "request_options": {"stop": ["x"], "top_p": null}}}`, "m3", `{"stop":["x"],"top_p":null}`},
		{"nothing is expanded", "", `{"overrides": {"model": "${HOME}$$"}}`, "${HOME}$$", `{"top_p":1}`},
		{"no override", "", `{"overrides": {"model": null}}`, "m1", `{"top_p":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			s := r.create(loquat.NewSession{AgentID: c.agent, Metadata: object(t, c.metadata)})
			r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
			seen := r.provider.seen()
			if len(seen) != 1 {
				t.Fatalf("the provider was asked %d times", len(seen))
			}
			params, err := json.Marshal(seen[0].Params)
			if err != nil {
				t.Fatal(err)
			}
			if got := seen[0].Config.String("model"); got != c.model || string(params) != c.params || seen[0].ProviderID != "main" {
				t.Errorf("model %s, params %s, provider %s; want %s, %s, main", got, params, seen[0].ProviderID, c.model, c.params)
			}
		})
	}
}

// slowReads is a database that answers no reader while it is held.
type slowReads struct {
	store.Driver
	hold atomic.Pointer[chan struct{}]
}

func (d *slowReads) Read(ctx context.Context, fn func(store.SQL) error) error {
	if held := d.hold.Load(); held != nil {
		select {
		case <-*held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d.Driver.Read(ctx, fn)
}

// A change of the session that comes after a request has started is none of its
// business, also when the request has not read anything yet.
func TestRequestKeepsTheConfigOfItsStart(t *testing.T) {
	slow := &slowReads{}
	r := newRigOn(t, func(db store.Driver) store.Driver { slow.Driver = db; return slow })
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"temperature": 1}}`)})
	held := make(chan struct{})
	slow.hold.Store(&held)
	q := r.send(s.SessionID, loquat.Send{Content: text("hi")})
	quiet := "quiet"
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{AgentID: &quiet}); err != nil {
		t.Fatal(err)
	}
	slow.hold.Store(nil)
	close(held)
	r.ended(q.RequestID)
	seen := r.provider.seen()
	if len(seen) != 1 || seen[0].Config.String("model") != "m1" || string(seen[0].Config["temperature"]) != "1" {
		t.Fatalf("the request ran with %+v", seen)
	}
	r.ended(r.send(s.SessionID, loquat.Send{Content: text("again")}).RequestID)
	if got := r.provider.seen()[1].Config.String("model"); got != "m2" {
		t.Errorf("the next request ran with the model %s", got)
	}
}

// What is wrong with a change is said with its place, and nothing is changed.
func TestFaultsOfInput(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "q"}}})
	before := r.store.Last()
	create := func(p loquat.NewSession) func() error {
		return func() error { return second(r.CreateSession(t.Context(), chat.Call{}, p)) }
	}
	send := func(p loquat.Send) func() error {
		return func() error { return second(r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, p)) }
	}
	attach := func(raw string) func() error {
		return func() error {
			return second(r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: "user", Attachments: []json.RawMessage{json.RawMessage(`{"type":"image","url":"https://x.example/a.png"}`), json.RawMessage(raw)}}))
		}
	}
	nine, minus := 9, -1
	for name, c := range map[string]struct {
		call  func() error
		place string
	}{
		"session id":             {create(loquat.NewSession{SessionID: "a b"}), "body.session_id"},
		"long session id":        {create(loquat.NewSession{SessionID: strings.Repeat("a", 65)}), "body.session_id"},
		"agent":                  {create(loquat.NewSession{AgentID: "nobody"}), "body.agent_id"},
		"role":                   {create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user"}, {Role: "robot"}}}), "body.messages[1].role"},
		"unknown override":       {create(loquat.NewSession{Metadata: object(t, `{"overrides": {"colour": 1}}`)}), "body.metadata.overrides.colour"},
		"forbidden override":     {create(loquat.NewSession{Metadata: object(t, `{"overrides": {"api_key": "x"}}`)}), "body.metadata.overrides.api_key"},
		"reserved parameter":     {create(loquat.NewSession{Metadata: object(t, `{"overrides": {"request_options": {"stream": true}}}`)}), "body.metadata.overrides.request_options.stream"},
		"overrides of no object": {create(loquat.NewSession{Metadata: object(t, `{"overrides": 1}`)}), "body.metadata.overrides"},
		"request id":             {send(loquat.Send{RequestID: "a/b", Content: text("x")}), "body.request_id"},
		"on_busy":                {send(loquat.Send{OnBusy: "wait", Content: text("x")}), "body.on_busy"},
		"queueing nothing":       {send(loquat.Send{OnBusy: loquat.BusyQueue}), "body.on_busy"},
		"queueing a deletion":    {send(loquat.Send{OnBusy: loquat.BusyQueue, Content: text("x"), DeleteFrom: &nine}), "body.delete_from"},
		"delete_from below 0":    {send(loquat.Send{DeleteFrom: &minus}), "body.delete_from"},
		"delete_from too high":   {send(loquat.Send{Content: text("x"), DeleteFrom: &nine}), "body.delete_from"},
		"metadata of nothing":    {send(loquat.Send{Metadata: object(t, `{"a": 1}`)}), "body.metadata"},
		"fork too far": {func() error {
			return second(r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{UpToIndex: &nine}))
		}, "body.up_to_index"},
		"no indices":            {func() error { return second(r.DeleteMessages(t.Context(), chat.Call{}, s.SessionID, nil)) }, "body.indices"},
		"attachment type":       {attach(`{"type":"video","url":"https://x.example/a"}`), "body.attachments[1].type"},
		"attachment of no kind": {attach(`{"type":"image"}`), "body.attachments[1]"},
		"attachment of two":     {attach(`{"type":"image","url":"https://x.example/a","asset_id":"a"}`), "body.attachments[1]"},
		"attachment url":        {attach(`{"type":"image","url":"file:///etc/passwd"}`), "body.attachments[1].url"},
		"data url":              {attach(`{"type":"image","data_url":"data:text/html;base64,AAAA"}`), "body.attachments[1].data_url"},
		"data url that lies":    {attach(`{"type":"image","data_url":"data:image/png;base64,R0lGODlhAQABAAAAACw="}`), "body.attachments[1].data_url"},
		"base64":                {attach(`{"type":"image","data_url":"data:image/png;base64,%%"}`), "body.attachments[1].data_url"},
		"asset":                 {attach(`{"type":"image","asset_id":"nope"}`), "body.attachments[1].asset_id"},
	} {
		e, ok := errors.AsType[*loquat.Error](c.call())
		if !ok || e.Code != loquat.CodeInvalid || e.Malformed || len(e.Fields) == 0 || e.Fields[0].Location != c.place {
			t.Errorf("%s: %v at %+v, want %s", name, e, e.Fields, c.place)
		}
	}
	if r.store.Last() != before {
		t.Errorf("%d events came of inputs that were refused", r.store.Last()-before)
	}
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: "user", Attachments: []json.RawMessage{
		json.RawMessage(`{"type":"image","data_url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}`)}}); err != nil {
		t.Errorf("a gif that is one: %v", err)
	}
}

func TestFork(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Metadata: object(t, `{"title": "T", "x": {"a": 1, "b": 2}}`), Messages: []loquat.NewMessage{
		{Role: "user", Content: "one"}, {Role: "assistant", Content: "two"}, {Role: "user", Content: "three"},
	}})
	one := 1
	fork, err := r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{UpToIndex: &one, AgentID: "quiet", Metadata: object(t, `{"x": {"a": null, "c": 3}}`)})
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := json.Marshal(fork.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if transcript(fork.Messages) != "user:one | assistant:two" || fork.AgentID != "quiet" || string(metadata) != `{"title":"T","x":{"b":2,"c":3}}` {
		t.Errorf("fork: %s, agent %s, metadata %s", transcript(fork.Messages), fork.AgentID, metadata)
	}
	log := r.log(fork.SessionID, 0)
	if story(log) != "session_created* checkpoint*" || log[0].SourceSessionID != s.SessionID {
		t.Errorf("events of the fork: %s", story(log))
	}
	if got := transcript(r.snapshot(s.SessionID).Messages); got != "user:one | assistant:two | user:three" {
		t.Errorf("the source became %s", got)
	}
}

func TestTitle(t *testing.T) {
	for _, c := range []struct{ given, content, want string }{
		{"", "  Where is\nOslo?", "Where is"},
		{"mine", "Where is Oslo?", "mine"},
		{"", strings.Repeat("ä", 81), strings.Repeat("ä", 79) + "…"},
		{"", strings.Repeat("ä", 80), strings.Repeat("ä", 80)},
		{"", " \n ", ""},
	} {
		r := newRig(t)
		p := loquat.NewSession{}
		if c.given != "" {
			p.Metadata = loquat.Object{}.Set("title", c.given)
		}
		s := r.create(p)
		if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: "user", Content: c.content}); err != nil {
			t.Fatal(err)
		}
		if got := r.snapshot(s.SessionID).Metadata.String("title"); got != c.want {
			t.Errorf("title %q, want %q", got, c.want)
		}
	}
}

// The pages of a snapshot hold together while the session goes on changing.
func TestPagesOfASnapshot(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}, {Role: "user", Content: "c"}}})
	two := 2
	first, err := r.Messages(t.Context(), s.SessionID, chat.PageQuery{Limit: &two})
	if err != nil || transcript(first.Messages) != "user:a | user:b" || first.Total != 3 || first.CursorEventID != s.CursorEventID {
		t.Fatalf("first page %+v, %v", first, err)
	}
	if _, err := r.DeleteMessages(t.Context(), chat.Call{}, s.SessionID, []int{0, 2}); err != nil {
		t.Fatal(err)
	}
	rest, err := r.Messages(t.Context(), s.SessionID, chat.PageQuery{From: 2, At: &first.CursorEventID})
	if err != nil || transcript(rest.Messages) != "user:c" || rest.Total != 3 || rest.CursorEventID != first.CursorEventID {
		t.Errorf("next page %+v, %v", rest, err)
	}
	nowhere := loquat.EventID(1)
	if _, err := r.Messages(t.Context(), s.SessionID, chat.PageQuery{At: &nowhere}); loquat.CodeOf(err) != loquat.CodeGone {
		t.Errorf("a page of no snapshot: %v", err)
	}
}
