package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"loquat"
)

// hits returns the hits of a search, with what matches in brackets.
func (a reply) hits(t *testing.T) string {
	t.Helper()
	var result loquat.SearchResult
	if err := json.Unmarshal(a.body, &result); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, h := range result.Hits {
		out = append(out, fmt.Sprintf("%s %d %s: %s", h.SessionID, *h.Index, h.Part, marked(h.Snippet)))
	}
	return strings.Join(out, "; ")
}

func marked(s loquat.Snippet) (out string) {
	for _, p := range s.Parts {
		if p.Hit {
			p.Text = "[" + p.Text + "]"
		}
		out += p.Text
	}
	return out
}

func TestSearch(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"a","metadata":{"title":"Pears","tags":["fruit"]},"messages":[
		{"role":"user","content":"How do I store <b>loquats</b>?"},
		{"role":"assistant","content":"In a cool place.","metadata":{"reasoning_content":"A loquat is a fruit.","model":"m-1"}},
		{"role":"tool","content":"loquat: 12 °C"}]}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"b","metadata":{"title":"枇杷 loquats"},"messages":[{"role":"user","content":"枇杷怎么保存?"}]}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"c","metadata":{"archived":true},"messages":[{"role":"user","content":"Loquats, archived"}]}`).want(t, 201)
	for query, want := range map[string]string{
		"q=loquats":                               "a 0 text: How do I store <b>[loquats]</b>?",
		"q=LOQU*":                                 "a 0 text: How do I store <b>[loquats]</b>?",
		"q=loquat*&in=tool&in=reasoning":          "a 2 tool: [loquat]: 12 °C; a 1 reasoning: A [loquat] is a fruit.",
		"q=loquat*&in=reasoning&model=m-1":        "a 1 reasoning: A [loquat] is a fruit.",
		"q=loquat*&in=reasoning&model=m-2":        "",
		"q=loquats&archived=true":                 "c 0 text: [Loquats], archived",
		"q=loquats&archived=any&limit=1":          "c 0 text: [Loquats], archived",
		"q=loquats&session_id=c":                  "c 0 text: [Loquats], archived",
		"q=loquats&tag=fruit&role=user":           "a 0 text: How do I store <b>[loquats]</b>?",
		"q=loquats&tag=other":                     "",
		"q=loquats&agent_id=other":                "",
		"q=loquats&since=2001-01-01T00:00:00Z":    "a 0 text: How do I store <b>[loquats]</b>?",
		"q=loquats&before=2001-01-01T00:00:00Z":   "",
		"q=" + url.QueryEscape("保存"):              "b 0 text: 枇杷怎么[保存]?",
		"q=" + url.QueryEscape("存"):               "b 0 text: 枇杷怎么保[存]?",
		"q=" + url.QueryEscape(`"cool place"`):    "a 1 text: In a [cool place].",
		"q=" + url.QueryEscape(`"place cool"`):    "",
		"q=" + url.QueryEscape(`"cool`):           "a 1 text: In a [cool] place.",
		"q=" + url.QueryEscape(`' OR "a":* NOT\`): "",
		"q=" + url.QueryEscape("!?"):              "",
	} {
		if got := r.do("GET", "/search?"+query, "").want(t, 200).hits(t); got != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	list := r.do("GET", "/sessions?q=loquats", "").want(t, 200)
	if got := list.ids(t); got != "b a" { // the title first
		t.Errorf("the sessions are %q", got)
	}
	if got := r.do("GET", "/sessions?q=loquats&tag=fruit&archived=any", "").want(t, 200).ids(t); got != "a" {
		t.Errorf("the sessions with a tag are %q", got)
	}
	r.do("GET", "/search?q=x&session_id=nothing", "").wantProblem(t, 404, loquat.CodeNotFound)
}

// What is deleted, replaced or archived is not found from then on, and what is new is found.
func TestSearchFollowsChanges(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"a","messages":[{"role":"user","content":"one apple"},{"role":"user","content":"two apples"}]}`).want(t, 201)
	finds := func(query, want string) {
		t.Helper()
		if got := r.do("GET", "/search?q="+query, "").want(t, 200).hits(t); got != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	finds("apples", "a 1 text: two [apples]")
	r.do("DELETE", "/sessions/a/messages?indices=0", "").want(t, 200)
	finds("apple", "")
	finds("apples", "a 0 text: two [apples]")
	r.do("PATCH", "/sessions/a/messages/0", `{"content":"two pears"}`).want(t, 200)
	finds("apples", "")
	finds("pears", "a 0 text: two [pears]")
	fork := r.do("POST", "/sessions/a/fork", `{"metadata":{"title":"copy"}}`).want(t, 201).field(t, "session_id")
	r.do("DELETE", "/sessions/a", "").want(t, 204)
	finds("pears", fork+" 0 text: two [pears]")
	if got := r.do("GET", "/sessions?q=copy", "").want(t, 200).ids(t); got != fork {
		t.Errorf("the title of the fork finds %q", got)
	}
	r.do("PATCH", "/sessions/"+fork, `{"metadata":{"title":"another"}}`).want(t, 200)
	if got := r.do("GET", "/sessions?q=copy", "").want(t, 200).ids(t); got != "" {
		t.Errorf("the title from before finds %q", got)
	}
}

