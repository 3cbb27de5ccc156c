package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
	"loquat/internal/provider"
)

// follower is a sink that folds what is published, as a client does.
type follower struct {
	fold     *loquat.Fold
	position loquat.EventID
	reply    loquat.Message
	draft    loquat.Draft // at the end of the phase
	largest  int          // bytes of content of an increment
}

func (f *follower) Publish(_ context.Context, e loquat.Event) error {
	f.position++
	if e.Message != nil {
		f.largest = max(f.largest, len(e.Message.Content))
		if !utf8.ValidString(e.Message.Content) {
			return errors.New("a character is cut")
		}
	}
	e.EventID, e.SessionID, e.RequestID = f.position, "s", "q"
	f.fold.Apply(e)
	return nil
}

func (f *follower) EndPhase(_ context.Context, p loop.Phase) error {
	f.reply = p.Message
	if d := f.fold.Draft(); d != nil {
		f.draft = *d
	}
	return nil
}

func (f *follower) ToolResults(context.Context, []loquat.Message, bool) ([]loquat.Message, error) {
	return nil, nil
}

// bodies answers each call of a backend with the next body.
type bodies []string

func (b *bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(*b) == 0 {
		return nil, fmt.Errorf("no answer is left for %s", r.URL)
	}
	body := (*b)[0]
	*b = (*b)[1:]
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// answered runs a request against a backend that answers with these bodies.
func answered(t *testing.T, stream bool, answers ...string) *follower {
	t.Helper()
	transport := bodies(answers)
	p := provider.New(provider.Options{Transport: &transport})
	registry, err := plugin.NewRegistry(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{fold: loquat.NewFold(loquat.Snapshot{Session: loquat.Session{SessionID: "s"}})}
	err = loop.Run(t.Context(), loop.Job{
		SessionID: "s", RequestID: "q", ProviderID: "main", Provider: p, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult, Stream: stream,
		Config: loquat.Object{}.Set("provider", provider.Selector).Set("model", "m").Set("base_url", "http://backend.test/v1").
			Set("stream_recovery", map[string]string{"mode": "aggressive"}),
		History:    []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}},
		NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
	}, f)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// streamOf is a stream of these deltas.
func streamOf(deltas ...string) string {
	var b strings.Builder
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", d)
	}
	return b.String()
}

const finished = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"

// Both kinds of reasoning reach the message, and the client that follows its increments.
func TestBothReasonings(t *testing.T) {
	for _, tc := range []struct {
		name           string
		deltas         []string // the last stream
		before         []string // a stream that breaks
		content, plain string
	}{
		{"one delta with both", []string{`{"reasoning":"plain","reasoning_content":"content"}`}, nil, "content", "plain"},
		{"in the other order", []string{`{"reasoning_content":"content","reasoning":"plain"}`}, nil, "content", "plain"},
		{"the same text in both", []string{`{"reasoning":"same","reasoning_content":"same"}`}, nil, "same", "same"},
		{"deltas with both", []string{`{"reasoning":"pl","reasoning_content":"con"}`, `{"reasoning":"ain","reasoning_content":"tent"}`}, nil, "content", "plain"},
		{"one after the other", []string{`{"reasoning":"plain"}`, `{"reasoning_content":"content"}`}, nil, "content", "plain"},
		{"in turn", []string{`{"reasoning":"pl"}`, `{"reasoning_content":"con"}`, `{"reasoning":"ain"}`, `{"reasoning_content":"tent"}`}, nil, "content", "plain"},
		{"one of them empty", []string{`{"reasoning":"plain","reasoning_content":""}`, `{"reasoning":"","reasoning_content":null}`}, nil, "", "plain"},
		{"with details", []string{`{"reasoning":"plain","reasoning_content":"content","reasoning_details":[{"text":"details"}]}`}, nil, "content", "plain"},
		{"details alone", []string{`{"reasoning_details":[{"text":"plain"}]}`}, nil, "", "plain"},
		{"thinking parts and a field", []string{`{"reasoning":"plain","content":[{"type":"thinking","thinking":"content"}]}`}, nil, "content", "plain"},
		{"thinking parts that repeat a field", []string{`{"reasoning":"same","content":[{"type":"thinking","thinking":"same"}]}`}, nil, "", "same"},
		{"a stream that breaks", []string{`{"reasoning":"plain","reasoning_content":"content"}`}, []string{`{"reasoning":"void","reasoning_content":"void"}`}, "content", "plain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(how string, got loquat.Object) {
				t.Helper()
				if c, p := got.String(loquat.MetaReasoningContent), got.String(loquat.MetaReasoning); c != tc.content || p != tc.plain {
					t.Errorf("%s: reasoning_content %q and reasoning %q; want %q and %q", how, c, p, tc.content, tc.plain)
				}
			}
			answers := []string{streamOf(tc.deltas...) + finished}
			if tc.before != nil {
				answers = append([]string{streamOf(tc.before...)}, answers...)
			}
			f := answered(t, true, answers...)
			check("reply of a stream", f.reply.Metadata)
			check("draft of a client", f.draft.Metadata)
			check("a stream that was not asked for", answered(t, false, streamOf(tc.deltas...)+finished).reply.Metadata)
			if len(tc.deltas) == 1 {
				message := fmt.Sprintf(`{"choices":[{"index":0,"message":%s,"finish_reason":"stop"}]}`, tc.deltas[0])
				check("completion", answered(t, false, message).reply.Metadata)
				f = answered(t, true, message)
				check("completion for a stream", f.reply.Metadata)
				check("its draft", f.draft.Metadata)
			}
		})
	}
}

