package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) uiRoutes() []route.Route {
	schema := []route.Response{
		{Status: http.StatusOK, Body: loquat.UISchema{}, ETag: true, ETagDoc: "The content."},
		{Status: http.StatusNotModified, ETag: true, ETagDoc: "The content."},
	}
	one := []route.Param{{Name: "plugin", Doc: "Only the elements of the application plugin of this name."}}
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/sessions/{session_id}/config", ID: "getConfigValues", Tag: "ui", Summary: "List the effective value of every setting of a session",
			Serve: a.getConfigValues, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.ConfigValues{}}},
		},
		{
			Method: http.MethodPut, Path: "/sessions/{session_id}/config/{key}", ID: "setOverride", Tag: "ui", Summary: "Set or remove the override of one setting",
			Serve: a.setOverride, Change: true, Body: loquat.Override{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Snapshot{}, ETag: true}},
		},
		{
			Method: http.MethodGet, Path: "/sessions/{session_id}/ui-schema", ID: "getUISchema", Tag: "ui", Summary: "List the UI elements of the core plugins",
			Serve: a.getUISchema, Responses: schema,
		},
		{
			Method: http.MethodGet, Path: "/sessions/{session_id}/application/ui-schema", ID: "getApplicationUISchema", Tag: "ui",
			Summary: "List the UI elements of the application plugins", Serve: a.getApplicationUISchema, Query: one, Responses: schema,
		},
		{
			Method: http.MethodGet, Path: "/application/ui-schema", ID: "getGlobalUISchema", Tag: "ui",
			Summary: "List all UI elements of the application plugins, without a session", Serve: a.getApplicationUISchema, Query: one, Responses: schema,
		},
	}
}

func (a *api) setOverride(x *route.Exchange) error {
	in, err := route.Decode[loquat.Override](x)
	if err != nil {
		return err
	}
	s, err := a.chat.SetOverride(x.R.Context(), x.Call, x.Path("session_id"), x.Path("key"), in.Value)
	if err != nil {
		return err
	}
	return replySession(x, http.StatusOK, s)
}

func (a *api) getUISchema(x *route.Exchange) error {
	elements, err := a.chat.Catalog.UISchema(x.R.Context(), x.Path("session_id"))
	return replyElements(x, a.chat.Catalog.Shown(x.Call.By, elements), err)
}

func (a *api) getApplicationUISchema(x *route.Exchange) error {
	elements, err := a.chat.Catalog.ApplicationUISchema(x.R.Context(), x.Path("session_id"), x.Query.Text("plugin"))
	return replyElements(x, a.chat.Catalog.Shown(x.Call.By, elements), err)
}

// replyElements answers with a UI schema, or with 304 when the client has it already.
func replyElements(x *route.Exchange, elements []loquat.Object, err error) error {
	if err != nil {
		return err
	}
	if elements == nil {
		elements = []loquat.Object{}
	}
	schema := loquat.UISchema{SchemaVersion: loquat.UISchemaVersion, Elements: elements}
	body, err := json.Marshal(schema)
	if err != nil {
		return fmt.Errorf("encode a UI schema: %w", err)
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	x.W.Header().Set("ETag", tag)
	x.W.Header().Set("Cache-Control", "private, no-cache") // clients may store it, but must revalidate it
	if matchesTag(x.R.Header.Values("If-None-Match"), tag) {
		x.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	return x.Reply(http.StatusOK, schema)
}

// matchesTag reports whether a tag of If-None-Match matches. The comparison is weak.
func matchesTag(values []string, tag string) bool {
	for given := range strings.SplitSeq(strings.Join(values, ","), ",") {
		given = strings.TrimPrefix(strings.TrimSpace(given), "W/")
		if given == tag || given == "*" {
			return true
		}
	}
	return false
}

func (a *api) getConfigValues(x *route.Exchange) error {
	values, err := a.chat.Catalog.ConfigValues(x.R.Context(), x.Path("session_id"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, loquat.ConfigValues{Values: values})
}
