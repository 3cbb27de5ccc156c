package provider_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/provider"
	"loquat/internal/ui"
)

func elements(t *testing.T, in ui.Input) []loquat.Object {
	t.Helper()
	p := provider.New(provider.Options{})
	defer p.Close()
	given, err := p.UIElements(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	normal, faults := ui.Normalize([]ui.Contribution{{Plugin: p.Name(), Elements: given}})
	if len(faults) > 0 || len(normal) != len(given) {
		t.Fatalf("faults: %v", faults)
	}
	return normal
}

func find(all []loquat.Object, uiType, key string) loquat.Object {
	i := slices.IndexFunc(all, func(e loquat.Object) bool { return e.String("ui_type") == uiType && e.String("key") == key })
	if i < 0 {
		return nil
	}
	return all[i]
}

func parse(t *testing.T, text string) loquat.Object {
	t.Helper()
	var o loquat.Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Every key that a session may change has one setting, and the setting accepts the key's
// default. The other keys have none.
func TestSettingsCoverTheSchema(t *testing.T) {
	all := elements(t, ui.Input{Config: parse(t, `{"model": "m", "base_url": "http://a/v1", "endpoint_options": {"b": "http://b/v1"}}`), Tags: []string{"supports_tools", "supports_images", "supports_reasoning"}})
	places := map[string]loquat.Object{}
	for _, e := range all {
		if e.String("ui_type") != "config" {
			continue
		}
		place := e.String("key")
		if path := e.String("config_path"); path != "" {
			place = path
		}
		if places[place] != nil || e.String("label") == "" || e.String("description") == "" {
			t.Errorf("the setting at %s is there twice, or says nothing: %v", place, e)
		}
		places[place] = e
	}
	// Tools that no plugin runs cannot be called. A session must not change the other keys.
	without := []string{"provider", "api_key", "endpoint_options", "stream_recovery", "tools"}
	schema := provider.New(provider.Options{}).ConfigSchema()
	for _, f := range schema {
		e := places[f.Key]
		switch listed := slices.Contains(without, f.Key); {
		case e == nil && !listed:
			t.Errorf("%s has no Label, so sessions cannot set it: give it one in settings.go, or list it in `without` in this test", f.Key)
			continue
		case e != nil && listed:
			t.Errorf("%s has a Label, so sessions can set it: take the Label away in settings.go, or the key from `without` in this test", f.Key)
			continue
		}
		if e == nil || f.Default == nil || f.Key == "base_url" {
			continue
		}
		if err := ui.CheckValue(e, loquat.Object{}.Set("v", f.Default)["v"]); err != nil {
			t.Errorf("%s: its default %v %v", f.Key, f.Default, err)
		}
		delete(places, f.Key)
	}
	for place := range places {
		if !slices.ContainsFunc(schema, func(f config.Field) bool { return f.Key == place }) {
			t.Errorf("a setting counts at %s, which the schema does not know", place)
		}
	}
}

func TestModelSetting(t *testing.T) {
	for _, c := range []struct{ models, want string }{
		{`[]`, `{"type":"text"}`},
		{`[{"id": ""}, {"name": "no id"}, {"id": 7}]`, `{"type":"text"}`},
		{`[{"id": "a", "name": "Model A"}, {"id": ""}, {"id": "b"}]`, `{"options":[{"value":"a","label":"Model A"},{"value":"b","label":"b"}],"type":"select"}`},
	} {
		var models []loquat.Model
		if err := json.Unmarshal([]byte(c.models), &models); err != nil {
			t.Fatal(err)
		}
		e := find(elements(t, ui.Input{Config: loquat.Object{}, Models: models}), "config", "model")
		got, err := json.Marshal(map[string]json.RawMessage{"type": e["type"], "options": e["options"]})
		if want := strings.Replace(c.want, `{"type":"text"}`, `{"options":null,"type":"text"}`, 1); err != nil || string(got) != want {
			t.Errorf("with models %s: %s, want %s", c.models, got, want)
		}
	}
}

// The endpoint element exists only if endpoints are configured. Its options include the endpoint in use.
func TestEndpointSetting(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`{"base_url": "http://a/v1"}`, ``},
		{`{"base_url": "http://a/v1", "endpoint_options": {}}`, ``},
		{`{"endpoint_options": {"B": "http://b/v1", "A": "http://a/v1", "twin": "http://a/v1"}}`, `[{"value":"http://a/v1","label":"A"},{"value":"http://b/v1","label":"B"}]`},
		{`{"base_url": "HTTP://A:80/v1/", "endpoint_options": {"A": "http://a/v1"}}`, `[{"value":"HTTP://A:80/v1/","label":"A"}]`},
		{`{"base_url": "http://c/v1", "endpoint_options": {"A": "http://a/v1"}}`, `[{"value":"http://a/v1","label":"A"},{"value":"http://c/v1","label":"http://c/v1"}]`},
	} {
		e := find(elements(t, ui.Input{Config: parse(t, c.config)}), "config", "base_url")
		if got := string(e["options"]); got != c.want || e != nil && e.String("type") != "dropdown" {
			t.Errorf("%s: %s, want %s", c.config, got, c.want)
		}
	}
}

