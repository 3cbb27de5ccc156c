package chat_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// evidence gathers everything that clients can read of sessions.
type evidence struct {
	t *testing.T
	r *rig
	strings.Builder
}

func (e *evidence) add(v any, err error) {
	e.t.Helper()
	b, fault := json.Marshal(v)
	if fault != nil {
		e.t.Fatal(fault)
	}
	e.Write(b)
	if problem, ok := errors.AsType[*loquat.Error](err); ok {
		b, _ := json.Marshal(problem)
		e.Write(b)
		e.WriteString(problem.Error())
	}
	e.WriteByte('\n')
}

// read reads a session in every way, and all events with the sessions that they carry.
func (e *evidence) read(ids ...string) {
	e.t.Helper()
	for _, id := range ids {
		e.add(e.r.Session(e.t.Context(), id))
		e.add(e.r.Catalog.ConfigValues(e.t.Context(), id))
		e.add(e.r.Catalog.UISchema(e.t.Context(), id))
		e.add(e.r.Catalog.ApplicationUISchema(e.t.Context(), id, ""))
	}
	e.add(e.r.Sessions(e.t.Context(), loquat.SessionQuery{Limit: 50}))
	for since := loquat.EventID(0); ; {
		records, err := e.r.store.Events(e.t.Context(), since, store.Filter{}, store.Bounds{Events: 100})
		if err != nil {
			e.t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		for _, rec := range records {
			b, err := e.r.AppendEvent(e.t.Context(), nil, rec)
			if err != nil {
				e.t.Fatal(err)
			}
			e.Write(b)
			e.WriteByte('\n')
			since = rec.ID
		}
	}
	e.WriteString(e.r.said.String())
}

const secretiveConfig = `{
	"providers": {"main": {"provider": "fake", "model": "m1", "base_url": "https://main.example/v1",
		"endpoint_options": {"other": "https://me:endpoint-secret-0001@other.example/v1"}}},
	"agents": {"default": {"provider": "main"}, "quiet": {"provider": "main", "model": "m2"}}
}`

// A session may bring secrets of its own in its overrides. The backend gets them, and
// nobody else: no answer, no event and no log shows them, at whatever way they came in.
func TestSecretsOfOverridesAreNotShown(t *testing.T) {
	const overrides = `{
		"base_url": "https://me:endpoint-secret-0001@other.example/v1",
		"request_options": {"api_key": "option-secret-0002", "temperature": 1, "password": null,
			"sources": [{"name": "a", "Authorization": "Bearer list-secret-0003"}, "https://user:url-secret-0004@files.example/x?a=b"]}}`
	secrets := []string{"endpoint-secret-0001", "option-secret-0002", "list-secret-0003", "url-secret-0004"}
	r := newRig(t)
	listener := &panel{name: "listener", kind: plugin.KindFeature}
	r.load(secretiveConfig, listener)
	e := &evidence{t: t, r: r}
	metadata := object(t, `{"title": "t", "overrides": `+overrides+`}`)
	key := chat.Call{IdempotencyKey: "k", Method: "POST", Path: "/sessions"}

	made, err := r.CreateSession(t.Context(), key, loquat.NewSession{Metadata: metadata.Clone()})
	e.add(made, err)
	e.add(r.CreateSession(t.Context(), key, loquat.NewSession{Metadata: metadata.Clone()})) // the repeat
	plain := r.create(loquat.NewSession{})
	patched, err := r.UpdateSession(t.Context(), chat.Call{}, plain.SessionID, loquat.SessionPatch{Metadata: object(t, `{"overrides": `+overrides+`}`)})
	e.add(patched, err)
	fork, err := r.ForkSession(t.Context(), chat.Call{}, made.SessionID, loquat.Fork{})
	e.add(fork, err)
	for _, id := range []string{made.SessionID, plain.SessionID, fork.SessionID} {
		r.ended(r.send(id, loquat.Send{Content: text("hi")}).RequestID) // the first message gives a title: another checkpoint
		e.add(r.UpdateSession(t.Context(), chat.Call{}, id, loquat.SessionPatch{Metadata: object(t, `{"note": 1}`)}))
		e.add(r.UpdateSession(t.Context(), chat.Call{}, id, loquat.SessionPatch{Metadata: object(t, `{"overrides": {"api_key": "option-secret-0002", "model": {"token": "list-secret-0003"}}}`)}))
	}
	e.read(made.SessionID, plain.SessionID, fork.SessionID)
	r.restart()
	e.read(made.SessionID, plain.SessionID, fork.SessionID)
	e.add(listener.given, nil)

	for _, secret := range secrets {
		if n := strings.Count(e.String(), secret); n > 0 {
			at := strings.Index(e.String(), secret)
			t.Errorf("%s is shown %d times, first in …%s…", secret, n, e.String()[max(0, at-200):at+40])
		}
	}
	shown := made.Metadata.Object("overrides")
	if got, want := compactJSON(t, shown), compactJSON(t, json.RawMessage(`{
		"base_url": "https://***@other.example/v1",
		"request_options": {"api_key": {"set": true}, "temperature": 1, "password": {"set": false},
			"sources": [{"name": "a", "Authorization": {"set": true}}, "https://***@files.example/x?a=b"]}}`)); got != want {
		t.Errorf("the overrides are shown as\n%s, want\n%s", got, want)
	}
	if len(r.provider.seen()) != 3 {
		t.Fatalf("the provider was asked %d times", len(r.provider.seen()))
	}
	for _, seen := range r.provider.seen() {
		params := compactJSON(t, seen.Params)
		for _, secret := range secrets[1:] {
			if !strings.Contains(params, secret) {
				t.Errorf("the backend does not get %s: %s", secret, params)
			}
		}
		if got := seen.Config.String("base_url"); got != "https://me:endpoint-secret-0001@other.example/v1" {
			t.Errorf("the request goes to %s", got)
		}
	}
}

// A client can write back the overrides that it has read: the secrets do not change.
func TestShownSecretsAreWrittenBack(t *testing.T) {
	r := newRig(t)
	r.load(secretiveConfig)
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"base_url": "https://me:endpoint-secret-0001@other.example/v1",
		"request_options": {"api_key": "option-secret-0002", "list": [{"token": "list-secret-0003"}, "https://u:url-secret-0004@a/"], "n": 1}}}`)})
	params := func() string {
		r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
		seen := r.provider.seen()
		return seen[len(seen)-1].Config.String("base_url") + " " + compactJSON(t, seen[len(seen)-1].Params)
	}
	before := params()
	shown := r.snapshot(s.SessionID).Metadata.Clone()
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: shown.Clone()}); err != nil {
		t.Fatal(err)
	}
	if got := params(); got != before {
		t.Errorf("after what was read was written back, a request runs with\n%s, want\n%s", got, before)
	}
	fork, err := r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{Metadata: shown.Clone()})
	if err != nil {
		t.Fatal(err)
	}
	s = fork
	if got := params(); got != before {
		t.Errorf("the fork runs with\n%s, want\n%s", got, before)
	}
	// One secret changes, the others stay.
	change := `{"overrides": {"request_options": {"api_key": "option-secret-0005", "list": [{"token": {"set": true}}, "https://***@a/"]}}}`
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: object(t, change)}); err != nil {
		t.Fatal(err)
	}
	if got, want := params(), strings.Replace(before, "option-secret-0002", "option-secret-0005", 1); got != want {
		t.Errorf("after a change of one secret a request runs with\n%s, want\n%s", got, want)
	}
	// A placeholder is refused where the session has no secret.
	for place, wrong := range map[string]string{
		"api_key":       `{"api_key": {"set": true}}`,
		"deep[0].token": `{"deep": [{"token": {"set": true}}]}`,
		"url":           `{"url": "https://***@a/"}`,
	} {
		_, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: object(t, `{"overrides": {"request_options": `+wrong+`}}`)})
		e, ok := errors.AsType[*loquat.Error](err)
		if !ok || e.Code != loquat.CodeInvalid || e.Fields[0].Location != "body.metadata.overrides.request_options."+place {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// An endpoint with a user part is chosen by what clients are shown of it.
func TestChoiceOfAnEndpoint(t *testing.T) {
	const endpoints = `{"providers": {"main": {"provider": "fake", "model": "m1", "base_url": "https://Main.example:443/v1/",
		"endpoint_options": {"other": "https://me:secret@other.example/v1", "one": "https://one:secret@twin.example/v1", "two": "https://two:secret@twin.example/v1"}}}}`
	r := newRig(t)
	r.load(endpoints)
	for _, tc := range []struct{ choice, used string }{
		{"https://***@other.example/v1", "https://me:secret@other.example/v1"},
		{"https://me:secret@other.example/v1/", "https://me:secret@other.example/v1"},
		{"https://***@other.example/v1/", "https://me:secret@other.example/v1"},
		{"HTTPS://main.EXAMPLE/v1", "https://Main.example:443/v1/"},
		{"https://main.example/v1///", "https://Main.example:443/v1/"},
		{"https://two:secret@twin.example/v1", "https://two:secret@twin.example/v1"},
		{"https://***@twin.example/v1", ""}, // it is either of two
		{"https://other.example/v1", ""},
		{"https://you:secret@other.example/v1", ""},
		{"https://main.example/V1", ""},
		{"https://main.example:444/v1", ""},
		{"http://main.example/v1", ""},
		{"https://main.example/v1?x=1", ""},
		{"https://main.example.evil/v1", ""},
	} {
		s, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", map[string]string{"base_url": tc.choice})})
		if tc.used == "" {
			if loquat.CodeOf(err) != loquat.CodeInvalid || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", tc.choice, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.choice, err)
			continue
		}
		r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
		seen := r.provider.seen()
		if got := seen[len(seen)-1].Config.String("base_url"); got != tc.used {
			t.Errorf("%s: the request goes to %s, want %s", tc.choice, got, tc.used)
		}
		values, err := r.Catalog.ConfigValues(t.Context(), s.SessionID)
		if got := string(values["base_url"].Value); err != nil || strings.Contains(got, "secret") {
			t.Errorf("%s is shown as %s (%v)", tc.choice, got, err)
		}
	}
}

// A secret of an element within request_options can be configured, but no session may
// bring one.
func TestElementsSecretsWithinOverrides(t *testing.T) {
	r := newRig(t)
	r.load(testConfig, &panel{name: "p", kind: plugin.KindFeature, elements: []string{`{"key": "weather_key", "type": "text", "secret": true, "config_path": "request_options.weather.pin"}`}})
	for overrides, ok := range map[string]bool{
		`{"request_options": {"weather": {"pin": "0815", "city": "x"}}}`: false,
		`{"request_options": {"weather": {"city": "x"}, "n": 1}}`:        true,
	} {
		_, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: object(t, `{"overrides": `+overrides+`}`)})
		e, _ := errors.AsType[*loquat.Error](err)
		if ok != (err == nil) || !ok && e.Fields[0].Location != "body.metadata.overrides.request_options.weather.pin" {
			t.Errorf("%s: %v", overrides, err)
		}
	}
}

func compactJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(b, &plain)
	}
	if err == nil {
		b, err = json.Marshal(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
