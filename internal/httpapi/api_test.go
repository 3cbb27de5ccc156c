package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/httpapi"
)

// TestSessionLife makes every call of a session. do compares each answer with the document.
func TestSessionLife(t *testing.T) {
	r := newRig(t)
	made := r.do("POST", "/sessions", `{"session_id":"s","metadata":{"k":1,"gone":2},"messages":[{"role":"system","content":""},{"role":"user","content":"Hello\nthere"}]}`).want(t, 201)
	if made.Header.Get("Location") != "/sessions/s" || !strings.Contains(string(made.body), `"title":"Hello"`) {
		t.Errorf("created %v: %s", made.Header, made.body)
	}
	cursor := made.field(t, "cursor_event_id")
	if tag := made.Header.Get("ETag"); tag != `"`+cursor+`"` {
		t.Errorf("ETag %s beside cursor %s", tag, cursor)
	}
	got := r.do("GET", "/sessions/s", "").want(t, 200)
	if loaded := strings.Replace(string(got.body), `"queue":[],`, "", 1); loaded != string(made.body) {
		t.Errorf("created\n%s but loaded\n%s", made.body, got.body)
	}
	if head := r.do("HEAD", "/sessions/s", ""); head.StatusCode != 200 || head.Header.Get("ETag") != got.Header.Get("ETag") || len(head.body) > 0 {
		t.Errorf("HEAD: %d %v %q", head.StatusCode, head.Header, head.body)
	}

	patched := r.do("PATCH", "/sessions/s", `{"metadata":{"gone":null,"k":{"a":[1]}}}`, "Content-Type: application/merge-patch+json", "If-Match: "+got.Header.Get("ETag")).want(t, 200)
	if body := string(patched.body); strings.Contains(body, "gone") || !strings.Contains(body, `"k":{"a":[1]}`) {
		t.Errorf("patched: %s", body)
	}
	r.do("PATCH", "/sessions/s", `{}`, "If-Match: "+got.Header.Get("ETag")).wantProblem(t, 412, loquat.CodePreconditionFailed)
	r.do("PATCH", "/sessions/s", `{}`, `If-Match: "x", W/"1", `+patched.Header.Get("ETag")).want(t, 200)
	r.do("PATCH", "/sessions/s", `{}`, "If-Match: *").want(t, 200)

	appended := r.do("POST", "/sessions/s/messages", `{"role":"assistant","content":"\u0000"}`).want(t, 201)
	if !strings.Contains(string(appended.body), "\ufffd") || !strings.HasPrefix(string(appended.body), `{"index":2,`) {
		t.Errorf("appended: %s", appended.body)
	}
	r.do("PATCH", "/sessions/s/messages/2", `{"content":"new"}`).want(t, 200)
	page := r.do("GET", "/sessions/s/messages?from=1&limit=1", "").want(t, 200)
	if !strings.Contains(string(page.body), `"total":3`) || !strings.Contains(string(page.body), "Hello") || strings.Contains(string(page.body), `"new"`) {
		t.Errorf("page: %s", page.body)
	}
	fork := r.do("POST", "/sessions/s/fork", `{"up_to_index":0}`).want(t, 201)
	if fork.Header.Get("Location") != "/sessions/"+fork.field(t, "session_id") {
		t.Errorf("fork at %q", fork.Header.Get("Location"))
	}
	r.do("DELETE", "/sessions/s/messages?indices=0,7", "").wantProblem(t, 404, loquat.CodeNotFound)
	if d := r.do("DELETE", "/sessions/s/messages?indices=2,0", "").want(t, 200); !strings.HasPrefix(string(d.body), `{"indices":[0,2],`) {
		t.Errorf("deleted: %s", d.body)
	}
	r.do("DELETE", "/sessions/s/messages", `{"indices":[0]}`).want(t, 200)

	first := r.do("GET", "/sessions?limit=1", "").want(t, 200)
	second := r.do("GET", "/sessions?limit=1&page_token="+first.field(t, "next_page_token"), "").want(t, 200)
	if !strings.Contains(string(first.body), `"session_id":"s"`) || strings.Contains(string(second.body), "next_page_token") {
		t.Errorf("pages: %s %s", first.body, second.body)
	}
	r.do("DELETE", "/sessions/s", "").want(t, 204)
	r.do("GET", "/sessions/s", "").wantProblem(t, 404, loquat.CodeNotFound)
	r.do("POST", "/sessions", `{"session_id":"s"}`).wantProblem(t, 409, loquat.CodeConflict)
}

