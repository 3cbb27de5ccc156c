package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/builtin"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// panel is a plugin with the elements and actions that a test gives it.
type panel struct {
	name, kind string
	elements   string // JSON list
	actions    []string
}

func (p panel) Name() string      { return p.name }
func (p panel) Kind() string      { return p.kind }
func (p panel) Actions() []string { return p.actions }

func (p panel) UIElements(context.Context, ui.Input) (out []loquat.Object, err error) {
	err = json.Unmarshal([]byte(p.elements), &out)
	return out, err
}

// Act answers with what it was given.
func (p panel) Act(_ context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	if call.ActionID == "silent" {
		return plugin.ActionResult{}, nil
	}
	return plugin.ActionResult{Result: loquat.Object{}.Set("r", map[string]any{"by": p.name, "params": call.Params})["r"]}, nil
}

// every has an element of each type, with all fields of the specification and an unknown one.
const every = `[
	{"key": "lang", "type": "text", "label": "Language", "description": "d", "default": "en", "required": true, "placeholder": "p", "config_path": "a.b", "condition": {"path": "model"}},
	{"ui_type": "config", "key": "on", "type": "checkbox"},
	{"key": "chip", "type": "select", "options": ["a", {"value": 1, "label": "one"}]},
	{"key": "menu", "type": "dropdown", "options": ["a"]},
	{"key": "area", "type": "multiline"},
	{"key": "count", "type": "number"},
	{"ui_type": "message_footer", "data": "metadata.usage", "template": "{{data}} & <b>", "condition": {"not": {"path": "role", "eq": "user"}}},
	{"ui_type": "status_bar", "data": "metadata.model"},
	{"ui_type": "session_action", "id": "sa", "label": "L", "icon": "i", "order": 2, "action_id": "do", "fixed_params": {"f": 1}, "param_map": {"s": "$session.session_id", "d": "$dialog.d"},
		"dialog": {"kind": "form", "title": "t", "message": "m", "inputs": [{"name": "d", "type": "text", "label": "D", "required": true, "placeholder": "p"}]}},
	{"ui_type": "message_action", "id": "ma", "action_id": "do", "param_map": {"i": "$message.index"}},
	{"ui_type": "session_list_field", "key": "f", "label": "F", "data": "title", "template": "{{data}}", "order": 1},
	{"ui_type": "composer_attachment", "key": "c", "attachment_type": "image", "supports_url": true, "supported_file_types": ["image/png"], "label": "Image"},
	{"ui_type": "model_picker", "key": "model", "label": "Model", "order": 0},
	{"ui_type": "hologram", "anything": {"goes": [1, null]}}
]`

// elementsOf returns the elements of an answer by their types and keys or ids.
func elementsOf(t *testing.T, got reply) map[string]loquat.Object {
	t.Helper()
	var schema struct {
		SchemaVersion int             `json:"schema_version"`
		Elements      []loquat.Object `json:"elements"`
	}
	if err := json.Unmarshal(got.want(t, http.StatusOK).body, &schema); err != nil || schema.SchemaVersion != 1 || schema.Elements == nil {
		t.Fatalf("no schema: %v: %s", err, got.body)
	}
	out := map[string]loquat.Object{}
	for _, e := range schema.Elements {
		out[strings.TrimSpace(e.String("ui_type")+" "+e.String("key")+e.String("id"))] = e
	}
	return out
}

