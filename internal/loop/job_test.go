package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
)

// scripted is a provider that yields chunks and then an error, if it has one.
type scripted struct {
	*model
	chunks []loquat.Chunk
	err    error
	counts bool // it reports its calls itself
	got    loquat.LLMRequest
}

func (s *scripted) Chat(_ context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		s.got = req
		if s.counts {
			req.Attempted(loquat.Attempt{Received: 1000})
		}
		for i, c := range s.chunks {
			var err error
			if i == len(s.chunks)-1 {
				err = s.err
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// events is a sink that keeps what it gets.
type events struct {
	notes
	published []loquat.Event
	phases    []loop.Phase
}

func (e *events) Publish(ctx context.Context, event loquat.Event) error {
	e.published = append(e.published, event)
	return e.notes.Publish(ctx, event)
}

func (e *events) EndPhase(ctx context.Context, p loop.Phase) error {
	e.phases = append(e.phases, p)
	return e.notes.EndPhase(ctx, p)
}

// runJob runs a job with a provider and plugins, and with what change sets.
func runJob(t *testing.T, p interface {
	plugin.Plugin
	plugin.Provider
}, sink loop.Sink, change func(*loop.Job), more ...plugin.Plugin) error {
	t.Helper()
	registry, err := plugin.NewRegistry(append([]plugin.Plugin{p}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	job := loop.Job{
		SessionID: "s", RequestID: "q", ProviderID: "main", Provider: p, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult, Stream: true,
		History:    []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}},
		NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
	}
	if change != nil {
		change(&job)
	}
	return loop.Run(t.Context(), job, sink)
}

var used = loquat.Object{}.Set("usage", map[string]int{"total_tokens": 7}).Set("usage_prompt_tokens", 5).Set("usage_completion_tokens", 2)

// A model gets as many rounds of tools as the limit says, and an answer after the last.
func TestToolRoundsAreLimited(t *testing.T) {
	for rounds, fails := range map[int]bool{0: false, 2: false, 3: true} {
		m := &model{tools: []plugin.Tool{tool{"f", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) { return plugin.ToolResult{}, nil }}}}
		for range rounds {
			reply := calling("f")
			reply.Metadata = used.Clone()
			m.replies = append(m.replies, reply)
		}
		sink := &events{}
		err := runJob(t, m, sink, func(job *loop.Job) { job.MaxToolRounds = 2 })
		f, _ := errors.AsType[*loop.Failure](err)
		if fails != (f != nil) || len(m.asked) != min(rounds, 2)+1 {
			t.Errorf("%d rounds: %v after %d calls", rounds, err, len(m.asked))
		}
		if f != nil && (loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), "more than 2 rounds") || len(f.Usage) != 3 || len(sink.phases) != 2) {
			t.Errorf("%d rounds: %v, usage %v, %d phases", rounds, err, f.Usage, len(sink.phases))
		}
	}
}

// failing is a plugin that cannot edit requests.
type failing struct{}

func (failing) Name() string { return "test.failing" }
func (failing) Kind() string { return plugin.KindFeature }
func (failing) EditRequest(context.Context, *loquat.LLMRequest) error {
	return errors.New("no edit")
}