func TestRepeats(t *testing.T) {
	r := newRig(t)
	once := r.do("POST", "/sessions", `{"metadata":{}}`, "Idempotency-Key: k").want(t, 201)
	again := r.do("POST", "/sessions", `{"metadata":{}}`, "Idempotency-Key: k").want(t, 201)
	if string(once.body) != string(again.body) || once.Header.Get("ETag") != again.Header.Get("ETag") || once.Header.Get("Location") != again.Header.Get("Location") {
		t.Errorf("first %v %s, then %v %s", once.Header, once.body, again.Header, again.body)
	}
	r.do("POST", "/sessions", `{}`, "Idempotency-Key: k").wantProblem(t, 422, loquat.CodeInvalid)

	at := "/sessions/" + once.field(t, "session_id")
	r.do("POST", at+"/messages", `{"role":"user","content":"a"}`).want(t, 201)
	r.do("POST", at+"/messages", `{"role":"user","content":"b"}`).want(t, 201)
	r.do("DELETE", at+"/messages?indices=0", "", "Idempotency-Key: d").want(t, 200)
	r.do("DELETE", at+"/messages?indices=0", "", "Idempotency-Key: d").want(t, 200)
	if page := r.do("GET", at+"/messages", ""); !strings.Contains(string(page.body), `"total":1`) {
		t.Errorf("a repeated deletion deleted more: %s", page.body)
	}
	r.do("DELETE", at+"/messages?indices=1", "", "Idempotency-Key: d").wantProblem(t, 422, loquat.CodeInvalid)
}

