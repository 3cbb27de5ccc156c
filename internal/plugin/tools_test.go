package plugin_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"loquat/internal/plugin"
)

// box is a plugin whose tools come and go.
type box struct {
	name  string
	state string // "" is running
	tools []string
}

func (b *box) Name() string { return b.name }
func (*box) Kind() string   { return plugin.KindTool }
func (b *box) Status() plugin.Status {
	return plugin.Status{State: cmp.Or(b.state, plugin.StateRunning), Problems: []string{"own"}}
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

// The first plugin that offers a name keeps it, and the status of the other plugin
// reports the conflict. A toolset does not change when plugins change their tools.
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

// A plugin that restarts keeps its tools and their names. Tools of a failed plugin are
// not offered to models, but can be found by a call. The set lists the states of plugins
// that do not run and never offered a tool.
func TestToolsOfPluginsThatDoNotRun(t *testing.T) {
	for _, c := range []struct {
		state         string
		tools         []string
		owner, schema string // of tool a, which the second plugin offers too
		lone          bool   // tool b, which only the first offers, is shown to models
		absent        string
	}{
		{plugin.StateRunning, []string{"a", "b"}, "first", `"first.a"`, true, ""},
		{plugin.StateStarting, []string{"a", "b"}, "first", `"first.a"`, true, ""},
		{plugin.StateFailed, []string{"a", "b"}, "second", `"second.a"`, false, ""},
		{plugin.StateStarting, nil, "second", `"second.a"`, false, "first (starting)"},
		{plugin.StateFailed, nil, "second", `"second.a"`, false, "first (failed)"},
		{plugin.StateRunning, nil, "second", `"second.a"`, false, ""},
	} {
		t.Run(fmt.Sprint(c.state, len(c.tools)), func(t *testing.T) {
			first, second := &box{name: "first", state: c.state, tools: c.tools}, &box{name: "second", state: plugin.StateRunning, tools: []string{"a"}}
			r, err := plugin.NewRegistry(first, second)
			if err != nil {
				t.Fatal(err)
			}
			set := r.Tools()
			a, _ := set.Tool("a")
			if got, _ := a.Call(t.Context(), plugin.ToolCall{}); got.Content != c.owner {
				t.Errorf("tool a is of %q, not of %q", got.Content, c.owner)
			}
			schemas := fmt.Sprintf("%s", set.Schemas())
			if !strings.Contains(schemas, c.schema) || strings.Contains(schemas, "first.b") != c.lone {
				t.Errorf("schemas are %s", schemas)
			}
			if _, ok := set.Tool("b"); ok != (len(c.tools) > 0) {
				t.Errorf("tool b is found: %v", ok)
			}
			if got := slices.Contains(r.ToolNames(first), "b"); got != c.lone {
				t.Errorf("tool b is named: %v", got)
			}
			if got := set.Absent(); got != c.absent {
				t.Errorf("absent are %q, not %q", got, c.absent)
			}
			for _, p := range []plugin.Plugin{first, second} {
				for _, problem := range r.Status(p).Problems {
					if c.owner != "first" && strings.Contains(problem, "is left out") {
						t.Errorf("problem of %s: %s", p.Name(), problem)
					}
				}
			}
		})
	}
}
