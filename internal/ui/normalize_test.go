package ui_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/ui"
)

// elementOf decodes an element.
func elementOf(t testing.TB, text string) loquat.Object {
	t.Helper()
	var element loquat.Object
	if err := json.Unmarshal([]byte(text), &element); err != nil {
		t.Fatal(err)
	}
	return element
}

func elementsOf(t testing.TB, texts ...string) (elements []loquat.Object) {
	t.Helper()
	for _, text := range texts {
		elements = append(elements, elementOf(t, text))
	}
	return elements
}

func TestNormalize(t *testing.T) {
	elements, faults := ui.Normalize([]ui.Contribution{
		{Plugin: "provider", Elements: elementsOf(t,
			`{"key": "model", "type": "text", "plugin": "another"}`,
			`{"key": "timeout", "ui_type": null, "default": 60}`,
			`{"ui_type": "message_footer", "data": "metadata.usage_total_tokens_formatted", "action_owner": "kept"}`)},
		{Plugin: "extension", Owner: "provider_extension", Elements: elementsOf(t,
			`{"ui_type": "session_action", "id": "a", "action_id": "run", "action_owner": "feature"}`)},
		{Plugin: "app", Elements: elementsOf(t,
			`{"ui_type": "message_action", "id": "b", "action_id": "run", "action_owner": "provider_extension"}`,
			`{"ui_type": "config", "key": "model", "type": "select", "options": ["m"]}`,
			`{"ui_type": "hologram", "x": [1]}`)},
	})
	want := elementsOf(t,
		`{"ui_type": "message_footer", "data": "metadata.usage_total_tokens_formatted", "action_owner": "kept", "plugin": "provider"}`,
		`{"ui_type": "session_action", "id": "a", "action_id": "run", "action_owner": "provider_extension", "plugin": "extension"}`,
		`{"ui_type": "message_action", "id": "b", "action_id": "run", "plugin": "app"}`,
		`{"ui_type": "hologram", "x": [1], "plugin": "app"}`,
		`{"ui_type": "config", "key": "model", "type": "select", "options": ["m"], "plugin": "app"}`,
		`{"ui_type": "config", "key": "timeout", "default": 60, "plugin": "provider"}`)
	if !ui.Equal(ui.Decode(elements), ui.Decode(want)) {
		t.Errorf("got\n%s\nwant\n%s", ui.EncodeText(elements), ui.EncodeText(want))
	}
	if len(faults) > 0 {
		t.Errorf("faults %v", faults)
	}
}

