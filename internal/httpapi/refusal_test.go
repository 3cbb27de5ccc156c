package httpapi_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/httpapi/route"
)

// TestRefusals sends invalid inputs to every kind of route. do checks that each answer is a
// complete problem document.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tc := range []struct {
		what, method, path, body string
		headers                  []string
		status                   int
		code                     loquat.Code
		location                 string // of one of the faults
	}{
		{"unknown route", "GET", "/nowhere", "", nil, 404, "not_found", ""},
		{"trailing slash", "GET", "/sessions/", "", nil, 404, "not_found", ""},
		{"path to be cleaned", "GET", "/x/../sessions", "", nil, 404, "not_found", ""},
		{"double slash", "GET", "//sessions", "", nil, 404, "not_found", ""},
		{"slash within an id", "GET", "/sessions/a%2Fb", "", nil, 404, "not_found", ""},
		{"method", "PUT", "/sessions", "{}", nil, 405, "method_not_allowed", ""},
		{"method of the page", "POST", "/", "{}", nil, 405, "method_not_allowed", ""},
		{"options", "OPTIONS", "/sessions", "", nil, 405, "method_not_allowed", ""},
		{"media type", "POST", "/sessions", "a=b", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "unsupported_media", ""},
		{"charset", "POST", "/sessions", "{}", []string{"Content-Type: application/json; charset=latin1"}, 415, "unsupported_media", ""},
		{"merge patch where none is", "POST", "/sessions", "{}", []string{"Content-Type: application/merge-patch+json"}, 415, "unsupported_media", ""},

		{"no JSON", "POST", "/sessions", "{", nil, 400, "invalid", "body"},
		{"two values", "POST", "/sessions", "{} {}", nil, 400, "invalid", "body"},
		{"blank body", "POST", "/sessions", "  ", nil, 400, "invalid", "body"},
		{"syntax inside", "POST", "/sessions", `{"messages":[{"role":"user","content":nope}]}`, nil, 400, "invalid", "body.messages[0].content"},
		{"duplicate key", "POST", "/sessions", `{"agent_id":"a","agent_id":"b"}`, nil, 400, "invalid", "body.agent_id"},
		{"duplicate key later", "POST", "/sessions", `{"agent_id":"a","metadata":{},"agent_id":"b"}`, nil, 400, "invalid", "body.agent_id"},
		{"duplicate key inside", "POST", "/sessions", `{"messages":[{"role":"user"},{"role":"a","role":"b"}]}`, nil, 400, "invalid", "body.messages[1].role"},
		{"duplicate key by escape", "POST", "/sessions", `{"metadata":{"a":1,"\u0061":2}}`, nil, 400, "invalid", "body.metadata.a"},
		{"UTF-8", "POST", "/sessions", "{\"agent_id\":\"\xff\"}", nil, 400, "invalid", "body.agent_id"},
		{"UTF-8 in a name", "POST", "/sessions", "{\"\xff\":1}", nil, 400, "invalid", ""},
		{"depth", "POST", "/sessions", `{"metadata":{"a":` + deep(127) + `}}`, nil, 400, "invalid", ""},
		{"no body where one is needed", "POST", "/sessions/s/messages", "", nil, 400, "invalid", "body"},

		{"list for object", "POST", "/sessions", "[]", nil, 422, "invalid", "body"},
		{"null for object", "POST", "/sessions", "null", nil, 422, "invalid", "body"},
		{"unknown field", "POST", "/sessions", `{"agent":"x"}`, nil, 422, "invalid", "body.agent"},
		{"field in other case", "POST", "/sessions", `{"Agent_id":"default"}`, nil, 422, "invalid", "body.Agent_id"},
		{"type", "POST", "/sessions", `{"messages":[{"role":1,"content":"x"}]}`, nil, 422, "invalid", "body.messages[0].role"},
		{"role", "POST", "/sessions", `{"messages":[{"role":"robot","content":"x"}]}`, nil, 422, "invalid", "body.messages[0].role"},
		{"missing field", "POST", "/sessions", `{"messages":[{"role":"user"}]}`, nil, 422, "invalid", "body.messages[0].content"},
		{"unknown field inside", "POST", "/sessions", `{"messages":[{"role":"user","content":"x","name":"y"}]}`, nil, 422, "invalid", "body.messages[0].name"},
		{"id", "POST", "/sessions", `{"session_id":"a b"}`, nil, 422, "invalid", "body.session_id"},
		{"agent", "POST", "/sessions", `{"agent_id":"nobody"}`, nil, 422, "invalid", "body.agent_id"},
		{"taken id", "POST", "/sessions", `{"session_id":"s"}`, nil, 409, "conflict", ""},
		{"idempotency key", "POST", "/sessions", "{}", []string{"Idempotency-Key: "}, 422, "invalid", "header.Idempotency-Key"},
		{"long idempotency key", "POST", "/sessions", "{}", []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 422, "invalid", "header.Idempotency-Key"},

		{"list limit", "GET", "/sessions?limit=many", "", nil, 400, "invalid", "query.limit"},
		{"list limit range", "GET", "/sessions?limit=0", "", nil, 422, "invalid", "query.limit"},
		{"repeated parameter", "GET", "/sessions?limit=1&limit=2", "", nil, 400, "invalid", "query.limit"},
		{"broken query", "GET", "/sessions?limit=%zz", "", nil, 400, "invalid", "query"},
		{"page token", "GET", "/sessions?page_token=x", "", nil, 400, "invalid", "query.page_token"},
		{"page token ahead of the log", "GET", "/sessions?page_token=3-0-4", "", nil, 400, "invalid", "query.page_token"},
		{"page token with zeros", "GET", "/sessions?page_token=03-0-2", "", nil, 400, "invalid", "query.page_token"},
		{"page token with more", "GET", "/sessions?page_token=3-0-2-1", "", nil, 400, "invalid", "query.page_token"},
		{"archived", "GET", "/sessions?archived=maybe", "", nil, 422, "invalid", "query.archived"},
		{"pinned", "GET", "/sessions?pinned=maybe", "", nil, 400, "invalid", "query.pinned"},
		{"empty tag", "GET", "/sessions?tag=a&tag=", "", nil, 400, "invalid", "query.tag"},
		{"too many tags", "GET", "/sessions?" + strings.Repeat("tag=a&", 33), "", nil, 422, "invalid", "query.tag"},
		{"labels of a new session", "POST", "/sessions", `{"metadata":{"pinned":"yes"}}`, nil, 422, "invalid", "body.metadata.pinned"},
		{"labels of a session", "PATCH", "/sessions/s", `{"metadata":{"tags":"a"}}`, nil, 422, "invalid", "body.metadata.tags"},
		{"labels of a fork", "POST", "/sessions/s/fork", `{"metadata":{"archived":0}}`, nil, 422, "invalid", "body.metadata.archived"},

		{"unknown session", "GET", "/sessions/none", "", nil, 404, "not_found", ""},
		{"patch of unknown", "PATCH", "/sessions/none", "{}", nil, 404, "not_found", ""},
		{"patch field", "PATCH", "/sessions/s", `{"title":"x"}`, nil, 422, "invalid", "body.title"},
		{"patch removes", "PATCH", "/sessions/s", `{"metadata":null}`, nil, 422, "invalid", "body.metadata"},
		{"stale tag", "PATCH", "/sessions/s", "{}", []string{`If-Match: "0000000000000001"`}, 412, "precondition_failed", ""},
		{"weak tag", "PATCH", "/sessions/s", "{}", []string{`If-Match: W/"0000000000000002"`}, 412, "precondition_failed", ""},
		{"no tag", "DELETE", "/sessions/s", "", []string{"If-Match: hello"}, 412, "precondition_failed", ""},
		{"empty token", "POST", "/auth/session", `{"token":""}`, nil, 422, "invalid", "body.token"},
		{"empty name of a device", "POST", "/pairing/claim", `{"code":"AAAA-AAAA","device_name":""}`, nil, 422, "invalid", "body.device_name"},
		{"empty name of a token", "POST", "/tokens", `{"name":""}`, nil, 422, "invalid", "body.name"},
		{"fork index", "POST", "/sessions/s/fork", `{"up_to_index":-1}`, nil, 422, "invalid", "body.up_to_index"},
		{"fork fraction", "POST", "/sessions/s/fork", `{"up_to_index":0.5}`, nil, 422, "invalid", "body.up_to_index"},
		{"fork huge", "POST", "/sessions/s/fork", `{"up_to_index":1e30}`, nil, 422, "invalid", "body.up_to_index"},

		{"messages from", "GET", "/sessions/s/messages?from=-1", "", nil, 422, "invalid", "query.from"},
		{"messages at", "GET", "/sessions/s/messages?at=7", "", nil, 400, "invalid", "query.at"},
		{"message index", "PATCH", "/sessions/s/messages/one", `{"content":"x"}`, nil, 400, "invalid", "path.index"},
		{"negative index", "PATCH", "/sessions/s/messages/-1", `{"content":"x"}`, nil, 422, "invalid", "path.index"},
		{"index beyond", "PATCH", "/sessions/s/messages/9", `{"content":"x"}`, nil, 404, "not_found", ""},
		{"content missing", "PATCH", "/sessions/s/messages/0", `{}`, nil, 422, "invalid", "body.content"},
		{"delete both ways", "DELETE", "/sessions/s/messages?indices=0", `{"indices":[0]}`, nil, 422, "invalid", "query.indices"},
		{"delete neither", "DELETE", "/sessions/s/messages", "", nil, 422, "invalid", "body.indices"},
		{"delete text", "DELETE", "/sessions/s/messages?indices=a", "", nil, 400, "invalid", "query.indices"},
		{"delete negative", "DELETE", "/sessions/s/messages", `{"indices":[0,-1]}`, nil, 422, "invalid", "body.indices[1]"},
		{"delete type", "DELETE", "/sessions/s/messages", `{"indices":["0"]}`, nil, 422, "invalid", "body.indices[0]"},

		{"send on nothing", "POST", "/sessions/s/send", "{}", nil, 422, "invalid", "body.content"},
		{"send stream", "POST", "/sessions/s/send", `{"content":"x","stream":"yes"}`, nil, 422, "invalid", "body.stream"},
		{"send busy", "POST", "/sessions/s/send", `{"content":"x","on_busy":"wait"}`, nil, 422, "invalid", "body.on_busy"},
		{"send attachment", "POST", "/sessions/s/send", `{"attachments":"x"}`, nil, 422, "invalid", "body.attachments"},
		{"send back and delete", "POST", "/sessions/s/send", `{"content":"x","on_busy":"rollback","delete_from":0}`, nil, 422, "invalid", "body.delete_from"},
		{"steer with nothing", "POST", "/sessions/s/send", `{"on_busy":"steer"}`, nil, 422, "invalid", "body.on_busy"},
		{"keep nothing", "POST", "/sessions/s/send", `{"content":"x","keep":true}`, nil, 422, "invalid", "body.keep"},
		{"alternatives of nobody", "GET", "/sessions/none/alternatives", "", nil, 404, "not_found", ""},
		{"alternatives at no index", "GET", "/sessions/s/alternatives?index=x", "", nil, 400, "invalid", "query.index"},
		{"alternatives below 0", "GET", "/sessions/s/alternatives?index=-1", "", nil, 422, "invalid", "query.index"},
		{"unknown alternative", "GET", "/sessions/s/alternatives/7", "", nil, 404, "not_found", ""},
		{"no number of an alternative", "GET", "/sessions/s/alternatives/x", "", nil, 404, "not_found", ""},
		{"huge number of an alternative", "GET", "/sessions/s/alternatives/99999999999999999999", "", nil, 404, "not_found", ""},
		{"switch to nothing", "POST", "/sessions/s/alternatives/7/switch", "", nil, 404, "not_found", ""},
		{"switch with a field", "POST", "/sessions/s/alternatives/7/switch", `{"force":true}`, nil, 422, "invalid", "body.force"},
		{"removal of nothing", "DELETE", "/sessions/s/alternatives/7", "", nil, 404, "not_found", ""},
		{"queue of nobody", "GET", "/sessions/none/queue", "", nil, 404, "not_found", ""},
		{"order of nobody", "PUT", "/sessions/none/queue", `{"request_ids":[]}`, nil, 404, "not_found", ""},
		{"order without requests", "PUT", "/sessions/s/queue", `{}`, nil, 422, "invalid", "body.request_ids"},
		{"order of no list", "PUT", "/sessions/s/queue", `{"request_ids":"q"}`, nil, 422, "invalid", "body.request_ids"},
		{"order of what does not wait", "PUT", "/sessions/s/queue", `{"request_ids":["q"]}`, nil, 409, "conflict", ""},
		{"stale order", "PUT", "/sessions/s/queue", `{"request_ids":[]}`, []string{`If-Match: "0000000000000001"`}, 412, "precondition_failed", ""},
		{"change of no queued send", "PATCH", "/sessions/s/queue/none", `{"content":"x"}`, nil, 404, "not_found", ""},
		{"queued send as urgent", "PATCH", "/sessions/s/queue/none", `{"on_busy":"interrupt"}`, nil, 422, "invalid", "body.on_busy"},
		{"queued send with an index", "PATCH", "/sessions/s/queue/none", `{"delete_from":1}`, nil, 422, "invalid", "body.delete_from"},
		{"send to nobody", "POST", "/sessions/none/send", `{"content":"x"}`, nil, 404, "not_found", ""},
		{"unknown request", "GET", "/requests/none", "", nil, 404, "not_found", ""},
		{"cancel unknown", "POST", "/requests/none/cancel", "", nil, 404, "not_found", ""},
		{"cancel field", "POST", "/requests/none/cancel", `{"force":true}`, nil, 422, "invalid", "body.force"},

		{"since", "GET", "/events?since_id=7x", "", nil, 400, "invalid", "query.since_id"},
		{"since with a sign", "GET", "/events?since_id=-7", "", nil, 400, "invalid", "query.since_id"},
		{"two sinces", "GET", "/events?since_id=&since_id=7", "", nil, 400, "invalid", "query.since_id"},
		{"since of many digits", "GET", "/events?since_id=" + strings.Repeat("9", 100), "", nil, 410, "gone", ""},
		{"since above all", "GET", "/events?since_id=0999999999999999", "", nil, 410, "gone", ""},
		{"since just above all", "GET", "/events?since_id=3", "", nil, 410, "gone", ""},
		{"limit range", "GET", "/events?limit=5001", "", nil, 422, "invalid", "query.limit"},
		{"wait range", "GET", "/events?wait=60.5", "", nil, 422, "invalid", "query.wait"},
		{"wait text", "GET", "/events?wait=NaN", "", nil, 400, "invalid", "query.wait"},
		{"session value", "GET", "/events?session=keep", "", nil, 422, "invalid", "query.session"},
		{"events of nobody", "GET", "/events?session_id=none", "", nil, 404, "not_found", ""},
		{"events of no request", "GET", "/events?request_id=none", "", nil, 404, "not_found", ""},
		{"stream since", "GET", "/events/stream?since_id=x", "", nil, 400, "invalid", "query.since_id"},
		{"stream last id", "GET", "/events/stream", "", []string{"Last-Event-ID: x"}, 400, "invalid", "header.Last-Event-ID"},
		{"models refresh", "GET", "/models?refresh=maybe", "", nil, 400, "invalid", "query.refresh"},
		{"models of nobody", "GET", "/models?session_id=none", "", nil, 404, "not_found", ""},

		{"foreign host", "GET", "/healthz", "", []string{"Host: evil.example"}, 403, "forbidden", ""},
		{"foreign origin", "GET", "/sessions", "", []string{"Origin: https://evil.example"}, 403, "forbidden", ""},
		{"no origin", "GET", "/sessions", "", []string{"Origin: null"}, 403, "forbidden", ""},
	} {
		t.Run(tc.what, func(t *testing.T) {
			p := r.do(tc.method, tc.path, tc.body, tc.headers...).wantProblem(t, tc.status, tc.code)
			if tc.location != "" && !slices.ContainsFunc(p.Errors, func(f loquat.FieldError) bool { return f.Location == tc.location }) {
				t.Errorf("no fault at %s: %+v", tc.location, p)
			}
		})
	}
}

