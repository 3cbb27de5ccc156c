package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
)

func nested(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", levels) + strings.Repeat("]", levels))
}

// A reply that nests deeper than MaxDepth ends the request with an error.
func TestDepthOfReplies(t *testing.T) {
	for name, c := range map[string]struct {
		reply loquat.Reply
		want  string // part of the error; "": the reply is accepted
	}{
		"at the limit":          {loquat.Reply{Metadata: loquat.Object{"m": nested(loquat.MaxDepth)}}, ""},
		"metadata":              {loquat.Reply{Metadata: loquat.Object{"m": nested(loquat.MaxDepth + 1)}}, "at m[0]"},
		"a field of a call":     {loquat.Reply{ToolCalls: []loquat.ToolCall{{ID: "1"}, {ID: "2", Extra: loquat.Object{"x": nested(200)}}}}, "at x[0]"},
		"a field of a function": {loquat.Reply{ToolCalls: []loquat.ToolCall{{ID: "1", FunctionExtra: loquat.Object{"y": nested(200)}}}}, "at y[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			sink := &notes{}
			err := run(t, t.Context(), &model{replies: []loquat.Reply{c.reply}}, sink)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e, _ := errors.AsType[*loquat.Error](err)
			if e == nil || e.Code != loquat.CodeBackendError || !strings.Contains(e.Detail, c.want) || strings.Contains(sink.all(), "end of phase") {
				t.Errorf("the request ends with %v after %s", err, sink.all())
			}
		})
	}
}

// Metadata of a tool result that nests too deep is left out, and the result says so.
func TestDepthOfToolResults(t *testing.T) {
	m := &model{replies: []loquat.Reply{calling("deep")}}
	m.tools = []plugin.Tool{tool{"deep", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: "result", Metadata: loquat.Object{"fine": nested(loquat.MaxDepth), "deep": nested(loquat.MaxDepth + 1)}}, nil
	}}}
	if err := run(t, t.Context(), m, &notes{}); err != nil {
		t.Fatal(err)
	}
	got := m.asked[1][2]
	if got.Content != "result\n[Metadata of deep is left out: JSON nests deeper than 128 levels at deep[0][0][0][0][0][0]….]" || got.Metadata["deep"] != nil || got.Metadata["fine"] == nil {
		t.Errorf("%q with %d of metadata", got.Content, len(got.Metadata))
	}
}

var _ loop.Sink = (*notes)(nil)