// Every type of element reaches a client as its plugin gave it, with the plugin's name,
// its type, and the owner of its actions.
func TestElementsReachClients(t *testing.T) {
	r := newRig(t, panel{name: "feature", kind: plugin.KindFeature, elements: every}, panel{name: "app", kind: plugin.KindApplication, elements: every})
	id := r.do("POST", "/sessions", `{}`).field(t, "session_id")
	for path, c := range map[string]struct{ plugin, owner string }{
		"/sessions/" + id + "/ui-schema":                        {"feature", "feature"},
		"/sessions/" + id + "/application/ui-schema":            {"app", ""},
		"/sessions/" + id + "/application/ui-schema?plugin=app": {"app", ""},
		"/application/ui-schema":                                {"app", ""},
	} {
		got := elementsOf(t, r.do("GET", path, ""))
		var given []loquat.Object
		if err := json.Unmarshal([]byte(every), &given); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(given) {
			t.Errorf("%s has %d elements of %d", path, len(got), len(given))
		}
		for _, want := range given {
			want.Set("plugin", c.plugin)
			if want.String("ui_type") == "" {
				want.Set("ui_type", "config")
			}
			if c.owner != "" && strings.HasSuffix(want.String("ui_type"), "_action") {
				want.Set("action_owner", c.owner)
			}
			name := strings.TrimSpace(want.String("ui_type") + " " + want.String("key") + want.String("id"))
			a, b := plain(t, got[name]), plain(t, want)
			if a != b {
				t.Errorf("%s: %s is\n%s, want\n%s", path, name, a, b)
			}
		}
	}
	if got := elementsOf(t, r.do("GET", "/application/ui-schema?plugin=nobody", "")); len(got) != 0 {
		t.Errorf("elements of an unknown plugin: %v", got)
	}
	r.do("GET", "/sessions/nobody/ui-schema", "").wantProblem(t, http.StatusNotFound, loquat.CodeNotFound)
	r.do("GET", "/application/ui-schema?plugin=", "").wantProblem(t, http.StatusBadRequest, loquat.CodeInvalid)
}

