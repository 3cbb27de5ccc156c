package httpapi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/auth"
)

// asUser makes a token of a user and returns its header.
func (r *rig) asUser(user string) string {
	r.t.Helper()
	_, secret, err := r.keeper.MakeToken(r.t.Context(), loquat.NewToken{Name: user, Scope: auth.User, User: user})
	if err != nil {
		r.t.Fatal(err)
	}
	return "Authorization: Bearer " + secret
}

// asFull makes a token of scope full and returns its header.
func (r *rig) asFull() string {
	r.t.Helper()
	_, secret, err := r.keeper.MakeToken(r.t.Context(), loquat.NewToken{Name: "full"})
	if err != nil {
		r.t.Fatal(err)
	}
	return "Authorization: Bearer " + secret
}

// Users use the API side by side, each as if the others did not exist.
func TestUsers(t *testing.T) {
	r := newRig(t)
	close(r.parrot.gate)
	full, ann, bob := r.asFull(), r.asUser("ann"), r.asUser("bob@example.com")
	var s, copied loquat.Snapshot
	r.do("POST", "/sessions", `{"session_id":"of-ann","send":{"content":"a secret plum","request_id":"q"}}`, ann, "Idempotency-Key: k").want(t, 201).into(t, &s)
	if s.User != "ann" {
		t.Errorf("the session of ann belongs to %q", s.User)
	}
	r.do("GET", "/events?request_id=q&wait=10", "", ann).want(t, 200)
	r.do("POST", "/sessions/of-ann/fork", `{}`, ann).want(t, 201).into(t, &copied)
	if copied.User != "ann" {
		t.Errorf("the copy belongs to %q", copied.User)
	}
	r.do("POST", "/sessions", `{"session_id":"of-nobody"}`, full).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"of-bob","user":"bob@example.com"}`, full).want(t, 201)
	r.do("POST", "/sessions", `{"user":"bob@example.com"}`, ann).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions", `{"user":""}`, ann).want(t, 201)
	r.do("POST", "/sessions", `{"user":"a\u0007b"}`, full).wantProblem(t, 422, loquat.CodeInvalid)

	ids := func(query, as string) string {
		t.Helper()
		var list loquat.SessionList
		r.do("GET", "/sessions"+query, "", as).want(t, 200).into(t, &list)
		var out []string
		for _, one := range list.Sessions {
			out = append(out, one.User+":"+strings.ReplaceAll(one.SessionID, copied.SessionID, "copy"))
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct{ query, as, want string }{
		{"?limit=2", bob, "bob@example.com:of-bob"},
		{"?user=bob@example.com", full, "bob@example.com:of-bob"},
		{"?user=nobody", full, ""},
		{"?q=plum", bob, ""},
		{"?q=plum&user=bob@example.com", full, ""},
	} {
		if got := ids(c.query, c.as); got != c.want {
			t.Errorf("sessions%s: %q, want %q", c.query, got, c.want)
		}
	}
	if got := ids("?q=plum", ann); !strings.Contains(got, "ann:of-ann") || !strings.Contains(got, "ann:copy") {
		t.Errorf("ann finds %q", got)
	}
	if all, own := ids("", full), ids("", ann); strings.Count(all, ":") != 5 || strings.Count(own, "ann:") != 3 || strings.Count(own, ":") != 3 {
		t.Errorf("full lists %q, ann %q", all, own)
	}
	r.do("GET", "/sessions?user=ann", "", bob).wantProblem(t, 403, loquat.CodeForbidden)
	var hits loquat.SearchResult
	r.do("GET", "/search?q=plum", "", bob).want(t, 200).into(t, &hits)
	if len(hits.Hits) != 0 {
		t.Errorf("bob finds %+v", hits.Hits)
	}
	r.do("GET", "/search?q=plum", "", ann).want(t, 200).into(t, &hits)
	if len(hits.Hits) != 2 {
		t.Errorf("ann finds %+v", hits.Hits)
	}

	// The same Idempotency-Key of another user is another key.
	var other loquat.Snapshot
	r.do("POST", "/sessions", `{"session_id":"of-ann","send":{"content":"a secret plum","request_id":"q"}}`, bob, "Idempotency-Key: k").wantProblem(t, 409, loquat.CodeConflict)
	r.do("POST", "/sessions", `{"session_id":"of-ann","send":{"content":"a secret plum","request_id":"q"}}`, ann, "Idempotency-Key: k").want(t, 201).into(t, &other)
	if other.SessionID != s.SessionID || other.CursorEventID != s.CursorEventID {
		t.Errorf("repeated: %+v", other)
	}

	// Two readings of a query may not differ.
	for _, query := range []string{"session_id=of-ann&session_id=of-nobody", "session_id=of-nobody&session_id=of-ann", "session_id=of-ann;&session_id=of-nobody", "session_id=of-ann&session%5Fid=of-nobody", "session_id=of-ann,of-nobody"} {
		if got := r.do("GET", "/events?since_id=0&"+query, "", ann); got.StatusCode < 400 || strings.Contains(string(got.body), `"events"`) {
			t.Errorf("%s: %d %s", query, got.StatusCode, got.body)
		}
	}

	// A session that was deleted is not there for others, and its user still reads how it ended.
	r.do("DELETE", "/sessions/of-ann", "", ann).want(t, 204)
	r.do("GET", "/events?session_id=of-ann&since_id="+s.CursorEventID.String(), "", ann).want(t, 200)
	r.do("GET", "/events?session_id=of-ann&since_id="+s.CursorEventID.String(), "", bob).wantProblem(t, 404, loquat.CodeNotFound)
}

// A backend acts for a user with its own token, and then may do and see what the user may.
func TestOnBehalfOf(t *testing.T) {
	r := newRig(t)
	full, ann := r.asFull(), r.asUser("ann")
	_, secret, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "reader", Scope: auth.Read})
	if err != nil {
		t.Fatal(err)
	}
	forAnn, forBob := "On-Behalf-Of: ann", "On-Behalf-Of: bob"
	r.do("POST", "/sessions", `{"session_id":"of-ann"}`, full, forAnn).want(t, 201)
	r.do("GET", "/sessions/of-ann", "", ann).want(t, 200)
	r.do("GET", "/sessions/of-ann", "", full, forAnn).want(t, 200)
	r.do("GET", "/sessions/of-ann", "", full, forBob).wantProblem(t, 404, loquat.CodeNotFound)
	var me loquat.Caller
	r.do("GET", "/auth/me", "", full, forBob).want(t, 200).into(t, &me)
	if me.Scope != auth.User || me.User != "bob" || me.Name != "full" {
		t.Errorf("the caller is %+v", me)
	}
	for _, c := range []struct {
		path    string
		headers []string
		status  int
		code    loquat.Code
	}{
		{"/tokens", []string{full, forAnn}, 403, loquat.CodeForbidden},
		{"/nodes", []string{full, forAnn}, 403, loquat.CodeForbidden},
		{"/push", []string{full, forAnn}, 403, loquat.CodeForbidden},
		{"/sessions", []string{ann, forBob}, 403, loquat.CodeForbidden},
		{"/sessions", []string{ann, forAnn}, 403, loquat.CodeForbidden},
		{"/sessions", []string{"Authorization: Bearer " + secret, forAnn}, 403, loquat.CodeForbidden},
		{"/sessions", []string{full, "On-Behalf-Of: "}, 422, loquat.CodeInvalid},
		{"/sessions", []string{full, "On-Behalf-Of: " + strings.Repeat("x", 129)}, 422, loquat.CodeInvalid},
		{"/sessions", []string{forAnn}, 401, loquat.CodeUnauthorized},
	} {
		r.do("GET", c.path, "", c.headers...).wantProblem(t, c.status, c.code)
	}
}

// On a server without tokens the header counts as well, also where programs may send any key.
func TestOnBehalfOfOnAnOpenServer(t *testing.T) {
	r := newRig(t)
	for i := range r.table.Routes {
		r.table.Routes[i].AnyKey = r.table.Routes[i].AnyKey || r.table.Routes[i].Path == "/plugins"
	}
	var s loquat.Snapshot
	r.do("POST", "/sessions", `{}`, "On-Behalf-Of: ann").want(t, 201).into(t, &s)
	if s.User != "ann" {
		t.Errorf("the session belongs to %q", s.User)
	}
	r.do("GET", "/sessions/"+s.SessionID, "", "On-Behalf-Of: bob").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", "/plugins", "", "Authorization: Bearer any").want(t, 200)
	r.do("GET", "/plugins", "", "Authorization: Bearer any", "On-Behalf-Of: ann").wantProblem(t, 403, loquat.CodeForbidden)
}

// A user pairs and removes its own devices, and knows no others.
func TestDevicesOfUser(t *testing.T) {
	r := newRig(t)
	full, ann, bob := r.asFull(), r.asUser("ann"), r.asUser("bob")
	claim := func(body, as string) (d loquat.ClaimedDevice) {
		t.Helper()
		var p loquat.Pairing
		r.do("POST", "/pairing", body, as).want(t, 200).into(t, &p)
		r.do("POST", "/pairing/claim", `{"code":"`+p.Code+`","device_name":"phone"}`).want(t, 200).into(t, &d)
		return d
	}
	of := func(as string) (users []string) {
		t.Helper()
		var list loquat.DeviceList
		r.do("GET", "/devices", "", as).want(t, 200).into(t, &list)
		for _, d := range list.Devices {
			users = append(users, d.Scope+" "+d.User)
		}
		return users
	}
	phone := claim(`{}`, ann)
	claim(`{"scope":"user","user":"bob"}`, full)
	claim(`{"scope":"read"}`, full)
	as := "Authorization: Bearer " + phone.Token
	r.do("POST", "/sessions", `{"session_id":"from-the-phone"}`, as).want(t, 201)
	r.do("GET", "/sessions/from-the-phone", "", ann).want(t, 200)
	r.do("GET", "/sessions/from-the-phone", "", bob).want(t, 404)
	if got := fmt.Sprint(of(ann), of(as), of(bob), of(full)); got != "[user ann] [user ann] [user bob] [user ann user bob read ]" {
		t.Errorf("devices %s", got)
	}
	r.do("DELETE", "/devices/"+phone.DeviceID, "", bob).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("DELETE", "/devices/"+phone.DeviceID, "", ann).want(t, 204)
	r.do("GET", "/sessions/from-the-phone", "", as).want(t, 401)
	r.do("POST", "/pairing", `{"user":"bob"}`, ann).wantProblem(t, 403, loquat.CodeForbidden)
	for _, scope := range []string{"full", "read"} {
		r.do("POST", "/pairing", `{"scope":"`+scope+`"}`, ann).wantProblem(t, 422, loquat.CodeInvalid)
	}
}

// A user whose token ends cannot pair a device, which would not end with it. A caller of scope full may do so for the
// user.
func TestDevicesDoNotOutliveTokens(t *testing.T) {
	r := newRig(t)
	hour := 3600
	_, secret, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "visit", Scope: auth.User, User: "ann", ExpiresInSeconds: &hour})
	if err != nil {
		t.Fatal(err)
	}
	r.do("POST", "/pairing", `{}`, "Authorization: Bearer "+secret).wantProblem(t, 403, loquat.CodeForbidden)
	c := r.do("POST", "/auth/session", `{"token":"`+secret+`"}`, "Origin: "+r.server.URL).want(t, 200).Cookies()[0]
	r.do("POST", "/pairing", `{}`, "Cookie: "+c.Name+"="+c.Value, "Origin: "+r.server.URL).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/pairing", `{}`, r.asFull(), "On-Behalf-Of: ann").want(t, 200)
	lasting := r.asUser("ann")
	r.do("POST", "/pairing", `{}`, lasting).want(t, 200)
	_, secret, _ = strings.Cut(lasting, "Bearer ")
	c = r.do("POST", "/auth/session", `{"token":"`+secret+`"}`, "Origin: "+r.server.URL).want(t, 200).Cookies()[0]
	r.do("POST", "/pairing", `{}`, "Cookie: "+c.Name+"="+c.Value, "Origin: "+r.server.URL).want(t, 200) // the cookie ends, the token does not
}

// chatAs sends a message in a new session, waits for the end of the reply, and returns the session.
func (r *rig) chatAs(as string) (session string) {
	r.t.Helper()
	var s loquat.Snapshot
	r.do("POST", "/sessions", `{"metadata":{"title":"x"},"send":{"content":"hi"}}`, as).want(r.t, 201).into(r.t, &s)
	r.do("GET", "/events?wait=10&request_id="+s.ActiveRequestID, "", as).want(r.t, 200)
	for now := s; now.ActiveRequestID != ""; {
		now = loquat.Snapshot{}
		r.do("GET", "/sessions/"+s.SessionID, "", as).want(r.t, 200).into(r.t, &now)
	}
	return s.SessionID
}

// A user follows the list of its sessions, and of no other: by polling and as a stream.
func TestListOfUser(t *testing.T) {
	r := newRig(t)
	close(r.parrot.gate)
	full, ann, bob := r.asFull(), r.asUser(`ann "and" <co> ☂`), r.asUser("bob")
	start := r.feed.Latest()
	lines := make(chan []string)
	go func() {
		lines <- r.follow("/events/stream?list=true&session=omit&since_id="+start.String(), func(line string) bool { return strings.Contains(line, `"session_deleted"`) }, bob)
	}()
	r.chatAs(ann)
	r.do("DELETE", "/sessions/"+r.chatAs(bob), "", bob).want(t, 204)
	r.chatAs(full)
	const one = "session_created checkpoint checkpoint request_started checkpoint request_completed"
	types := func(query, as, user string) string {
		t.Helper()
		var list loquat.EventList
		r.do("GET", "/events?"+query, "", as).want(t, 200).into(t, &list)
		var out []string
		for _, e := range list.Events {
			out = append(out, string(e.Type))
			if user != "everybody" && e.User != user {
				t.Errorf("%s of %q to %s", e.Type, e.User, user)
			}
		}
		return strings.Join(out, " ")
	}
	since := "list=true&since_id=" + start.String()
	if got := types(since, ann, `ann "and" <co> ☂`); got != one {
		t.Errorf("ann hears %s", got)
	}
	if got := types(since, bob, "bob"); got != "session_deleted" {
		t.Errorf("bob hears %s", got)
	}
	if got := types(since, full, "everybody"); got != one+" session_deleted "+one {
		t.Errorf("everybody hears %s", got)
	}
	streamed := strings.Join(<-lines, "\n")
	if strings.Contains(streamed, "and") || strings.Count(streamed, `"user":"bob"`) == 0 {
		t.Errorf("bob's stream has %s", streamed)
	}
	if got := types(since+"&user=bob", full, "bob"); got != "session_deleted" {
		t.Errorf("of bob's list, everybody hears %s", got)
	}
}

// A user follows all events of its sessions, and of no others: by polling and as a stream.
func TestEventsOfUser(t *testing.T) {
	r := newRig(t)
	close(r.parrot.gate)
	full, ann, bob := r.asFull(), r.asUser(`ann "and" <co> ☂`), r.asUser("bob")
	start := r.feed.Latest()
	lines := make(chan []string)
	go func() {
		lines <- r.follow("/events/stream?session=omit&since_id="+start.String(), func(line string) bool { return strings.Contains(line, `"session_deleted"`) }, bob)
	}()
	r.chatAs(ann)
	r.chatAs(full)
	r.do("DELETE", "/sessions/"+r.chatAs(bob), "", bob).want(t, 204)
	read := func(query, as string) (types string, sessions map[string]bool) {
		t.Helper()
		var list loquat.EventList
		r.do("GET", "/events?since_id="+start.String()+query, "", as).want(t, 200).into(t, &list)
		sessions = map[string]bool{}
		for _, e := range list.Events {
			types += string(e.Type) + " "
			sessions[e.SessionID] = true
		}
		return types, sessions
	}
	for query, as := range map[string]string{"": ann, "&user=" + url.QueryEscape(`ann "and" <co> ☂`): full, "&wait=5": ann} {
		if got, sessions := read(query, as); len(sessions) != 1 || !strings.HasPrefix(got, "session_created checkpoint ") || !strings.Contains(got, "final ") || strings.Contains(got, "deleted") {
			t.Errorf("%q of ann: %s of %d sessions", query, got, len(sessions))
		}
	}
	if got, _ := read("", bob); got != "session_deleted " {
		t.Errorf("bob reads %s", got)
	}
	if _, sessions := read("", full); len(sessions) != 3 {
		t.Errorf("everybody reads of %d sessions", len(sessions))
	}
	if got, _ := read("&user=nobody", full); got != "" {
		t.Errorf("nobody reads %s", got)
	}
	streamed := strings.Join(<-lines, "\n")
	if strings.Contains(streamed, "and") || !strings.Contains(streamed, `"type":"final"`) {
		t.Errorf("bob's stream has %s", streamed)
	}
	r.do("GET", "/events?user=ann", "", bob).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("GET", "/events?user=bob&request_id=x", "", full).wantProblem(t, 422, loquat.CodeInvalid)
	r.do("GET", "/events/stream?user=bob&session_id=x", "", full).wantProblem(t, 422, loquat.CodeInvalid)
}

// A user imports what it has exported. It learns nothing about a session of somebody else under the same id.
func TestImportOfUser(t *testing.T) {
	r := newRig(t)
	ann, bob := r.asUser("ann"), r.asUser("bob")
	r.do("POST", "/sessions", `{"session_id":"of-ann","messages":[{"role":"user","content":"plum"}]}`, ann).want(t, 201)
	file := string(r.do("GET", "/sessions/of-ann/export", "", ann).want(t, 200).body)
	load := func(query, file, as string) (one loquat.ImportedSession) {
		t.Helper()
		var report loquat.ImportReport
		r.do("POST", "/sessions/import"+query, file, as).want(t, 200).into(t, &report)
		if len(report.Sessions) != 1 {
			t.Fatalf("%+v", report)
		}
		return report.Sessions[0]
	}
	if one := load("", file, ann); one.Status != loquat.ImportSkipped {
		t.Errorf("ann's own again: %+v", one)
	}
	same, other := load("", file, bob), load("", strings.Replace(file, "plum", "pear", 1), bob)
	if same.Status != loquat.ImportFailed || same.Error != other.Error || strings.Contains(same.Error, "content") {
		t.Errorf("ann's session is imported by bob: %+v, and another one %+v", same, other)
	}
	copied := load("?new_ids=true", file, bob)
	var s loquat.Snapshot
	r.do("GET", "/sessions/"+copied.SessionID, "", bob).want(t, 200).into(t, &s)
	if copied.Status != loquat.ImportStored || s.User != "bob" || len(s.Messages) != 1 {
		t.Errorf("%+v %+v", copied, s)
	}
	r.do("GET", "/sessions/"+copied.SessionID, "", ann).wantProblem(t, 404, loquat.CodeNotFound)
}

// What belongs to somebody else is answered like what does not exist: in every call, with the same words.
func TestUnknownToUsers(t *testing.T) {
	r := newRig(t)
	close(r.parrot.gate)
	ann, bob := r.asUser("ann"), r.asUser("bob")
	r.do("POST", "/sessions", `{"session_id":"theirs","send":{"content":"canary-word","request_id":"request-of-theirs"}}`, bob).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"mine","send":{"content":"hello","request_id":"request-of-mine"}}`, ann).want(t, 201)
	r.do("GET", "/events?request_id=request-of-theirs&wait=10", "", bob).want(t, 200)
	stop := r.keepBusy(bob)
	defer stop()
	callers := r.callersOfUser("ann", ann)
	random := rand.New(rand.NewPCG(1, 2))
	bodies := []string{"", "{}", `{"content":"x"}`, `{"user":"bob"}`, `{"session_id":"theirs"}`, `{"send":{"request_id":"request-of-theirs","content":"x"}}`, `{"up_to_index":0}`, `[`, `{"request_ids":["request-of-theirs"]}`, `{"indices":[0]}`}
	queries := []string{"", "session_id=theirs", "session_id=mine,theirs", "request_id=request-of-theirs", "q=canary", "q=canary-word&archived=any", "list=true", "list=true&session_id=mine", "since_id=0", "since_id=0&limit=5000", "since_id=0&user=bob", "limit=200", "page_token=1", "user=bob", "agent_id=default", "group_by=user", "group_by=day&format=csv", "target=theirs", "q=can*&in=text", "model=canary-word"}
	answered := map[int]int{}
	rounds := 4000
	if testing.Short() {
		rounds = 1000
	}
	if n, err := strconv.Atoi(os.Getenv("LOQUAT_ACCESS_CALLS")); err == nil {
		rounds = n
	}
	for range rounds {
		rt := r.table.Routes[random.IntN(len(r.table.Routes))]
		session := []string{"theirs", "mine", "theirs,mine", "unknown"}[random.IntN(4)]
		call := func(session, request, query string) *httptest.ResponseRecorder {
			target := strings.NewReplacer("{session_id}", session, "{request_id}", request, "{index}", "0", "{$}", "").Replace(rt.Path) + query
			q := httptest.NewRequest(rt.Method, target, strings.NewReader(bodies[random.IntN(len(bodies))]))
			q.Host, q.RemoteAddr = "app.example", fmt.Sprintf("10.%d.%d.%d:1", random.IntN(250), random.IntN(250), random.IntN(250))
			for name, value := range callers[random.IntN(len(callers))] {
				q.Header.Set(name, value)
			}
			q.Header.Set("Content-Type", "application/json")
			limit := 10 * time.Second
			if rt.Follows {
				limit = 10 * time.Millisecond
			}
			ctx, end := context.WithTimeout(t.Context(), limit)
			defer end()
			w := httptest.NewRecorder()
			r.handler.ServeHTTP(w, q.WithContext(ctx))
			return w
		}
		query := queries[random.IntN(len(queries))]
		w := call(session, "request-of-theirs", "?"+query)
		answered[w.Code]++
		if said := w.Body.String(); strings.Contains(said, "canary-word") && !strings.Contains(query, "canary") {
			t.Fatalf("%s %s of %s?%s answers with a text of another user: %s", rt.Method, rt.Path, session, query, said)
		}
		if strings.Contains(rt.Path, "{session_id}") && !rt.Open {
			theirs, unknown := call("theirs", "request-of-theirs", ""), call("unknown", "unknown", "")
			same := strings.NewReplacer("request-of-theirs", "unknown", "theirs", "unknown").Replace(theirs.Body.String())
			if theirs.Code != http.StatusNotFound || unknown.Code != http.StatusNotFound || same != unknown.Body.String() {
				t.Fatalf("%s %s: %d %s, but of an unknown id %d %s", rt.Method, rt.Path, theirs.Code, theirs.Body, unknown.Code, unknown.Body)
			}
		}
	}
	for _, code := range []int{200, 201, 403, 404} {
		if answered[code] == 0 {
			t.Errorf("no call was answered %d: %v", code, answered)
		}
	}
}

