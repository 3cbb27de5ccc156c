package ui_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/ui"
)

// Lint reports mistakes in elements that are served nevertheless.
func TestLint(t *testing.T) {
	const (
		config = `"key": "k", "type": "text", "label": "K"`
		action = `"ui_type": "session_action", "id": "a", "label": "A", "action_id": "throw"`
		form   = action + `, "param_map": {"n": "$dialog.n"}, "dialog": {"kind": "form", "inputs": [{"name": "n", "type": "number"}]}`
		field  = `"ui_type": "session_list_field", "key": "f", "label": "F"`
	)
	types := strings.Join(ui.InputTypes(), ", ")
	for _, c := range []struct {
		name, elements string
		want           []string // prefixes of all messages
	}{
		{"nothing", `[]`, nil},
		{"config", `[{` + config + `, "default": "d", "config_path": "a.b", "min": 1, "kind": "x", "colour": "red"}]`, nil},
		{"action", `[{` + form + `}, {` + strings.Replace(action, `"a"`, `"b"`, 1) + `, "dialog": {"kind": "form", "message": "Really?"}}]`, nil},
		{"every expression", `[{"ui_type": "message_action", "id": "a", "label": "A", "action_id": "throw",
			"param_map": {"s": "$session.session_id", "i": "$message.index", "c": "$config.model"}}]`, nil},
		{"data", `[{"ui_type": "status_bar", "data": "$config.model", "template": "{{data}} {of} {{data}}"}, {` + field + `, "data": "a.0.b"}]`, nil},
		{"elements that Normalize leaves out", `[null, {"label": 1, "default": 2}, {"ui_type": "session_action"}, {` + config + `, "condition": []}]`, nil},
		{"an unknown ui_type", `[{"ui_type": "weather_panel", "lable": 1}]`, nil},

		{"twice", `[{` + config + `}, {` + action + `}, {` + config + `}, {` + strings.Replace(action, "session", "message", 1) + `}]`,
			[]string{`k: key "k" is used twice; the last element counts`, `a: id "a" is used twice`}},
		{"key and id alike", `[{` + strings.Replace(config, `"k"`, `"a"`, 1) + `}, {` + action + `}]`, nil},
		{"type", `[{"key": "k", "label": "K", "type": "strng", "default": 1}, {"key": "l", "label": "L"}, {"key": "m", "label": "M", "type": 7}, {"key": "n", "label": "N", "type": "slider"}]`,
			[]string{"k: type \"strng\" is none of " + types + "\n", "l: has no type", "m: type 7 is none of", "n: type \"slider\" is none of"}},
		{"misspelled type", `[{"key": "k", "label": "K", "type": "numbr"}]`, []string{"k: type \"numbr\" is none of " + types + "; did you mean number?\n"}},
		{"label", `[{"key": "k", "type": "text"}, {` + strings.Replace(action, `"A"`, `3`, 1) + `}]`, []string{"k: has no label", "a: label is 3; must be a text"}},
		{"options", `[{"key": "k", "label": "K", "type": "select", "default": 1}, {"key": "l", "label": "L", "type": "dropdown", "options": [{"label": "x"}], "default": "d"},
			{"key": "m", "label": "M", "type": "select", "options": []}]`,
			[]string{"k: is a select without options", "l: options[0] has no value", "m: is a select without options"}},
		{"default", `[{"key": "k", "label": "K", "type": "number", "default": "six"}, {"key": "l", "label": "L", "type": "select", "options": ["a"], "default": "b"},
			{"key": "m", "label": "M", "type": "number", "secret": true, "default": 7}]`,
			[]string{"k: default must be a number", `l: default must be one of "a"`}},
		{"default of an input", `[{` + strings.Replace(form, `"number"`, `"number", "default": "six"`, 1) + `}, {` + strings.Replace(strings.Replace(form, `"a"`, `"b"`, 1), `"number"`, `"number", "default": 6`, 1) + `}]`,
			[]string{"a: dialog.inputs[0] default must be a number"}},
		{"config_path", `[{` + config + `, "config_path": "$session.x"}]`, []string{`k: config_path is "$session.x"; must be keys`}},
		{"ui_type", `[{"ui_type": "session_buton"}, {"ui_type": "status_baar"}]`,
			[]string{`#0: ui_type "session_buton" is unknown to clients; did you mean session_action?`, `#1: ui_type "status_baar" is unknown to clients; did you mean status_bar?`}},
		{"attributes", `[{` + action + `, "lable": "x", "Icon": "y"}]`, []string{"a: Icon is not a known attribute; did you mean icon?", "a: lable is not a known attribute; did you mean label?"}},
		{"action_id", `[{` + strings.Replace(action, "throw", "trow", 1) + `}]`, []string{`a: action_id "trow" is not among the actions of this plugin; did you mean throw?`}},
		{"dialog", `[{` + action + `, "dialog": {"title": "T"}}, {` + strings.Replace(action, `"a"`, `"b"`, 1) + `, "dialog": {"kind": "popup", "message": "m"}}]`,
			[]string{`a: dialog.kind is missing; there is only "form"`, "a: dialog has neither inputs nor a message", `b: dialog.kind is "popup"`}},
		{"inputs", `[{` + action + `, "param_map": {"n": "$dialog.n"}, "dialog": {"kind": "form", "inputs": [
			{"name": "n", "type": "text"}, {"type": "text"}, {"name": "n", "type": "numbr", "requird": true}, {"name": "o", "type": "select"}, {"name": "o", "type": "text"}]}}]`,
			[]string{"a: dialog.inputs[1] has no name", `a: dialog.inputs[2] has the name "n"`, `a: dialog.inputs[2] type "numbr" is none of`,
				"a: dialog.inputs[2] requird is not a known attribute; did you mean required?", "a: dialog.inputs[3] is a select without options", `a: dialog.inputs[4] has the name "o"`,
				`a: input "o" is not in param_map; not every client sends it as the parameter "o"`}},
		{"param_map", `[{` + action + `, "fixed_params": {"o": 1}, "param_map": {"a": "$dialg.n", "b": "$dialog.m", "c": 7, "d": "n", "e": "$message.index", "f": "$dialog", "p": "$dialog.n"},
			"dialog": {"kind": "form", "inputs": [{"name": "n", "type": "text"}, {"name": "o", "type": "text"}]}}]`,
			[]string{`a: param_map.a is "$dialg.n"; must start with one of $session., $message., $dialog., $config.; did you mean $dialog?`,
				`a: param_map.b is "$dialog.m", but the dialog has no input "m"`, "a: param_map.c is 7; must start", `a: param_map.d is "n"; must`,
				`a: param_map.e is "$message.index", but a session_action has no message`, `a: param_map.f is "$dialog"; must start`,
				`a: input "o" is not sent`}},
		{"an input whose parameter has another value", `[{` + action + `, "param_map": {"n": "$session.agent_id"}, "dialog": {"kind": "form", "inputs": [{"name": "n", "type": "text"}]}}]`,
			[]string{`a: input "n" is not sent`}},
		{"no map", `[{` + action + `, "param_map": ["$dialog.n"]}]`, []string{`a: param_map is ["$dialog.n"]; must be an object`}},
		{"no data", `[{` + field + `}, {` + field + `, "data": 7}, {` + field + `, "data": "$state.count"}, {"ui_type": "message_footer", "data": "a..b"}]`,
			[]string{"f: has no data", "f: data is 7", `f: data: path "$state.count" starts with an unknown root`, "#3: data: path has an empty key"}},
		{"template", `[{` + field + `, "data": "a", "template": "{{dta}} and {{ data }}"}, {` + field + `, "data": "a", "template": 7}]`,
			[]string{"f: template has {{dta}}, which is not replaced", "f: template has {{ data }}", "f: template is 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var elements []loquat.Object
			if err := json.Unmarshal([]byte(c.elements), &elements); err != nil {
				t.Fatal(err)
			}
			faults := ui.Lint(elements, []string{"throw"})
			for i, f := range faults {
				if got := f.Element + ": " + f.Message + "\n"; i >= len(c.want) || !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("fault %d: %s", i, got)
				}
			}
			if len(faults) != len(c.want) {
				t.Errorf("%d faults, want %d", len(faults), len(c.want))
			}
		})
	}
}

// The example elements in docs/ui.md are free of mistakes.
func TestLintExampleInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/ui.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```json\n")
	example, _, _ = strings.Cut(example, "```")
	var elements []loquat.Object
	if err := json.Unmarshal([]byte(example), &elements); err != nil {
		t.Fatal(err)
	}
	served, faults := ui.Normalize([]ui.Contribution{{Plugin: "guide", Elements: elements}})
	faults = append(faults, ui.Lint(elements, []string{"export", "translate"})...)
	if len(served) != len(elements) || len(elements) < 6 || len(faults) > 0 {
		t.Errorf("of %d elements %d are served: %v", len(elements), len(served), faults)
	}
}