func TestNormalizeLeavesOut(t *testing.T) {
	long := strings.Repeat("x", ui.MaxElementSize)
	for _, c := range []struct{ element, name, says string }{
		{`null`, "#1", "must be a JSON object"},
		{`{}`, "#1", "has no key"},
		{`{"key": ""}`, "#1", "has no key"},
		{`{"key": 1}`, "#1", "has no key"},
		{`{"ui_type": 1}`, "#1", "ui_type must be a string"},
		{`{"ui_type": "session_action", "id": "a"}`, "a", "action_id"},
		{`{"ui_type": "message_action", "action_id": "a"}`, "#1", "lacks id"},
		{`{"ui_type": "session_action", "id": "a", "action_id": "b", "dialog": {"inputs": ["start"]}}`, "a", "dialog"},
		{`{"ui_type": "session_action", "id": "a", "action_id": "b", "dialog": "ask"}`, "a", "dialog"},
		{`{"key": "k", "condition": []}`, "k", "condition: a condition must be an object"},
		{`{"key": "k", "condition": {"path": "a", "like": "b"}}`, "k", `unknown operator "like"`},
		{`{"key": "k", "label": "` + long + `"}`, "k", "at most 16384 are allowed"},
		{`{"key": "k", "options": ` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`, "k", "JSON nests deeper than 128 levels at options[0]"},
		{`{"key": "` + long + `"}`, "#1", "at most 16384 are allowed"},
	} {
		elements, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: elementsOf(t, `{"ui_type": "status_bar"}`, c.element, `{"key": "z"}`)}})
		if len(elements) != 2 || len(faults) != 1 {
			t.Errorf("%.80s: %d elements, faults %v", c.element, len(elements), faults)
			continue
		}
		f := faults[0]
		if f.Plugin != "p" || f.Element != c.name || !strings.Contains(f.Message, c.says) || len(f.String()) > 300 {
			t.Errorf("%.80s: %v; want element %s and %q", c.element, f, c.name, c.says)
		}
	}
}

// A malformed definition does not determine the place of its key.
func TestNormalizeIgnoresPlaceOfMalformed(t *testing.T) {
	elements, _ := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: elementsOf(t,
		`{"key": "a", "condition": 1}`, `{"key": "b"}`, `{"key": "a", "n": 1}`, `{"key": "a", "condition": 1}`)}})
	if len(elements) != 2 || elements[0].String("key") != "b" || string(elements[1]["n"]) != "1" {
		t.Errorf("got %s", ui.EncodeText(elements))
	}
}

func TestNormalizeBounds(t *testing.T) {
	var many []loquat.Object
	for i := range ui.MaxElements + 7 {
		many = append(many, loquat.Object{}.Set("key", fmt.Sprint(i)))
	}
	footer := elementsOf(t, `{"ui_type": "message_footer"}`)
	elements, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: many}, {Plugin: "q", Elements: footer}})
	if len(elements) != ui.MaxElements || elements[0].String("plugin") != "q" || elements[ui.MaxElements-1].String("key") != fmt.Sprint(ui.MaxElements-2) {
		t.Errorf("%d elements", len(elements))
	}
	if len(faults) != 1 || faults[0].String() != "p: 8 elements are left out: all plugins together may return at most 500" {
		t.Errorf("faults %v", faults)
	}
	_, faults = ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: make([]loquat.Object, 1000)}})
	if len(faults) != ui.MaxElementErrors+1 || !strings.HasPrefix(faults[ui.MaxElementErrors].Message, "980 more") {
		t.Errorf("%d faults, the last %v", len(faults), faults[len(faults)-1])
	}
}

func TestNormalizeDoesNotChangeItsInput(t *testing.T) {
	given := elementsOf(t, `{"key": "a", "secret": true, "default": "s3"}`, `{"ui_type": "session_action", "id": "a", "action_id": "b", "action_owner": "c"}`)
	was := ui.EncodeText(given)
	elements, _ := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: given}})
	if ui.EncodeText(given) != was {
		t.Errorf("given became %s", ui.EncodeText(given))
	}
	if got := string(elements[1]["default"]); got != `{"set":true}` {
		t.Errorf("the default of a secret is %s", got)
	}
}

// An element is a secret if a name in its key or config_path marks one, even if the plugin
// did not set `secret`.
func TestSecretsByName(t *testing.T) {
	for text, secret := range map[string]bool{
		`{"key": "api_key", "default": "sk-1"}`:                               true,
		`{"key": "API_Key", "secret": false, "default": "sk-1"}`:              true,
		`{"key": "door", "config_path": "deep.token.now", "default": "sk-1"}`: true,
		`{"key": "door", "config_path": "deep.tokens", "default": "sk-1"}`:    false,
		`{"key": "api_keys", "default": "sk-1"}`:                              false,
		`{"ui_type": "model_picker", "key": "token", "default": "sk-1"}`:      false,
	} {
		elements, _ := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: elementsOf(t, text)}})
		got := elements[0]
		if want := `{"set":true}`; got.Bool("secret") != secret || (string(got["default"]) == want) != secret {
			t.Errorf("%s becomes %s", text, ui.EncodeText(got))
		}
	}
}

// drawContributions generates the contributions of plugins. It uses few keys and values, so
// that definitions collide.
func drawContributions() *rapid.Generator[[]ui.Contribution] {
	oneOf := func(texts ...string) *rapid.Generator[string] { return rapid.SampledFrom(texts) }
	fields := []struct {
		name   string
		values *rapid.Generator[string]
	}{
		{"ui_type", oneOf(`"config"`, `"session_action"`, `"message_action"`, `"message_footer"`, `"hologram"`, `" "`,
			`null`, `false`, `0`, `0.0`, `-0`, `0e5`, `""`, `[]`, `{}`, `true`, `1`, `["config"]`, `{"a":1}`)},
		{"key", oneOf(`"a"`, `"b"`, `"c"`, `"d"`, `""`, `null`, `7`, `["a"]`)},
		{"id", oneOf(`"x"`, `"y"`, `""`, `3`)},
		{"action_id", oneOf(`"run"`, `"go"`, `""`, `null`)},
		{"action_owner", oneOf(`"feature"`, `"application"`, `null`)},
		{"plugin", oneOf(`"forged"`, `1`)},
		{"condition", oneOf(`{}`, `null`, `{"path":"a"}`, `{"all":[{"not":{"path":"x","eq":1}}]}`, `{"eq":1}`, `{"like":1}`, `[]`, `{"not":{"oops":{}}}`)},
		{"default", oneOf(`"s"`, `""`, `null`, `5`)},
		{"secret", oneOf(`true`, `false`)},
		{"dialog", oneOf(`null`, `{}`, `{"inputs":[]}`, `{"inputs":[{"name":"n"}]}`, `{"inputs":{}}`, `3`)},
		{"label", oneOf(`"L"`, `{"deep":[1,2,{"x":null}]}`, `"`+strings.Repeat("x", ui.MaxElementSize-50)+`"`, `"`+strings.Repeat("x", ui.MaxElementSize)+`"`)},
	}
	element := rapid.Custom(func(t *rapid.T) loquat.Object {
		if rapid.IntRange(0, 40).Draw(t, "null") == 40 {
			return nil
		}
		o := loquat.Object{}
		present := rapid.Uint16().Draw(t, "fields")
		for i, f := range fields {
			if present&(1<<i) != 0 {
				o[f.name] = json.RawMessage(f.values.Draw(t, f.name))
			}
		}
		// Make most elements valid.
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			o["ui_type"], o["id"], o["action_id"] = json.RawMessage(`"session_action"`), json.RawMessage(`"x"`), json.RawMessage(`"run"`)
		case 1:
			delete(o, "ui_type")
			o["key"] = json.RawMessage(rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`}).Draw(t, "common key"))
		}
		return o
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ui.Contribution {
		return ui.Contribution{
			Plugin:   rapid.StringMatching(`p[0-3]`).Draw(t, "plugin"),
			Owner:    rapid.SampledFrom([]string{"", "feature", "provider_extension"}).Draw(t, "owner"),
			Elements: rapid.SliceOfN(element, 0, 6).Draw(t, "elements"),
		}
	}), 0, 5)
}

