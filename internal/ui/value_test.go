package ui_test

import (
	"encoding/json"
	"testing"

	"loquat"
	"loquat/internal/ui"
)

func TestResolveValue(t *testing.T) {
	full := ui.Layers{
		Overrides: elementOf(t, `{"k": 1, "off": false, "null": null}`),
		Base:      elementOf(t, `{"k": 2, "off": true, "null": 2, "deep": {"at": [3, null]}, "only": "c", "unset": null}`),
		Defaults:  elementOf(t, `{"k": 5, "d": 5, "unset": 5}`),
	}
	for _, c := range []struct{ element, value, source string }{
		{`{"key": "k", "config_path": "deep.at.0", "default": 4}`, `1`, ui.SourceOverride},
		{`{"key": "off", "default": true}`, `false`, ui.SourceOverride},
		{`{"key": "null", "default": 4}`, `2`, ui.SourceConfig},
		{`{"key": "only", "config_path": "deep.at.0"}`, `"c"`, ui.SourceConfig},
		{`{"key": "x", "config_path": "deep.at.0", "default": 4}`, `3`, ui.SourceConfig},
		{`{"key": "x", "config_path": "$config.deep.at", "default": 4}`, `[3, null]`, ui.SourceConfig},
		{`{"key": "x", "config_path": "deep.at.1", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "x", "config_path": "deep.at.7", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "x", "config_path": "deep.at.2", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "x", "config_path": "deep.at.first", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "x", "config_path": "only.more", "default": ""}`, `""`, ui.SourceUIDefault},
		{`{"key": "x", "config_path": "$session.agent_id", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "d", "default": 4}`, `4`, ui.SourceUIDefault},
		{`{"key": "d", "default": null}`, `5`, ui.SourceSchemaDefault},
		{`{"key": "unset"}`, `5`, ui.SourceSchemaDefault},
		{`{"key": "x"}`, `null`, ui.SourceNone},
	} {
		got := ui.ResolveValue(elementOf(t, c.element), full)
		if string(got.Value) != c.value || got.Source != c.source {
			t.Errorf("%s: %s of %s, want %s of %s", c.element, got.Value, got.Source, c.value, c.source)
		}
	}
	if got := ui.ResolveValue(elementOf(t, `{"key": "x"}`), ui.Layers{}); ui.EncodeText(got) != `{"value":null,"source":"none"}` {
		t.Errorf("without layers: %s", ui.EncodeText(got))
	}
}

// Only config elements with a key have values.
func TestValues(t *testing.T) {
	got := ui.Values(elementsOf(t, `{"key": "a"}`, `{"ui_type": "session_list_field", "key": "b"}`, `{"type": "text"}`), ui.Layers{})
	if _, ok := got["a"]; !ok || len(got) != 1 {
		t.Errorf("values of %v", got)
	}
}

func TestWriteThrough(t *testing.T) {
	for _, c := range []struct{ name, effective, elements, overrides, base, want string }{
		{"an override is set at its config_path", `{"sr": {"mode": "disabled", "max": 3}, "mode": "early_only"}`, `[{"key": "mode", "config_path": "sr.mode"}]`,
			`{"mode": "early_only"}`, `{"sr": {"mode": "disabled"}}`, `{"sr": {"mode": "early_only", "max": 3}, "mode": "early_only"}`},
		{"so is a configured key", `{"mode": "a"}`, `[{"key": "mode", "config_path": "sr.mode"}]`, `{}`, `{"mode": "a"}`, `{"mode": "a", "sr": {"mode": "a"}}`},
		{"a default is not set", `{}`, `[{"key": "mode", "config_path": "sr.mode", "default": "x"}]`, `{}`, `{}`, `{}`},
		{"no path", `{"a": 1}`, `[{"key": "a"}]`, `{"a": 1}`, `{}`, `{"a": 1}`},
		{"a config_path that equals the key", `{"o": {"x": 1, "y": 2}}`, `[{"key": "o", "config_path": "o"}]`, `{"o": {"x": 1}}`, `{"o": {"y": 2}}`, `{"o": {"x": 1, "y": 2}}`},
		{"an override wins over a setting", `{"x": 1}`, `[{"key": "b", "config_path": "x"}, {"key": "a", "config_path": "x"}]`, `{"b": 2}`, `{"a": 3}`, `{"x": 2}`},
		{"in a list", `{"l": [{"a": 1}, 2]}`, `[{"key": "k", "config_path": "l.0.a"}]`, `{"k": 9}`, `{}`, `{"l": [{"a": 9}, 2]}`},
		{"past the end of a list", `{"l": [1]}`, `[{"key": "k", "config_path": "l.1"}]`, `{"k": 9}`, `{}`, `{"l": [1]}`},
		{"no index of a list", `{"l": [1]}`, `[{"key": "k", "config_path": "l.first"}]`, `{"k": 9}`, `{}`, `{"l": [1]}`},
		{"below null", `{"s": null}`, `[{"key": "k", "config_path": "s.a"}]`, `{"k": 9}`, `{}`, `{"s": {"a": 9}}`},
		{"below the key", `{"o": {"x": 1}}`, `[{"key": "o", "config_path": "o.x"}]`, `{"o": 9}`, `{}`, `{"o": {"x": 9}}`},
		{"only for the config element of the key", `{}`, `[{"key": "k"}, {"ui_type": "model_picker", "key": "k", "config_path": "s"}]`, `{"k": 9}`, `{}`, `{}`},
		{"through a string", `{"s": "x"}`, `[{"key": "k", "config_path": "s.a"}]`, `{"k": 9}`, `{}`, `{"s": {"a": 9}}`},
		{"not for another ui_type", `{}`, `[{"ui_type": "model_picker", "key": "k", "config_path": "s"}]`, `{"k": 9}`, `{}`, `{}`},
	} {
		elements := []loquat.Object{}
		if err := json.Unmarshal([]byte(c.elements), &elements); err != nil {
			t.Fatal(err)
		}
		effective := elementOf(t, c.effective)
		values := ui.Values(elements, ui.Layers{Overrides: elementOf(t, c.overrides), Base: elementOf(t, c.base)})
		got := ui.WriteThrough(effective, elements, values)
		if !ui.Equal(ui.Decode(got), ui.Decode(json.RawMessage(c.want))) {
			t.Errorf("%s: %s, want %s", c.name, ui.EncodeText(got), c.want)
		}
		if !ui.Equal(ui.Decode(effective), ui.Decode(json.RawMessage(c.effective))) {
			t.Errorf("%s: the settings of the caller became %s", c.name, ui.EncodeText(effective))
		}
	}
	if got := ui.WriteThrough(nil, elementsOf(t, `{"key": "a", "config_path": "b"}`), map[string]ui.Value{"a": {Value: json.RawMessage("1"), Source: ui.SourceConfig}}); string(got["b"]) != "1" {
		t.Errorf("into nil settings: %v", got)
	}
}
