package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/builtin"
	"loquat/internal/chat"
	"loquat/internal/plugin"
)

func (r *rig) act(a chat.Action) (string, error) {
	out, err := r.RunAction(r.t.Context(), a)
	return string(out), err
}

// echo answers with what it was called with.
func echo(_ context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	b, err := json.Marshal(map[string]any{"session": call.SessionID, "params": call.Params, "config": call.Config != nil})
	return plugin.ActionResult{Result: b}, err
}

func TestActions(t *testing.T) {
	const element = `{"ui_type": "session_action", "id": "%s", "action_id": "say", "fixed_params": {"lang": "en"},
		"param_map": {"n": "$dialog.n", "who": "$session.session_id"}, "dialog": {"kind": "form", "inputs": [{"name": "n", "type": "number", "required": true}]}}`
	r := newRig(t)
	r.load("",
		&panel{name: "one", kind: plugin.KindFeature, actions: []string{"say", "fail", "boom", "refuse", "garble", "burrow"}, elements: []string{fmt.Sprintf(element, "e1")},
			act: func(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
				switch call.ActionID {
				case "fail":
					return plugin.ActionResult{}, errors.New("the word is hunter2")
				case "boom":
					panic("hunter2")
				case "refuse":
					return plugin.ActionResult{}, loquat.Errorf(loquat.CodeConflict, "not with hunter2")
				case "burrow":
					return plugin.ActionResult{Result: json.RawMessage(strings.Repeat("[", 129) + strings.Repeat("]", 129))}, nil
				case "garble":
					return plugin.ActionResult{Result: json.RawMessage(`{`)}, nil
				}
				return echo(ctx, call)
			}},
		&panel{name: "two", kind: plugin.KindApplication, actions: []string{"say"}, act: echo, elements: []string{fmt.Sprintf(element, "e2")}})
	s := r.create(loquat.NewSession{SessionID: "s"})
	params := func(text string) loquat.Object { return object(t, text) }
	for _, c := range []struct {
		what   string
		action chat.Action
		want   string // result, or code and place
	}{
		{"by its owner", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ActionOwner: "feature", Params: params(`{"a": 1}`)}}, `{"config":true,"params":{"a":1},"session":"s"}`},
		{"without a session", chat.Action{ActionID: "say", Action: loquat.Action{Plugin: "two"}}, `{"config":false,"params":{},"session":""}`},
		{"ambiguous", chat.Action{ActionID: "say", SessionID: s.SessionID}, "conflict"},
		{"unknown", chat.Action{ActionID: "sing", SessionID: s.SessionID}, "not_found"},
		{"of no session", chat.Action{ActionID: "say", SessionID: "nobody", Action: loquat.Action{Plugin: "two"}}, "not_found"},
		{"by its element", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e1", Params: params(`{"n": 2, "lang": "de"}`)}}, `{"config":true,"params":{"lang":"en","n":2},"session":"s"}`},
		{"by an element whatever the session", chat.Action{ActionID: "say", Action: loquat.Action{ElementID: "e2", Params: params(`{"n": 2}`)}}, `{"config":false,"params":{"lang":"en","n":2},"session":""}`},
		{"of an unknown element", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e9"}}, "invalid body.element_id"},
		{"of another's element", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e1", Plugin: "two"}}, "invalid body.element_id"},
		{"with a wrong input", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e1", Params: params(`{"n": "2"}`)}}, "invalid body.params.n"},
		{"without an input", chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e1"}}, "invalid body.params.n"},
		{"that fails", chat.Action{ActionID: "fail", SessionID: s.SessionID}, "backend_error"},
		{"that panics", chat.Action{ActionID: "boom"}, "backend_error"},
		{"that refuses", chat.Action{ActionID: "refuse"}, "conflict"},
		{"with a result that nests too deep", chat.Action{ActionID: "burrow"}, "backend_error"},
		{"with a result that is no JSON", chat.Action{ActionID: "garble"}, "backend_error"},
	} {
		got, err := r.act(c.action)
		if e, ok := errors.AsType[*loquat.Error](err); ok {
			got = string(e.Code)
			if len(e.Fields) > 0 {
				got += " " + e.Fields[0].Location
			}
			if strings.Contains(e.Detail, "hunter2") {
				t.Errorf("an action %s tells a secret: %s", c.what, e.Detail)
			}
		} else if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("an action %s: %s (%v), want %s", c.what, got, err, c.want)
		}
	}
}

// A click counts while the plugin of its element is busy or restarts: by the elements that it returned last. Without any,
// the error says that the plugin is away.
func TestActionsOfAPluginThatIsAway(t *testing.T) {
	const element = `{"ui_type": "session_action", "id": "e", "action_id": "say", "fixed_params": {"lang": "en"}}`
	r := newRig(t)
	known := &panel{name: "known", kind: plugin.KindFeature, actions: []string{"say"}, act: echo, elements: []string{element}}
	unknown := &panel{name: "unknown", kind: plugin.KindFeature, actions: []string{"sing"}, act: echo, away: errors.New("it does not answer")}
	r.load("", known, unknown)
	s := r.create(loquat.NewSession{SessionID: "s"})
	say := chat.Action{ActionID: "say", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e", Params: object(t, `{"lang": "de"}`)}}
	for _, away := range []error{nil, errors.New("it does not answer")} {
		known.mu.Lock()
		known.away = away
		known.mu.Unlock()
		if got, err := r.act(say); err != nil || got != `{"config":true,"params":{"lang":"en"},"session":"s"}` {
			t.Errorf("with %v: %s %v", away, got, err)
		}
	}
	_, err := r.act(chat.Action{ActionID: "sing", SessionID: s.SessionID, Action: loquat.Action{ElementID: "e"}})
	if loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(err.Error(), "plugin unknown") {
		t.Errorf("an action of a plugin that never answered: %v", err)
	}
}

// What an application plugin keeps is given to each of its actions as the one before
// has left it, also over a restart.
func TestApplicationState(t *testing.T) {
	r := newRig(t)
	count := func(_ context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
		var n int
		if raw, ok := call.State["n"]; ok {
			if err := json.Unmarshal(raw, &n); err != nil {
				return plugin.ActionResult{}, err
			}
		}
		switch call.ActionID {
		case "look":
			return plugin.ActionResult{Result: call.State["n"]}, nil
		case "burrow":
			return plugin.ActionResult{State: loquat.Object{"n": json.RawMessage(strings.Repeat("[", 129) + strings.Repeat("]", 129))}}, nil
		case "hoard":
			return plugin.ActionResult{State: loquat.Object{}.Set("n", strings.Repeat("x", 2<<20))}, nil
		}
		return plugin.ActionResult{State: loquat.Object{}.Set("n", n+1)}, nil
	}
	app := &panel{name: "app", kind: plugin.KindApplication, actions: []string{"count", "look", "hoard", "burrow"}, act: count}
	r.load("", app, &panel{name: "feature", kind: plugin.KindFeature, actions: []string{"vote"}, act: count})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := r.act(chat.Action{ActionID: "count"}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if _, err := r.act(chat.Action{ActionID: "hoard"}); loquat.CodeOf(err) != loquat.CodeBackendError {
		t.Errorf("a state that is too large: %v", err)
	}
	if _, err := r.act(chat.Action{ActionID: "burrow"}); loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), "deeper than 128 levels at n[0]") {
		t.Errorf("a state that nests too deep: %v", err)
	}
	if _, err := r.act(chat.Action{ActionID: "vote"}); err != nil {
		t.Error(err)
	}
	r.restart()
	if got, err := r.act(chat.Action{ActionID: "look"}); got != "20" || err != nil {
		t.Errorf("after 20 counts the state is %s, %v", got, err)
	}
	if _, err := r.Catalog.ApplicationUISchema(t.Context(), "", ""); err != nil || string(app.newestInput().State["n"]) != "20" {
		t.Errorf("the schema was asked for with %v, %v", app.newestInput().State, err)
	}
}

// An action whose plugin's state was changed by an action at another node meanwhile does not
// overwrite that change.
func TestStateThatAnotherNodeChanged(t *testing.T) {
	r := newRig(t)
	began, finish := make(chan struct{}), make(chan struct{})
	app := &panel{name: "app", kind: plugin.KindApplication, actions: []string{"set", "slow", "look"}, act: func(_ context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
		switch call.ActionID {
		case "look":
			b, err := json.Marshal(call.State)
			return plugin.ActionResult{Result: b}, err
		case "slow":
			began <- struct{}{}
			<-finish
		}
		state := call.State
		for key, value := range call.Params {
			state = state.Set(key, value)
		}
		return plugin.ActionResult{State: state, Result: json.RawMessage(`"done"`)}, nil
	}}
	r.load("", app)
	set := func(id, key string) chat.Action {
		return chat.Action{ActionID: id, Action: loquat.Action{Params: loquat.Object{}.Set(key, "<1>")}}
	}
	one := r.Service
	r.restart() // a second node on the same store
	slow := func(key string) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := one.RunAction(t.Context(), set("slow", key))
			ended <- err
		}()
		<-began
		return ended
	}
	for _, c := range []struct {
		mine, other string
		want        loquat.Code
	}{
		{"a", "", ""}, // nobody else changes it
		{"b", "look", ""},
		{"c", "set", loquat.CodeConflict},
		{"d", "set", ""}, // the state that the other set was what it had
	} {
		ended := slow(c.mine)
		if c.other != "" {
			if _, err := r.act(set(c.other, "x")); err != nil {
				t.Error(err)
			}
		}
		finish <- struct{}{}
		if err := <-ended; loquat.CodeOf(err) != c.want {
			t.Errorf("setting %s while the other node does %q: %v, want %q", c.mine, c.other, err, c.want)
		}
	}
	if got, err := r.act(chat.Action{ActionID: "look"}); got != `{"a":"\u003c1\u003e","b":"\u003c1\u003e","d":"\u003c1\u003e","x":"\u003c1\u003e"}` || err != nil {
		t.Errorf("the state is %s, %v", got, err)
	}
}

