package httpapi_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/httpapi/route"
	"loquat/internal/ui"
)

// described is a schema of the document, as far as these tests look at it.
type described struct {
	Default              any
	Description          string
	Ref                  string `json:"$ref"`
	Type                 string
	Properties           map[string]*described
	Required             []string
	Enum                 []string
	Items                *described
	OneOf                []*described
	AdditionalProperties any
	Discriminator        *struct {
		PropertyName string
		Mapping      map[string]string
	}
}

type document struct {
	Paths      map[string]map[string]struct{ OperationID string }
	Components struct{ Schemas map[string]*described }
}

func (r *rig) document() document {
	r.t.Helper()
	var doc document
	if err := json.Unmarshal(r.do("GET", "/openapi.json", "").want(r.t, 200).body, &doc); err != nil {
		r.t.Fatal(err)
	}
	return doc
}

// variants returns the variants of a union by the value that selects them.
func (d document) variants(t *testing.T, name, by string) map[string]*described {
	t.Helper()
	union := d.Components.Schemas[name]
	if union == nil || union.Discriminator == nil || union.Discriminator.PropertyName != by {
		t.Fatalf("%s is not a union by %s: %+v", name, by, union)
	}
	out := map[string]*described{}
	for value, ref := range union.Discriminator.Mapping {
		v := d.Components.Schemas[strings.TrimPrefix(ref, route.SchemaPrefix)]
		if v == nil {
			t.Fatalf("%s %s points nowhere: %s", name, value, ref)
		}
		if !slices.ContainsFunc(union.OneOf, func(one *described) bool { return one.Ref == ref }) {
			t.Errorf("%s %s is mapped and not one of the union", name, value)
		}
		if got := v.Properties[by]; got == nil || !slices.Equal(got.Enum, []string{value}) || !slices.Contains(v.Required, by) {
			t.Errorf("%s %s: %s is %+v", name, value, by, got)
		}
		out[value] = v
	}
	if len(out) != len(union.OneOf) {
		t.Errorf("%s has %d variants and maps %d", name, len(union.OneOf), len(out))
	}
	return out
}

// Each type of event is described by itself, with exactly the fields of the table in
// docs/events.md.
func TestDocumentOfEvents(t *testing.T) {
	events := newRig(t).document().variants(t, "Event", "type")
	documented := tableOf(t, "events.md", "## Types")
	if got, want := slices.Sorted(maps.Keys(events)), slices.Sorted(maps.Keys(documented)); !slices.Equal(got, want) {
		t.Errorf("described are %q, in docs/events.md are %q", got, want)
	}
	common := []string{"event_id", "type", "session_id"}
	for kind, schema := range events {
		for _, field := range common {
			if !slices.Contains(schema.Required, field) {
				t.Errorf("%s: %s is not required", kind, field)
			}
		}
		if schema.AdditionalProperties != nil {
			t.Errorf("%s may not grow", kind)
		}
		for field, property := range schema.Properties {
			if property == nil {
				t.Errorf("%s: %s has no schema", kind, field)
			}
			if !slices.Contains(common, field) && field != "request_id" && !strings.Contains(documented[kind], "`"+field) {
				t.Errorf("%s: docs/events.md does not have %s", kind, field)
			}
		}
		inDocs := regexp.MustCompile("`([a-z_]+)").FindAllStringSubmatch(documented[kind], -1)
		for _, m := range inDocs {
			values := []string{"start", "stream", "end", "rate_limit", "status", "timeout", "id", "function", "role", "content", "metadata", "type", "stream_tools"}
			if schema.Properties[m[1]] == nil && !slices.Contains(values, m[1]) {
				t.Errorf("%s: the document does not have %s", kind, m[1])
			}
		}
	}
	for _, c := range []struct {
		kind, field string
		enum        []string
	}{
		{"assistant_message", "phase", []string{"start", "end"}},
		{"tool_partial", "phase", []string{"start", "stream", "end"}},
		{"retry_scheduled", "cause", []string{"rate_limit", "status", "timeout", "stream"}},
		{"message_appended", "role", []string{"user", "assistant", "system", "tool"}},
	} {
		if got := events[c.kind].Properties[c.field].Enum; !slices.Equal(got, c.enum) {
			t.Errorf("%s: %s is one of %q, want %q", c.kind, c.field, got, c.enum)
		}
	}
	for _, kind := range []loquat.EventType{loquat.RequestStarted, loquat.Partial, loquat.RequestCompleted, loquat.ErrorEvent} {
		if !slices.Contains(events[string(kind)].Required, "request_id") {
			t.Errorf("%s: request_id is not required", kind)
		}
	}
}

