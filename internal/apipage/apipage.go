// Package apipage renders an OpenAPI document as one HTML page. The page needs no script and
// loads nothing but its style sheet, Style.
package apipage

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Style is the style sheet of the page.
//
//go:embed page.css
var Style []byte

//go:embed page.html
var source string

var page = template.Must(template.New("page").Parse(source))

// Paths are where the server has what the page refers to: the document, Style and an icon.
type Paths struct{ Document, Style, Icon string }

// Render returns the page of an OpenAPI 3.1 document.
func Render(document []byte, paths Paths) ([]byte, error) {
	var doc openAPI
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	view := pageView{Info: doc.Info, Paths: paths, Groups: doc.groups(), Schemas: doc.schemas()}
	var out bytes.Buffer
	if err := page.Execute(&out, view); err != nil {
		return nil, fmt.Errorf("render the page of the API: %w", err)
	}
	return out.Bytes(), nil
}

// pageView is what the template shows.
type pageView struct {
	Info    info
	Paths   Paths
	Groups  []group
	Schemas []namedSchema
}

// group is the operations of one tag.
type group struct {
	Name, Description string
	Operations        []operation
}

type namedSchema struct {
	Name string
	*schema
}

// methods are in the order in which the operations of one path are shown.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// groups returns the operations by their first tag, in the order of the document's tags. Tags
// that the document does not describe come last.
func (d *openAPI) groups() []group {
	byTag := map[string][]operation{}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			op, ok := d.Paths[path][strings.ToLower(method)]
			if !ok {
				continue
			}
			op.Method, op.Path = method, path
			op.Example = d.example(op)
			tag := ""
			if len(op.Tags) > 0 {
				tag = op.Tags[0]
			}
			byTag[tag] = append(byTag[tag], op)
		}
	}
	var out []group
	for _, tag := range d.Tags {
		if operations := byTag[tag.Name]; len(operations) > 0 {
			out = append(out, group{tag.Name, tag.Description, operations})
			delete(byTag, tag.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byTag)) {
		out = append(out, group{Name: name, Operations: byTag[name]})
	}
	return out
}

func (d *openAPI) schemas() []namedSchema {
	var out []namedSchema
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		out = append(out, namedSchema{name, d.Components.Schemas[name]})
	}
	return out
}

// example returns a call of an operation by curl.
func (d *openAPI) example(op operation) string {
	var b strings.Builder
	b.WriteString("curl")
	if op.Method != http.MethodGet {
		b.WriteString(" -X " + op.Method)
	}
	if len(op.Security) != 1 || len(op.Security[0]) > 0 {
		b.WriteString(` -H "Authorization: Bearer $TOKEN"`)
	}
	if op.RequestBody != nil {
		if media, ok := op.RequestBody.Content["application/json"]; ok {
			b.WriteString(" -H 'Content-Type: application/json' -d '" + d.sample(media.Schema, 0) + "'")
		} else {
			b.WriteString(" --data-binary @FILE")
		}
	}
	path := strings.NewReplacer("{", "$", "}", "").Replace(op.Path)
	return b.String() + ` "$SERVER` + path + `"`
}

// maxSample bounds how deep a sample nests.
const maxSample = 4

// sample returns JSON that a schema allows: of an object only what is required.
func (d *openAPI) sample(s *schema, depth int) string {
	s = d.resolve(s)
	switch {
	case s == nil || depth > maxSample:
		return "{}"
	case len(s.Enum) > 0:
		return string(s.Enum[0])
	case s.is("object"):
		var fields []string
		for _, f := range s.Fields() {
			if f.Required {
				fields = append(fields, fmt.Sprintf("%q: %s", f.Name, d.sample(f.Schema, depth+1)))
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case s.is("array"):
		return "[" + d.sample(s.Items, depth+1) + "]"
	case s.is("integer"), s.is("number"):
		return "0"
	case s.is("boolean"):
		return "true"
	}
	return `"…"`
}

func (d *openAPI) resolve(s *schema) *schema {
	if s != nil && s.Ref != "" {
		return d.Components.Schemas[s.RefName()]
	}
	return s
}