// A custom call reaches the tool of its name, and one whose tool is unknown gets an answer that says so.
func TestCustomCallsRun(t *testing.T) {
	custom := func(name string) string {
		return fmt.Sprintf(`{"choices":[{"message":{"tool_calls":[{"id":"1","type":"custom","custom":{"name":%q,"input":"some text"}}]},"finish_reason":"tool_calls"}]}`, name)
	}
	transport := bodies{custom("note"), custom("other"), streamOf(`{"content":"done"}`) + finished}
	p := provider.New(provider.Options{Transport: &transport})
	var got []string
	tools := &model{tools: []plugin.Tool{tool{"note", func(_ context.Context, c plugin.ToolCall) (plugin.ToolResult, error) {
		got = append(got, string(c.Arguments))
		return plugin.ToolResult{Content: "noted"}, nil
	}}}}
	registry, err := plugin.NewRegistry(p, tools)
	if err != nil {
		t.Fatal(err)
	}
	sink := &notes{}
	err = loop.Run(t.Context(), loop.Job{
		SessionID: "s", RequestID: "q", ProviderID: "main", Provider: p, Plugins: registry, MaxToolRounds: 3, MaxToolResultBytes: maxResult, Stream: true,
		Config:     loquat.Object{}.Set("provider", provider.Selector).Set("model", "m").Set("base_url", "http://backend.test/v1"),
		History:    []loquat.Message{{Role: loquat.RoleUser, Content: "hi"}},
		NewMessage: func(role string) loquat.Message { return loquat.Message{Role: role} },
	}, sink)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != `{"input":"some text"}` {
		t.Errorf("the tool got %q", got)
	}
	if all := sink.all(); !strings.Contains(all, "results tool:noted") || !strings.Contains(all, `"other"`) || !strings.Contains(all, "end of phase done with 0 calls") {
		t.Errorf("events: %s", all)
	}
}

// A chunk with more text than an increment may have is published as several increments. No
// character is cut, and a restart of the stream drops only what came before it.
func TestLargeChunks(t *testing.T) {
	const most = 256 << 10
	text, reasoning := strings.Repeat("a😀é", most/3), strings.Repeat("é\"", most)
	delta, err := loquat.Object{"content": loquat.Quote(text), "reasoning_content": loquat.Quote(reasoning), "extra": []byte(`[1]`)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	f := answered(t, true, streamOf(`{"content":"lost"}`), streamOf(string(delta))+finished)
	if f.draft.Content != text || f.draft.Metadata.String("reasoning_content") != reasoning || string(f.draft.Metadata["extra"]) != "[1]" {
		t.Errorf("the increments add up to %d and %d bytes, want %d and %d", len(f.draft.Content), len(f.draft.Metadata.String("reasoning_content")), len(text), len(reasoning))
	}
	if f.reply.Content != text || f.largest > most {
		t.Errorf("the reply has %d bytes, the largest increment %d", len(f.reply.Content), f.largest)
	}
}
