package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"loquat"
)

// ids returns the ids of a list of sessions.
func (a reply) ids(t *testing.T) string {
	t.Helper()
	var list loquat.SessionList
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range list.Sessions {
		out = append(out, s.SessionID)
	}
	return strings.Join(out, " ")
}

func TestListsOfSessions(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"a","metadata":{"tags":["work","urgent"]}}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"b","metadata":{"pinned":true,"tags":["work"]}}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"c"}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"d"}`).want(t, 201)
	r.do("PATCH", "/sessions/d", `{"metadata":{"archived":true,"pinned":true}}`).want(t, 200)
	r.do("POST", "/sessions/d/fork", `{"metadata":{"tags":["copy"]}}`).want(t, 201)
	r.do("POST", "/sessions/a/messages", `{"role":"user","content":"hi"}`).want(t, 201)
	copied := r.do("GET", "/sessions?tag=copy", "").want(t, 200).ids(t)
	if copied == "" {
		t.Fatal("the fork of an archived session is not listed")
	}
	for query, want := range map[string]string{
		"":                              "b a " + copied + " c",
		"archived=true":                 "d",
		"archived=any&limit=3":          "d b a",
		"tag=work":                      "b a",
		"tag=work&tag=urgent":           "a",
		"tag=work&pinned=false":         "a",
		"pinned=true&archived=any":      "d b",
		"agent_id=default&pinned=false": "a " + copied + " c",
		"agent_id=other":                "",
	} {
		if got := r.do("GET", "/sessions?"+query, "").want(t, 200).ids(t); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	first := r.do("GET", "/sessions?limit=2", "").want(t, 200)
	r.do("PATCH", "/sessions/c", `{"metadata":{"pinned":true}}`).want(t, 200) // comes later in the list, and is the newest now
	second := r.do("GET", "/sessions?limit=2&page_token="+first.field(t, "next_page_token"), "").want(t, 200)
	if got := first.ids(t) + ", " + second.ids(t); got != "b a, "+copied+" c" {
		t.Errorf("two pages list %s", got)
	}
}
