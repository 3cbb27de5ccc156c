package route

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// DocumentPath returns the path of a route as the document has it. The document has no notation for
// a parameter that may hold slashes.
func (r *Route) DocumentPath() string { return strings.Replace(r.Path, "...}", "}", 1) }

// Document is the content of the OpenAPI document that is not in the table.
type Document struct {
	Info     huma.Info
	Tags     []*huma.Tag
	PathDocs map[string]string // by parameter of a path
	Integers []string          // the parameters of paths that are integers
}

// Describe returns the OpenAPI document of routes.
func Describe(routes []Route, schemas Schemas, d Document) ([]byte, error) {
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info:    &d.Info,
		Components: &huma.Components{
			Schemas: schemas.registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {
				Type: "http", Scheme: "bearer", Description: "An access token. A server without tokens requires none."}},
		},
		Security: []map[string][]string{{"token": {}}, {}},
		Servers:  []*huma.Server{{URL: "/", Description: "The server that this document describes."}},
		Tags:     d.Tags,
	}
	closed := map[string]bool{}
	for i := range routes {
		r := &routes[i]
		if r.Body != nil {
			schemas.close(closed, schemas.of(r.Body))
		}
		doc.AddOperation(schemas.operation(r, d))
	}
	schemas.open(closed)
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return out, nil
}

// close adds the schemas of a body, and of all values in it, to closed. A closed schema
// forbids fields that it does not list.
func (schemas Schemas) close(closed map[string]bool, s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		if closed[s.Ref] {
			return
		}
		closed[s.Ref] = true
		s = schemas.registry.SchemaFromRef(s.Ref)
	}
	schemas.close(closed, s.Items)
	for _, variant := range s.OneOf {
		schemas.close(closed, variant)
	}
	for _, p := range s.Properties {
		schemas.close(closed, p)
	}
}

func (schemas Schemas) operation(r *Route, d Document) *huma.Operation {
	failure := r.errorForm()
	op := &huma.Operation{
		Method: r.Method, Path: r.DocumentPath(), OperationID: r.ID, Summary: r.Summary, Tags: []string{r.Tag},
		Responses: map[string]*huma.Response{
			"4XX":     {Description: "A failure of the client", Content: schemas.content(failure.Body, failure.Media)},
			"default": {Description: "A failure", Content: schemas.content(failure.Body, failure.Media)},
		},
	}
	if r.Open {
		op.Security = []map[string][]string{{}} // none is needed
	}
	if r.Full {
		op.Description = "Needs a token of scope full."
	}
	for _, m := range pathParameter.FindAllStringSubmatch(r.DocumentPath(), -1) {
		schema := &huma.Schema{Type: huma.TypeString}
		if slices.Contains(d.Integers, m[1]) {
			schema.Type = huma.TypeInteger
		}
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Description: d.PathDocs[m[1]], Required: true, Schema: schema})
	}
	for _, p := range r.Query {
		op.Parameters = append(op.Parameters, p.document())
	}
	if r.Change {
		op.Parameters = append(op.Parameters, keyHeader())
	}
	if r.Change || r.Matches {
		op.Parameters = append(op.Parameters, matchHeader())
	}
	if r.Body != nil {
		op.RequestBody = &huma.RequestBody{Required: schemas.requiresBody(r.Body), Content: schemas.content(r.Body, r.medias()...)}
	}
	if r.Upload != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for media, v := range r.Upload {
			op.RequestBody.Content[media] = &huma.MediaType{Schema: schemas.of(v)}
		}
	}
	for _, s := range r.Responses {
		op.Responses[strconv.Itoa(s.Status)] = schemas.response(s)
	}
	return op
}

func (schemas Schemas) response(s Response) *huma.Response {
	out := &huma.Response{Description: cmp.Or(s.Doc, "Done")}
	if s.Body != nil {
		media := jsonMedia
		if s.Media != "" {
			media, _, _ = strings.Cut(s.Media, ";")
		}
		out.Content = schemas.content(s.Body, media)
	}
	if s.ETag {
		out.Headers = map[string]*huma.Param{"ETag": {Description: cmp.Or(s.ETagDoc, "The newest checkpoint of the session."), Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	return out
}

func (schemas Schemas) content(v any, media ...string) map[string]*huma.MediaType {
	out := map[string]*huma.MediaType{}
	for _, m := range media {
		out[m] = &huma.MediaType{Schema: schemas.of(v)}
	}
	return out
}

func keyHeader() *huma.Param {
	one, most := 1, maxKey
	return &huma.Param{Name: "Idempotency-Key", In: "header", Description: "A repeat with the same key gets the first answer and changes nothing.",
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: &one, MaxLength: &most}}
}

func matchHeader() *huma.Param {
	return &huma.Param{Name: "If-Match", In: "header", Description: "The ETag that the session must have, or *.", Schema: &huma.Schema{Type: huma.TypeString}}
}
