package ui_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/ui"
)

func TestCheckValue(t *testing.T) {
	const valid = ""
	for _, c := range []struct{ element, value, says string }{
		{`{"type": "text"}`, `"a"`, valid},
		{`{"type": "text"}`, `1`, "must be a string"},
		{`{"type": "multiline"}`, `{"a": 1}`, "must be a string"},
		{`{"type": "multiline", "format": "json"}`, `{"a": 1}`, valid},
		{`{"type": "text", "format": "json"}`, `[1]`, valid},
		{`{"type": "multiline", "format": "json", "required": true}`, `{}`, "must not be empty"},
		{`{"type": "text", "required": true}`, `""`, "must not be empty"},
		{`{"type": "text", "required": true}`, `null`, valid},
		{`{"type": "text"}`, `""`, valid},
		{`{"type": "checkbox"}`, `true`, valid},
		{`{"type": "checkbox", "required": true}`, `false`, valid},
		{`{"type": "checkbox"}`, `"true"`, "must be true or false"},
		{`{"type": "checkbox"}`, `0`, "must be true or false"},
		{`{"type": "number"}`, `1.5e3`, valid},
		{`{"type": "number", "required": true}`, `0`, valid},
		{`{"type": "number"}`, `"1"`, "must be a number"},
		{`{"type": "select", "options": ["a", "b"]}`, `"b"`, valid},
		{`{"type": "select", "options": ["a", "b"]}`, `"c"`, `must be one of "a", "b"`},
		{`{"type": "select", "options": ["a", "b"]}`, `""`, `must be one of "a", "b"`},
		{`{"type": "dropdown", "options": [{"value": 1, "label": "one"}, {"value": null, "label": "none"}, "z"]}`, `1.0`, valid},
		{`{"type": "dropdown", "options": [{"value": 1, "label": "one"}, "<z>"]}`, `"one"`, `must be one of 1, "<z>"`},
		{`{"type": "dropdown", "options": [{"value": [1]}]}`, `[1]`, valid},
		{`{"type": "select", "options": []}`, `"a"`, "has no options to choose from"},
		{`{"type": "select"}`, `"a"`, valid},
		{`{"type": "select"}`, `1`, "must be a string"},
		{`{"type": "select", "options": "a"}`, `"a"`, valid},
		{`{"type": "slider"}`, `{"any": "thing"}`, valid},
		{`{}`, `7`, valid},
		{`{"type": "number"}`, `x`, "is not valid JSON"},
		{`{"type": "number"}`, `1 2`, "is more than one JSON value"},
	} {
		err := ui.CheckValue(elementOf(t, c.element), json.RawMessage(c.value))
		if (err == nil) != (c.says == valid) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s in %s: %v, want %q", c.value, c.element, err, c.says)
		}
	}
}

func TestCheckValueNamesFewOptions(t *testing.T) {
	var options []string
	for i := range 3000 {
		options = append(options, fmt.Sprintf("model-%d", i))
	}
	err := ui.CheckValue(loquat.Object{}.Set("type", "select").Set("options", options), json.RawMessage(`"x"`))
	if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "3000 options") || strings.Count(err.Error(), "model-") != 20 {
		t.Errorf("got %.500v", err)
	}
}

// The action has inputs of every kind. Each case lists the errors in a client's params.
func TestBuildActionParams(t *testing.T) {
	const action = `{"ui_type": "session_action", "id": "a", "action_id": "run",
		"fixed_params": {"mode": "safe", "fixed": 1},
		"param_map": {"session": "$session.session_id", "at": "$message.index", "start": "$dialog.start", "copy": "$dialog.start",
			"instructions": "$dialog.text", "deep": "$dialog.deep", "kind": "$dialog.kind", "fixed": "$dialog.fixed", "other": "$dialog.unknown", "taken": "$session.agent_id"},
		"dialog": {"kind": "form", "inputs": [
			{"name": "start", "type": "number", "label": "Start", "required": true},
			{"name": "text", "type": "multiline", "required": true},
			{"name": "deep", "type": "checkbox"},
			{"name": "kind", "type": "dropdown", "options": ["x", {"value": 2, "label": "two"}]},
			{"name": "fixed", "type": "text", "required": true},
			{"name": "unmapped", "type": "text", "required": true}, {"type": "text", "required": true}, {"name": "taken", "type": "number", "required": true}]}}`
	for _, c := range []struct{ params, merged, faults string }{
		{`{"start": 1, "copy": 2.5, "instructions": "t", "deep": false, "kind": 2, "session": "s", "at": 3, "free": {}, "unmapped": "u"}`,
			`{"start": 1, "copy": 2.5, "instructions": "t", "deep": false, "kind": 2, "session": "s", "at": 3, "free": {}, "unmapped": "u", "mode": "safe", "fixed": 1}`, ``},
		{`{"start": 1, "copy": 1, "instructions": "t", "mode": "wild", "fixed": {"any": 1}, "unmapped": "u"}`,
			`{"start": 1, "copy": 1, "instructions": "t", "mode": "safe", "fixed": 1, "unmapped": "u"}`, ``},
		{`{"start": "1", "copy": null, "instructions": "", "deep": "yes", "kind": "two", "unmapped": 7}`, ``,
			`body.params.copy: is required (Start)
body.params.start: must be a number (Start)
body.params.instructions: must not be empty (text)
body.params.deep: must be true or false
body.params.kind: must be one of "x", 2
body.params.unmapped: must be a string`},
		{`{}`, ``, `body.params.copy: is required (Start)
body.params.start: is required (Start)
body.params.instructions: is required (text)
body.params.unmapped: is required`},
		{`{"start": 1, "copy": 1, "instructions": "t", "unmapped": ""}`, ``, `body.params.unmapped: must not be empty`},
	} {
		params := elementOf(t, c.params)
		merged, faults := ui.BuildActionParams(elementOf(t, action), params)
		var lines []string
		for _, f := range faults {
			lines = append(lines, f.Location+": "+f.Message)
		}
		if got := strings.Join(lines, "\n"); got != c.faults {
			t.Errorf("%s:\n%s\nwant\n%s", c.params, got, c.faults)
		}
		if c.merged != "" && !ui.Equal(ui.Decode(merged), ui.Decode(json.RawMessage(c.merged))) {
			t.Errorf("%s became %s, want %s", c.params, ui.EncodeText(merged), c.merged)
		}
		if !ui.Equal(ui.Decode(params), ui.Decode(json.RawMessage(c.params))) {
			t.Errorf("the params of the caller became %s", ui.EncodeText(params))
		}
	}
	merged, faults := ui.BuildActionParams(elementOf(t, `{"fixed_params": {"a": 1}}`), nil)
	if string(merged["a"]) != "1" || len(faults) > 0 {
		t.Errorf("without a dialog and params: %v, %v", merged, faults)
	}
}