func TestSearchPages(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"a"}`).want(t, 201)
	for i := range 5 {
		r.do("POST", "/sessions/a/messages", fmt.Sprintf(`{"role":"user","content":"word number %d"}`, i)).want(t, 201)
	}
	var all []string
	for token, pages := "", 0; ; pages++ {
		page := r.do("GET", "/search?q=word&limit=2&page_token="+token, "").want(t, 200)
		all = append(all, page.hits(t))
		var result loquat.SearchResult
		if err := json.Unmarshal(page.body, &result); err != nil {
			t.Fatal(err)
		}
		if token = result.NextPageToken; token == "" || pages > 5 {
			break
		}
		r.do("POST", "/sessions/a/messages", `{"role":"user","content":"a later word"}`).want(t, 201)
	}
	if got := strings.Join(all, " | "); strings.Count(got, "[word] number") != 5 || strings.Contains(got, "later") || len(all) != 3 {
		t.Errorf("the pages are %s", got)
	}
}

func TestSearchBounds(t *testing.T) {
	r := newRig(t)
	for query, status := range map[string]int{
		"": 400, "q=": 400, "q=a&q=b": 400, "q=a&limit=0": 422, "q=a&limit=101": 422, "q=a&limit=x": 400,
		"q=a&role=nobody": 422, "q=a&in=all": 422, "q=a&in=text&in=text&in=text&in=text": 422, "q=a&since=yesterday": 400, "q=a&archived=x": 422,
		"q=" + strings.Repeat("a", 1001): 422, "q=" + strings.Repeat("a", 1000): 200, "q=%ff%00": 200,
		"q=" + url.QueryEscape(strings.Repeat("检", 201)): 200, "q=" + url.QueryEscape(manyWords(201)): 422, "q=" + url.QueryEscape(manyWords(200)): 200,
		"q=a&page_token=x": 400, "q=a&page_token=1-1-1": 400, "q=a&page_token=s1-1-1-1-1": 400, "q=a&page_token=s9-9-0-0-0": 200, "q=a&page_token=s9-12-0-0-0": 400,
		"q=a&page_token=s9223372036854775807-9223372036854775807-9223372036854775806-1-9223372036854775806": 400,
		"q=a&page_token=s1000-1000-2-5-900": 200,
	} {
		r.do("GET", "/search?"+query, "").want(t, status)
	}
	r.do("GET", "/sessions?q="+strings.Repeat("a", 1001), "").want(t, 422)
	r.do("GET", "/sessions?q=a&page_token=5-0-3", "").want(t, 400)
	r.do("GET", "/sessions?q=", "").want(t, 200)
}

func manyWords(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%x ", i)
	}
	return b.String()
}
