package httpapi_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/httpapi/route"
)

// TestProblemsRepeatAnExcerpt sends long values wherever a client can put one. No
// answer repeats more than the beginning of a value.
func TestProblemsRepeatAnExcerpt(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	const size = 40_000
	long := strings.Repeat("x", size)
	wide := strings.Repeat("ü", size/2)
	query := url.QueryEscape(long)
	override := func(key, value string) string { return `{"metadata":{"overrides":{"` + key + `":` + value + `}}}` }
	for _, tc := range []struct{ what, method, path, body string }{
		{"agent of a new session", "POST", "/sessions", `{"agent_id":"` + long + `"}`},
		{"agent of a change", "PATCH", "/sessions/s", `{"agent_id":"` + wide + `"}`},
		{"agent of a fork", "POST", "/sessions/s/fork", `{"agent_id":"` + long + `"}`},
		{"session id", "POST", "/sessions", `{"session_id":"` + long + `"}`},
		{"request id", "POST", "/sessions/s/send", `{"content":"x","request_id":"` + long + `"}`},
		{"unknown field", "POST", "/sessions", `{"` + long + `":1}`},
		{"unknown wide field", "POST", "/sessions", `{"` + wide + `":1}`},
		{"key that is given twice", "POST", "/sessions", `{"metadata":{"` + long[:20_000] + `":1,"` + long[:20_000] + `":2}}`},
		{"syntax below a long key", "POST", "/sessions", `{"metadata":{"` + long + `":nope}}`},
		{"role", "POST", "/sessions/s/messages", `{"role":"` + long + `","content":"x"}`},
		{"on_busy", "POST", "/sessions/s/send", `{"content":"x","on_busy":"` + long + `"}`},
		{"type of an attachment", "POST", "/sessions/s/messages", `{"role":"user","content":"x","attachments":[{"type":"` + long + `"}]}`},
		{"media type of an attachment", "POST", "/sessions/s/messages", `{"role":"user","content":"x","attachments":[{"type":"image","data_url":"data:image/` + long + `;base64,AAAA"}]}`},
		{"key of an override", "PATCH", "/sessions/s", override(long, "1")},
		{"key of a secret override", "PATCH", "/sessions/s", override("providers", `{"`+long+`":1}`)},
		{"request option", "PATCH", "/sessions/s", override("request_options", `"`+long+`"`)},
		{"parameter of an action", "POST", "/actions/none", `{"params":{"` + long + `":1}}`},
		{"element of an action", "POST", "/actions/none", `{"element_id":"` + long + `","action_owner":"` + long[:9000] + `"}`},
		{"plugin of an action", "POST", "/actions/none", `{"plugin":"` + long + `"}`},
		{"action id", "POST", "/actions/" + query, `{}`},
		{"session in a path", "GET", "/sessions/" + query, ""},
		{"request in a path", "GET", "/requests/" + query, ""},
		{"message in a path", "PATCH", "/sessions/s/messages/" + query, `{"content":"x"}`},
		{"asset in a path", "GET", "/sessions/s/assets/" + query, ""},
		{"token in a path", "DELETE", "/tokens/" + query, ""},
		{"device in a path", "DELETE", "/devices/" + query, ""},
		{"unknown route", "GET", "/" + query, ""},
		{"agent of a query", "GET", "/models?agent_id=" + query, ""},
		{"session of a query", "GET", "/events?session_id=" + query, ""},
		{"request of a query", "GET", "/events?session_id=s&request_id=" + query, ""},
		{"page token", "GET", "/sessions?page_token=" + query, ""},
		{"event id", "GET", "/events?since_id=" + query, ""},
		{"limit", "GET", "/sessions?limit=" + query, ""},
		{"broken query", "GET", "/sessions?limit=%zz" + query, ""},
		{"code of a pairing", "POST", "/pairing/claim", `{"code":"` + long[:9000] + `","device_name":"` + long[:5000] + `"}`},
		{"scope of a pairing", "POST", "/pairing", `{"scope":"` + long + `"}`},
		{"name of a token", "POST", "/tokens", `{"name":"` + long + `","scope":"` + wide[:3000] + `"}`},
	} {
		t.Run(tc.what, func(t *testing.T) {
			got := r.do(tc.method, tc.path, tc.body)
			if got.StatusCode < 400 {
				t.Fatalf("got %d: %.300s", got.StatusCode, got.body)
			}
			if most := 2_000; len(got.body) > most {
				t.Errorf("the problem has %d bytes, want at most %d: %.300s", len(got.body), most, got.body)
			}
			if s := string(got.body); strings.Contains(s, strings.Repeat("x", 200)) || strings.Contains(s, strings.Repeat("ü", 200)) {
				t.Errorf("the problem repeats more than an excerpt: %.600s", s)
			}
		})
	}
}

// What no part of the program cut is cut before it is sent.
func TestProblemsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	p := route.ProblemOf(&loquat.Error{Code: loquat.CodeInvalid, Detail: long, RequestID: "r", Fields: []loquat.FieldError{
		{Location: long, Message: long, Value: long}, {Location: "body", Message: "is wrong", Value: 7},
	}})
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if most := 16 << 10; len(encoded) > most {
		t.Errorf("the problem has %d bytes, want at most %d", len(encoded), most)
	}
	if !strings.HasSuffix(p.Detail, "…") || p.Errors[1].Value != 7 || p.Errors[1].Message != "is wrong" {
		t.Errorf("got the detail …%s and the errors %v", p.Detail[len(p.Detail)-10:], p.Errors[1:])
	}
}
