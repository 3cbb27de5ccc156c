package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
	"loquat/internal/jwt"
	"loquat/internal/jwt/jwttest"
	"loquat/internal/store"
)

// shown is the credentials that a caller sends, with the expected status.
type shown struct {
	what          string
	authorization string
	cookie        string
	headers       map[string]string
	may           func(t *route.Route, session string) int // the status that the call is answered with
}

// passed is the status that a route answers in this test when a call reaches it.
const passed = 299

// fileTag marks what stands for a static file in this test.
const fileTag = "file"

// Every route answers every kind of caller with the expected status. The cases are made from
// the table of routes, so that no new route is forgotten. Only the routes' own work is
// replaced.
func TestAccess(t *testing.T) {
	issuer := jwttest.New(t)
	issued := jwt.New([]jwt.Issuer{{Issuer: issuer.URL, Audience: "loquat", Keys: issuer.URL, ScopeClaim: "scope"}})
	r := newRigFor(t, issued, func(db store.Driver) store.Driver { return db }, func(*httpapi.Options) {})
	signed := func(user string, more map[string]any) string {
		return "Bearer " + issuer.Token(t, user, time.Hour, more)
	}
	backend := signed("backend", map[string]any{"scope": "full"})
	r.startRequests("Authorization: "+backend, "mine", "theirs")
	name := r.cookieName()
	for i := range r.table.Routes {
		r.table.Routes[i].Serve = pass
	}
	callers := callersOf(t, r.keeper, signed)
	routes := slices.Clone(r.table.Routes)
	for at := range r.table.Files {
		routes = append(routes, route.Route{Method: http.MethodGet, Path: at, Tag: fileTag})
	}
	for i := range routes {
		rt := &routes[i]
		for _, session := range []string{"mine", "theirs"} {
			target := strings.NewReplacer("{session_id}", session, "{request_id}", "request-of-"+session, "{index}", "0", "{$}", "").Replace(rt.Path)
			if sessionInQuery(rt.Path) {
				target += "?q=a&session_id=" + session
			}
			for j, c := range callers {
				q := httptest.NewRequest(rt.Method, target, nil)
				q.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i, j) // own addresses, so that the attempt limiter does not slow down wrong tokens
				q.Host = "app.example"
				q.Header.Set("Authorization", c.authorization)
				if c.cookie != "" {
					q.AddCookie(&http.Cookie{Name: name, Value: c.cookie})
				}
				for name, value := range c.headers {
					q.Header.Set(name, value)
					if name == "Host" {
						q.Host = value
					}
				}
				w := httptest.NewRecorder()
				r.handler.ServeHTTP(w, q)
				if rt.Tag == fileTag && w.Code == http.StatusOK {
					w.Code = passed
				}
				if want := c.may(rt, session); w.Code != want {
					t.Errorf("%s %s by %s: %s, want %s: %s", rt.Method, target, c.what, result(w.Code), result(want), w.Body)
				}
				if told := w.Header().Get("WWW-Authenticate") != ""; told != (w.Code == http.StatusUnauthorized) {
					t.Errorf("%s %s by %s: %d with WWW-Authenticate: %v", rt.Method, target, c.what, w.Code, told)
				}
				if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Content-Security-Policy") == "" {
					t.Errorf("%s %s by %s: headers are missing: %v", rt.Method, target, c.what, w.Header())
				}
			}
		}
	}
	if t.Failed() {
		t.Log("A new route that has Full has to be in fullOnly, and one that has Users in forUsers: both are in this file.")
	}
}

// sessionInQuery reports whether the query of a route says about which session it is.
func sessionInQuery(path string) bool {
	return strings.HasPrefix(path, "/events") || path == "/models" || path == "/search"
}

// isOfSession reports whether a route is about one session.
func isOfSession(path string) bool {
	return strings.Contains(path, "{session_id}") || strings.Contains(path, "{request_id}") || sessionInQuery(path)
}

// result describes the status of an answer.
func result(status int) string {
	if status == passed {
		return "the route is reached"
	}
	return strconv.Itoa(status)
}