// A key replays its answer for 24 hours, even after the result or its session was deleted.
func TestRepeatsAfterTheEnd(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"other"}`).want(t, 201)
	image := string(noise(t, 6, 5000))
	posts := []struct{ path, body, media string }{
		{"/sessions", `{"session_id":"s"}`, "application/json"},
		{"/sessions/s/messages", `{"role":"user","content":"a"}`, "application/json"},
		{"/sessions/s/assets?name=a.png", image, "image/png"},
		{"/sessions/s/fork", `{}`, "application/json"},
		{"/sessions/s/send", `{"content":"hi"}`, "application/json"},
	}
	post := func(i int) reply {
		p := posts[i]
		return r.do("POST", p.path, p.body, "Content-Type: "+p.media, "Idempotency-Key: k")
	}
	first := make([]reply, len(posts))
	for i := range posts {
		first[i] = post(i)
	}
	r.do("DELETE", "/sessions/s", "").want(t, 204)
	for i, p := range posts {
		again := post(i).want(t, first[i].StatusCode)
		if first[i].StatusCode >= 300 || !bytes.Equal(first[i].body, again.body) {
			t.Errorf("POST %s: %d %s, and again %s", p.path, first[i].StatusCode, first[i].body, again.body)
		}
	}
	r.do("POST", "/sessions/s/assets", image, "Content-Type: image/png", "Idempotency-Key: new").wantProblem(t, 404, loquat.CodeNotFound)
	if err := r.chat.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for hash := range r.images.Hashes() {
		t.Errorf("a repeat left the file %s", hash)
	}
}

// The sends that wait can be listed, ordered and changed.
func TestQueue(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	r.do("POST", "/sessions/s/send", `{"content":"hi","request_id":"running"}`).want(t, 202)
	queue := func() (out loquat.Queue) {
		t.Helper()
		if err := json.Unmarshal(r.do("GET", "/sessions/s/queue", "").want(t, 200).body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if q := queue(); q.Queue == nil || len(q.Queue) > 0 || q.SessionID != "s" {
		t.Errorf("an empty queue is %+v", q)
	}
	r.do("POST", "/sessions/s/send", `{"content":"a","on_busy":"queue","request_id":"a","stream":false}`).want(t, 202)
	r.do("POST", "/sessions/s/send", `{"content":"b","on_busy":"queue","request_id":"b"}`).want(t, 202)
	r.do("PUT", "/sessions/s/queue", `{"request_ids":["b"]}`).wantProblem(t, 409, loquat.CodeConflict)
	r.do("PUT", "/sessions/s/queue", `{"request_ids":["b","a"]}`).want(t, 200)
	r.do("PATCH", "/sessions/s/queue/running", `{"content":"c"}`).wantProblem(t, 409, loquat.CodeConflict)
	r.do("PATCH", "/sessions/s/queue/a", `{"content":"changed","on_busy":"steer","attachments":null}`, "Content-Type: application/merge-patch+json").want(t, 200)
	q := queue()
	if len(q.Queue) != 2 || q.Queue[0].RequestID != "a" || q.Queue[1].RequestID != "b" {
		t.Fatalf("the queue is %+v", q)
	}
	if a := q.Queue[0]; a.OnBusy != loquat.BusySteer || a.Message.Content != "changed" || a.Message.Role != loquat.RoleUser || a.Stream {
		t.Errorf("the changed send is %+v", a)
	}
	for _, id := range []string{"b", "a", "running"} {
		r.do("POST", "/requests/"+id+"/cancel", "").want(t, 202)
		r.events("request_id="+id, "request_completed")
	}
}

// What a regenerated message was is kept, and can be put in place again.
func TestAlternatives(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"first"}]}`).want(t, 201)
	list := func(query string) []loquat.Alternative {
		t.Helper()
		var out loquat.AlternativeList
		if err := json.Unmarshal(r.do("GET", "/sessions/s/alternatives"+query, "").want(t, 200).body, &out); err != nil || out.Alternatives == nil {
			t.Fatalf("%+v, %v", out, err)
		}
		return out.Alternatives
	}
	if got := list(""); len(got) > 0 {
		t.Errorf("alternatives of a session without any: %+v", got)
	}
	sent := r.do("POST", "/sessions/s/send", `{"delete_from":1,"keep":true,"stream":false}`).want(t, 202)
	r.do("POST", "/sessions/s/alternatives/"+list("")[0].AlternativeID+"/switch", "").wantProblem(t, 409, loquat.CodeBusy)
	for range 3 {
		r.parrot.gate <- struct{}{}
	}
	r.events("request_id="+sent.field(t, "request_id"), "request_completed")
	got := list("?index=1")
	if len(got) != 2 || got[0].Preview != "first" || got[0].InPlace || !got[1].InPlace || got[1].Preview == "first" || got[1].MessageCount != 1 {
		t.Fatalf("alternatives: %+v", got)
	}
	if other := list("?index=0"); len(other) > 0 {
		t.Errorf("alternatives at another index: %+v", other)
	}
	first := "/sessions/s/alternatives/" + got[0].AlternativeID
	r.do("DELETE", "/sessions/s/alternatives/"+got[1].AlternativeID, "").wantProblem(t, 409, loquat.CodeConflict)
	r.do("POST", first+"/switch", "", `If-Match: "0000000000000001"`).wantProblem(t, 412, loquat.CodePreconditionFailed)
	switched := r.do("POST", first+"/switch", "", "Idempotency-Key: k").want(t, 200)
	if !strings.Contains(string(switched.body), `"index":1,"total":2,`) || switched.Header.Get("ETag") != `"`+switched.field(t, "cursor_event_id")+`"` {
		t.Errorf("switched: %v %s", switched.Header, switched.body)
	}
	if again := r.do("POST", first+"/switch", "", "Idempotency-Key: k").want(t, 200); string(again.body) != string(switched.body) {
		t.Errorf("switched %s, repeated %s", switched.body, again.body)
	}
	if page := r.do("GET", "/sessions/s/messages?from=1", "").want(t, 200); !strings.Contains(string(page.body), `"first"`) {
		t.Errorf("the message that is in place again: %s", page.body)
	}
	var kept loquat.AlternativeMessages
	if err := json.Unmarshal(r.do("GET", "/sessions/s/alternatives/"+got[1].AlternativeID, "").want(t, 200).body, &kept); err != nil || len(kept.Messages) != 1 {
		t.Errorf("the other one: %+v, %v", kept, err)
	}
	r.do("DELETE", "/sessions/s/alternatives/"+got[1].AlternativeID, "").want(t, 204)
	if left := list(""); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestSendAndCancel(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	sent := r.do("POST", "/sessions/s/send", `{"content":"hi","request_id":"q1"}`).want(t, 202)
	if sent.Header.Get("Location") != "/requests/q1" || sent.field(t, "status") != "running" {
		t.Errorf("sent: %v %s", sent.Header, sent.body)
	}
	repeated := r.do("POST", "/sessions/s/send", `{"content":"hi","request_id":"q1"}`).want(t, 202)
	if string(repeated.body) != string(sent.body) {
		t.Errorf("sent %s, repeated %s", sent.body, repeated.body)
	}
	for _, change := range [][3]string{
		{"POST", "/sessions/s/send", `{"content":"more"}`},
		{"POST", "/sessions/s/messages", `{"role":"user","content":"x"}`},
		{"PATCH", "/sessions/s/messages/0", `{"content":"x"}`},
		{"DELETE", "/sessions/s/messages?indices=0", ""},
	} {
		if p := r.do(change[0], change[1], change[2]).wantProblem(t, 409, loquat.CodeBusy); p.RequestID != "q1" {
			t.Errorf("busy with %q", p.RequestID)
		}
	}
	if got := r.do("GET", "/sessions/s", "").field(t, "active_request_id"); got != "q1" {
		t.Errorf("active: %q", got)
	}
	for range 10 {
		r.do("POST", "/sessions/s/send", `{"content":"later","on_busy":"queue"}`).want(t, 202)
	}
	full := r.do("POST", "/sessions/s/send", `{"content":"later","on_busy":"queue"}`)
	full.wantProblem(t, 429, loquat.CodeRateLimited)
	if full.Header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	r.do("POST", "/requests/q1/cancel", "").want(t, 202)
	r.events("request_id=q1", "request_completed")
	if got := r.do("POST", "/requests/q1/cancel", "{}").want(t, 200); got.field(t, "status") != "cancelled" {
		t.Errorf("cancelled again: %s", got.body)
	}
	if got := r.do("GET", "/requests/q1", "").want(t, 200); got.field(t, "status") != "cancelled" {
		t.Errorf("request: %s", got.body)
	}
}