// A capability that the descriptor denies has no tag. One that it does not mention has.
func TestTags(t *testing.T) {
	const all = "supports_tools supports_images supports_reasoning"
	for _, c := range []struct{ config, model, want string }{
		{`{}`, ``, all},
		{`{}`, `{"context_length": 4096}`, all},
		{`{"allow_image_attachment_base64": false}`, ``, all},
		{`{"allow_image_attachment_base64": false, "allow_image_attachment_url": false}`, ``, "supports_tools supports_reasoning"},
		{`{}`, `{"supports_tools": false, "supports_reasoning": false}`, "supports_images"},
		{`{}`, `{"capabilities": {"function_calling": true, "vision": false}}`, "supports_tools supports_reasoning"},
		{`{}`, `{"capabilities": {"image_input": {"supported": false}, "thinking": {"supported": true}}}`, "supports_tools supports_reasoning"},
		{`{}`, `{"capabilities": ["completion", "tools"]}`, "supports_tools"},
		{`{}`, `{"supported_parameters": ["tools", "temperature"], "architecture": {"input_modalities": ["text", "image"]}}`, "supports_tools supports_images"},
		{`{}`, `{"supported_parameters": ["reasoning"], "architecture": {"input_modalities": ["text"]}}`, "supports_reasoning"},
		{`{}`, `{"supports_tools": null, "capabilities": 7}`, all},
	} {
		p := provider.New(provider.Options{})
		models := []loquat.Model{{ID: "other", Extra: parse(t, `{"supports_tools": false}`)}}
		if c.model != "" {
			models = append(models, loquat.Model{ID: "m", Extra: parse(t, c.model)})
		}
		tags := p.Tags(parse(t, c.config).Set("model", "m"), models)
		if got := strings.Join(tags, " "); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.config, c.model, got, c.want)
		}
		shown := elements(t, ui.Input{Config: loquat.Object{}, Tags: tags})
		for key, tag := range map[string]string{"reasoning_echo": "supports_reasoning", "tool_choice": "supports_tools"} {
			if (find(shown, "config", key) != nil) != slices.Contains(tags, tag) {
				t.Errorf("%s with tags %q: %v", key, tags, find(shown, "config", key))
			}
		}
		p.Close()
	}
}

// The fields below a message show the usage that the adapter recorded. Without usage they
// show nothing.
func TestFooters(t *testing.T) {
	o := decoded(t, strings.NewReader(`data: {"usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500, "completion_tokens_details": {"reasoning_tokens": 1234}}}`+"\n\n"+done))
	if o.err != nil {
		t.Fatal(o.err)
	}
	usage := o.reply.Metadata
	all := elements(t, ui.Input{Config: loquat.Object{}, Tags: []string{"supports_reasoning"}})
	for key, want := range map[string]string{"usage": "1,500 tokens", "reasoning": "1,234 reasoning tokens"} {
		e := find(all, "message_footer", key)
		for _, c := range []struct {
			metadata loquat.Object
			want     string
		}{{usage, want}, {nil, ""}} {
			in := ui.Context{Message: ui.Decode(loquat.Message{Role: "assistant", Metadata: c.metadata})}
			visible, err := ui.Visible(e["condition"], ui.RootMessage, in)
			data, found := ui.Lookup(e.String("data"), ui.RootMessage, in)
			got := ""
			if visible && found {
				got = ui.Render(e.String("template"), data)
			}
			if err != nil || got != c.want {
				t.Errorf("%s of %v: %q, %v, want %q", key, c.metadata, got, err, c.want)
			}
		}
	}
}