// The state counts of an action whose caller has left; the end of the server ends it.
func TestStateOfAnActionThatNobodyAwaits(t *testing.T) {
	r := newRig(t)
	began, finish := make(chan struct{}), make(chan struct{})
	app := &panel{name: "app", kind: plugin.KindApplication, actions: []string{"work", "look"}, act: func(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
		if call.ActionID == "look" {
			return plugin.ActionResult{Result: call.State["done"]}, nil
		}
		began <- struct{}{}
		select {
		case <-finish:
			return plugin.ActionResult{State: loquat.Object{}.Set("done", true)}, nil
		case <-ctx.Done():
			return plugin.ActionResult{}, context.Cause(ctx)
		}
	}}
	r.load("", app)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	run := func() { _, err := r.RunAction(ctx, chat.Action{ActionID: "work"}); ended <- err }
	go run()
	<-began
	leave()
	close(finish)
	if err := <-ended; err != nil {
		t.Errorf("the action ended with %v", err)
	}
	if got, err := r.act(chat.Action{ActionID: "look"}); got != "true" || err != nil {
		t.Errorf("the state is %s, %v", got, err)
	}
	ctx, finish = t.Context(), nil
	go run()
	<-began
	r.Stop(expired())
	if err := <-ended; loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("at the end of the server it ended with %v", err)
	}
	if _, err := r.act(chat.Action{ActionID: "look"}); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("after that: %v", err)
	}
}

