package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// panel is a plugin that shows the elements of a test and records its inputs.
type panel struct {
	name, kind string
	elements   []string
	schema     config.Schema
	hide       func(ui.Input) bool

	mu    sync.Mutex
	given []ui.Input
	away  error // instead of elements

	actions []string
	act     func(context.Context, plugin.ActionCall) (plugin.ActionResult, error)
}

func (p *panel) Name() string                { return p.name }
func (p *panel) Kind() string                { return p.kind }
func (p *panel) ConfigSchema() config.Schema { return p.schema }
func (p *panel) Actions() []string           { return p.actions }

func (p *panel) Act(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	return p.act(ctx, call)
}

func (p *panel) UIElements(_ context.Context, in ui.Input) ([]loquat.Object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = append(p.given, in)
	if p.away != nil {
		return nil, p.away
	}
	if p.hide != nil && p.hide(in) {
		return nil, nil
	}
	var out []loquat.Object
	for _, text := range p.elements {
		var e loquat.Object
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// newestInput returns the newest input.
func (p *panel) newestInput() ui.Input {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given[len(p.given)-1]
}

func (r *rig) value(session, key string) string {
	r.t.Helper()
	values, err := r.Catalog.ConfigValues(r.t.Context(), session)
	if err != nil {
		r.t.Fatal(err)
	}
	v, ok := values[key]
	if !ok {
		return "not there"
	}
	return string(v.Value) + " " + v.Source
}

func names(elements []loquat.Object) string {
	var out []string
	for _, e := range elements {
		name := e.String("key") + e.String("id")
		if owner := e.String("action_owner"); owner != "" {
			name += "(" + owner + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

const valuesConfig = `{
	"providers": {"main": {"provider": "fake", "model": "m1", "api_key": "hunter2", "pin": "hunter3", "deep": {"er": 7, "token": "hunter4"}, "level": 3, "proxy": "http://me:hunter5@proxy/", "note": "${file:%s}"}},
	"agents": {"default": {"provider": "main"}, "quiet": {"provider": "main", "level": 1}}
}`

func valuesConfigAt(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "note")
	if err := os.WriteFile(file, []byte("hunter6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(valuesConfig, "%s", file)
}

// The value of a setting and where it comes from; nothing that is secret is in it.
func TestConfigValues(t *testing.T) {
	r := newRig(t)
	p := &panel{name: "p", kind: plugin.KindFeature,
		schema: config.Schema{{Key: "speed", Kind: config.Integer, Default: 9}, {Key: "volume", Kind: config.Integer, Default: 11}},
		elements: []string{
			`{"key": "level", "type": "number", "default": 5}`, `{"key": "speed", "type": "number"}`, `{"key": "volume", "type": "number", "default": 1}`,
			`{"key": "deeper", "type": "number", "config_path": "deep.er"}`, `{"key": "nothing"}`,
			`{"key": "pin", "type": "text", "secret": true}`, `{"key": "lost", "secret": true}`, `{"key": "api_key"}`, `{"key": "hidden", "config_path": "deep.token"}`,
			`{"key": "all_of_it", "config_path": "deep"}`, `{"key": "proxy"}`, `{"key": "note"}`,
		}}
	r.load(valuesConfigAt(t), p)
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"level": 4, "deeper": null, "model": "m1"}}`)})
	quiet := r.create(loquat.NewSession{AgentID: "quiet"})
	for _, c := range []struct{ session, key, want string }{
		{s.SessionID, "level", `4 override`},
		{quiet.SessionID, "level", `1 config`},
		{s.SessionID, "deeper", `7 config`},
		{s.SessionID, "speed", `9 schema_default`},
		{s.SessionID, "volume", `1 ui_default`},
		{s.SessionID, "nothing", `null none`},
		{s.SessionID, "model", `"m1" override`},
		{s.SessionID, "request_options", `null none`},
		{s.SessionID, "pin", `{"set":true} config`},
		{s.SessionID, "lost", `{"set":false} none`},
		{s.SessionID, "api_key", `{"set":true} config`},
		{s.SessionID, "hidden", `{"set":true} config`},
		{s.SessionID, "all_of_it", `{"er":7,"token":{"set":true}} config`},
		{s.SessionID, "proxy", `"http://***@proxy/" config`},
		{s.SessionID, "note", `{"set":true} config`},
		{s.SessionID, "sky", `not there`},
	} {
		if got := r.value(c.session, c.key); got != c.want {
			t.Errorf("%s: %s, want %s", c.key, got, c.want)
		}
	}
	told, err := json.Marshal(p.newestInput().Config)
	if err != nil || strings.Contains(string(told), "hunter") || !strings.Contains(string(told), `"er":7`) {
		t.Errorf("the plugin was told %s, %v", told, err)
	}
	if _, err := r.Catalog.ConfigValues(t.Context(), "nobody"); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("values of no session: %v", err)
	}
}

// A setting that only its element calls secret is redacted from the start: for other
// plugins, tools and actions, and in texts of a backend.
func TestSecretsOfElementsFromTheStart(t *testing.T) {
	var mu sync.Mutex
	var told []string
	tell := func(where string, config loquat.Object) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, where+" "+string(config["pin"])+string(config["deep"])+string(config["level"]))
	}
	for _, kind := range []string{plugin.KindFeature, plugin.KindApplication} {
		for first, use := range map[string]func(*rig, string){
			"the schema":             func(r *rig, s string) { _, _ = r.Catalog.UISchema(t.Context(), s) },
			"the application schema": func(r *rig, s string) { _, _ = r.Catalog.ApplicationUISchema(t.Context(), s, "") },
			"the values":             func(r *rig, s string) { _, _ = r.Catalog.ConfigValues(t.Context(), s) },
			"an override": func(r *rig, s string) {
				_, _ = r.UpdateSession(t.Context(), chat.Call{}, s, loquat.SessionPatch{Metadata: object(t, `{"overrides": {"lamp": "on"}}`)})
			},
			"an action": func(r *rig, s string) { _, _ = r.act(chat.Action{ActionID: "nose", SessionID: s}) },
			"a request": func(r *rig, s string) {
				r.provider.then(phase{err: loquat.Errorf(loquat.CodeBackendError, "I know hunter3 and hunter7")})
				q := r.ended(r.send(s, loquat.Send{Content: text("hi")}).RequestID)
				if q.Error != "I know *** and ***" {
					t.Errorf("the request failed with %v", q.Error)
				}
			},
		} {
			r := newRig(t)
			nosy := func(kind string, actions ...string) *panel {
				return &panel{name: "nosy " + kind, kind: kind, actions: actions, elements: []string{`{"key": "lamp", "type": "text"}`},
					hide: func(in ui.Input) bool { tell(kind, in.Config); return false },
					act: func(_ context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
						tell("an action", call.Config)
						return plugin.ActionResult{}, nil
					}}
			}
			r.load(strings.Replace(valuesConfigAt(t), `"er": 7`, `"er": 7, "pin": "hunter7"`, 1), nosy(plugin.KindFeature, "nose"), nosy(plugin.KindApplication), &panel{name: "keeper", kind: kind, elements: []string{
				`{"key": "pin", "secret": true}`, `{"key": "deep_pin", "config_path": "deep.pin", "secret": true, "condition": {"odd": 1}}`}})
			use(r, r.create(loquat.NewSession{}).SessionID)
			mu.Lock()
			if all := strings.Join(told, "\n"); strings.Contains(all, "hunter") || len(told) < 2 || !strings.Contains(all, `"er":7`) || !strings.Contains(all, "3") {
				t.Errorf("%s of kind %s: told were\n%s", first, kind, all)
			}
			told = nil
			mu.Unlock()
		}
	}
}

// Overrides are taken for what the elements offer, and as the elements and the rules of
// the places allow where they count.
func TestOverridesFollowTheElements(t *testing.T) {
	const offered = `{
		"providers": {"main": {"provider": "fake", "model": "m1", "api_key": "k", "base_url": "http://a/v1", "endpoint_options": {"b": "http://b/v1"}}}}`
	r := newRig(t)
	app := &panel{name: "app", kind: plugin.KindApplication, elements: []string{`{"key": "theme", "type": "dropdown", "options": ["dark"]}`, `{"key": "colour", "type": "text"}`}}
	r.load(offered, app, &panel{name: "p", kind: plugin.KindFeature, schema: config.Schema{{Key: "deep.er", Kind: config.Integer}, {Key: "unseen", Kind: config.Integer}},
		hide: func(in ui.Input) bool { return in.Config.String("model") == "plain" },
		elements: []string{
			`{"key": "colour", "type": "select", "options": ["red", {"value": 2, "label": "two"}]}`, `{"key": "deeper", "type": "number", "config_path": "deep.er"}`,
			`{"key": "name", "type": "text", "required": true}`, `{"key": "pin", "type": "text", "secret": true}`,
			`{"key": "sly", "type": "text", "config_path": "$config.api_key"}`, `{"key": "way", "type": "text", "config_path": "base_url"}`,
			`{"key": "heat", "type": "number", "config_path": "request_options.temperature"}`, `{"key": "mute", "type": "checkbox", "config_path": "request_options.stream"}`,
		}})
	before := r.create(loquat.NewSession{})
	for _, c := range []struct{ overrides, place string }{
		{`{"colour": "red", "deeper": 1, "name": "x", "way": "http://b/v1", "base_url": "http://a/v1", "heat": 0.5, "theme": "dark", "request_options": {"n": 1}}`, ""},
		{`{"colour": 2, "model": "any"}`, ""},
		{`{"colour": null, "sky": null}`, ""},
		{`{"colour": "blue"}`, "colour"},
		{`{"theme": "light"}`, "theme"},
		{`{"deeper": 1.5}`, "deeper"},
		{`{"deeper": "1"}`, "deeper"},
		{`{"name": ""}`, "name"},
		{`{"pin": "1234"}`, "pin"},
		{`{"sly": "mine"}`, "sly"},
		{`{"way": "http://evil/v1"}`, "way"},
		{`{"base_url": "http://evil/v1"}`, "base_url"},
		{`{"mute": true}`, "mute.stream"},
		{`{"unseen": 1}`, "unseen"},
		{`{"sky": 1}`, "sky"},
		{`{"model": "plain", "name": "x"}`, "name"},
	} {
		metadata := object(t, `{"overrides": `+c.overrides+`}`)
		_, created := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: metadata})
		_, patched := r.UpdateSession(t.Context(), chat.Call{}, before.SessionID, loquat.SessionPatch{Metadata: metadata})
		_, forked := r.ForkSession(t.Context(), chat.Call{}, before.SessionID, loquat.Fork{Metadata: metadata})
		for way, err := range map[string]error{"create": created, "patch": patched, "fork": forked} {
			e, _ := errors.AsType[*loquat.Error](err)
			switch {
			case c.place == "" && err == nil:
			case c.place != "" && e != nil && e.Code == loquat.CodeInvalid && len(e.Fields) > 0 && e.Fields[0].Location == "body.metadata.overrides."+c.place:
			default:
				t.Errorf("%s with %s: %v, want a fault at %q", way, c.overrides, err, c.place)
			}
		}
		if patched == nil { // what is not given stays, and would go with the next
			if _, err := r.UpdateSession(t.Context(), chat.Call{}, before.SessionID, loquat.SessionPatch{Metadata: object(t, `{"overrides": null}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.value(before.SessionID, "sly"); got != `{"set":true} config` {
		t.Errorf("the key shows as %s", got)
	}
}

// Of two plugins with one setting the later in the order counts, whatever their kinds.
func TestTheLaterSettingCounts(t *testing.T) {
	for _, kinds := range [][2]string{
		{plugin.KindFeature, plugin.KindTool}, {plugin.KindFeature, plugin.KindApplication},
		{plugin.KindApplication, plugin.KindFeature}, {plugin.KindApplication, plugin.KindApplication},
	} {
		r := newRig(t)
		r.load(valuesConfigAt(t),
			&panel{name: "first", kind: kinds[0], elements: []string{`{"key": "shared", "type": "text", "default": "of the first"}`}},
			&panel{name: "last", kind: kinds[1], elements: []string{`{"key": "own", "type": "text"}`, `{"key": "shared", "type": "number", "default": 2}`}})
		s := r.create(loquat.NewSession{})
		if got := r.value(s.SessionID, "shared"); got != "2 ui_default" {
			t.Errorf("%v: the value is %s", kinds, got)
		}
		for overrides, fits := range map[string]bool{`{"shared": "text"}`: false, `{"shared": 7}`: true} {
			_, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{Metadata: object(t, `{"overrides": `+overrides+`}`)})
			if (err == nil) != fits {
				t.Errorf("%v: %s: %v", kinds, overrides, err)
			}
		}
		if kinds == [2]string{plugin.KindFeature, plugin.KindTool} {
			elements, err := r.Catalog.UISchema(t.Context(), s.SessionID)
			n := len(elements)
			if err != nil || !strings.HasSuffix(names(elements), " shared own") || elements[n-2].String("plugin") != "last" {
				t.Errorf("the schema shows %s (%v)", names(elements), err)
			}
		}
	}
}

// An override is refused with the reason when its plugin does not give its settings.
func TestOverrideOfASilentPlugin(t *testing.T) {
	r := newRig(t)
	r.load(valuesConfigAt(t), &panel{name: "broken", kind: plugin.KindFeature, elements: []string{`{`}}, &panel{name: "good", kind: plugin.KindFeature, elements: []string{`{"key": "size"}`}})
	_, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: object(t, `{"overrides": {"siz": 1}}`)})
	want := "is not among the settings of this agent that are known at the moment; plugin broken does not give its settings at the moment: "
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("error %v", err)
	}
}

