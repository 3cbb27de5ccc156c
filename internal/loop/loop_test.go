package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a provider that returns the replies one after another, and then "done".
type model struct {
	replies []loquat.Reply
	tools   []plugin.Tool
	asked   [][]loquat.Message // the history of each call
}

func (*model) Name() string           { return "test.model" }
func (*model) Kind() string           { return plugin.KindProvider }
func (*model) Selector() string       { return "model" }
func (m *model) Tools() []plugin.Tool { return m.tools }
func (*model) Models(context.Context, loquat.Object) ([]loquat.Model, error) {
	return nil, nil
}

func (m *model) Chat(_ context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		m.asked = append(m.asked, slices.Clone(req.Messages))
		reply := loquat.Reply{Content: "done"}
		if len(m.replies) > 0 {
			reply, m.replies = m.replies[0], m.replies[1:]
		}
		if reply.Content == "" || yield(loquat.Chunk{Text: reply.Content}, nil) {
			yield(loquat.Chunk{Reply: &reply}, nil)
		}
	}
}

// tool is a tool that calls a function.
type tool struct {
	name string
	run  func(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error)
}

func (t tool) Name() string { return t.name }
func (t tool) Schema() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%q}}`, t.name))
}
func (t tool) Call(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
	return t.run(ctx, call)
}

// notes is a sink that records each call as a line of text. It returns errSink for the
// lines that fails selects.
type notes struct {
	mu    sync.Mutex
	lines []string
	fails func(line string) bool

	steers []loquat.Message // that follow the results of a tool round
}

var errSink = errors.New("the disk is gone")

func (n *notes) note(format string, args ...any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if n.fails != nil && n.fails(line) {
		return errSink
	}
	n.lines = append(n.lines, line)
	return nil
}

func (n *notes) Publish(_ context.Context, e loquat.Event) error {
	line := string(e.Type) + " " + e.Phase + e.ToolCallID
	if e.Message != nil {
		line += e.Message.Content
	}
	return n.note("%s", line)
}

func (n *notes) EndPhase(_ context.Context, p loop.Phase) error {
	return n.note("end of phase %s with %d calls", p.Message.Content, len(p.Calls))
}

func (n *notes) ToolResults(_ context.Context, results []loquat.Message, _ bool) (steers []loquat.Message, err error) {
	return n.steers, n.note("results %s", contents(results))
}

func (n *notes) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "; ")
}

func contents(messages []loquat.Message) string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Role+":"+m.Content)
	}
	return strings.Join(out, "|")
}

func calling(names ...string) loquat.Reply {
	r := loquat.Reply{}
	for i, name := range names {
		r.ToolCalls = append(r.ToolCalls, loquat.ToolCall{ID: fmt.Sprint(i), Name: name, Arguments: "{}"})
	}
	return r
}

// maxResult is the MaxToolResultBytes of the tests.
const maxResult = 1024

func run(t *testing.T, ctx context.Context, m *model, sink loop.Sink, more ...plugin.Plugin) error {
	t.Helper()
	registry, err := plugin.NewRegistry(append([]plugin.Plugin{m}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return loop.Run(ctx, loop.Job{
		SessionID: "s", RequestID: "q", ProviderID: "main", Provider: m, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult, Stream: true, StreamTools: true,
		History:    []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}},
		NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
	}, sink)
}

// Tools start after their phase is durable and run in parallel. Their results keep the order
// of the calls, and the next phase gets the phase's message, all results and the messages that
// the sink adds.
func TestToolRound(t *testing.T) {
	sink := &notes{steers: []loquat.Message{{Role: loquat.RoleUser, Content: "shorter"}}}
	early, late := make(chan struct{}), make(chan struct{})
	m := &model{replies: []loquat.Reply{calling("first", "second")}}
	m.tools = []plugin.Tool{
		tool{"first", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
			if !strings.Contains(sink.all(), "end of phase") {
				t.Error("a tool started before its phase was durable")
			}
			close(early)
			<-late // the second tool ends first
			return plugin.ToolResult{Content: "one"}, nil
		}},
		tool{"second", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
			<-early
			defer close(late)
			return plugin.ToolResult{Content: "two"}, nil
		}},
	}
	if err := run(t, t.Context(), m, sink); err != nil {
		t.Fatal(err)
	}
	if got := sink.all(); !strings.Contains(got, "results tool:one|tool:two") || !strings.HasSuffix(got, "end of phase done with 0 calls") {
		t.Errorf("the sink got %s", got)
	}
	if len(m.asked) != 2 || contents(m.asked[1]) != "user:hi|assistant:|tool:one|tool:two|user:shorter" {
		t.Errorf("the model was asked %v", m.asked)
	}
}

// If the sink fails at any point, the request ends with that error and the finished results,
// and does not call the model again.
func TestSinkFails(t *testing.T) {
	for _, c := range []struct{ at, finished string }{
		{"assistant_message start", ""},
		{"partial", ""},
		{"end of phase", ""},
		{"tool_partial start0", ""},
		{"tool_partial end0", "done"},
		{"results", "done"},
	} {
		t.Run(c.at, func(t *testing.T) {
			sink := &notes{fails: func(line string) bool { return strings.HasPrefix(line, c.at) }}
			m := &model{replies: []loquat.Reply{{Content: "calling", ToolCalls: calling("act").ToolCalls}}}
			m.tools = []plugin.Tool{tool{"act", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
				return plugin.ToolResult{Content: "done"}, nil
			}}}
			err := run(t, t.Context(), m, sink)
			f, ok := errors.AsType[*loop.Failure](err)
			if !ok || !errors.Is(err, errSink) {
				t.Fatalf("the request ends with %v", err)
			}
			if got := f.Finished["0"].Content; got != c.finished || len(m.asked) != 1 {
				t.Errorf("the finished result is %q, want %q; the model was called %d times", got, c.finished, len(m.asked))
			}
		})
	}
}

// A cancelled request does not wait for a tool that ignores its context, and drops the late
// result of that tool. The results of other tools are kept.
func TestToolThatIgnoresItsContext(t *testing.T) {
	quickEnded := make(chan struct{})
	sink := &notes{fails: func(line string) bool {
		if line == "tool_partial end0" {
			close(quickEnded)
		}
		return false
	}}
	ctx, cancel := context.WithCancel(t.Context())
	release, returned := make(chan struct{}), make(chan struct{})
	m := &model{replies: []loquat.Reply{calling("quick", "ignoring", "obedient")}}
	m.tools = []plugin.Tool{
		tool{"quick", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
			return plugin.ToolResult{Content: "done"}, nil
		}},
		tool{"ignoring", func(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
			defer close(returned)
			<-release
			call.Progress("late", nil, nil)
			return plugin.ToolResult{Content: "late"}, nil
		}},
		tool{"obedient", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
			<-quickEnded
			cancel()
			<-ctx.Done()
			return plugin.ToolResult{}, ctx.Err()
		}},
	}
	err := run(t, ctx, m, sink)
	f, ok := errors.AsType[*loop.Failure](err)
	if !ok || !errors.Is(err, context.Canceled) || len(f.Finished) != 1 || f.Finished["0"].Content != "done" {
		t.Fatalf("the request ends with %+v", err)
	}
	before := sink.all()
	close(release)
	<-returned
	if after := sink.all(); after != before {
		t.Errorf("after the end of the request the sink got %s", strings.TrimPrefix(after, before))
	}
	if len(f.Finished) != 1 {
		t.Errorf("a late result was added: %v", f.Finished)
	}
}

// A result that is too long is cut in the message, in the event and in the model's history.
// The message says what is missing and which limit to raise.
func TestLongResults(t *testing.T) {
	long := strings.Repeat("x", maxResult)
	cut := func(size, kept int) string {
		return fmt.Sprintf("\n[The result of act has %d bytes and is cut after %d. Ask for a smaller part, or raise limits.max_tool_result_bytes.]", size, kept)
	}
	dropped := fmt.Sprintf("[metadata.display of the result of act has %d bytes and is left out: it is over limits.max_tool_result_bytes, which is %d.]", maxResult+2, maxResult)
	for _, c := range []struct {
		name, content, display, want string
		err                          error
	}{
		{name: "empty"},
		{name: "at the bound", content: long, want: long},
		{name: "over the bound", content: long + "y", want: long + cut(maxResult+1, maxResult)},
		{name: "far over the bound", content: strings.Repeat(long, 1000), want: long + cut(1000*maxResult, maxResult)},
		{name: "characters are not split", content: long[1:] + "ö", want: long[1:] + cut(maxResult+1, maxResult-1)},
		{name: "invalid UTF-8", content: long[4:] + "\x80\x80\x80\x80\x80\x80", want: long[4:] + "\x80" + cut(maxResult+2, maxResult-3)},
		{name: "error", err: errors.New(long), want: "tool act failed: " + long[17:] + cut(maxResult+17, maxResult)},
		{name: "display at the bound", content: "short", display: long[2:], want: "short"},
		{name: "display over the bound", content: "short", display: long, want: "short\n" + dropped},
		{name: "display alone", display: long, want: dropped},
	} {
		t.Run(c.name, func(t *testing.T) {
			sink := &notes{}
			m := &model{replies: []loquat.Reply{calling("act")}}
			m.tools = []plugin.Tool{tool{"act", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
				r := plugin.ToolResult{Content: c.content}
				if c.display != "" {
					r.Metadata = loquat.Object{}.Set(loquat.MetaDisplay, c.display)
				}
				return r, c.err
			}}}
			if err := run(t, t.Context(), m, sink); err != nil {
				t.Fatal(err)
			}
			last := m.asked[1][len(m.asked[1])-1]
			if last.Content != c.want {
				t.Errorf("the model gets %d bytes: %.60q … %.200q", len(last.Content), last.Content, last.Content[max(0, len(last.Content)-200):])
			}
			_, shown := last.Metadata[loquat.MetaDisplay]
			if want := c.display != "" && len(c.display) < maxResult; shown != want {
				t.Errorf("metadata.display is present: %v, want %v", shown, want)
			}
			if !strings.Contains(sink.all(), "results tool:"+c.want+";") {
				t.Errorf("the sink gets another result: %.300s", sink.all())
			}
		})
	}
}

// starting is a plugin whose tools are not known yet.
type starting struct{}

func (starting) Name() string          { return "slow" }
func (starting) Kind() string          { return plugin.KindTool }
func (starting) Tools() []plugin.Tool  { return nil }
func (starting) Status() plugin.Status { return plugin.Status{State: plugin.StateStarting} }

// A call of an unknown tool names the plugins that may have it but do not run.
func TestUnknownTool(t *testing.T) {
	for _, c := range []struct {
		more []plugin.Plugin
		want string
	}{
		{nil, `there is no tool named "echo"`},
		{[]plugin.Plugin{starting{}}, `there is no tool named "echo"; these plugins do not run, so their tools are missing: slow (starting)`},
	} {
		m := &model{replies: []loquat.Reply{calling("echo")}}
		if err := run(t, t.Context(), m, &notes{}, c.more...); err != nil {
			t.Fatal(err)
		}
		if got := m.asked[1][len(m.asked[1])-1].Content; got != c.want {
			t.Errorf("the model gets %s, want %s", got, c.want)
		}
	}
}

// editor edits the parameters of calls, and their messages unless it says that it does not.
type editor struct {
	messages bool
	saw      []string
}

func (*editor) Name() string { return "test.editor" }
func (*editor) Kind() string { return plugin.KindFeature }

func (e *editor) EditsMessages() bool { return e.messages }

func (e *editor) EditRequest(_ context.Context, req *loquat.LLMRequest) error {
	e.saw = append(e.saw, contents(req.Messages))
	return nil
}

// earlierModel is a model that reads earlier messages itself.
type earlierModel struct {
	*model
	earlier int // calls that had unread messages
}

func (*earlierModel) ReadsEarlier() {}

func (m *earlierModel) Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	if req.Earlier != nil {
		m.earlier++
	}
	return m.model.Chat(ctx, req)
}

// A provider and plugins that do not read earlier messages themselves get them in each phase
// before the others. For a provider that reads them, and plugins that do not care, they stay
// unread.
func TestEarlierMessages(t *testing.T) {
	for _, c := range []struct {
		name             string
		readsItself      bool
		editsMessages    bool
		wantSeen         string
		wantReads, wantE int
	}{
		{"a provider that reads none", false, false, "user:hi", 2, 0},
		{"a plugin that edits messages", true, true, "system:old|user:hi", 2, 0},
		{"nobody needs them", true, false, "user:hi", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &model{replies: []loquat.Reply{calling("f")}}
			m.tools = []plugin.Tool{tool{"f", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) { return plugin.ToolResult{}, nil }}}
			reader := &earlierModel{model: m}
			e := &editor{messages: c.editsMessages}
			registry, err := plugin.NewRegistry(m, e)
			if err != nil {
				t.Fatal(err)
			}
			reads := 0
			job := loop.Job{
				SessionID: "s", RequestID: "q", ProviderID: "main", Provider: m, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult,
				History:    []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}},
				NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
				Earlier: &loquat.EarlierMessages{Count: 1, Read: func(context.Context, int) ([]loquat.Message, error) {
					reads++
					return []loquat.Message{{Role: loquat.RoleSystem, Content: "old"}}, nil
				}},
			}
			if c.readsItself {
				job.Provider = reader
			}
			if err := loop.Run(t.Context(), job, &notes{}); err != nil {
				t.Fatal(err)
			}
			if len(e.saw) != 2 || e.saw[0] != c.wantSeen || reads != c.wantReads || reader.earlier != c.wantE {
				t.Errorf("the plugin saw %q; %d reads, %d calls with unread messages", e.saw, reads, reader.earlier)
			}
			if whole := "system:old|user:hi"; (c.wantReads > 0) != (contents(m.asked[0]) == whole) || (c.wantReads > 0) != strings.HasPrefix(contents(m.asked[1]), whole+"|assistant:") {
				t.Errorf("the model was asked %q", m.asked)
			}
		})
	}
}

// marker changes the messages of each call, and says what it was given.
type marker struct{ saw []string }

func (*marker) Name() string { return "test.marker" }
func (*marker) Kind() string { return plugin.KindFeature }

func (e *marker) EditRequest(_ context.Context, req *loquat.LLMRequest) error {
	e.saw = append(e.saw, contents(req.Messages))
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Metadata.String("mark") != "" {
			m.Content = "marked before"
		}
		m.Content += "!"
		m.Metadata = m.Metadata.Set("mark", "yes")
	}
	return nil
}

// What a plugin changes in the messages of a call is for that call alone: it reaches neither the
// next call nor the messages that the job was given.
func TestEditedMessages(t *testing.T) {
	m := &model{replies: []loquat.Reply{calling("f")}}
	m.tools = []plugin.Tool{tool{"f", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) { return plugin.ToolResult{}, nil }}}
	e := &marker{}
	registry, err := plugin.NewRegistry(m, e)
	if err != nil {
		t.Fatal(err)
	}
	earlier := []loquat.Message{{Role: loquat.RoleSystem, Content: "old", Metadata: loquat.Object{}.Set("n", 1)}}
	history := []loquat.Message{{Role: loquat.RoleUser, Content: "hi", Metadata: loquat.Object{}.Set("n", 2)}}
	job := loop.Job{
		SessionID: "s", RequestID: "q", ProviderID: "main", Provider: m, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult,
		History:    history,
		NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
		Earlier:    &loquat.EarlierMessages{Count: 1, Read: func(context.Context, int) ([]loquat.Message, error) { return earlier, nil }},
	}
	if err := loop.Run(t.Context(), job, &notes{}); err != nil {
		t.Fatal(err)
	}
	const unedited = "system:old|user:hi"
	if len(e.saw) != 2 || e.saw[0] != unedited || !strings.HasPrefix(e.saw[1], unedited+"|assistant:") {
		t.Errorf("the plugin was given %q", e.saw)
	}
	if got := contents(m.asked[0]); got != "system:old!|user:hi!" {
		t.Errorf("the model was asked %q", got)
	}
	if len(earlier[0].Metadata) != 1 || len(history[0].Metadata) != 1 {
		t.Errorf("the metadata became %s and %s", earlier[0].Metadata, history[0].Metadata)
	}
}

// A call of a client's tool ends the request, after the server's tools of the same phase have run.
func TestClientTools(t *testing.T) {
	for want, calls := range map[string][]string{
		"end of phase  with 0 calls, last false":                              nil,
		"end of phase  with 1 calls, last true":                               {"theirs"},
		"end of phase  with 2 calls, last false; results tool:one, last true": {"ours", "theirs"},
	} {
		sink := &ends{}
		m := &model{replies: []loquat.Reply{calling(calls...)}}
		m.tools = []plugin.Tool{
			tool{"ours", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
				return plugin.ToolResult{Content: "one"}, nil
			}},
			tool{"theirs", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
				t.Error("the server ran the client's tool")
				return plugin.ToolResult{}, nil
			}},
		}
		registry, err := plugin.NewRegistry(m)
		if err != nil {
			t.Fatal(err)
		}
		err = loop.Run(t.Context(), loop.Job{
			Provider: m, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult,
			History: []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}}, Instructions: "Be brief.",
			ClientTools: []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"theirs"}}`)},
			NewMessage:  func(role string) loquat.Message { return loquat.Message{Role: role} },
		}, sink)
		if err != nil {
			t.Fatal(err)
		}
		if got := sink.all(); got != want || contents(m.asked[0]) != "system:Be brief.|user:hi" {
			t.Errorf("%v: the sink got %s, the model %s", calls, got, contents(m.asked[0]))
		}
	}
}

// ends is a sink that records what ends a phase or a round.
type ends struct{ notes }

func (n *ends) Publish(context.Context, loquat.Event) error { return nil }

func (n *ends) EndPhase(_ context.Context, p loop.Phase) error {
	return n.note("end of phase %s with %d calls, last %t", p.Message.Content, len(p.Calls), p.Last)
}

func (n *ends) ToolResults(_ context.Context, results []loquat.Message, last bool) ([]loquat.Message, error) {
	return nil, n.note("results %s, last %t", contents(results), last)
}
