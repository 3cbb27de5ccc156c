package httpapi_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
)

// A device is paired, used and removed.
func TestPairing(t *testing.T) {
	r := newRig(t)
	_, admin, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	full := "Authorization: Bearer " + admin
	p := r.do("POST", "/pairing", "", full).want(t, 200)
	if p.field(t, "url") != r.server.URL || p.field(t, "server_id") != r.store.ServerID() {
		t.Errorf("the code is %s", p.body)
	}
	until, err := time.Parse(time.RFC3339, p.field(t, "expires_at"))
	if left := time.Until(until); err != nil || left > 5*time.Minute || left < 4*time.Minute {
		t.Errorf("the code is good for %s, %v", left, err)
	}
	code := p.field(t, "code")
	r.do("POST", "/pairing/claim", `{"code":"`+code[:5]+`0000000000","device_name":"phone"}`).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("POST", "/pairing/claim", `{"code":"`+code+`"}`).wantProblem(t, 422, loquat.CodeInvalid)
	d := r.do("POST", "/pairing/claim", `{"code":"`+strings.ToLower(code)+`","device_name":"phone ☎"}`).want(t, 200)
	if d.field(t, "server_id") != r.store.ServerID() || d.field(t, "bridge_url") != "ws"+strings.TrimPrefix(r.server.URL, "http")+"/bridge" {
		t.Errorf("the device is %s", d.body)
	}
	r.do("POST", "/pairing/claim", `{"code":"`+code+`","device_name":"second"}`).wantProblem(t, 401, loquat.CodeUnauthorized)

	device := "Authorization: Bearer " + d.field(t, "token")
	r.do("GET", "/sessions", "", device).want(t, 200)
	r.do("POST", "/sessions", "{}", device).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("GET", "/devices", "", device).wantProblem(t, 403, loquat.CodeForbidden)
	list := r.do("GET", "/devices", "", full).want(t, 200)
	if !strings.Contains(string(list.body), `"phone ☎"`) || strings.Contains(string(list.body), d.field(t, "token")) {
		t.Errorf("the devices are %s", list.body)
	}

	// The device's streams end at once when the device is removed.
	stream := r.stream(device)
	poll := r.poll(device)
	r.do("DELETE", "/devices/"+d.field(t, "device_id"), "", full).want(t, 204)
	stream.wantEnd(t)
	got := <-poll
	got.wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("GET", "/sessions", "", device).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("DELETE", "/devices/"+d.field(t, "device_id"), "", full).wantProblem(t, 404, loquat.CodeNotFound)
}

// A browser's cookie has the right attributes, authenticates calls and ends with sign-out.
func TestBrowserSession(t *testing.T) {
	r := newRig(t)
	_, token, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "me"})
	if err != nil {
		t.Fatal(err)
	}
	r.do("POST", "/auth/session", `{"token":"wrong"}`).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("POST", "/auth/session", `{}`).wantProblem(t, 422, loquat.CodeInvalid)
	in := r.do("POST", "/auth/session", `{"token":"`+token+`"}`, "Origin: "+r.server.URL).want(t, 200)
	c := in.Cookies()[0]
	if c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge < 29*24*3600 || c.Value == token {
		t.Errorf("the cookie is %s", c)
	}
	cookie, origin := "Cookie: "+c.Name+"="+c.Value, "Origin: "+r.server.URL
	r.do("GET", "/sessions", "", cookie).want(t, 200)
	r.do("POST", "/sessions", "{}", cookie).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions", "{}", cookie, "Origin: https://evil.example").wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions", "{}", cookie, origin).want(t, 201)
	stream := r.stream(cookie)
	r.do("DELETE", "/auth/session", "", cookie).wantProblem(t, 403, loquat.CodeForbidden)
	out := r.do("DELETE", "/auth/session", "", cookie, origin).want(t, 204)
	if c := out.Cookies()[0]; c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("at the end the cookie is %s", c)
	}
	stream.wantEnd(t)
	r.do("GET", "/sessions", "", cookie).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("DELETE", "/auth/session", "").want(t, 204)
	r.do("GET", "/sessions", "", "Authorization: Bearer "+token).want(t, 200)
}

