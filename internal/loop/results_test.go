package loop_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
)

// resultOf runs one call of a tool and returns its message, and what was published.
func resultOf(t *testing.T, arguments string, change func(*loop.Job), run func(context.Context, plugin.ToolCall) (plugin.ToolResult, error)) (loquat.Message, []loquat.Event) {
	t.Helper()
	reply := calling("act")
	reply.ToolCalls[0].Arguments = arguments
	m := &model{replies: []loquat.Reply{reply}, tools: []plugin.Tool{tool{"act", run}}}
	sink := &events{}
	if err := runJob(t, m, sink, func(job *loop.Job) {
		job.StreamTools = true
		if change != nil {
			change(job)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return m.asked[1][2], sink.published
}

func TestArgumentsOfCalls(t *testing.T) {
	for arguments, want := range map[string]string{
		"": "{}", " \n": "{}", "null": "{}", ` {"a":1} `: `{"a":1}`,
		`[1]`:  "the arguments of act are not valid: they have to be a JSON object",
		`{"a"`: "the arguments of act are not valid: they have to be a JSON object: unexpected end of JSON input",
	} {
		m, _ := resultOf(t, arguments, nil, func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
			return plugin.ToolResult{Content: string(call.Arguments)}, nil
		})
		if m.Content != want || m.Metadata.Bool(loquat.MetaIsError) != strings.HasPrefix(want, "the ") {
			t.Errorf("%q: %q, %s; want %q", arguments, m.Content, m.Metadata, want)
		}
	}
}

// A tool's message has its text and metadata in a form that every store can keep, and the call's id and name.
func TestMessagesOfTools(t *testing.T) {
	failed := errors.New("no room")
	for _, c := range []struct {
		name           string
		result         plugin.ToolResult
		err            error
		panics         any
		text, metadata string
	}{
		{"text", plugin.ToolResult{Content: "a\x00"}, nil, nil, "a\ufffd", `{"tool_call_id":"0","tool_name":"act"}`},
		{"metadata", plugin.ToolResult{Metadata: loquat.Object{"n": []byte(`"\u0000"`), "faulty": []byte(`{`), "attachments": []byte(`[1]`), "tool_name": []byte(`"other"`)}}, nil, nil,
			"", `{"n":"\ufffd","tool_call_id":"0","tool_name":"act"}`},
		{"an error of the tool", plugin.ToolResult{Content: "no", IsError: true}, nil, nil, "no", `{"is_error":true,"tool_call_id":"0","tool_name":"act"}`},
		{"an error", plugin.ToolResult{Content: "lost"}, failed, nil, "tool act failed: no room", `{"is_error":true,"tool_call_id":"0","tool_name":"act"}`},
		{"a panic", plugin.ToolResult{}, nil, "broken", "tool act failed: broken", `{"is_error":true,"tool_call_id":"0","tool_name":"act"}`},
	} {
		m, published := resultOf(t, "", nil, func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
			if c.panics != nil {
				panic(c.panics)
			}
			return c.result, c.err
		})
		metadata, err := m.Metadata.Encode()
		if err != nil || m.Role != loquat.RoleTool || m.Content != c.text || string(metadata) != c.metadata {
			t.Errorf("%s: %s %q %s, %v", c.name, m.Role, m.Content, metadata, err)
		}
		if end := published[2]; end.Phase != loquat.PhaseEnd || end.Payload.Result.Content != c.text {
			t.Errorf("%s: published %+v", c.name, end)
		}
	}
}

// Progress is published until the tool returns, without numbers that JSON lacks. Without StreamTools nothing is published.
func TestProgressOfTools(t *testing.T) {
	num := func(f float64) *float64 { return &f }
	for _, streams := range []bool{true, false} {
		_, published := resultOf(t, "", func(job *loop.Job) { job.StreamTools = streams }, func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
			call.Progress("a\x00", num(1), num(2))
			call.Progress("b", num(math.NaN()), num(math.Inf(-1)))
			call.Progress("", nil, nil)
			return plugin.ToolResult{}, nil
		})
		var got []string
		for _, e := range published {
			if e.Type == loquat.ToolPartial && e.Phase == loquat.PhaseStream {
				line := *e.Payload.Part
				for _, n := range []*float64{e.Payload.Progress, e.Payload.Total} {
					if n != nil {
						line += fmt.Sprintf(" %g", *n)
					}
				}
				got = append(got, line)
			}
		}
		want := "a\ufffd 1 2|b|"
		if !streams {
			want = ""
		}
		if strings.Join(got, "|") != want {
			t.Errorf("streamed %v: published %q", streams, got)
		}
	}
}