// normalizeModel implements the specification's rules step by step on decoded values.
func normalizeModel(t *rapid.T, given []ui.Contribution) (elements []any, faults int) {
	type entry = map[string]any
	var list []entry
	for _, c := range given {
		for _, o := range c.Elements {
			var e entry
			raw, err := json.Marshal(o)
			if err != nil || json.Unmarshal(raw, &e) != nil {
				t.Fatal("the generator made an element that is not valid JSON")
			}
			if e == nil {
				faults++
				continue
			}
			// Rule 1 and 2.
			if v := e["ui_type"]; v == nil || reflect.ValueOf(v).IsZero() || (reflect.ValueOf(v).Kind() != reflect.Float64 && fmt.Sprint(v) == "[]") || fmt.Sprint(v) == "map[]" {
				e["ui_type"] = "config"
			}
			e["plugin"] = c.Plugin
			// Rule 3.
			if kind := e["ui_type"]; kind == "session_action" || kind == "message_action" {
				if delete(e, "action_owner"); c.Owner != "" {
					e["action_owner"] = c.Owner
				}
			}
			if !wellFormed(e) {
				faults++
				continue
			}
			if v, ok := e["default"]; ok && e["secret"] == true && e["ui_type"] == "config" {
				e["default"] = entry{"set": v != nil && v != ""}
			}
			list = append(list, e)
		}
	}
	// Rule 4: first the other elements in their order, then the config elements. Each key
	// appears at the place of its first definition, with the content of its last.
	for _, e := range list {
		if e["ui_type"] != "config" {
			elements = append(elements, e)
		}
	}
	for i, e := range list {
		if e["ui_type"] != "config" {
			continue
		}
		first, last := -1, -1
		for j, other := range list {
			if other["ui_type"] == "config" && other["key"] == e["key"] {
				if last = j; first < 0 {
					first = j
				}
			}
		}
		if first == i {
			elements = append(elements, list[last])
		}
	}
	return elements, faults
}

// wellFormed reports whether an element is well-formed. It relies on the values that the
// generator uses.
func wellFormed(e map[string]any) bool {
	full := func(field string) bool { s, ok := e[field].(string); return ok && s != "" }
	switch e["ui_type"] {
	case "config":
		if !full("key") {
			return false
		}
	case "session_action", "message_action":
		d, given := e["dialog"].(map[string]any)
		if !full("id") || !full("action_id") || e["dialog"] != nil && !given {
			return false
		}
		if _, isMap := d["inputs"].(map[string]any); isMap {
			return false
		}
	default:
		if !full("ui_type") {
			return false
		}
	}
	if label, ok := e["label"].(string); ok && len(label) > 1 {
		raw, _ := json.Marshal(e)
		if len(raw) > ui.MaxElementSize {
			return false
		}
	}
	switch fmt.Sprint(e["condition"]) {
	case "<nil>", "map[]", "map[path:a]", "map[all:[map[not:map[eq:1 path:x]]]]":
		return true
	}
	return false
}

// Normalize agrees with the model for any contributions. To run many more cases:
// go test ./internal/ui -run Model -rapid.checks=100000.
func TestNormalizeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := drawContributions().Draw(t, "given")
		want, leftOut := normalizeModel(t, given)
		got, faults := ui.Normalize(given)
		if len(got) != len(want) || !ui.Equal(ui.Decode(got), ui.Decode(want)) && len(want) > 0 {
			t.Fatalf("got\n%s\nwant\n%s", ui.EncodeText(got), ui.EncodeText(want))
		}
		if len(faults) != leftOut {
			t.Fatalf("%d faults %v, want %d", len(faults), faults, leftOut)
		}
		again, faults := ui.Normalize([]ui.Contribution{{Elements: got}})
		if len(again) != len(got) || len(faults) > 0 {
			t.Fatalf("normalized twice: %d elements, want %d; errors %v", len(again), len(got), faults)
		}
	})
}

