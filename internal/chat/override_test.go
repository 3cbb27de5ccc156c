package chat_test

import (
	"encoding/json"
	"errors"
	"testing"

	"loquat"
	"loquat/internal/chat"
)

// A merge patch cannot bring a null into request_options, where it removes a parameter
// that the configuration sends. SetOverride can, and it also removes what the value
// leaves out.
func TestSetOverride(t *testing.T) {
	r := newRig(t) // whose provider sends top_p
	s := r.create(loquat.NewSession{Metadata: object(t, `{"title": "t", "overrides": {"model": "m3", "request_options": {"temperature": 1, "stop": "x"}}}`)})
	params := func() string {
		t.Helper()
		r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
		seen := r.provider.seen()
		return seen[len(seen)-1].Config.String("model") + " " + compactJSON(t, seen[len(seen)-1].Params)
	}
	patch := object(t, `{"overrides": {"request_options": {"top_p": null}}}`)
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: patch}); err != nil {
		t.Fatal(err)
	}
	if got, want := params(), `m3 {"stop":"x","temperature":1,"top_p":1}`; got != want {
		t.Errorf("after a merge patch a request runs with %s, want %s", got, want)
	}
	for _, c := range []struct{ key, value, overrides, params string }{
		{"request_options", `{"top_p": null, "stop": "x"}`, `{"model":"m3","request_options":{"stop":"x","top_p":null}}`, `m3 {"stop":"x","top_p":null}`},
		{"request_options", `{}`, `{"model":"m3","request_options":{}}`, `m3 {"top_p":1}`},
		{"request_options", `{"deep": {"a": null, "b": [null]}}`, `{"model":"m3","request_options":{"deep":{"a":null,"b":[null]}}}`, `m3 {"deep":{"a":null,"b":[null]},"top_p":1}`},
		{"model", `null`, `{"request_options":{"deep":{"a":null,"b":[null]}}}`, `m1 {"deep":{"a":null,"b":[null]},"top_p":1}`},
		{"model", `"m4"`, `{"model":"m4","request_options":{"deep":{"a":null,"b":[null]}}}`, `m4 {"deep":{"a":null,"b":[null]},"top_p":1}`},
		{"request_options", `null`, `{"model":"m4"}`, `m4 {"top_p":1}`},
		{"request_options", `null`, `{"model":"m4"}`, `m4 {"top_p":1}`},
	} {
		got, err := r.SetOverride(t.Context(), chat.Call{}, s.SessionID, c.key, json.RawMessage(c.value))
		if err != nil {
			t.Fatalf("%s = %s: %v", c.key, c.value, err)
		}
		if overrides := compactJSON(t, got.Metadata.Object("overrides")); overrides != c.overrides || got.Metadata.String("title") != "t" {
			t.Errorf("%s = %s makes the overrides %s of %q, want %s", c.key, c.value, overrides, got.Metadata.String("title"), c.overrides)
		}
		if p := params(); p != c.params {
			t.Errorf("after %s = %s a request runs with %s, want %s", c.key, c.value, p, c.params)
		}
	}
}