func compact(session, params string) chat.Action {
	var p loquat.Object
	if err := json.Unmarshal([]byte(params), &p); err != nil {
		panic(err)
	}
	return chat.Action{ActionID: "compact_range", SessionID: session, Action: loquat.Action{Params: p}}
}

func newCompactRig(t *testing.T) (*rig, loquat.Snapshot) {
	t.Helper()
	r := newRig(t)
	r.load("", builtin.CompactRange{})
	calls := loquat.Object{}.Set("tool_calls", []loquat.ToolCall{{ID: "c", Name: "find", Arguments: `{"q": 1}`}})
	return r, r.create(loquat.NewSession{Messages: []loquat.NewMessage{
		{Role: "system", Content: "be kind"}, {Role: "user", Content: "one"}, {Role: "assistant", Content: "two", Metadata: calls},
		{Role: "tool", Content: "three"}, {Role: "user", Content: "four"},
	}})
}

// A summary by the session's model takes the place of messages, in one transaction
// whose events lead every client there.
func TestCompactRange(t *testing.T) {
	for _, c := range []struct{ params, transcript, events string }{
		{`{"start": 1, "end": 3, "instructions": "in French"}`, "system:be kind | system:short | user:four", "message_modified* messages_deleted* checkpoint*"},
		{`{"start": 2, "end": 2}`, "system:be kind | user:one | system:short | tool:three | user:four", "message_modified* checkpoint*"},
		{`{"start": 0, "end": 4}`, "system:short", "message_modified* messages_deleted* checkpoint*"},
	} {
		r, s := newCompactRig(t)
		r.provider.then(phase{chunks: words("sh", "ort "), reply: loquat.Reply{Content: " short\n"}})
		fold := loquat.NewFold(s)
		before := r.store.Last()
		var indices struct{ Start, End int }
		if err := json.Unmarshal([]byte(c.params), &indices); err != nil {
			t.Fatal(err)
		}
		got, err := r.act(compact(s.SessionID, c.params))
		if want := fmt.Sprintf(`{"compacted":%d,"content":"short","index":%d}`, indices.End-indices.Start+1, indices.Start); err != nil || got != want {
			t.Fatalf("%s: %s, %v, want %s", c.params, got, err, want)
		}
		now := r.snapshot(s.SessionID)
		if got := transcript(now.Messages); got != c.transcript || len(now.Messages[indices.Start].Metadata) > 0 {
			t.Errorf("%s: %s, want %s; metadata %v", c.params, got, c.transcript, now.Messages[indices.Start].Metadata)
		}
		log := r.log(s.SessionID, before)
		if story(log) != c.events {
			t.Errorf("%s: %s, want %s", c.params, story(log), c.events)
		}
		for _, e := range log {
			fold.Apply(e)
		}
		if got := transcript(fold.Messages()); got != c.transcript {
			t.Errorf("%s: a client has %s", c.params, got)
		}
		asked := r.provider.seen()[0]
		question := asked.Messages[0].Content + asked.Messages[1].Content
		if len(asked.Tools) > 0 || strings.Contains(question, "in French") != (indices.Start == 1) || strings.Contains(question, "four") != (indices.End == 4) {
			t.Errorf("%s: the model was asked %q", c.params, question)
		}
		if asked.Config.String("model") == "" || asked.Redacted.String("model") != asked.Config.String("model") {
			t.Errorf("%s: editors of the call get %v of %v", c.params, asked.Redacted, asked.Config)
		}
		if indices.Start <= 2 && !strings.Contains(question, `(calls the tool find with {"q": 1})`) {
			t.Errorf("%s: the model is not told of the call: %q", c.params, question)
		}
	}
}