// Normalize reads a bounded number of elements of each plugin.
func TestNormalizeReadsBoundedNumber(t *testing.T) {
	setting := loquat.Object{}.Set("key", "k")
	given := slices.Repeat([]loquat.Object{setting}, ui.MaxElementsPerPlugin+7)
	given[ui.MaxElementsPerPlugin-1] = setting.Clone().Set("label", "last")
	elements, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: given}, {Plugin: "q", Elements: []loquat.Object{loquat.Object{}.Set("key", "l")}}})
	if len(elements) != 2 || elements[0].String("label") != "last" {
		t.Errorf("elements %s", ui.EncodeText(elements))
	}
	if len(faults) != 1 || !strings.HasPrefix(faults[0].String(), "p: 7 elements are left out") {
		t.Errorf("faults %v", faults)
	}
}

// Clients see whether a secret has a default, and nothing else of it.
func TestDefaultsOfSecrets(t *testing.T) {
	for given, want := range map[string]string{
		`{"key": "k", "secret": true}`:                                      ``,
		`{"key": "k", "secret": true, "default": "s"}`:                      `{"set":true}`,
		`{"key": "k", "secret": true, "default": ""}`:                       `{"set":false}`,
		`{"key": "k", "secret": true, "default": null}`:                     `{"set":false}`,
		`{"key": "k", "secret": true, "default": {"set": true}}`:            `{"set":true}`,
		`{"key": "k", "secret": true, "default": {"set": false}}`:           `{"set":false}`,
		`{"key": "k", "secret": true, "default": {"set": "s"}}`:             `{"set":true}`,
		`{"key": "k", "secret": true, "default": {"set": false, "a": "s"}}`: `{"set":true}`,
		`{"key": "k", "ui_type": 0, "default": "s"}`:                        `"s"`,
		`{"key": "k", "ui_type": false, "default": "s"}`:                    `"s"`,
	} {
		elements, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: elementsOf(t, given)}})
		if len(elements) != 1 || string(elements[0]["default"]) != want {
			t.Errorf("%s: %s, %v; want the default %s", given, elements, faults, want)
		}
	}
}

// Bounds are what is still allowed.
func TestExactBounds(t *testing.T) {
	size := len(`{"key":"k","plugin":"p","ui_type":"config","x":""}`)
	for _, more := range []int{0, 1} {
		long := loquat.Object{}.Set("key", "k").Set("x", strings.Repeat("a", ui.MaxElementSize-size+more))
		if elements, _ := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: []loquat.Object{long}}}); len(elements) != 1-more {
			t.Errorf("%d bytes over the bound: %d elements", more, len(elements))
		}
		full := make([]loquat.Object, ui.MaxElementsPerPlugin+more)
		for i := range full {
			full[i] = elementOf(t, `{"ui_type": "status_bar"}`)
		}
		_, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: full}})
		if left := slices.ContainsFunc(faults, func(f ui.ElementError) bool { return strings.Contains(f.Message, "a plugin may return") }); left != (more > 0) {
			t.Errorf("%d elements over the bound: %v", more, faults)
		}
		if _, faults = ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: make([]loquat.Object, ui.MaxElementErrors+more)}}); len(faults) != ui.MaxElementErrors+more ||
			strings.Contains(faults[len(faults)-1].Message, "similar errors") != (more > 0) {
			t.Errorf("%d errors over the bound: %v", more, faults[len(faults)-1])
		}
		name := strings.Repeat("n", 100+more)
		_, faults = ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: elementsOf(t, `{"key": "`+name+`", "condition": 1}`)}})
		if want := []string{name, "#0"}[more]; faults[0].Element != want {
			t.Errorf("a name of %d characters: %s", len(name), faults[0].Element)
		}
	}
	if elements, faults := ui.Normalize([]ui.Contribution{{Plugin: "p", Elements: []loquat.Object{{"key": []byte(`"k"`), "x": []byte(`{`)}}}}); len(elements) != 0 || len(faults) != 1 {
		t.Errorf("an element that is not valid JSON: %s, %v", elements, faults)
	}
}

func TestElementErrors(t *testing.T) {
	for want, f := range map[string]ui.ElementError{"p: m": {Plugin: "p", Message: "m"}, "p: element e: m": {Plugin: "p", Element: "e", Message: "m"}} {
		if got := f.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