// plain writes a value with its names in order and without spaces.
func plain(t *testing.T, o loquat.Object) string {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A schema that a client has is not sent again.
func TestSchemaOnlyOnce(t *testing.T) {
	r := newRig(t, panel{name: "feature", kind: plugin.KindFeature, elements: every})
	id := r.do("POST", "/sessions", `{}`).field(t, "session_id")
	path := "/sessions/" + id + "/ui-schema"
	tag := r.do("GET", path, "").want(t, http.StatusOK).Header.Get("ETag")
	if again := r.do("GET", path, "").Header.Get("ETag"); tag == "" || again != tag {
		t.Errorf("tags %q and %q of the same schema", tag, again)
	}
	for header, status := range map[string]int{
		tag: http.StatusNotModified, "W/" + tag: http.StatusNotModified, `"x", ` + tag: http.StatusNotModified, "*": http.StatusNotModified,
		`"x"`: http.StatusOK, strings.Trim(tag, `"`): http.StatusOK,
	} {
		got := r.do("GET", path, "", "If-None-Match: "+header).want(t, status)
		if got.Header.Get("ETag") != tag || (len(got.body) > 0) != (status == http.StatusOK) {
			t.Errorf("If-None-Match %s: ETag %s, %d bytes", header, got.Header.Get("ETag"), len(got.body))
		}
	}
	if other := r.do("GET", "/application/ui-schema", "").Header.Get("ETag"); other == tag {
		t.Error("different schemas have one tag")
	}
}

func TestConfigValuesOverHTTP(t *testing.T) {
	r := newRig(t, builtin.RequestOptions{}, panel{name: "feature", kind: plugin.KindFeature, elements: every})
	id := r.do("POST", "/sessions", `{"metadata": {"overrides": {"count": 3, "request_options": {"n": 1}}}}`).field(t, "session_id")
	got := r.do("GET", "/sessions/"+id+"/config", "").want(t, http.StatusOK)
	for _, want := range []string{
		`"count":{"value":3,"source":"override"}`, `"request_options":{"value":{"n":1},"source":"override"}`,
		`"lang":{"value":"en","source":"ui_default"}`, `"on":{"value":null,"source":"none"}`,
	} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
	p := r.do("PATCH", "/sessions/"+id, `{"metadata": {"overrides": {"chip": "b", "on": 1, "sky": "blue"}}}`).wantProblem(t, http.StatusUnprocessableEntity, loquat.CodeInvalid)
	if len(p.Errors) != 3 {
		t.Errorf("faults: %+v", p.Errors)
	}
	r.do("GET", "/sessions/nobody/config", "").wantProblem(t, http.StatusNotFound, loquat.CodeNotFound)
}

func TestActionsOverHTTP(t *testing.T) {
	r := newRig(t, panel{name: "feature", kind: plugin.KindFeature, elements: every, actions: []string{"do", "silent"}},
		panel{name: "app", kind: plugin.KindApplication, elements: every, actions: []string{"do"}}, builtin.CompactRange{})
	id := r.do("POST", "/sessions", `{"messages": [{"role": "user", "content": "hi"}]}`).field(t, "session_id")
	session := "/sessions/" + id + "/actions/"
	for _, c := range []struct{ path, body, want string }{
		{session + "do", `{"action_owner": "feature", "params": {"a": 1}}`, `{"result":{"by":"feature","params":{"a":1}}}`},
		{session + "do", `{"plugin": "app"}`, `{"result":{"by":"app","params":{}}}`},
		{session + "do", `{"action_owner": "feature", "element_id": "sa", "params": {"d": "x", "f": 2}}`, `{"result":{"by":"feature","params":{"d":"x","f":1}}}`},
		{session + "do", `{"action_owner": "application", "element_id": "ma", "params": {"i": 3}}`, `{"result":{"by":"app","params":{"i":3}}}`},
		{"/actions/do", `{"plugin": "app", "element_id": "sa", "params": {"d": "x"}}`, `{"result":{"by":"app","params":{"d":"x","f":1}}}`},
		{"/actions/silent", ``, `{"result":null}`},
	} {
		got := r.do("POST", c.path, c.body).want(t, http.StatusOK)
		if strings.TrimSpace(string(got.body)) != c.want {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, got.body, c.want)
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		code       loquat.Code
		place      string
	}{
		{session + "do", `{}`, http.StatusConflict, loquat.CodeConflict, ""},
		{session + "sing", `{}`, http.StatusNotFound, loquat.CodeNotFound, ""},
		{"/sessions/nobody/actions/do", `{"plugin": "app"}`, http.StatusNotFound, loquat.CodeNotFound, ""},
		{session + "do", `{"action_owner": "me"}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.action_owner"},
		{session + "do", `{"plugin": "app", "params": 1}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.params"},
		{session + "do", `{"plugin": "app", "param": {}}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.param"},
		{session + "do", `{`, http.StatusBadRequest, loquat.CodeInvalid, "body"},
		{session + "do", `{"plugin": "app", "element_id": "gone"}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.element_id"},
		{session + "do", `{"plugin": "app", "element_id": "sa"}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.params.d"},
		{session + "compact_range", `{"params": {"start": 0, "end": 1}}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.params.end"},
		{session + "compact_range", `{"element_id": "compact_range", "params": {"start": "0", "end": 0}}`, http.StatusUnprocessableEntity, loquat.CodeInvalid, "body.params.start"},
	} {
		p := r.do("POST", c.path, c.body).wantProblem(t, c.status, c.code)
		if c.place != "" && (len(p.Errors) == 0 || p.Errors[0].Location != c.place) {
			t.Errorf("%s %s: faults %+v, want one at %s", c.path, c.body, p.Errors, c.place)
		}
	}
	tag := r.do("GET", "/sessions/"+id, "").Header.Get("ETag")
	r.do("POST", session+"do", `{"plugin": "app"}`, "If-Match: "+tag).want(t, http.StatusOK)
	r.do("POST", session+"do", `{"plugin": "app"}`, `If-Match: "0000000000000000"`).wantProblem(t, http.StatusPreconditionFailed, loquat.CodePreconditionFailed)
}

func TestPluginsOverHTTP(t *testing.T) {
	r := newRig(t, panel{name: "feature", kind: plugin.KindFeature, elements: `[{"key": "a"}, {"key": "b", "condition": {"near": 1}}]`, actions: []string{"do"}},
		panel{name: "broken", kind: plugin.KindTool, elements: `{}`})
	id := r.do("POST", "/sessions", `{}`).field(t, "session_id")
	r.do("GET", "/sessions/"+id+"/ui-schema", "").want(t, http.StatusOK)
	got := r.do("GET", "/plugins", "").want(t, http.StatusOK)
	for _, want := range []string{
		`{"plugins":[{"name":"test.parrot","kind":"provider","state":"running","tools":[],"actions":[]}`,
		`{"name":"feature","kind":"feature","state":"running","problems":["element b is left out: condition`,
		`"actions":["do"]`, `{"name":"broken","kind":"tool","state":"running","problems":["its elements are left out: `,
	} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
}
