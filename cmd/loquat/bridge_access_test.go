package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/jwt/jwttest"
	"loquat/internal/phx"
)

// Every topic against every kind of caller, with the bridge in the server and with one
// that stands alone, which gets its tokens from the real server.
func TestBridgeAccess(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "in serve", true: "standing alone"}[alone], func(t *testing.T) {
			h := newHarbour(t, alone)
			h.upgrades()
			for _, c := range h.callers() {
				for topic, want := range h.topics(c) {
					app, reason := h.join(topic, c.token)
					if reason != want {
						t.Errorf("%s joins %s: %q, want %q", c.what, topic, reason, want)
					}
					if topic == "events:server:home" && reason == "" {
						if heard := app.sessions(h.last[c.hears[len(c.hears)-1]]); !slices.Equal(heard, c.hears) {
							t.Errorf("%s hears of the sessions %v, want %v", c.what, heard, c.hears)
						}
					}
					app.client.Close()
				}
			}
		})
	}
}

// guest is a caller of the bridge.
type guest struct {
	what, token string
	hears       []string // the sessions; none: it is refused
}

// harbour is a server, in this process, and its bridge.
type harbour struct {
	t            *testing.T
	alone        bool
	server       *server
	endpoint     string                    // http
	issuer       *jwttest.Issuer           // of the tokens of another system
	mine, theirs string                    // sessions
	last         map[string]loquat.EventID // by session: its last event
	visits       int
}

