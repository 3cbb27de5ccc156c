package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/ui"
)

// schemaVersion is that of the UI schema. Within it there are only additions.
const schemaVersion = 1

func (a *api) uiRoutes() []route {
	schema := []answer{
		{status: http.StatusOK, body: uiSchema{}, etag: true, tagOf: "The content."},
		{status: http.StatusNotModified, etag: true, tagOf: "The content."},
	}
	one := []param{{name: "plugin", doc: "Only the elements of the application plugin of this name."}}
	return []route{
		{
			method: http.MethodGet, path: "/sessions/{session_id}/config", id: "getConfigValues", tag: "ui", summary: "See the effective value of every setting of a session",
			serve: getConfigValues, answers: []answer{{status: http.StatusOK, body: configValues{}}},
		},
		{
			method: http.MethodPut, path: "/sessions/{session_id}/config/{key}", id: "setOverride", tag: "ui", summary: "Set or take back the override of one setting",
			serve: setOverride, change: true, body: loquat.Override{}, answers: []answer{{status: http.StatusOK, body: loquat.Snapshot{}, etag: true}},
		},
		{
			method: http.MethodGet, path: "/sessions/{session_id}/ui-schema", id: "getUISchema", tag: "ui", summary: "List the UI elements of the core plugins",
			serve: getUISchema, answers: schema,
		},
		{
			method: http.MethodGet, path: "/sessions/{session_id}/application/ui-schema", id: "getApplicationUISchema", tag: "ui",
			summary: "List the UI elements of the application plugins", serve: getApplicationUISchema, query: one, answers: schema,
		},
		{
			method: http.MethodGet, path: "/application/ui-schema", id: "getGlobalUISchema", tag: "ui",
			summary: "List all UI elements of the application plugins, whatever the session", serve: getApplicationUISchema, query: one, answers: schema,
		},
	}
}

// uiSchema is a list of elements. What is in an element is its plugin's business.
type uiSchema struct {
	SchemaVersion int             `json:"schema_version"`
	Elements      []loquat.Object `json:"elements"`
}

func setOverride(x *exchange) error {
	in, err := decodeBody[loquat.Override](x)
	if err != nil {
		return err
	}
	s, err := x.api.chat.SetOverride(x.r.Context(), x.call, x.sessionID(), x.r.PathValue("key"), in.Value)
	if err != nil {
		return err
	}
	return x.replySession(http.StatusOK, s)
}

func getUISchema(x *exchange) error {
	elements, err := x.api.chat.UISchema(x.r.Context(), x.sessionID())
	return x.replyElements(elements, err)
}

func getApplicationUISchema(x *exchange) error {
	elements, err := x.api.chat.ApplicationUISchema(x.r.Context(), x.sessionID(), x.query.text("plugin"))
	return x.replyElements(elements, err)
}

// replyElements answers with a UI schema, or with 304 when the client has it already.
func (x *exchange) replyElements(elements []loquat.Object, err error) error {
	if err != nil {
		return err
	}
	if elements == nil {
		elements = []loquat.Object{}
	}
	schema := uiSchema{SchemaVersion: schemaVersion, Elements: elements}
	body, err := json.Marshal(schema)
	if err != nil {
		return fmt.Errorf("encode a UI schema: %w", err)
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	x.w.Header().Set("ETag", tag)
	x.w.Header().Set("Cache-Control", "private, no-cache") // may be kept, and has to be asked for again
	if matchesTag(x.r.Header.Values("If-None-Match"), tag) {
		x.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return x.reply(http.StatusOK, schema)
}

// matchesTag compares weakly, as it is right for what a client has kept.
func matchesTag(values []string, tag string) bool {
	for given := range strings.SplitSeq(strings.Join(values, ","), ",") {
		given = strings.TrimPrefix(strings.TrimSpace(given), "W/")
		if given == tag || given == "*" {
			return true
		}
	}
	return false
}

// configValues is the answer of GET /sessions/{session_id}/config.
type configValues struct {
	Values map[string]configValue `json:"values" doc:"By key of the config element."`
}

// configValue is a ui.Value as the document describes it.
type configValue struct {
	Value  json.RawMessage `json:"value" doc:"Any JSON; of a secret {\"set\": true} or {\"set\": false}."`
	Source string          `json:"source" enum:"override,config,ui_default,schema_default,none"`
}

func getConfigValues(x *exchange) error {
	values, err := x.api.chat.ConfigValues(x.r.Context(), x.sessionID())
	if err != nil {
		return err
	}
	return x.reply(http.StatusOK, struct {
		Values map[string]ui.Value `json:"values"`
	}{values})
}
