package httpapi_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/httpapi"
)

// /docs shows every operation and schema of the document, to everybody, without other hosts
// and within the policy of the page.
func TestDocsPage(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "n", Scope: "full"}); err != nil {
		t.Fatal(err)
	}
	r.do("GET", "/sessions", "").wantProblem(t, 401, loquat.CodeUnauthorized)
	got := r.do("GET", "/docs", "").want(t, 200)
	if media, policy := got.Header.Get("Content-Type"), got.Header.Get("Content-Security-Policy"); media != "text/html; charset=utf-8" || policy != httpapi.FilePolicy {
		t.Errorf("media type %q, policy %q", media, policy)
	}
	page := string(got.body)
	doc := r.document()
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !strings.Contains(page, `<article id="`+op.OperationID+`">`) || !strings.Contains(page, "<code>"+html.EscapeString(path)+"</code>") {
				t.Errorf("the page lacks %s %s", method, path)
			}
		}
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(page, `<article id="schema-`+name+`">`) {
			t.Errorf("the page lacks the schema %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"#][^"]*)"`).FindAllStringSubmatch(page, -1) {
		r.do("GET", m[1], "").want(t, 200)
	}
	if m := regexp.MustCompile(`https?://[^"\s<]+"|<script|<style|style="|\son\w+="`).FindString(page); m != "" {
		t.Errorf("the page has %s", m)
	}
	r.do("GET", "/docs", "", "If-None-Match: "+got.Header.Get("ETag")).wantNothing(t, 304)
	if head := r.do("HEAD", "/docs", ""); head.StatusCode != 200 || len(head.body) > 0 {
		t.Errorf("HEAD: %d, %d bytes", head.StatusCode, len(head.body))
	}
	r.do("POST", "/docs", "{}").wantProblem(t, 405, loquat.CodeMethodNotAllowed)
	if p := r.do("GET", "/docs/", "").wantProblem(t, 404, loquat.CodeNotFound); !strings.Contains(p.Detail, `use "/docs"`) {
		t.Errorf("a slash too many: %s", p.Detail)
	}
}

// The document says which operations need no token, as the server has it.
func TestDocumentOfAccess(t *testing.T) {
	r := newRig(t)
	body := string(r.do("GET", "/openapi.json", "").want(t, 200).body)
	open := 0
	for _, rt := range r.table.Routes {
		if rt.Open {
			open++
		}
	}
	if n := strings.Count(body, `"security":[{}]`); n != open {
		t.Errorf("%d operations need no token in the document, %d on the server", n, open)
	}
}
