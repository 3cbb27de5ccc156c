package trace_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"loquat"
	"loquat/internal/trace"
)

// maxContent is the bound that the package documents.
const maxContent = 32 << 10

// asked returns the messages of a span as text.
func asked(t *testing.T, messages []loquat.Message) string {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	_, span := trace.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)), true).Request(t.Context(), trace.Request{})
	span.Asked(messages)
	span.End()
	for _, attr := range recorder.Ended()[0].Attributes() {
		if attr.Key == "gen_ai.input.messages" {
			return attr.Value.AsString()
		}
	}
	t.Fatal("the span has no messages")
	return ""
}

// message is what a span has of a message.
type message struct {
	Role  string `json:"role"`
	Parts []struct {
		Type, Content, Name string
		Arguments           any
	} `json:"parts"`
}

func decode(t *testing.T, text string) (out []message) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
	return out
}

// The messages of a span are bounded together, with the arguments of calls of tools.
func TestAskedIsBounded(t *testing.T) {
	called := func(calls ...loquat.ToolCall) loquat.Message {
		raw, err := json.Marshal(calls)
		if err != nil {
			t.Fatal(err)
		}
		return loquat.Message{Role: loquat.RoleAssistant, Metadata: loquat.Object{loquat.MetaToolCalls: raw}}
	}
	short := called(loquat.ToolCall{ID: "1", Name: "weather", Arguments: `{"city": "Oslo"}`})
	long := called(loquat.ToolCall{ID: "1", Name: "weather", Arguments: `{"city": "` + strings.Repeat("x", 100<<10) + `"}`})
	question := loquat.Message{Role: loquat.RoleUser, Content: "the question"}
	for name, last := range map[string]loquat.Message{
		"long arguments": long, "many calls": called(make([]loquat.ToolCall, 1_000)...), "short arguments": short,
		"a long name": called(loquat.ToolCall{Name: strings.Repeat("x", 100<<10)}),
	} {
		var messages []loquat.Message
		for range 100 {
			messages = append(messages, last)
		}
		text := asked(t, append(messages, question))
		got := decode(t, text)
		if len(text) > 2*maxContent || len(got) < 2 || got[len(got)-1].Parts[0].Content != question.Content {
			t.Errorf("%s: %d bytes, %d messages", name, len(text), len(got))
		}
	}
	got := decode(t, asked(t, []loquat.Message{question, short}))
	if arguments, _ := got[1].Parts[0].Arguments.(map[string]any); got[0].Parts[0].Content != question.Content || arguments["city"] != "Oslo" {
		t.Errorf("messages that fit: %v", got)
	}
}
