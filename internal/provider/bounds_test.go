package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"loquat/internal/provider"
)

// The number and the size of an answer's members are limited. An answer beyond a limit
// takes no longer to refuse than to read.
func TestBoundsOfAnAnswer(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	delta := func(inner string) string {
		return `{"choices":[{"index":0,"delta":{` + inner + `},"finish_reason":"stop"}]}`
	}
	growing := func(n int, inner string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "data: %s\n\n", delta(fmt.Sprintf(inner, i)))
		}
		return b.String()
	}
	const n = 200_000
	for _, c := range []struct{ name, stream, detail string }{
		{"calls in one chunk", "data: " + delta(`"tool_calls":[`+many(n, `{"index":%d}`)+`]`), "1024 tool calls"},
		{"calls that say nothing", "data: " + delta(`"tool_calls":[`+strings.Repeat("{},", n)+`{}]`), "1024 tool calls"},
		{"calls in as many chunks", growing(2000, `"tool_calls":[{"index":%d,"function":{"name":"f"}}]`), "1024 tool calls"},
		{"fields in one chunk", "data: " + delta(many(n, `"k%d":1`)), "1024 fields"},
		{"fields in as many chunks", growing(2000, `"k%d":1`), "1024 fields"},
		{"fields of a call", "data: " + delta(`"tool_calls":[{"index":0,`+many(n, `"k%d":1`)+`}]`), "1024 fields"},
		{"fields of a function", growing(2000, `"tool_calls":[{"index":0,"function":{"k%d":1}}]`), "1024 fields"},
		{"a name in pieces", growing(2000, `"tool_calls":[{"index":0,"function":{"name":"%064d"}}]`), "4096 bytes"},
		{"a name of a legacy call in pieces", growing(2000, `"function_call":{"name":"%064d"}`), "4096 bytes"},
		{"an id", "data: " + delta(`"tool_calls":[{"index":0,"id":"`+strings.Repeat("x", 70<<10)+`","function":{"name":"f"}}]`), "65536"},
		{"members", "data: " + delta(`"list":[`+strings.Repeat("1,", 5<<20)+`1]`), "4194304 members"},
		{"depth", "data: " + delta(`"list":`+strings.Repeat("[", 1<<20)+strings.Repeat("]", 1<<20)), "deeper than 128 levels at choices[0].delta.list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			var last error
			for _, err := range provider.DecodeStream(strings.NewReader(c.stream+"\n\n"), "main") {
				last = err
			}
			if last == nil || !strings.Contains(last.Error(), c.detail) {
				t.Errorf("it ends with %.300v, want %q", last, c.detail)
			}
			took := time.Since(began)
			if took < time.Second {
				return // quick, whatever the machine does at the moment
			}
			if usual := readJSON(t, c.stream); took > 20*usual {
				t.Errorf("it took %v, where encoding/json reads the same in %v", took, usual)
			}
		})
	}
	// Usual answers are far below the limits.
	for chunk, err := range provider.DecodeStream(strings.NewReader("data: "+delta(`"tool_calls":[`+many(100, `{"index":%d,"function":{"name":"f","arguments":"{}"}}`)+`],`+many(100, `"k%d":1`))+"\n\n"), "main") {
		if err != nil || chunk.Reply != nil && (len(chunk.Reply.ToolCalls) != 100 || len(chunk.Reply.Metadata) < 100) {
			t.Errorf("%v, %d calls", err, len(chunk.Reply.ToolCalls))
		}
	}
	_, err := provider.DecodeCompletion([]byte(`{"choices":[` + strings.Repeat("1,", 5<<20) + `1]}`))
	if err == nil || !strings.Contains(err.Error(), "members") {
		t.Errorf("a whole answer: %v", err)
	}
}

// readJSON returns how long encoding/json takes to read the events of a stream.
func readJSON(t *testing.T, stream string) time.Duration {
	t.Helper()
	began := time.Now()
	for event := range strings.SplitSeq(stream, "\n\n") {
		var v any
		_ = json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &v) // some is not JSON
	}
	return time.Since(began)
}