// events follows by long polls from the start of what query names until an event of
// the type came, and returns all of them.
func (r *rig) events(query, until string) []loquat.Event {
	r.t.Helper()
	var all []loquat.Event
	since := "0000000000000000"
	for range 1000 {
		got := r.do("GET", "/events?wait=20&"+query+"&since_id="+since, "").want(r.t, 200)
		var list struct{ Events []loquat.Event }
		if err := json.Unmarshal(got.body, &list); err != nil {
			r.t.Fatal(err)
		}
		for _, e := range list.Events {
			all = append(all, e)
			since = e.EventID.String()
			if string(e.Type) == until {
				return all
			}
		}
	}
	r.t.Fatalf("no %s", until)
	return nil
}

func TestEventsPoll(t *testing.T) {
	r := newRig(t)
	empty := r.do("GET", "/events?wait=60", "").want(t, 200)
	if want := `{"events":[],"latest_event_id":"0000000000000000"}` + "\n"; string(empty.body) != want {
		t.Errorf("bootstrap: %s", empty.body)
	}
	if empty.Header.Get("Cache-Control") != "no-store" {
		t.Error("events may be cached")
	}
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	all := r.events("session_id=s", "checkpoint")
	if len(all) != 2 || all[0].Type != loquat.SessionCreated || all[0].Session == nil || all[0].Session.SessionID != "s" {
		t.Fatalf("events: %+v", all)
	}
	omitted := r.do("GET", "/events?session=omit&since_id=0000000000000000", "").want(t, 200)
	if strings.Contains(string(omitted.body), `"session":`) {
		t.Errorf("not omitted: %s", omitted.body)
	}
	began := time.Now()
	if got := r.do("GET", "/events?session_id=s&wait=0.2", "").want(t, 200); string(got.body) != "{\"events\":[]}\n" {
		t.Errorf("from the cursor: %s", got.body)
	}
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("a wait of 0.2 s took %v", took)
	}
	if got := r.do("GET", "/events?limit=1&since_id=0000000000000000", "").want(t, 200); strings.Count(string(got.body), "event_id") != 1 {
		t.Errorf("limit 1: %s", got.body)
	}
}