// fullOnly lists the routes that need the scope full, even to read.
var fullOnly = []string{"/pairing", "/devices", "/devices/{device_id}", "/tokens", "/tokens/{token_id}", "/nodes",
	"/webhooks", "/webhooks/{webhook_id}", "/webhooks/{webhook_id}/deliveries", "/webhooks/{webhook_id}/resend", "/audit", "/config/reload"}

// forUsers lists the routes that a user may call and that are not about one session or request.
var forUsers = []string{"/sessions", "/sessions/import", "/agents", "/auth/me", "/pairing", "/devices", "/devices/{device_id}", "/usage"}

// withoutToken lists the routes that need no token, except the files of the page.
var withoutToken = []string{
	"/healthz", "/readyz", "/openapi.json", "/auth/session", "/pairing/claim", "/bridge/websocket",
}

// callersOf returns every kind of caller. The rights of each are stated here independently of
// the table of routes.
func callersOf(t *testing.T, k *auth.Keeper, signed func(user string, more map[string]any) string) []shown {
	t.Helper()
	secret := func(n loquat.NewToken) string {
		n.Name = n.Scope
		_, s, err := k.MakeToken(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	full, read := secret(loquat.NewToken{Scope: auth.Full}), secret(loquat.NewToken{Scope: auth.Read})
	session := secret(loquat.NewToken{Scope: auth.Session, SessionID: "mine"})
	user := secret(loquat.NewToken{Scope: auth.User, User: "user of mine"})
	nobodys := secret(loquat.NewToken{Scope: auth.User, User: "user of nothing"})
	expired := secret(loquat.NewToken{Scope: auth.Full, ExpiresInSeconds: new(1)})
	expiredUser := secret(loquat.NewToken{Scope: auth.User, User: "user of mine", ExpiresInSeconds: new(1)})
	time.Sleep(time.Second) // a token lives for at least a second
	phone, tablet := paired(t, k, auth.Full, ""), paired(t, k, auth.Read, "")
	lost := paired(t, k, auth.Full, "")
	if err := k.RemoveDevice(t.Context(), k.Devices("")[2].ID, ""); err != nil {
		t.Fatal(err)
	}
	userPhone, othersPhone := paired(t, k, auth.User, "user of mine"), paired(t, k, auth.User, "user of nothing")
	signIn := func(token string) string {
		s, err := k.SignIn(t.Context(), token, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Cookie
	}
	fullCookie, readCookie, userCookie, over := signIn(full), signIn(read), signIn(user), signIn(full)
	if err := k.SignOut(t.Context(), over); err != nil {
		t.Fatal(err)
	}

	always := func(status int) func(*route.Route, string) int {
		return func(t *route.Route, _ string) int {
			if t.Tag == fileTag || slices.Contains(withoutToken, t.Path) {
				return passed
			}
			return status
		}
	}
	reader := func(t *route.Route, _ string) int {
		if strings.HasPrefix(t.Path, "/push") { // notifications for the caller itself
			return always(passed)(t, "")
		}
		return always(either(t.Method == http.MethodGet && !slices.Contains(fullOnly, t.Path)))(t, "")
	}
	one := func(t *route.Route, session string) int {
		if t.Path == "/auth/me" || strings.HasPrefix(t.Path, "/push") {
			return always(passed)(t, "")
		}
		return always(either(isOfSession(t.Path) && session == "mine" && !strings.HasSuffix(t.Path, "/fork")))(t, "")
	}
	// A user has sessions, and what belongs to another one is not there.
	ofUser := func(has func(session string) bool) func(t *route.Route, session string) int {
		return func(t *route.Route, session string) int {
			switch of := isOfSession(t.Path); {
			case t.Tag == fileTag:
				return passed
			case strings.HasPrefix(t.Path, "/push"): // notifications for the caller itself
				return passed
			case of && has(session):
				return passed
			case of:
				return http.StatusNotFound
			case slices.Contains(forUsers, t.Path):
				return passed
			}
			return always(http.StatusForbidden)(t, session)
		}
	}
	mine := ofUser(func(session string) bool { return session == "mine" })
	nothing := ofUser(func(string) bool { return false })
	// Push subscriptions are about the token itself.
	notAboutToken := func(may func(*route.Route, string) int) func(*route.Route, string) int {
		return func(t *route.Route, session string) int {
			if strings.HasPrefix(t.Path, "/push") {
				return http.StatusForbidden
			}
			return may(t, session)
		}
	}
	noChange := func(t *route.Route, _ string) int { return always(either(t.Method == http.MethodGet))(t, "") }
	never := func(*route.Route, string) int { return http.StatusForbidden }
	ours := map[string]string{"Origin": "https://app.example"}
	bearer := "Bearer "
	return []shown{
		{what: "nobody", may: always(401)},
		{what: "a wrong token", authorization: bearer + "wrong", may: always(401)},
		{what: "no token", authorization: bearer, may: always(401)},
		{what: "another scheme", authorization: "Basic " + full, may: always(401)},
		{what: "an expired token", authorization: bearer + expired, may: always(401)},
		{what: "a removed device", authorization: bearer + lost, may: always(401)},
		{what: "scope full", authorization: bearer + full, may: always(passed)},
		{what: "scope full, in small letters", authorization: "bearer " + full, may: always(passed)},
		{what: "scope read", authorization: bearer + read, may: reader},
		{what: "scope session", authorization: bearer + session, may: one},
		{what: "scope user", authorization: bearer + user, may: mine},
		{what: "scope user, without sessions", authorization: bearer + nobodys, may: nothing},
		{what: "a device of a user", authorization: bearer + userPhone, may: mine},
		{what: "a device of a user without sessions", authorization: bearer + othersPhone, may: nothing},
		{what: "an expired token of a user", authorization: bearer + expiredUser, may: always(401)},
		{what: "a backend for a user", authorization: bearer + full, headers: map[string]string{"On-Behalf-Of": "user of mine"}, may: notAboutToken(mine)},
		{what: "scope read for a user", authorization: bearer + read, headers: map[string]string{"On-Behalf-Of": "user of mine"}, may: always(http.StatusForbidden)},
		{what: "a JSON Web Token", authorization: signed("user of mine", nil), may: notAboutToken(mine)},
		{what: "a JSON Web Token of a user without sessions", authorization: signed("user of nothing", nil), may: notAboutToken(nothing)},
		{what: "a JSON Web Token of scope full", authorization: signed("backend", map[string]any{"scope": "full"}), may: notAboutToken(always(passed))},
		{what: "a JSON Web Token that has expired", authorization: signed("user of mine", map[string]any{"exp": 1}), may: always(401)},
		{what: "a JSON Web Token for another audience", authorization: signed("user of mine", map[string]any{"aud": "other"}), may: always(401)},
		{what: "a cookie of scope user", cookie: userCookie, headers: ours, may: mine},
		{what: "a device of scope full", authorization: bearer + phone, may: always(passed)},
		{what: "a device of scope read", authorization: bearer + tablet, may: reader},
		{what: "a wrong token beside a cookie", authorization: bearer + "wrong", cookie: fullCookie, headers: ours, may: always(401)},
		{what: "a cookie", cookie: fullCookie, headers: ours, may: always(passed)},
		{what: "a cookie without Origin", cookie: fullCookie, may: noChange},
		{what: "a cookie of scope read", cookie: readCookie, headers: ours, may: reader},
		{what: "a cookie that was ended", cookie: over, headers: ours, may: always(401)},
		{what: "a cookie that is none", cookie: full, headers: ours, may: always(401)},
		{what: "a cookie from another origin", cookie: fullCookie, headers: map[string]string{"Origin": "https://evil.example"}, may: never},
		{what: "a cookie from no origin", cookie: fullCookie, headers: map[string]string{"Origin": "null"}, may: never},
		{what: "another origin", authorization: bearer + full, headers: map[string]string{"Origin": "http://app.example"}, may: never},
		{what: "another host", authorization: bearer + full, headers: map[string]string{"Host": "evil.example"}, may: never},
		{what: "another host, from a proxy that is not trusted", authorization: bearer + full, headers: map[string]string{"Host": "evil.example", "X-Forwarded-Host": "app.example"}, may: never},
	}
}

func either(ok bool) int {
	if ok {
		return passed
	}
	return http.StatusForbidden
}

// paired returns the token of a new device.
func paired(t *testing.T, k *auth.Keeper, scope, user string) string {
	t.Helper()
	code, err := k.Pair(t.Context(), scope, user, "")
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := k.Claim(t.Context(), code.Code, "a device", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// pass answers a call that reached its route.
func pass(x *route.Exchange) error {
	x.W.WriteHeader(passed)
	return nil
}

// startRequests makes sessions and starts a request in each, request-of-<session>.
func (r *rig) startRequests(as string, sessions ...string) {
	r.t.Helper()
	for _, id := range sessions {
		r.do("POST", "/sessions", `{"session_id":"`+id+`","user":"user of `+id+`"}`, as).want(r.t, 201)
		r.do("POST", "/sessions/"+id+"/send", `{"content":"hi","request_id":"request-of-`+id+`"}`, as).want(r.t, 202)
	}
}

// cookieName returns the name of the server's cookie.
func (r *rig) cookieName() string {
	r.t.Helper()
	_, token, err := r.keeper.MakeToken(r.t.Context(), loquat.NewToken{Name: "browser"})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do("POST", "/auth/session", `{"token":"`+token+`"}`, "Origin: "+r.server.URL).want(r.t, 200).Cookies()[0].Name
}

// A token of one session follows a request of it by the request alone.
func TestAccessByRequest(t *testing.T) {
	r := newRig(t)
	r.startRequests("", "mine", "theirs")
	_, secret, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "s", Scope: auth.Session, SessionID: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.table.Routes {
		rt := &r.table.Routes[i]
		if !strings.HasPrefix(rt.Path, "/events") {
			continue
		}
		rt.Serve = pass
		for query, want := range map[string]int{
			"?request_id=request-of-mine": passed, "?request_id=request-of-theirs": 403, "?request_id=unknown": 403, "": 403,
			"?request_id=request-of-mine&session_id=theirs": 403,
			"?session_id=mine,mine&list=true":               passed,
			"?session_id=mine,theirs":                       403,
			"?list=true":                                    403,
			"?session_id=mine,":                             403,
		} {
			q := httptest.NewRequest(rt.Method, rt.Path+query, nil)
			q.Host = "app.example"
			q.Header.Set("Authorization", "Bearer "+secret)
			w := httptest.NewRecorder()
			r.handler.ServeHTTP(w, q)
			if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), `"code":"forbidden"`) {
				t.Errorf("%s%s: %s, want %s: %s", rt.Path, query, result(w.Code), result(want), w.Body)
			}
		}
	}
}

// While no token exists, everybody may make every call, but a token that a call carries must
// be valid. The first token closes the server; removing the last opens it again.
func TestOpenServer(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/sessions", "").want(t, 200)
	r.do("GET", "/sessions", "", "Authorization: Bearer wrong").wantProblem(t, 401, loquat.CodeUnauthorized)
	device := paired(t, r.keeper, auth.Read, "")
	r.do("GET", "/sessions", "").want(t, 200)
	r.do("POST", "/sessions", "{}", "Authorization: Bearer "+device).wantProblem(t, 403, loquat.CodeForbidden)

	made := r.do("POST", "/tokens", `{"name":"first"}`).want(t, 201)
	r.do("GET", "/sessions", "").wantProblem(t, 401, loquat.CodeUnauthorized)
	token := "Authorization: Bearer " + made.field(t, "token")
	listed := r.do("GET", "/tokens", "", token).want(t, 200)
	if strings.Contains(string(listed.body), made.field(t, "token")) || !strings.Contains(string(listed.body), `"last_used_on"`) {
		t.Errorf("the list of tokens is %s", listed.body)
	}
	r.do("DELETE", "/tokens/unknown", "", token).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("DELETE", made.Header.Get("Location"), "", token).want(t, 204)
	r.do("GET", "/sessions", "", token).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("GET", "/sessions", "").want(t, 200)
}