// callersOfUser returns the headers of all kinds of callers that act for a user: the token, a device, and a
// backend.
func (r *rig) callersOfUser(user, token string) []map[string]string {
	r.t.Helper()
	_, secret, _ := strings.Cut(token, ": ")
	_, full, _ := strings.Cut(r.asFull(), ": ")
	code, err := r.keeper.Pair(r.t.Context(), auth.User, user, "")
	if err != nil {
		r.t.Fatal(err)
	}
	_, device, err := r.keeper.Claim(r.t.Context(), code.Code, "phone", netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		r.t.Fatal(err)
	}
	return []map[string]string{{"Authorization": secret}, {"Authorization": "Bearer " + device}, {"Authorization": full, "On-Behalf-Of": user}}
}

// keepBusy lets a user send messages, with a word that nobody else may see, until the function is called.
func (r *rig) keepBusy(as string) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id := fmt.Sprintf("busy-%d", n)
			r.do("POST", "/sessions", `{"session_id":"`+id+`","metadata":{"title":"canary-word"},"send":{"content":"canary-word","request_id":"request-of-theirs-`+id+`"}}`, as).want(r.t, 201)
			r.do("GET", "/events?request_id=request-of-theirs-"+id+"&wait=1", "", as)
			r.do("DELETE", "/sessions/"+id, "", as)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); busy.Wait() }
}