// Each type of UI element, and an input of a dialog, is described with the attributes that package ui lists. docs/ui.md
// has the same ones.
func TestDocumentOfElements(t *testing.T) {
	doc := newRig(t).document()
	elements := doc.variants(t, "UIElement", "ui_type")
	if got := doc.Components.Schemas["UISchema"].Properties["elements"].Items.Ref; got != route.SchemaPrefix+"UIElement" {
		t.Errorf("a UI schema has elements of %q", got)
	}
	documented := tableOf(t, "ui.md", "## The types")
	documented["message_action"] = documented["session_action"] // "the same"
	known := slices.Sorted(maps.Keys(ui.Attributes))
	if got := slices.Sorted(maps.Keys(elements)); !slices.Equal(got, known) {
		t.Errorf("ui.Attributes (internal/ui/lint.go) has %q, addElements (internal/httpapi/element_schemas.go) has %q", known, got)
	}
	if got := slices.Sorted(maps.Keys(documented)); !slices.Equal(got, known) {
		t.Errorf("ui.Attributes (internal/ui/lint.go) has %q, the table in docs/ui.md has %q", known, got)
	}
	same := func(kind string, schema *described, attributes []string, text string, more ...string) {
		t.Helper()
		var onPage []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(text, -1) {
			onPage = append(onPage, m[1])
		}
		slices.Sort(onPage)
		if want := slices.Sorted(slices.Values(attributes)); !slices.Equal(slices.Compact(onPage), want) {
			t.Errorf("%s has the attributes %q in internal/ui/lint.go and %q in docs/ui.md", kind, want, onPage)
		}
		if got, want := slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(slices.Values(append(more, attributes...))); !slices.Equal(got, want) {
			t.Errorf("%s has the attributes %q in internal/ui/lint.go and %q in the document", kind, want, got)
		}
	}
	inputs := regexp.MustCompile(`An input has ([^.]+)\.`).FindStringSubmatch(textOf(t, "ui.md"))
	if inputs == nil {
		t.Fatal("docs/ui.md does not say what an input has")
	}
	same("an input of a dialog", doc.Components.Schemas["DialogInput"], ui.InputAttributes, inputs[1])
	for kind, schema := range elements {
		same(kind, schema, ui.Attributes[kind], documented[kind], "ui_type", "plugin")
		if !slices.Contains(schema.Required, "plugin") || schema.AdditionalProperties != nil {
			t.Errorf("%s: %+v", kind, schema)
		}
	}
}

// Each type of an input and each type of an element is in the documentation, and some plugin of these tests offers it.
func TestTypesAreDocumented(t *testing.T) {
	_, offers, _ := strings.Cut(textOf(t, "plugins.md"), "\n## Everything that can be shown and run\n")
	offered := func(what string) {
		if !strings.Contains(offers, "\n| "+what+" | ") {
			t.Errorf("the last table of docs/plugins.md lacks a row of %s", what)
		}
	}
	for name := range ui.Attributes {
		if name != "config" { // has a row for each type of an input
			offered("`" + name + "`")
		}
		if name != "config" && !strings.Contains(every, `"ui_type": "`+name+`"`) {
			t.Errorf("the list `every` in internal/httpapi/ui_test.go has no element of ui_type %s", name)
		}
	}
	for _, name := range ui.InputTypes() {
		offered("`config` of type `" + name + "`")
		if !strings.Contains(textOf(t, "ui.md"), "`"+name+"`") {
			t.Errorf("docs/ui.md does not have the type `%s`", name)
		}
		if !strings.Contains(every, `"type": "`+name+`"`) {
			t.Errorf("the list `every` in internal/httpapi/ui_test.go has no element of type %s", name)
		}
	}
}