func newHarbour(t *testing.T, alone bool) *harbour {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		return binary.WriteFile(t, filepath.Join(dir, name), text)
	}
	h := &harbour{t: t, alone: alone, issuer: jwttest.New(t)}
	section := `{"server_id": "home"}`
	if alone {
		at := binary.FreeAddress(t)
		cfg := write("bridge.json", `{"bridge": {"servers": {"home": "token-of-home", "spare": "token-of-spare"}},
			"server": {"public_url": "https://app.example", "trusted_proxies": ["127.0.0.1"]}}`)
		section = fmt.Sprintf(`{"url": "ws://%s/bridge", "server_id": "home", "token": "token-of-home"}`, at)
		h.endpoint = "http://" + at + "/bridge"
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- serveBridge(ctx, bridgeOptions{config: cfg, listen: at}, io.Discard, io.Discard) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	cfg := write("server.json", fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}},
		"server": {"public_url": "https://app.example", "trusted_proxies": ["127.0.0.1"], "auth_tokens": [{"name": "all", "token": "token-of-config", "scope": "full"}],
		"jwt": [{"issuer": %q, "audience": "loquat", "jwks_url": %q, "scope_claim": "scope"}]}, "bridge": %s}`, h.issuer.URL, h.issuer.URL, section))
	s, err := newServer(t.Context(), serveOptions{config: cfg, listen: "127.0.0.1:0", data: filepath.Join(dir, "data")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	h.server = s
	if !alone {
		h.endpoint = s.url + "/bridge"
	}
	h.fill()
	return h
}

// fill makes the sessions of which callers may hear, and waits until the bridge has them.
func (h *harbour) fill() {
	h.t.Helper()
	if h.alone {
		h.until("the forwarder is connected", func() bool { return h.server.forwarder.Connected() })
	}
	api, err := client.New(h.server.url, client.Options{Token: "token-of-config"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.last = map[string]loquat.EventID{}
	for id, user := range map[*string]string{&h.theirs: "user of theirs", &h.mine: "user of mine"} {
		session, err := api.CreateSession(h.t.Context(), loquat.NewSession{User: user})
		if err != nil {
			h.t.Fatal(err)
		}
		*id = session.SessionID
		h.last[*id] = h.server.feed.Latest()
	}
}

func (h *harbour) until(what string, holds func() bool) {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("it never holds: %s", what)
		}
	}
}

// callers makes every kind of caller.
func (h *harbour) callers() []guest {
	h.t.Helper()
	k := h.server.access
	token := func(n loquat.NewToken) (id, secret string) {
		n.Name = n.Scope
		key, secret, err := k.MakeToken(h.t.Context(), n)
		if err != nil {
			h.t.Fatal(err)
		}
		return key.ID, secret
	}
	device := func(scope, user string) (id, secret string) {
		code, err := k.Pair(h.t.Context(), scope, user, "")
		if err != nil {
			h.t.Fatal(err)
		}
		key, secret, err := k.Claim(h.t.Context(), code.Code, "a device", h.address())
		if err != nil {
			h.t.Fatal(err)
		}
		return key.ID, secret
	}
	_, full := token(loquat.NewToken{Scope: auth.Full})
	_, read := token(loquat.NewToken{Scope: auth.Read})
	_, session := token(loquat.NewToken{Scope: auth.Session, SessionID: h.mine})
	_, expired := token(loquat.NewToken{Scope: auth.Full, ExpiresInSeconds: new(1)})
	time.Sleep(time.Second) // a token lives for at least a second
	id, revoked := token(loquat.NewToken{Scope: auth.Full})
	if err := k.RevokeToken(h.t.Context(), id); err != nil {
		h.t.Fatal(err)
	}
	_, user := token(loquat.NewToken{Scope: auth.User, User: "user of mine"})
	_, other := token(loquat.NewToken{Scope: auth.User, User: "user of theirs"})
	id, gone := token(loquat.NewToken{Scope: auth.User, User: "user of mine"})
	if err := k.RevokeToken(h.t.Context(), id); err != nil {
		h.t.Fatal(err)
	}
	_, ofUser := device(auth.User, "user of mine")
	_, phone := device(auth.Full, "")
	_, tablet := device(auth.Read, "")
	id, lost := device(auth.Full, "")
	if err := k.RemoveDevice(h.t.Context(), id, ""); err != nil {
		h.t.Fatal(err)
	}
	both := []string{h.theirs, h.mine}
	if h.last[h.theirs] > h.last[h.mine] {
		slices.Reverse(both)
	}
	jwt := func(sub string, more map[string]any) string { return h.issuer.Token(h.t, sub, time.Hour, more) }
	all := []guest{
		{what: "nobody"}, {what: "a wrong token", token: "wrong"}, {what: "an expired token", token: expired},
		{what: "a revoked token", token: revoked}, {what: "a removed device", token: lost},
		{what: "the server's own token", token: "token-of-home"}, {what: "another server's token", token: "token-of-spare"},
		{"a token of the configuration", "token-of-config", both}, {"scope full", full, both}, {"scope read", read, both},
		{"scope session", session, []string{h.mine}}, {"a user", user, []string{h.mine}}, {"another user", other, []string{h.theirs}},
		{"a device of a user", ofUser, []string{h.mine}}, {what: "a revoked token of a user", token: gone},
		{"a JSON Web Token", jwt("user of mine", nil), []string{h.mine}}, {"another user's", jwt("user of theirs", nil), []string{h.theirs}},
		{"one of scope full", jwt("x", map[string]any{"scope": "full"}), both}, {what: "one that has expired", token: jwt("user of mine", map[string]any{"exp": 1})},
		{"a device of scope full", phone, both}, {"a device of scope read", tablet, both},
	}
	h.until("the bridge knows the newest device", func() bool {
		app, reason := h.join("events:server:home", tablet)
		app.client.Close()
		return reason == ""
	})
	return all
}

// topics are the reasons for which a caller is refused, by topic; "" is none.
func (h *harbour) topics(c guest) map[string]string {
	const none, no = "unmatched topic", "unauthorized"
	all := map[string]string{
		"events:server:home": no, "events:server:other": none, "events:server:": none, "events:server": none,
		"server:home": none, "server:spare": none, "server:other": none, "phoenix": none, "events:session:" + h.mine: none,
	}
	if c.hears != nil {
		all["events:server:home"] = ""
	}
	if !h.alone {
		return all
	}
	all["server:home"], all["server:spare"] = no, no
	switch c.token {
	case "token-of-home":
		delete(all, "server:home") // it would put the server itself out
	case "token-of-spare":
		all["server:spare"] = ""
	}
	return all
}

// visitor is what joined.
type visitor struct {
	t      *testing.T
	client *phx.Client
	events chan loquat.Event
}

// join joins from the start of the log, from an address of its own: wrong tokens count
// as guessing.
func (h *harbour) join(topic, token string) (*visitor, string) {
	h.t.Helper()
	v := &visitor{t: h.t, events: make(chan loquat.Event, 1000)}
	c, err := phx.Dial(h.t.Context(), "ws"+strings.TrimPrefix(h.endpoint, "http"), phx.ClientOptions{
		HTTPClient: &http.Client{Transport: headers{"X-Forwarded-For": h.address().String()}},
		OnPush: func(_, _ string, payload json.RawMessage) {
			var body struct{ Event loquat.Event }
			if json.Unmarshal(payload, &body) == nil {
				v.events <- body.Event
			}
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	v.client = c
	h.t.Cleanup(c.Close)
	params := map[string]any{"since_id": "0000000000000000", "store_id": "s", "latest_event_id": "0000000000000000"}
	if token != "" {
		params["token"] = token
	}
	_, err = c.Join(h.t.Context(), topic, params)
	if refusal, ok := errors.AsType[*phx.Refusal](err); ok {
		return v, refusal.Reason
	}
	if err != nil {
		h.t.Fatalf("%s: %v", topic, err)
	}
	return v, ""
}

// sessions are those that were heard of, up to an event of the last of them.
func (v *visitor) sessions(last loquat.EventID) (heard []string) {
	v.t.Helper()
	for {
		select {
		case e := <-v.events:
			if !slices.Contains(heard, e.SessionID) {
				heard = append(heard, e.SessionID)
			}
			if e.EventID >= last {
				return heard
			}
		case <-time.After(20 * time.Second):
			v.t.Fatalf("only %v were heard of", heard)
		}
	}
}

// address is another one at each call.
func (h *harbour) address() netip.Addr {
	h.visits++
	return netip.AddrFrom4([4]byte{10, 0, byte(h.visits >> 8), byte(h.visits)})
}

// headers are sent with every request.
type headers map[string]string

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// upgrades opens sockets from pages and under names that may, and that may not.
func (h *harbour) upgrades() {
	h.t.Helper()
	own := strings.TrimSuffix(h.endpoint, "/bridge")
	for _, c := range []struct {
		what string
		headers
		want int
	}{
		{"no page", headers{}, http.StatusSwitchingProtocols},
		{"the page of the server", headers{"Origin": own}, http.StatusSwitchingProtocols},
		{"the public page", headers{"Origin": "https://app.example", "Host": "app.example", "X-Forwarded-Proto": "https"}, http.StatusSwitchingProtocols},
		{"another page", headers{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"no origin", headers{"Origin": "null"}, http.StatusForbidden},
		{"the public page without TLS", headers{"Origin": "http://app.example"}, http.StatusForbidden},
		{"another host", headers{"Host": "evil.example"}, http.StatusForbidden},
		{"another host and its page", headers{"Host": "evil.example", "Origin": "http://evil.example"}, http.StatusForbidden},
	} {
		ws, resp, err := websocket.Dial(h.t.Context(), h.endpoint+"/websocket?vsn=2.0.0", &websocket.DialOptions{HTTPClient: &http.Client{Transport: c.headers}})
		if err == nil {
			_ = ws.CloseNow()
		}
		if resp == nil || resp.StatusCode != c.want {
			h.t.Errorf("%s: %v, %v; want %d", c.what, resp, err, c.want)
		}
	}
}

// A role that the configuration no longer has allows nothing, at the bridge as elsewhere.
func TestRoleThatIsGoneAtTheBridge(t *testing.T) {
	s, err := newServer(t.Context(), serveOptions{demo: true, listen: "127.0.0.1:0", data: t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	s.access.Reconfigure(auth.Configured{Roles: []string{"r"}})
	_, token, err := s.access.MakeToken(t.Context(), loquat.NewToken{Name: "t", Role: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admit(t.Context(), token, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	grants := len(s.access.Grants())
	s.access.Reconfigure(auth.Configured{})
	if _, err := s.admit(t.Context(), token, netip.Addr{}); loquat.CodeOf(err) != loquat.CodeUnauthorized {
		t.Errorf("the token is admitted: %v", err)
	}
	if now := len(s.access.Grants()); now != grants-1 {
		t.Errorf("there are %d grants, and were %d", now, grants)
	}
}
