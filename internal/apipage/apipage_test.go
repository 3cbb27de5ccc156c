package apipage_test

import (
	"regexp"
	"strings"
	"testing"

	"loquat/internal/apipage"
)

const document = `{
	"openapi": "3.1.0",
	"info": {"title": "T<i>tle", "version": "7", "description": "About <script>alert(1)</script>."},
	"tags": [{"name": "second", "description": "Comes first."}, {"name": "empty", "description": "Not shown."}],
	"paths": {
		"/things": {
			"get": {"operationId": "listThings", "summary": "List things", "tags": ["second"], "security": [{}],
				"parameters": [{"name": "limit", "in": "query", "description": "How many.", "schema": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3}}],
				"responses": {"200": {"description": "Done", "content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}}}}}},
			"post": {"operationId": "makeThing", "summary": "Make a thing", "tags": ["second"],
				"requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}, "application/merge-patch+json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
				"responses": {"201": {"description": "Made", "headers": {"ETag": {"description": "Its version."}}}, "default": {"description": "A failure"}}}
		},
		"/other/{id}": {"delete": {"operationId": "drop", "summary": "Drop", "tags": ["unnamed"], "responses": {"204": {"description": "Gone"}}}}
	},
	"components": {"schemas": {
		"Thing": {"type": "object", "required": ["kind", "self"], "additionalProperties": false, "description": "A <b>thing</b>.", "properties": {
			"kind": {"type": "string", "enum": ["a", "b"]}, "self": {"$ref": "#/components/schemas/Thing"}, "any": {}, "maybe": {"type": ["string", "null"]},
			"names": {"type": "object", "additionalProperties": {"type": "string"}}, "free": {"type": "object", "additionalProperties": {}}}},
		"Either": {"description": "Either.", "oneOf": [{"$ref": "#/components/schemas/Thing"}, {"type": "string"}], "discriminator": {"propertyName": "kind"}}
	}}
}`

func TestRender(t *testing.T) {
	raw, err := apipage.Render([]byte(document), apipage.Paths{Document: "/openapi.json", Style: "/docs.css", Icon: "/icon.svg"})
	if err != nil {
		t.Fatal(err)
	}
	html := string(raw)
	for _, want := range []string{
		"<title>T&lt;i&gt;tle API</title>", "About &lt;script&gt;", "A &lt;b&gt;thing&lt;/b&gt;.", `href="/docs.css"`, `<link rel="icon" href="/icon.svg">`, `href="/openapi.json"`,
		`<article id="listThings">`, "Needs no token.", "at least 1; at most 9; default 3", `list of <a href="#schema-Thing">Thing</a>`,
		`<article id="makeThing">`, "<code>application/json, application/merge-patch&#43;json</code>", "<code>ETag</code>: Its version.",
		`<section id="tag-unnamed"`, `<article id="drop">`, "&#34;a&#34;, &#34;b&#34;", "string or null", "object of string", "any JSON",
		"No other fields are accepted.", "<code>kind</code> selects it",
		`curl &#34;$SERVER/things&#34;`, `curl -X DELETE -H &#34;Authorization: Bearer $TOKEN&#34; &#34;$SERVER/other/$id&#34;`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Index(html, `id="tag-second"`) > strings.Index(html, `id="tag-unnamed"`) || strings.Contains(html, "tag-empty") {
		t.Error("the groups are not those of the document, in its order")
	}
	checkPage(t, html)
}

// checkPage fails on links that lead nowhere, ids that occur twice, and what a strict
// Content-Security-Policy refuses.
func checkPage(t *testing.T, html string) {
	t.Helper()
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]] {
			t.Errorf("the id %s occurs twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if name, ok := strings.CutPrefix(m[1], "#"); ok && !ids[name] {
			t.Errorf("a link to %s leads nowhere", m[1])
		} else if !ok && !strings.HasPrefix(m[1], "/") || strings.HasPrefix(m[1], "//") {
			t.Errorf("the page refers to %s", m[1])
		}
	}
	if m := regexp.MustCompile(`<script|<style|style="|\son\w+=|javascript:`).FindString(html); m != "" {
		t.Errorf("the page has %s", m)
	}
}

func TestRenderOfNoDocument(t *testing.T) {
	if _, err := apipage.Render([]byte("{"), apipage.Paths{}); err == nil {
		t.Error("broken JSON is not an error")
	}
}