// Whatever fails in a phase ends the request with its error, and with the usage that is known.
func TestFailuresOfAPhase(t *testing.T) {
	unread := &loquat.EarlierMessages{Count: 1, Read: func(context.Context, int) ([]loquat.Message, error) { return nil, errors.New("no read") }}
	for _, c := range []struct {
		name     string
		provider scripted
		job      func(*loop.Job)
		plugins  []plugin.Plugin
		sink     string // the event that the sink refuses
		want     string
		usage    int
	}{
		{name: "a plugin", plugins: []plugin.Plugin{failing{}}, want: "plugin test.failing: no edit"},
		{name: "earlier messages", job: func(job *loop.Job) { job.Earlier = unread }, want: "no read"},
		{name: "earlier messages after an instruction", job: func(job *loop.Job) { job.Earlier, job.Instructions = unread, "Be brief." }, want: "no read"},
		{name: "the provider", provider: scripted{chunks: []loquat.Chunk{{}}, err: errors.New("no answer")}, want: "no answer"},
		{name: "the provider, with usage", provider: scripted{chunks: []loquat.Chunk{{Reply: &loquat.Reply{Metadata: used.Clone().Set("other", 1)}}}, err: errors.New("no answer")}, want: "no answer", usage: 3},
		{name: "a provider without a reply", provider: scripted{chunks: []loquat.Chunk{{Text: "a"}}}, want: "provider main ended without a reply"},
		{name: "the start of a reply without text", provider: scripted{chunks: []loquat.Chunk{{Reply: &loquat.Reply{}}}}, sink: "assistant_message start", want: errSink.Error()},
		{name: "the end of the phase", provider: scripted{chunks: []loquat.Chunk{{Reply: &loquat.Reply{Metadata: used.Clone()}}}}, sink: "end of phase", want: errSink.Error(), usage: 3},
		{name: "the notice of a retry", provider: scripted{chunks: []loquat.Chunk{{Retry: &loquat.Retry{}}}}, sink: "retry_scheduled", want: errSink.Error()},
	} {
		c.provider.model = &model{}
		sink := &events{notes: notes{fails: func(line string) bool { return c.sink != "" && strings.HasPrefix(line, c.sink) }}}
		err := runJob(t, &c.provider, sink, c.job, c.plugins...)
		f, _ := errors.AsType[*loop.Failure](err)
		if f == nil || f.Error() != c.want || len(f.Usage) != c.usage {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// A call of a provider that does not count its calls is counted once, with what came of it.
func TestCallsAreCounted(t *testing.T) {
	reply := loquat.Chunk{Reply: &loquat.Reply{Content: "whole", Metadata: used.Clone()}}
	tokens := &loquat.Tokens{Input: 5, Output: 2}
	said := []loquat.Chunk{{Text: "abc", Reasoning: "defgh", ReasoningContent: "ij"}}
	for _, c := range []struct {
		name     string
		provider scripted
		want     loquat.Attempt
	}{
		{"it counts", scripted{counts: true, chunks: []loquat.Chunk{reply}}, loquat.Attempt{Received: 1000}},
		{"a reply alone", scripted{chunks: []loquat.Chunk{reply}}, loquat.Attempt{Reported: tokens, Received: 5}},
		{"a streamed reply", scripted{chunks: append(slices.Clone(said), reply)}, loquat.Attempt{Reported: tokens, Received: 10}},
		{"a failure", scripted{chunks: append(slices.Clone(said), loquat.Chunk{}), err: errors.New("no")}, loquat.Attempt{Received: 10}},
		{"a failure with usage", scripted{chunks: append(slices.Clone(said), loquat.Chunk{Reply: &loquat.Reply{Metadata: used.Clone()}}), err: errors.New("no")}, loquat.Attempt{Reported: tokens, Received: 10}},
	} {
		for _, stream := range []bool{true, false} {
			p := c.provider
			p.model = &model{}
			var got []loquat.Attempt
			_ = runJob(t, &p, &events{}, func(job *loop.Job) {
				job.Stream, job.Attempted = stream, func(a loquat.Attempt) { got = append(got, a) }
			})
			if !reflect.DeepEqual(got, []loquat.Attempt{c.want}) {
				t.Errorf("%s, stream %v: %+v, want %+v", c.name, stream, got, c.want)
			}
		}
	}
}

// counter is a provider that counts its calls, and fails before the first one.
type counter struct{ *model }

func (counter) CountsAttempts() {}

func (counter) Chat(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		yield(loquat.Chunk{}, errors.New("cancelled while it waited"))
	}
}

// A call that was never made is not counted.
func TestCallThatWasNotMade(t *testing.T) {
	_ = runJob(t, counter{&model{}}, &events{}, func(job *loop.Job) {
		job.Attempted = func(a loquat.Attempt) { t.Errorf("counted: %+v", a) }
	})
}

// setter sets parameters of requests.
type setter struct{ params loquat.Object }

func (setter) Name() string { return "test.setter" }
func (setter) Kind() string { return plugin.KindFeature }
func (s setter) EditRequest(_ context.Context, req *loquat.LLMRequest) error {
	req.Params = s.params
	return nil
}

// The parameters of a request win over those of features, which stay as they are.
func TestParamsOfARequest(t *testing.T) {
	own := loquat.Object{}.Set("seed", 1).Set("tool_choice", "auto").Set("parallel_tool_calls", true)
	for _, c := range []struct {
		name     string
		features loquat.Object
		own      loquat.Object
		tools    bool
		want     string
	}{
		{"none", nil, nil, true, "{}"},
		{"of features", loquat.Object{}.Set("tool_choice", "none"), nil, false, `{"tool_choice":"none"}`},
		{"of the request", nil, own, true, `{"parallel_tool_calls":true,"seed":1,"tool_choice":"auto"}`},
		{"of the request without tools", nil, own, false, `{"seed":1}`},
		{"of both", loquat.Object{}.Set("seed", 2).Set("top_p", 1), own, true, `{"parallel_tool_calls":true,"seed":1,"tool_choice":"auto","top_p":1}`},
	} {
		p := &scripted{model: &model{}, chunks: []loquat.Chunk{{Reply: &loquat.Reply{}}}}
		before := len(c.features)
		err := runJob(t, p, &events{}, func(job *loop.Job) {
			job.Params = c.own
			if c.tools {
				job.ClientTools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}
			}
		}, setter{c.features})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(p.got.Params)
		if p.got.Params == nil {
			got = []byte("{}")
		}
		if err != nil || string(got) != c.want || len(c.features) != before {
			t.Errorf("%s: %s, want %s; of features %v", c.name, got, c.want, c.features)
		}
	}
}

// With NoteOrder the metadata say how much reasoning came before the text, if some came after it.
func TestOrderOfReasoning(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []loquat.Chunk
		want   string // metadata.reasoning_before of the reply
	}{
		{"before", []loquat.Chunk{{Reasoning: "ab"}, {Reasoning: "c"}, {Text: "t"}}, ""},
		{"in one chunk", []loquat.Chunk{{Reasoning: "ab", Text: "t"}}, ""},
		{"after", []loquat.Chunk{{ReasoningContent: "ab"}, {Reasoning: "c"}, {Text: "t"}, {Reasoning: "d"}, {Text: "u"}}, "3"},
		{"twice after", []loquat.Chunk{{Text: "t"}, {Reasoning: "d"}, {Reasoning: "e"}}, "0"},
		{"after alone", []loquat.Chunk{{Text: "t"}, {Reasoning: "d"}}, "0"},
		{"the text alone", []loquat.Chunk{{Text: "t"}, {Text: "u"}}, ""},
		{"after a restart", []loquat.Chunk{{Text: "t"}, {Reasoning: "d"}, {Reasoning: "e", Restarted: true}, {Text: "u"}}, ""},
	} {
		for _, notes := range []bool{true, false} {
			sink := &events{}
			p := &scripted{model: &model{}, chunks: append(slices.Clone(c.chunks), loquat.Chunk{Reply: &loquat.Reply{}})}
			if err := runJob(t, p, sink, func(job *loop.Job) { job.NoteOrder = notes }); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if !notes {
				want = ""
			}
			if got := string(sink.phases[0].Message.Metadata[loquat.MetaReasoningBefore]); got != want {
				t.Errorf("%s, noted %v: %s, want %s", c.name, notes, got, want)
			}
			last := *sink.published[len(sink.published)-1].Message
			if got := string(last.Metadata[loquat.MetaReasoningBefore]); got != want {
				t.Errorf("%s, noted %v: the last increment has %s, want %s", c.name, notes, got, want)
			}
		}
	}
}