func TestPollEndsWithTheService(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	time.AfterFunc(50*time.Millisecond, r.stop)
	began := time.Now()
	got := r.do("GET", "/events?session_id=s&wait=60", "")
	got.wantProblem(t, 503, loquat.CodeUnavailable)
	if got.Header.Get("Retry-After") == "" || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(began), got.Header)
	}
	r.do("GET", "/readyz", "").wantProblem(t, 503, loquat.CodeUnavailable)
	r.do("GET", "/healthz", "").want(t, 200)
}

func TestCatalogAndHealth(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/agents":  `{"agents":[{"agent_id":"default","provider":"main","model":"m1"}]}`,
		"/models":  `{"models":[{"context_length":4096,"id":"m1","name":"One"}]}`,
		"/healthz": `{"status":"ok"}`,
		"/readyz":  `{"ready":true,"store":"ok","detail":{}}`,
	} {
		if got := r.do("GET", path, "").want(t, 200); strings.TrimSpace(string(got.body)) != want {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	if got := r.do("GET", "/version", ""); !strings.Contains(string(got.body), `"version":"1.2.3","api":1`) {
		t.Errorf("version: %s", got.body)
	}
	if got := r.do("GET", "/nodes", "").want(t, 200); strings.Count(string(got.body), "node_id") != 1 || !strings.Contains(string(got.body), `"self":true,"leads":true`) {
		t.Errorf("nodes: %s", got.body)
	}
	got := r.do("GET", "/metrics", "").want(t, 200)
	for _, want := range []string{`loquat_http_answers_total{method="GET",route="/agents",status="200"} 1`, "loquat_http_answer_seconds_bucket", "loquat_requests_running 0"} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestWebClient(t *testing.T) {
	r := newRig(t)
	index := r.do("GET", "/", "").want(t, 200)
	if !strings.Contains(index.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
		t.Errorf("no policy: %v", index.Header)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"]+)"`).FindAllStringSubmatch(string(index.body), -1) {
		file := r.do("GET", m[1], "").want(t, 200)
		r.do("GET", m[1], "", "If-None-Match: "+file.Header.Get("ETag")).wantNothing(t, 304)
	}
}

// wantNothing fails unless the answer has the status and no body.
func (g reply) wantNothing(t *testing.T, status int) {
	t.Helper()
	if g.StatusCode != status || len(g.body) > 0 {
		t.Errorf("got %d %q, want %d without a body", g.StatusCode, g.body, status)
	}
}

// TestDocument compares /openapi.json with the table of routes.
func TestDocument(t *testing.T) {
	r := newRig(t)
	got := r.do("GET", "/openapi.json", "").want(t, 200)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			RequestBody *struct{ Content map[string]any }
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(got.body, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %q", doc.OpenAPI)
	}
	for _, part := range []string{`"security":[{"token":[]},{}]`, `"role":{"enum":["user","assistant","system","tool"],"type":"string"}`, `"status":{"enum":["queued","running","completed","failed","cancelled"],"type":"string"}`} {
		if !bytes.Contains(got.body, []byte(part)) {
			t.Errorf("the document has no %s", part)
		}
	}
	operations := 0
	for _, methods := range doc.Paths {
		operations += len(methods)
	}
	routes := r.table.Routes
	if operations != len(routes) {
		t.Errorf("%d operations for %d routes", operations, len(routes))
	}
	pathParameter := regexp.MustCompile(`\{(\w+)\}`)
	for _, rt := range routes {
		op, ok := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if !ok || op.OperationID != rt.ID {
			t.Errorf("%s %s is not in the document", rt.Method, rt.Path)
			continue
		}
		if _, ok := op.Responses["default"]; !ok || len(op.Responses) != len(rt.Responses)+2 {
			t.Errorf("%s: answers %v", rt.ID, op.Responses)
		}
		if (rt.Body != nil || rt.Upload != nil) != (op.RequestBody != nil) {
			t.Errorf("%s: body %v", rt.ID, op.RequestBody)
		}
		var inPath []string
		for _, name := range pathParameter.FindAllStringSubmatch(rt.Path, -1) {
			if httpapi.PathDocs[name[1]] == "" {
				t.Errorf("%s: nothing describes %s", rt.ID, name[0])
			}
		}
		for _, p := range op.Parameters {
			if p.In == "path" {
				inPath = append(inPath, "{"+p.Name+"}")
			}
		}
		if want := pathParameter.FindAllString(rt.Path, -1); !slices.Equal(inPath, want) {
			t.Errorf("%s: path parameters %v, want %v", rt.ID, inPath, want)
		}
	}
	for _, m := range regexp.MustCompile(`"\$ref":"#/components/schemas/(\w+)"`).FindAllSubmatch(got.body, -1) {
		if _, ok := doc.Components.Schemas[string(m[1])]; !ok {
			t.Errorf("%s points nowhere", m[0])
		}
	}
	for name, closed := range map[string]bool{"NewSession": true, "NewMessage": true, "Send": true, "Snapshot": false, "Event": false, "Problem": false} {
		schema, _ := doc.Components.Schemas[name].(map[string]any)
		if _, has := schema["additionalProperties"]; schema == nil || has != closed {
			t.Errorf("schema %s: closed is %v, want %v", name, has, closed)
		}
	}
}

func TestAllowedOrigins(t *testing.T) {
	r := newRig(t)
	host := strings.TrimPrefix(r.server.URL, "http://")
	_, port, _ := strings.Cut(host, ":")
	for _, tc := range []struct {
		what    string
		headers []string
		status  int
	}{
		{"address", []string{"Host: " + host}, 200},
		{"localhost", []string{"Host: localhost:" + port}, 200},
		{"localhost in capitals", []string{"Host: LOCALHOST:" + port}, 200},
		{"other loopback", []string{"Host: [::1]:" + port}, 200},
		{"other port", []string{"Host: localhost:1"}, 403},
		{"no port", []string{"Host: localhost"}, 403},
		{"rebound name", []string{"Host: evil.example:" + port}, 403},
		{"address within a name", []string{"Host: 127.0.0.1.evil.example:" + port}, 403},
		{"allowed host", []string{"Host: app.example"}, 200},
		{"allowed host with port", []string{"Host: app.example:443"}, 200},
		{"own origin", []string{"Origin: " + r.server.URL}, 200},
		{"own origin by name", []string{"Origin: http://localhost:" + port}, 200},
		{"own origin, other scheme", []string{"Origin: https://localhost:" + port}, 403},
		{"other local origin", []string{"Origin: http://localhost:1"}, 403},
		{"allowed origin", []string{"Origin: https://app.example"}, 200},
		{"allowed origin, other scheme", []string{"Origin: http://app.example"}, 403},
		{"no origin", []string{"Origin: null"}, 403},
		{"nonsense", []string{"Origin: ::"}, 403},
	} {
		got := r.do("GET", "/healthz", "", tc.headers...)
		if got.StatusCode != tc.status {
			t.Errorf("%s: %d %s", tc.what, got.StatusCode, got.body)
		}
		if shared := got.Header.Get("Access-Control-Allow-Origin"); (shared != "") != (tc.what == "allowed origin") {
			t.Errorf("%s: shared with %q", tc.what, shared)
		}
	}
	preflight := r.do("OPTIONS", "/sessions", "", "Origin: https://app.example", "Access-Control-Request-Method: POST")
	for _, header := range []string{"If-Match", "If-None-Match", "Range", "Traceparent"} {
		if preflight.StatusCode != http.StatusNoContent || !strings.Contains(preflight.Header.Get("Access-Control-Allow-Headers"), header) {
			t.Errorf("preflight for %s: %d %v", header, preflight.StatusCode, preflight.Header)
		}
	}
}