// The cookie is Secure whenever browsers reach the server over HTTPS.
func TestSecureCookie(t *testing.T) {
	for _, c := range []struct {
		name    string
		server  config.Server
		headers map[string]string
		host    string
		secure  bool
	}{
		{name: "plain", host: "127.0.0.1:8787"},
		{name: "public_url", server: config.Server{PublicURL: "https://chat.example"}, host: "chat.example", secure: true},
		{
			name: "a trusted proxy", server: config.Server{TrustedProxies: []string{"192.0.2.0/24"}}, host: "127.0.0.1:8787",
			headers: map[string]string{"X-Forwarded-Proto": "https"}, secure: true,
		},
		{
			name: "somebody else", server: config.Server{TrustedProxies: []string{"10.0.0.0/8"}}, host: "127.0.0.1:8787",
			headers: map[string]string{"X-Forwarded-Proto": "https"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			_, token, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "me"})
			if err != nil {
				t.Fatal(err)
			}
			handler, err := httpapi.New(httpapi.Options{ServerID: r.store.ServerID(), Service: r.chat, Feed: r.feed, Access: r.keeper, Config: config.NewLive(&config.Config{Server: c.server, Limits: config.Limits{MaxBodyBytes: 1 << 16}}), Address: "127.0.0.1:8787"})
			if err != nil {
				t.Fatal(err)
			}
			q := httptest.NewRequest("POST", "/auth/session", strings.NewReader(`{"token":"`+token+`"}`)) // from 192.0.2.1
			q.Host = c.host
			for name, value := range c.headers {
				q.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, q)
			if w.Code != http.StatusOK {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			got := w.Result().Cookies()[0]
			if got.Secure != c.secure || strings.HasPrefix(got.Name, "__Host-") != c.secure {
				t.Errorf("the cookie is %s", got)
			}
			// Only the cookie that was set counts. Another name is one that a page of a neighbouring host may have set.
			for name, want := range map[string]int{got.Name: http.StatusOK, plainName(got.Name): map[bool]int{true: http.StatusUnauthorized, false: http.StatusOK}[c.secure]} {
				q := httptest.NewRequest("GET", "/sessions", nil)
				q.Host = c.host
				for name, value := range c.headers {
					q.Header.Set(name, value)
				}
				q.AddCookie(&http.Cookie{Name: name, Value: got.Value})
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, q); w.Code != want {
					t.Errorf("with the cookie %s: %d, want %d", name, w.Code, want)
				}
			}
			if hsts := w.Header().Get("Strict-Transport-Security") != ""; hsts != (c.headers != nil && c.secure) {
				t.Errorf("HSTS is %v", hsts)
			}
		})
	}
}

func plainName(name string) string { return strings.TrimPrefix(name, "__Host-") }

// following is an event stream that is read.
type following struct {
	ended chan struct{}
}

// stream opens the stream of all events and reads it until it ends.
func (r *rig) stream(headers ...string) following {
	r.t.Helper()
	body := r.open(r.t.Context(), "/events/stream", headers...)
	lines := bufio.NewScanner(body)
	lines.Scan() // where it starts
	f := following{ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer body.Close()
		for lines.Scan() {
		}
	}()
	return f
}

func (f following) wantEnd(t *testing.T) {
	t.Helper()
	select {
	case <-f.ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
}

// poll starts a long poll for an event that never comes. It returns when the poll has begun.
func (r *rig) poll(headers ...string) <-chan reply {
	r.t.Helper()
	began, ended := make(chan struct{}), make(chan reply, 1)
	i := slices.IndexFunc(r.table.Routes, func(t route.Route) bool { return t.Path == "/events" })
	serve := r.table.Routes[i].Serve
	r.table.Routes[i].Serve = func(x *route.Exchange) error {
		close(began)
		return serve(x)
	}
	go func() {
		ended <- r.do("GET", "/events?since_id=0000000000000000&wait=60", "", headers...)
	}()
	select {
	case <-began:
	case got := <-ended:
		r.t.Fatalf("the poll answers %d at once: %s", got.StatusCode, got.body)
	}
	return ended
}