// Progress after the end of a call is dropped, while another call of the round runs.
func TestLateProgress(t *testing.T) {
	var late func()
	sink := &events{}
	ended, m := make(chan struct{}), &model{replies: []loquat.Reply{calling("first", "second")}}
	sink.fails = func(line string) bool {
		if line == "tool_partial end0" {
			close(ended)
		}
		return false
	}
	m.tools = []plugin.Tool{
		tool{"first", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
			late = func() { call.Progress("late", nil, nil) }
			return plugin.ToolResult{}, nil
		}},
		tool{"second", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
			<-ended
			late()
			call.Progress("in time", nil, nil)
			return plugin.ToolResult{}, nil
		}},
	}
	if err := run(t, t.Context(), m, sink); err != nil {
		t.Fatal(err)
	}
	if got := sink.all(); strings.Contains(got, "tool_partial stream0") || !strings.Contains(got, "tool_partial stream1") {
		t.Errorf("published %s", got)
	}
}

// full is a sink that takes no progress.
type full struct {
	notes
	refused int
}

func (f *full) Publish(_ context.Context, e loquat.Event) error {
	if e.Phase != loquat.PhaseStream {
		return nil
	}
	f.refused++
	return fmt.Errorf("refused %d", f.refused)
}

// A request whose sink cannot take progress fails with the first error of the sink.
func TestProgressThatCannotBePublished(t *testing.T) {
	m := &model{replies: []loquat.Reply{calling("act")}}
	m.tools = []plugin.Tool{tool{"act", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		call.Progress("a", nil, nil)
		call.Progress("b", nil, nil)
		return plugin.ToolResult{}, nil
	}}}
	if err := run(t, t.Context(), m, &full{}); err == nil || err.Error() != "refused 1" {
		t.Errorf("the request ends with %v", err)
	}
}

// Images of a result are stored and attached. The text says which are missing, and why.
func TestImagesOfResults(t *testing.T) {
	store := func(_ context.Context, img plugin.Image) (loquat.Asset, error) {
		switch img.MediaType {
		case "refused":
			return loquat.Asset{}, loquat.Errorf(loquat.CodeInvalid, "no picture")
		case "failed":
			return loquat.Asset{}, errors.New("secret")
		}
		return loquat.Asset{AssetID: img.MediaType}, nil
	}
	many := make([]plugin.Image, 66)
	for i := range many {
		many[i].MediaType = "x"
	}
	for _, c := range []struct {
		name        string
		images      []plugin.Image
		text        string
		attachments string
		count       int
	}{
		{"none", nil, "see", "", 0},
		{"two", []plugin.Image{{MediaType: "a"}, {MediaType: "b"}}, "see", `[{"asset_id":"a","type":"image"},{"asset_id":"b","type":"image"}]`, 2},
		{"some are missing", []plugin.Image{{MediaType: "refused"}, {MediaType: "b"}, {MediaType: "failed"}},
			"see\n[Image 1 of the tool is left out: no picture.]\n[Image 3 of the tool is left out: it could not be stored.]", `[{"asset_id":"b","type":"image"}]`, 1},
		{"as many as may be", many[:64], "see", "", 64},
		{"more than may be", many, "see\n[2 more images of the tool are left out: a result may have 64.]", "", 64},
	} {
		m, _ := resultOf(t, "", func(job *loop.Job) { job.StoreImage = store }, func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
			return plugin.ToolResult{Content: "see", Images: c.images}, nil
		})
		got := string(m.Metadata[loquat.MetaAttachments])
		if m.Content != c.text || c.attachments != "" && got != c.attachments || strings.Count(got, "asset_id") != c.count {
			t.Errorf("%s: %q with %s", c.name, m.Content, got)
		}
	}
}

func TestUnknownOutcome(t *testing.T) {
	m := loop.UnknownOutcome(loquat.Message{ID: "m"}, loquat.ToolCall{ID: "1", Name: "act"})
	metadata, err := m.Metadata.Encode()
	if err != nil || m.ID != "m" || !strings.Contains(m.Content, "Whether it took effect is unknown") || string(metadata) != `{"is_error":true,"tool_call_id":"1","tool_name":"act"}` {
		t.Errorf("%+v", m)
	}
}

// The id and the name of a call stay in the metadata regardless of their size. Notes clip the name.
func TestLongNamesOfCalls(t *testing.T) {
	id, name := strings.Repeat("i", 2*maxResult), strings.Repeat("n", 2*maxResult)
	m := &model{replies: []loquat.Reply{{ToolCalls: []loquat.ToolCall{{ID: id, Name: name}}}}}
	m.tools = []plugin.Tool{tool{name, func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: strings.Repeat("x", maxResult+1)}, nil
	}}}
	if err := run(t, t.Context(), m, &notes{}); err != nil {
		t.Fatal(err)
	}
	got := m.asked[1][2]
	if got.Metadata.String(loquat.MetaToolCallID) != id || got.Metadata.String(loquat.MetaToolName) != name {
		t.Errorf("metadata of %d keys", len(got.Metadata))
	}
	if !strings.Contains(got.Content, "[The result of "+name[:63]+"… has 1025 bytes") {
		t.Errorf("the note is %s", got.Content[maxResult:])
	}
}
