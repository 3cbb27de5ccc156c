package plugin_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"loquat/internal/plugin"
)

// box is a plugin whose tools come and go.
type box struct {
	name  string
	tools []string
}

func (b *box) Name() string { return b.name }
func (*box) Kind() string   { return plugin.KindTool }
func (b *box) Status() plugin.Status {
	return plugin.Status{State: plugin.StateStarting, Problems: []string{"own"}}
}

func (b *box) Tools() []plugin.Tool {
	var out []plugin.Tool
	for _, name := range b.tools {
		out = append(out, boxed{name, b.name})
	}
	return out
}

type boxed struct{ name, owner string }

func (t boxed) Name() string { return t.name }
func (t boxed) Schema() json.RawMessage {
	return json.RawMessage(`"` + t.owner + "." + t.name + `"`)
}

func (t boxed) Call(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
	return plugin.ToolResult{Content: t.owner}, nil
}

// The first plugin of the list has a name; the other is told; a set that was taken
// stays as it was while tools come and go.
func TestTools(t *testing.T) {
	first, second := &box{name: "first"}, &box{name: "second", tools: []string{"a", "b"}}
	r, err := plugin.NewRegistry(first, second)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Tools()
	first.tools = []string{"b", "c"}
	after := r.Tools()

	for name, want := range map[string][2]string{"a": {"second", "second"}, "b": {"second", "first"}, "c": {"", "first"}} {
		for i, set := range []*plugin.Toolset{before, after} {
			got := ""
			if tool, ok := set.Tool(name); ok {
				result, _ := tool.Call(t.Context(), plugin.ToolCall{})
				got = result.Content
			}
			if got != want[i] {
				t.Errorf("tool %s of set %d is of %q, not of %q", name, i, got, want[i])
			}
		}
	}
	var schemas []string
	for _, s := range after.Schemas() {
		schemas = append(schemas, string(s))
	}
	if got := strings.Join(schemas, " "); got != `"first.b" "first.c" "second.a"` {
		t.Errorf("schemas are %s", got)
	}
	if got := r.ToolNames(second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the second offers %v", got)
	}
	status := r.Status(second)
	if len(status.Problems) != 2 || !strings.Contains(status.Problems[1], `"b"`) || !strings.Contains(status.Problems[1], "first") {
		t.Errorf("problems of the second: %q", status.Problems)
	}
	if n := len(second.Status().Problems); n != 1 {
		t.Errorf("the plugin's own list has grown to %d", n)
	}
	if got := r.Status(first); len(got.Problems) != 1 {
		t.Errorf("problems of the first: %q", got.Problems)
	}
}