// A model is refused that is not among those that the backend lists, when the element
// is a choice among them.
func TestModelAmongOptions(t *testing.T) {
	r := newRig(t)
	r.provider.elements = func(_ context.Context, in ui.Input) ([]loquat.Object, error) {
		var ids []string
		for _, m := range in.Models {
			ids = append(ids, m.ID)
		}
		return []loquat.Object{loquat.Object{}.Set("key", "model").Set("type", "select").Set("options", ids)}, nil
	}
	for model, ok := range map[string]bool{"m1": true, "m9": false} {
		_, err := r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", map[string]string{"model": model})})
		if (err == nil) != ok {
			t.Errorf("model %s: %v", model, err)
		}
	}
}

// A request runs with the values that the settings show, at their config_path, and
// without those that nobody offers any more.
func TestRequestRunsWithWhatIsShown(t *testing.T) {
	const layers = `{"providers": {"main": {"provider": "fake", "model": "m1", "pace": "slow", "deep": {"er": 1, "kept": true}}},
		"agents": {"default": {"provider": "main"}, "quiet": {"provider": "main", "model": "m2"}}}`
	r := newRig(t)
	r.load(layers, &panel{name: "p", kind: plugin.KindFeature, hide: func(in ui.Input) bool { return in.Config.String("model") == "m2" }, elements: []string{
		`{"key": "deeper", "type": "number", "config_path": "deep.er", "default": 3}`, `{"key": "pace", "type": "text", "config_path": "deep.pace"}`,
		`{"key": "mood", "type": "text", "config_path": "mood.now", "default": "glad"}`}})
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"deeper": 2}}`)})
	run := func() string {
		r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
		seen := r.provider.seen()
		cfg := seen[len(seen)-1].Config
		return string(cfg["deep"]) + string(cfg["mood"])
	}
	if got := run(); got != `{"er":2,"kept":true,"pace":"slow"}` {
		t.Errorf("the request ran with %s", got)
	}
	agent := "quiet"
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s.SessionID, loquat.SessionPatch{AgentID: &agent}); err != nil {
		t.Fatal(err)
	}
	if got := run(); got != `{"er":1,"kept":true}` {
		t.Errorf("with an agent that offers nothing it ran with %s", got)
	}
}

// The usage of a request is that of the model with which it ran, also if a plugin's setting chose it.
func TestUsageOfModelChosenByPlugin(t *testing.T) {
	r := newRig(t)
	r.load(`{"providers": {"main": {"provider": "fake", "model": "m1"}}, "agents": {"default": {"provider": "main"}},
		"prices": {"main/m2": {"input": 1, "output": 2}}}`, &panel{name: "p", kind: plugin.KindFeature, elements: []string{`{"key": "engine", "type": "text", "config_path": "model"}`}})
	s := r.create(loquat.NewSession{Metadata: object(t, `{"overrides": {"engine": "m2"}}`)})
	q := r.ended(r.send(s.SessionID, loquat.Send{Content: text("hi")}).RequestID)
	if q.Usage == nil || q.Usage.Cost == nil {
		t.Errorf("the usage %+v has no cost", q.Usage)
	}
	list, err := r.Usage(t.Context(), loquat.UsageQuery{GroupBy: []string{"model"}})
	if err != nil || len(list.Usage) != 1 || list.Usage[0].Model != "m2" {
		t.Errorf("the usage is that of %+v, %v", list.Usage, err)
	}
}

// Core plugins show in one schema, application plugins in the other, and each gets only its
// own input.
func TestSchemas(t *testing.T) {
	r := newRig(t)
	action := func(id string) string { return `{"ui_type": "session_action", "id": "` + id + `", "action_id": "x"}` }
	feature := &panel{name: "feature", kind: plugin.KindFeature, elements: []string{action("f")}}
	one := &panel{name: "one", kind: plugin.KindApplication, elements: []string{action("a1"), `{"key": "k"}`}}
	two := &panel{name: "two", kind: plugin.KindApplication, elements: []string{action("a2"), `{"key": "k", "label": "again"}`}}
	r.provider.elements = func(context.Context, ui.Input) ([]loquat.Object, error) {
		return []loquat.Object{object(t, `{"key": "model"}`), object(t, `{"ui_type": "status_bar", "data": "metadata.model"}`)}, nil
	}
	r.load("", one, feature, two, &panel{name: "ext", kind: plugin.KindExtension, elements: []string{action("e")}})
	s := r.create(loquat.NewSession{})
	list := func(elements []loquat.Object, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return names(elements)
	}
	if got := list(r.Catalog.UISchema(t.Context(), s.SessionID)); got != " f(feature) e(provider_extension) model request_options" {
		t.Errorf("core: %q", got)
	}
	if got := list(r.Catalog.ApplicationUISchema(t.Context(), s.SessionID, "")); got != "a1 a2 k" || one.newestInput().Config == nil {
		t.Errorf("application: %q", got)
	}
	if got := list(r.Catalog.ApplicationUISchema(t.Context(), s.SessionID, "two")); got != "a2 k" {
		t.Errorf("of one plugin: %q", got)
	}
	if got := list(r.Catalog.ApplicationUISchema(t.Context(), "", "")); got != "a1 a2 k" || one.newestInput().Config != nil {
		t.Errorf("whatever the session: %q, config %v", got, one.newestInput().Config)
	}
	if got := list(r.Catalog.ApplicationUISchema(t.Context(), s.SessionID, "feature")); got != "" {
		t.Errorf("of a plugin that is not an application: %q", got)
	}
	_, core := r.Catalog.UISchema(t.Context(), "nobody")
	_, application := r.Catalog.ApplicationUISchema(t.Context(), "nobody", "")
	if loquat.CodeOf(core) != loquat.CodeNotFound || loquat.CodeOf(application) != loquat.CodeNotFound {
		t.Errorf("schemas of no session: %v, %v", core, application)
	}
}