// TestWrongMethods tries every method on every path of the table.
func TestWrongMethods(t *testing.T) {
	r := newRig(t)
	known := map[string][]*route.Route{}
	for i := range r.table.Routes {
		rt := &r.table.Routes[i]
		known[rt.Path] = append(known[rt.Path], rt)
	}
	for at := range r.table.Files {
		known[at] = []*route.Route{{Method: http.MethodGet, Path: at}}
	}
	const importPath = "/sessions/import" // may also be a session
	known[importPath] = append(known[importPath], known["/sessions/{session_id}"]...)
	for pattern, routes := range known {
		var allowed []string
		for _, rt := range routes {
			if allowed = append(allowed, rt.Method); rt.Method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
		slices.Sort(allowed)
		path := strings.NewReplacer("{$}", "", "{session_id}", "s", "{index}", "0", "{request_id}", "q").Replace(pattern)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			if slices.Contains(allowed, method) {
				continue
			}
			got := r.do(method, path, "")
			if got.StatusCode != 405 || got.Header.Get("Allow") != strings.Join(allowed, ", ") {
				t.Errorf("%s %s: %d, Allow %q", method, path, got.StatusCode, got.Header.Get("Allow"))
			}
		}
	}
}

// TestEveryBody sends the same faults to every route that takes a body.
func TestEveryBody(t *testing.T) {
	r := newRig(t)
	for _, rt := range r.table.Routes {
		if rt.Body == nil {
			continue
		}
		path := strings.NewReplacer("{session_id}", "s", "{index}", "0", "{request_id}", "q").Replace(rt.Path)
		for body, status := range map[string]int{
			`{"x":`:                  400,
			`{"x":1,"x":2}`:          400,
			"{\"x\":\"\xc3\x28\"}":   400,
			`{"no_such_field":true}`: 422,
			`"text"`:                 422,
			`[]`:                     422,
		} {
			r.do(rt.Method, path, body).wantProblem(t, status, loquat.CodeInvalid)
		}
		r.do(rt.Method, path, "x", "Content-Type: text/plain").wantProblem(t, 415, loquat.CodeUnsupportedMedia)
		r.do(rt.Method, path, strings.Repeat(" ", 65537)).wantProblem(t, 413, loquat.CodeTooLarge)
		chunked := io.MultiReader(strings.NewReader(`{"x":"`), strings.NewReader(strings.Repeat("y", 1<<20)))
		r.doReader(rt.Method, path, chunked).wantProblem(t, 413, loquat.CodeTooLarge)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	r := newRig(t)
	p := r.do("POST", "/sessions", `{"x":1,"agent_id":2,"messages":[{"role":"user"},3]}`).wantProblem(t, 422, loquat.CodeInvalid)
	var at []string
	for _, f := range p.Errors {
		at = append(at, f.Location)
	}
	want := []string{"body.agent_id", "body.messages[0].content", "body.messages[1]", "body.x"}
	if !slices.Equal(at, want) {
		t.Errorf("got %q, want %q", at, want)
	}
	many := r.do("POST", "/sessions", `{"messages":[`+strings.Repeat("1,", 500)+`1]}`).wantProblem(t, 422, loquat.CodeInvalid)
	if n := len(many.Errors); n != loquat.MaxFieldErrors+1 || !strings.Contains(many.Errors[loquat.MaxFieldErrors].Message, "401 more") {
		t.Errorf("%d faults, the last %v", n, many.Errors[n-1])
	}
}

func TestDepthThatIsAllowed(t *testing.T) {
	r := newRig(t)
	body := `{"metadata":{"a":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `}}`
	r.do("POST", "/sessions", body).want(t, http.StatusCreated)
}

func TestPanicsAreNotTold(t *testing.T) {
	r := newRig(t)
	i := slices.IndexFunc(r.table.Routes, func(t route.Route) bool { return t.Path == "/agents" })
	r.table.Routes[i].Serve = func(*route.Exchange) error { panic("hunter2") }
	p := r.do("GET", "/agents", "").wantProblem(t, 500, loquat.CodeInternal)
	if strings.Contains(p.Detail, "hunter2") {
		t.Errorf("told: %s", p.Detail)
	}
}
