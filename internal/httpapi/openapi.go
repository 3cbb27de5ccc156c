package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"loquat/internal/asset"
)

// tags group the operations. docs/http.md has the same groups.
var tags = []*huma.Tag{
	{Name: "sessions", Description: "Sessions and their life."},
	{Name: "messages", Description: "The messages of a session."},
	{Name: "assets", Description: "Images that were uploaded to a session."},
	{Name: "requests", Description: "Requests for a reply."},
	{Name: "events", Description: "The log of all events."},
	{Name: "ui", Description: "What plugins let clients show, and their actions."},
	{Name: "catalog", Description: "Agents, models and plugins."},
	{Name: "access", Description: "Tokens, devices and browsers."},
	{Name: "bridge", Description: "Events pushed to apps."},
	{Name: "server", Description: "The state of the server."},
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// describe makes the OpenAPI document of the table of routes.
func (a *api) describe() ([]byte, error) {
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Loquat", Version: strconv.Itoa(apiVersion),
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			Description: "Durable chat sessions, requests that run on them, and the events that tell of both. Within a version there are only additions.",
		},
		Components: &huma.Components{
			Schemas: a.schemas.registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {
				Type: "http", Scheme: "bearer", Description: "An access token. A server that has none wants none."}},
		},
		Security: []map[string][]string{{"token": {}}, {}},
		Servers:  []*huma.Server{{URL: "/", Description: "The server that this document is of."}},
		Tags:     tags,
	}
	closed := map[string]bool{}
	for i := range a.routes {
		r := &a.routes[i]
		if r.tag == webTag {
			continue // files are not operations
		}
		if r.body != nil {
			a.closeBody(closed, a.schemas.of(r.body))
		}
		doc.AddOperation(a.operation(r))
	}
	a.schemas.open(closed)
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return out, nil
}

// closeBody notes the schemas of a body and of what is in it: nothing more than they
// list may be sent.
func (a *api) closeBody(closed map[string]bool, s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		if closed[s.Ref] {
			return
		}
		closed[s.Ref] = true
		s = a.schemas.registry.SchemaFromRef(s.Ref)
	}
	a.closeBody(closed, s.Items)
	for _, variant := range s.OneOf {
		a.closeBody(closed, variant)
	}
	for _, p := range s.Properties {
		a.closeBody(closed, p)
	}
}

// pathDocs describes the parameters of paths.
var pathDocs = map[string]string{
	"session_id": "The id of a session.",
	"request_id": "The id of a request.",
	"index":      "The index of a message in its session, from 0.",
	"asset_id":   "The id of an image of the session.",
	"action_id":  "The id of an action, as its element has it.",
	"token_id":   "The id of a token, not its secret.",
	"device_id":  "The id of a paired device.",
	"key":        "The key of a setting.",
}

func (a *api) operation(r *route) *huma.Operation {
	op := &huma.Operation{
		Method: r.method, Path: strings.TrimSuffix(r.path, "{$}"), OperationID: r.id, Summary: r.summary, Tags: []string{r.tag},
		Responses: map[string]*huma.Response{
			"4XX":     {Description: "A failure of the client", Content: a.content(problem{}, problemMedia)},
			"default": {Description: "A failure", Content: a.content(problem{}, problemMedia)},
		},
	}
	if r.open {
		op.Security = []map[string][]string{{}} // none is needed
	}
	if r.full {
		op.Description = "Needs a token of scope full."
	}
	for _, m := range pathParameter.FindAllStringSubmatch(r.path, -1) {
		schema := &huma.Schema{Type: huma.TypeString}
		if m[1] == "index" {
			schema.Type = huma.TypeInteger
		}
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Description: pathDocs[m[1]], Required: true, Schema: schema})
	}
	for _, p := range r.query {
		op.Parameters = append(op.Parameters, p.document())
	}
	if r.change {
		op.Parameters = append(op.Parameters, keyHeader())
	}
	if r.change || r.matches {
		op.Parameters = append(op.Parameters, matchHeader())
	}
	if r.body != nil {
		op.RequestBody = &huma.RequestBody{Required: a.schemas.requiresBody(r.body), Content: a.content(r.body, r.medias()...)}
	}
	if r.upload {
		op.RequestBody = &huma.RequestBody{Required: true, Content: a.content(imageBytes(nil), append(asset.MediaTypes(), anyMedia)...)}
		op.RequestBody.Content[formMedia] = &huma.MediaType{Schema: a.schemas.of(imageForm{})}
	}
	for _, s := range r.answers {
		op.Responses[strconv.Itoa(s.status)] = a.response(s)
	}
	return op
}

func (a *api) response(s answer) *huma.Response {
	out := &huma.Response{Description: "Done"}
	if s.body != nil {
		media := jsonMedia
		if s.media != "" {
			media, _, _ = strings.Cut(s.media, ";")
		}
		out.Content = a.content(s.body, media)
	}
	if s.media == streamMedia {
		out.Description = "Server-Sent Events. The data of an event without a name is an Event; heartbeat is a sign of life, and gone ends the stream."
	}
	if s.etag {
		out.Headers = map[string]*huma.Param{"ETag": {Description: cmp.Or(s.tagOf, "The newest checkpoint of the session."), Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	return out
}

func (a *api) content(v any, media ...string) map[string]*huma.MediaType {
	out := map[string]*huma.MediaType{}
	for _, m := range media {
		out[m] = &huma.MediaType{Schema: a.schemas.of(v)}
	}
	return out
}

func keyHeader() *huma.Param {
	one, most := 1, maxKey
	return &huma.Param{Name: "Idempotency-Key", In: "header", Description: "Makes a repeat answer what the first answered.",
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: &one, MaxLength: &most}}
}

func matchHeader() *huma.Param {
	return &huma.Param{Name: "If-Match", In: "header", Description: "The ETag that the session has to have, or *.", Schema: &huma.Schema{Type: huma.TypeString}}
}