// The images of messages that were compacted are free.
func TestCompactRangeFreesImages(t *testing.T) {
	r, s := newCompactRig(t)
	image := r.upload(s.SessionID, 1)
	attached := []json.RawMessage{json.RawMessage(`{"type": "image", "asset_id": "` + image.AssetID + `"}`)}
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: "user", Attachments: attached}); err != nil {
		t.Fatal(err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image.AssetID); loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("deleting an image that is used: %v", err)
	}
	if _, err := r.act(compact(s.SessionID, `{"start": 5, "end": 5}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image.AssetID); err != nil {
		t.Errorf("deleting an image that is no longer used: %v", err)
	}
}

// What is wrong, in the way, or fails changes nothing.
func TestCompactRangeRefuses(t *testing.T) {
	while := func(r *rig, do func()) { // while the model writes
		r.provider.chat = func(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
			return func(yield func(loquat.Chunk, error) bool) {
				r.provider.chat = nil
				do()
				yield(loquat.Chunk{Reply: &loquat.Reply{Content: "short"}}, nil)
			}
		}
	}
	fails := func(r *rig, p phase) { r.provider.then(p) }
	const fits = `{"start": 1, "end": 3}`
	for what, c := range map[string]struct {
		params  string
		prepare func(r *rig, id string)
		want    string // code and place; "" goes through
		events  string // what happens all the same
	}{
		"no params":          {`{}`, nil, "invalid body.params.start", ""},
		"a fraction":         {`{"start": 0.5, "end": 1}`, nil, "invalid body.params.start", ""},
		"text":               {`{"start": 0, "end": "1"}`, nil, "invalid body.params.end", ""},
		"instructions":       {`{"start": 0, "end": 1, "instructions": 1}`, nil, "invalid body.params.instructions", ""},
		"start too high":     {`{"start": 5, "end": 5}`, nil, "invalid body.params.start", ""},
		"start below 0":      {`{"start": -1, "end": 5}`, nil, "invalid body.params.start", ""},
		"end too high":       {`{"start": 0, "end": 5}`, nil, "invalid body.params.end", ""},
		"end before start":   {`{"start": 2, "end": 1}`, nil, "invalid body.params.end", ""},
		"backend":            {fits, func(r *rig, id string) { fails(r, phase{err: loquat.Errorf(loquat.CodeBackendError, "HTTP 500")}) }, "backend_error", ""},
		"refused by backend": {fits, func(r *rig, id string) { fails(r, phase{err: loquat.Invalid("model", "is missing")}) }, "backend_error", ""},
		"no summary":         {fits, func(r *rig, id string) { fails(r, phase{reply: loquat.Reply{Content: " \n"}}) }, "backend_error", ""},
		"a summary cut at the token limit": {fits, func(r *rig, id string) {
			fails(r, phase{reply: loquat.Reply{Content: "sho", Metadata: loquat.Object{}.Set("finish_reason", "length")}})
		}, "backend_error", ""},
		"a summary that is filtered": {fits, func(r *rig, id string) {
			fails(r, phase{reply: loquat.Reply{Content: "sho", Metadata: loquat.Object{}.Set("finish_reason", "content_filter")}})
		}, "backend_error", ""},
		"a refusal": {fits, func(r *rig, id string) {
			fails(r, phase{reply: loquat.Reply{Metadata: loquat.Object{}.Set("refusal", "No.")}})
		}, "backend_error", ""},
		"busy": {fits, func(r *rig, id string) {
			r.provider.then(phase{hang: true})
			r.send(id, loquat.Send{Content: text("x")})
			<-r.provider.entered
		}, "busy", "message_appended* checkpoint* request_started"},
		"a message of the range changed": {fits, func(r *rig, id string) {
			while(r, func() { r.modify(id, 2, "2") })
		}, "conflict", "message_modified* checkpoint*"},
		"a message before it deleted": {fits, func(r *rig, id string) {
			while(r, func() { r.delete(id, 0) })
		}, "conflict", "messages_deleted* checkpoint*"},
		"messages of its end deleted": {fits, func(r *rig, id string) {
			while(r, func() { r.delete(id, 3, 4) })
		}, "conflict", "messages_deleted* checkpoint*"},
		"a message behind it changed": {fits, func(r *rig, id string) {
			while(r, func() { r.modify(id, 4, "4") })
		}, "", "message_modified* checkpoint* message_modified* messages_deleted* checkpoint*"},
		"overtaken by a request that has ended": {fits, func(r *rig, id string) {
			while(r, func() { r.ended(r.send(id, loquat.Send{Content: text("x")}).RequestID) })
		}, "conflict", "message_appended* checkpoint* request_started final(ok) checkpoint request_completed"},
		"session deleted": {fits, func(r *rig, id string) {
			while(r, func() {
				if err := r.DeleteSession(r.t.Context(), chat.Call{}, id); err != nil {
					r.t.Error(err)
				}
			})
		}, "not_found", "session_deleted*"},
	} {
		t.Run(what, func(t *testing.T) {
			r, s := newCompactRig(t)
			before := r.store.Last()
			if c.prepare != nil {
				c.prepare(r, s.SessionID)
			}
			_, err := r.act(compact(s.SessionID, c.params))
			got := string(loquat.CodeOf(err))
			if e, ok := errors.AsType[*loquat.Error](err); ok && len(e.Fields) > 0 {
				got += " " + e.Fields[0].Location
			}
			if got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
			log := slices.DeleteFunc(r.log(s.SessionID, before), func(e loquat.Event) bool { return e.Type == loquat.AssistantMessage || e.Type == loquat.Partial })
			if story(log) != c.events {
				t.Errorf("events: %s, want %s", story(log), c.events)
			}
		})
	}
	r, _ := newCompactRig(t)
	if _, err := r.act(chat.Action{ActionID: "compact_range", Action: loquat.Action{Params: object(t, fits)}}); loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("without a session: %v", err)
	}
}

// With a precondition a summary wants the session as its caller has seen it, to the end.
func TestCompactRangeIfMatch(t *testing.T) {
	r, s := newCompactRig(t)
	action := compact(s.SessionID, `{"start": 1, "end": 3}`)
	action.IfMatch = &chat.Match{IDs: []loquat.EventID{s.Checkpoint}}
	overtake := false
	r.provider.chat = func(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
		return func(yield func(loquat.Chunk, error) bool) {
			if overtake {
				r.modify(s.SessionID, 4, "behind it")
			}
			yield(loquat.Chunk{Reply: &loquat.Reply{Content: "short"}}, nil)
		}
	}
	overtake = true
	if _, err := r.act(action); loquat.CodeOf(err) != loquat.CodePreconditionFailed {
		t.Errorf("overtaken while the model wrote: %v", err)
	}
	overtake = false
	asked := len(r.provider.seen())
	if _, err := r.act(action); loquat.CodeOf(err) != loquat.CodePreconditionFailed || len(r.provider.seen()) > asked {
		t.Errorf("overtaken before: %v", err)
	}
	action.IfMatch.IDs = []loquat.EventID{r.snapshot(s.SessionID).Checkpoint}
	if _, err := r.act(action); err != nil || len(r.snapshot(s.SessionID).Messages) != 3 {
		t.Errorf("the session as it is: %v", err)
	}
}

func (r *rig) modify(session string, index int, content string) {
	if _, err := r.ModifyMessage(r.t.Context(), chat.Call{}, session, index, content); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) delete(session string, indices ...int) {
	if _, err := r.DeleteMessages(r.t.Context(), chat.Call{}, session, indices); err != nil {
		r.t.Error(err)
	}
}