// The message of a reply has its text, metadata and calls, in a form that every store can keep.
func TestMessageOfAReply(t *testing.T) {
	sink := &events{}
	m := &model{replies: []loquat.Reply{{Content: "a\x00", Metadata: loquat.Object{"n": []byte(`"\u0000"`)}, ToolCalls: calling("f").ToolCalls, FinishReason: "tool_calls"}}}
	if err := runJob(t, m, sink, nil); err != nil {
		t.Fatal(err)
	}
	got := sink.phases[0]
	if !got.Streamed || got.Last || got.Message.Role != loquat.RoleAssistant || got.Message.Content != "a\ufffd" || string(got.Message.Metadata["n"]) != `"\ufffd"` ||
		!strings.Contains(string(got.Message.Metadata[loquat.MetaToolCalls]), `"name":"f"`) || len(got.Calls) != 1 {
		t.Errorf("%+v", got)
	}
	if _, ok := sink.phases[1].Message.Metadata[loquat.MetaToolCalls]; ok {
		t.Error("a reply without calls has tool_calls")
	}
}

// Nothing that a provider yields after its reply counts.
func TestChunksAfterTheReply(t *testing.T) {
	sink := &events{}
	p := &scripted{model: &model{}, chunks: []loquat.Chunk{{Reply: &loquat.Reply{Content: "a"}}, {Text: "late"}, {Reply: &loquat.Reply{Content: "b"}}}}
	if err := runJob(t, p, sink, nil); err != nil || sink.all() != "assistant_message start; end of phase a with 0 calls" {
		t.Errorf("%s, %v", sink.all(), err)
	}
}