// Each route is in the table of docs/http.md, with its method. docs/openai.md, docs/responses.md
// and docs/bridge.md describe the routes below /v1/ and the bridge's.
func TestRoutesAreDocumented(t *testing.T) {
	_, table, _ := strings.Cut(textOf(t, "http.md"), "\n## Routes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := slices.Collect(strings.Lines(table))
	for _, rt := range newRig(t).table.Routes {
		documented := func(row string) bool {
			route, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
			return strings.Contains(route, rt.Method) && regexp.MustCompile("[ `]"+regexp.QuoteMeta(rt.Path)+"`").MatchString(route)
		}
		if !strings.HasPrefix(rt.Path, "/v1/") && !slices.ContainsFunc(rows, documented) {
			t.Errorf("the table of routes in docs/http.md has no row of %s %s", rt.Method, rt.Path)
		}
	}
}

// textOf returns a page of the documentation.
func textOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableOf returns the first table below a heading of a page: what stands after the first
// column, by the name in the first column.
func tableOf(t *testing.T, page, heading string) map[string]string {
	t.Helper()
	_, section, ok := strings.Cut(textOf(t, page), heading+"\n")
	if !ok {
		t.Fatalf("docs/%s has no %s", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	out := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 && strings.HasPrefix(cells[1], " `") && cells[0] == "" {
			name := strings.Trim(cells[1], " `")
			if _, done := out[name]; !done && name != "ui_type" {
				out[name] = cells[2]
			}
		}
	}
	return out
}

// Attachments have a type of their own wherever they stand, in bodies a closed one.
func TestDocumentOfAttachments(t *testing.T) {
	schemas := newRig(t).document().Components.Schemas
	for _, body := range []string{"NewMessage", "Send"} {
		if got := schemas[body].Properties["attachments"].Items.Ref; got != route.SchemaPrefix+"Attachment" {
			t.Errorf("%s has attachments of %q", body, got)
		}
	}
	for _, message := range []string{"Message", "Delta"} {
		if got := schemas[message].Properties["metadata"].Ref; got != route.SchemaPrefix+"MessageMetadata" {
			t.Errorf("%s has metadata of %q", message, got)
		}
	}
	if metadata := schemas["MessageMetadata"]; metadata.AdditionalProperties != true || metadata.Properties["attachments"].Items.Ref != route.SchemaPrefix+"Attachment" {
		t.Errorf("the metadata of a message: %+v", metadata)
	}
	kinds := map[string]bool{}
	for _, one := range schemas["Attachment"].OneOf {
		form := schemas[strings.TrimPrefix(one.Ref, route.SchemaPrefix)]
		if form.AdditionalProperties != false || len(form.Required) != 2 || len(form.Properties) != 2 {
			t.Errorf("%s: %+v", one.Ref, form)
		}
		kinds[strings.Join(form.Required, " ")] = true
	}
	if want := map[string]bool{"type url": true, "type data_url": true, "type asset_id": true}; !maps.Equal(kinds, want) {
		t.Errorf("attachments are %v", kinds)
	}
}

// The document lists the operations of the API, not the files of the page.
func TestDocumentWithoutFiles(t *testing.T) {
	r := newRig(t)
	doc := r.document()
	for _, rt := range r.table.Routes {
		if _, listed := doc.Paths[rt.DocumentPath()]; !listed {
			t.Errorf("%s is not listed", rt.Path)
		}
	}
	for at := range r.table.Files {
		if methods, listed := doc.Paths[at]; listed {
			t.Errorf("the file %s is listed: %v", at, methods)
		}
	}
}

// A field of a body that may be left out has no keyword `default`: generators would require
// it.
func TestDocumentOfDefaults(t *testing.T) {
	for name, schema := range newRig(t).document().Components.Schemas {
		for field, property := range schema.Properties {
			if property.Default != nil {
				t.Errorf("%s.%s has the default %v", name, field, property.Default)
			}
			if name == "Send" && field == "stream" && !strings.Contains(property.Description, "Default: true.") {
				t.Errorf("the default of stream is not described: %q", property.Description)
			}
		}
	}
}