// An override that is not allowed is refused with its place, and nothing changes.
func TestSetOverrideRefuses(t *testing.T) {
	r := newRig(t)
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"temperature": 1}}`)})
	gone := r.create(loquat.NewSession{})
	if err := r.DeleteSession(t.Context(), chat.Call{}, gone.SessionID); err != nil {
		t.Fatal(err)
	}
	last := r.store.Last()
	for _, c := range []struct {
		session, key, value string
		code                loquat.Code
		place               string
	}{
		{s.SessionID, "temperature", `"hot"`, loquat.CodeInvalid, "body.value"},
		{s.SessionID, "temprature", `1`, loquat.CodeInvalid, "body.value"},
		{s.SessionID, "api_key", `"x"`, loquat.CodeInvalid, "body.value"},
		{s.SessionID, "provider", `null`, loquat.CodeInvalid, "body.value"},
		{s.SessionID, "request_options", `{"Stream": true}`, loquat.CodeInvalid, "body.value.Stream"},
		{s.SessionID, "request_options", `[]`, loquat.CodeInvalid, "body.value"},
		{s.SessionID, "request_options", `{"token": {"set": true}}`, loquat.CodeInvalid, "body.value.token"},
		{"nobody", "temperature", `1`, loquat.CodeNotFound, ""},
		{gone.SessionID, "temperature", `1`, loquat.CodeNotFound, ""},
	} {
		_, err := r.SetOverride(t.Context(), chat.Call{}, c.session, c.key, json.RawMessage(c.value))
		e, ok := errors.AsType[*loquat.Error](err)
		if !ok || e.Code != c.code || c.place != "" && e.Fields[0].Location != c.place {
			t.Errorf("%s = %s: %v", c.key, c.value, err)
		}
	}
	stale := chat.Call{IfMatch: &chat.Match{IDs: []loquat.EventID{1}}}
	if _, err := r.SetOverride(t.Context(), stale, s.SessionID, "temperature", json.RawMessage(`2`)); loquat.CodeOf(err) != loquat.CodePreconditionFailed {
		t.Errorf("with an old tag: %v", err)
	}
	if now := r.store.Last(); now != last {
		t.Errorf("the log went on from %s to %s", last, now)
	}
}

// A call that is repeated by its key changes nothing a second time, and the secrets of the
// override and of the configuration stay where a client writes back what it read.
func TestSetOverrideKeepsSecrets(t *testing.T) {
	r := newRig(t)
	r.load(`{"providers": {"main": {"provider": "fake", "model": "m1", "request_options": {"api_key": "base-secret", "url": "https://u:base-user@a/", "n": 1}}}}`)
	s := r.create(loquat.NewSession{})
	set := func(value string) loquat.Snapshot {
		t.Helper()
		got, err := r.SetOverride(t.Context(), chat.Call{}, s.SessionID, "request_options", json.RawMessage(value))
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		return got
	}
	params := func() string {
		r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
		seen := r.provider.seen()
		return compactJSON(t, seen[len(seen)-1].Params)
	}
	values, err := r.Catalog.ConfigValues(t.Context(), s.SessionID)
	if got, want := compactJSON(t, values["request_options"].Value), `{"api_key":{"set":true},"n":1,"url":"https://***@a/"}`; err != nil || got != want {
		t.Fatalf("the value is shown as %s, want %s (%v)", got, want, err)
	}
	// A client edits what it is shown of the configuration.
	shown := set(`{"api_key": {"set": true}, "n": 2, "url": "https://***@a/"}`)
	if got := compactJSON(t, shown.Metadata.Object("overrides")); got != `{"request_options":{"n":2}}` {
		t.Errorf("the overrides are %s", got)
	}
	if got, want := params(), `{"api_key":"base-secret","n":2,"url":"https://u:base-user@a/"}`; got != want {
		t.Errorf("a request runs with %s, want %s", got, want)
	}
	// And of a secret of its own.
	set(`{"api_key": "own-secret", "n": 3}`)
	set(`{"api_key": {"set": true}, "n": 4}`)
	if got, want := params(), `{"api_key":"own-secret","n":4,"url":"https://u:base-user@a/"}`; got != want {
		t.Errorf("a request runs with %s, want %s", got, want)
	}

	call := chat.Call{IdempotencyKey: "k", Method: "PUT", Path: "/x"}
	first, err := r.SetOverride(t.Context(), call, s.SessionID, "model", json.RawMessage(`"m2"`))
	if err != nil {
		t.Fatal(err)
	}
	last := r.store.Last()
	again, err := r.SetOverride(t.Context(), call, s.SessionID, "model", json.RawMessage(`"m2"`))
	if err != nil || r.store.Last() != last || again.Checkpoint != first.Checkpoint {
		t.Errorf("the repeat: %v, at %s after %s", err, r.store.Last(), last)
	}
}