// Without a stream only retries are published.
func TestWithoutAStream(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 2, 3, 456_789_000, time.FixedZone("", 3600))
	for _, stream := range []bool{true, false} {
		sink := &events{}
		p := &scripted{model: &model{}, chunks: []loquat.Chunk{
			{Retry: &loquat.Retry{Attempt: 2, Cause: loquat.CauseStatus, Status: 500, Delay: 1500 * time.Millisecond, ResumeAt: at}},
			{Text: "a"}, {}, {Extra: loquat.Object{}.Set("x", 1)}, {Reply: &loquat.Reply{Content: "a"}},
		}}
		if err := runJob(t, p, sink, func(job *loop.Job) { job.Stream = stream }); err != nil {
			t.Fatal(err)
		}
		want := "retry_scheduled ; end of phase a with 0 calls"
		if stream {
			want = "retry_scheduled ; assistant_message start; partial a; partial ; end of phase a with 0 calls"
		}
		if got := sink.all(); got != want || sink.phases[0].Streamed != stream {
			t.Errorf("stream %v: %s", stream, got)
		}
		r := sink.published[0]
		if r.Attempt != 2 || r.Cause != loquat.CauseStatus || r.Status != 500 || *r.DelaySeconds != 1.5 || fmt.Sprint(*r.ResumeAt) != "2026-11-22 00:02:03.456 +0000 UTC" {
			t.Errorf("%+v", r)
		}
	}
}

// Each chunk becomes an increment with its text and metadata, and with nothing else.
func TestIncrements(t *testing.T) {
	for _, c := range []struct {
		chunk loquat.Chunk
		want  string
	}{
		{loquat.Chunk{}, ""},
		{loquat.Chunk{Text: "a\x00"}, `{"role":"assistant","content":"a�"}`},
		{loquat.Chunk{Reasoning: "r\x00"}, `{"role":"assistant","content":"","metadata":{"reasoning":"r�"}}`},
		{loquat.Chunk{ReasoningContent: "c"}, `{"role":"assistant","content":"","metadata":{"reasoning_content":"c"}}`},
		{loquat.Chunk{Text: "a", Reasoning: "r", Restarted: true}, `{"role":"assistant","content":"a","metadata":{"reasoning":"r","stream_restarted":true}}`},
		{loquat.Chunk{Extra: loquat.Object{"x": []byte(`"\u0000"`)}}, `{"role":"assistant","content":"","metadata":{"x":"\ufffd"}}`},
	} {
		sink := &events{}
		p := &scripted{model: &model{}, chunks: []loquat.Chunk{c.chunk, {Reply: &loquat.Reply{}}}}
		if err := runJob(t, p, sink, nil); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range sink.published[1:] {
			b, err := json.Marshal(e.Message)
			if err != nil {
				t.Fatal(err)
			}
			got += string(b)
		}
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.chunk, got, c.want)
		}
	}
	long := strings.Repeat("a", 600<<10)
	for _, chunk := range []loquat.Chunk{{Text: long}, {Reasoning: long}, {ReasoningContent: long}} {
		sink := &events{}
		p := &scripted{model: &model{}, chunks: []loquat.Chunk{chunk, {Reply: &loquat.Reply{}}}}
		if err := runJob(t, p, sink, nil); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, e := range sink.published[1:] {
			size += len(e.Message.Content) + len(e.Message.Metadata.String("reasoning")) + len(e.Message.Metadata.String("reasoning_content"))
		}
		if size != len(long) || len(sink.published) != 4 {
			t.Errorf("%d bytes became %d in %d events", len(long), size, len(sink.published))
		}
	}
	deep := &scripted{model: &model{}, chunks: []loquat.Chunk{{Extra: loquat.Object{"x": nested(loquat.MaxDepth + 1)}}}}
	if err := runJob(t, deep, &events{}, nil); loquat.CodeOf(err) != loquat.CodeBackendError || !strings.Contains(err.Error(), "an increment of provider main cannot be stored") {
		t.Errorf("an increment that nests too deep: %v", err)
	}
}

// When the sink fails, and when a round has ended, the context of its tools ends.
func TestContextOfToolsEnds(t *testing.T) {
	for _, fails := range []bool{true, false} {
		m := &model{replies: []loquat.Reply{calling("first", "second")}}
		started := make(chan context.Context, 2)
		m.tools = []plugin.Tool{
			tool{"first", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
				started <- ctx
				return plugin.ToolResult{Content: "one"}, nil
			}},
			tool{"second", func(ctx context.Context, _ plugin.ToolCall) (plugin.ToolResult, error) {
				started <- ctx
				if fails {
					<-ctx.Done() // the result of the first cannot be published
				}
				return plugin.ToolResult{Content: "two"}, nil
			}},
		}
		sink := &notes{fails: func(line string) bool { return fails && line == "tool_partial end0" }}
		if err := run(t, t.Context(), m, sink); fails != errors.Is(err, errSink) {
			t.Errorf("fails %v: %v", fails, err)
		}
		for range max(len(started), 1) {
			if ctx := <-started; ctx.Err() == nil {
				t.Errorf("fails %v: the context of a tool goes on after its round", fails)
			}
		}
	}
}
