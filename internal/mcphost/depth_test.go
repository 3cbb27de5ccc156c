package mcphost

import (
	"encoding/json"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// nested returns JSON of n nested lists.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// An answer that nests too deep fails only its call, and the error names the place. The
// process and its other calls continue. A notification that nests too deep is left out.
func TestDepthOfMessages(t *testing.T) {
	p, log := startFake(t, "deep", nil)
	running(t, p)
	deep := findTool(t, p, "count")
	var parts []string
	call := func(n int) (string, error) {
		parts = nil
		result, err := deep.Call(t.Context(), plugin.ToolCall{Name: "count", Arguments: arguments(n), Progress: func(part string, _, _ *float64) { parts = append(parts, part) }})
		return result.Content, err
	}
	const above = 3 // levels around what nests
	if got, err := call(loquat.MaxDepth - above); err != nil || got != `{"a":`+nested(loquat.MaxDepth-above)+`}` || len(parts) != 1 {
		t.Errorf("as deep as it may be: %q, %v, parts %q", got, err, parts)
	}
	for _, n := range []int{loquat.MaxDepth - above + 1, 9_995, 11_000, 7 << 20} {
		_, err := call(n)
		if err == nil || !strings.Contains(err.Error(), "plugin fake: its answer cannot be used: JSON nests deeper than 128 levels at result.structuredContent.a[0]") {
			t.Errorf("%d levels: %.300v", n, err)
		}
		if len(parts) != 0 {
			t.Errorf("%d levels: parts %q", n, parts)
		}
	}
	if !strings.Contains(log.String(), "one of its messages was left out: JSON nests deeper than 128 levels at params.more[0]") {
		t.Errorf("the log says %.2000s", log)
	}
	if s := p.Status(); s.State != plugin.StateRunning || s.Restarts > 0 {
		t.Errorf("afterwards %+v", s)
	}
}

// JSON within a text of an answer is bounded like the answer itself.
func TestDepthOfTexts(t *testing.T) {
	p, _ := startFake(t, "", manifest{"kind": "application", "ui": []string{"bare"}, "actions": []string{"answer"}})
	running(t, p)
	quoted := func(text string) json.RawMessage {
		return json.RawMessage(`{"content": [{"type": "text", "text": ` + string(loquat.Quote(text)) + `}]}`)
	}
	for _, c := range []struct {
		levels int
		ok     bool
	}{{loquat.MaxDepth, true}, {loquat.MaxDepth + 1, false}, {9_000, false}} {
		params := loquat.Object{"with": quoted(nested(c.levels))}
		_, err := p.Act(t.Context(), plugin.ActionCall{ActionID: "answer", Params: params})
		if c.ok != (err == nil) || !c.ok && !strings.Contains(err.Error(), "content[0].text of its answer cannot be used: JSON nests deeper") {
			t.Errorf("an action that answers %d levels: %.300v", c.levels, err)
		}
		var a answer
		if err := json.Unmarshal(quoted(`[{"key":"k","options":`+nested(c.levels-2)+`}]`), &a); err != nil {
			t.Fatal(err)
		}
		if _, err := a.data(); c.ok != (err == nil) {
			t.Errorf("elements of %d levels: %.300v", c.levels, err)
		}
	}
	if _, err := p.UIElements(t.Context(), ui.Input{}); err != nil {
		t.Error(err)
	}
}
