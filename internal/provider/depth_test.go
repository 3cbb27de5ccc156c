package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// An answer with JSON that nests too deep to be stored is refused on arrival. The error
// names the place of the JSON within the answer.
func TestDepthOfAnAnswer(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, c := range []struct {
		name, chunk string // %s nests
		above       int    // levels around it
		place       string
	}{
		{"field of a delta", `{"choices":[{"index":0,"delta":{"content":"a","weird":%s}}]}`, 4, "choices[0].delta.weird[0]"},
		{"reasoning details", `{"choices":[{"index":0,"delta":{"reasoning_details":[%s]}}]}`, 5, "choices[0].delta.reasoning_details[0]"},
		{"part of a content", `{"choices":[{"index":0,"delta":{"content":[{"type":"odd","of":%s}]}}]}`, 6, "choices[0].delta.content[0].of"},
		{"field of a call", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","extra":%s,"function":{"name":"f"}}]}}]}`, 6, "choices[0].delta.tool_calls[0].extra"},
		{"field of a function", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","extra":%s}}]}}]}`, 7, "choices[0].delta.tool_calls[0].function"},
		{"arguments that are no text", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":{"a":%s}}}]}}]}`, 8, "choices[0].delta.tool_calls[0].function"},
		{"usage", `{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"more":%s}}`, 2, "usage.more[0]"},
		{"usage of a choice", `{"choices":[{"index":0,"delta":{"content":"a"},"usage":{"more":%s}}]}`, 4, "choices[0].usage.more[0]"},
		{"citations", `{"choices":[{"index":0,"delta":{"content":"a"}}],"citations":[%s]}`, 2, "citations[0]"},
		{"error", `{"error":{"message":"no","more":%s}}`, 2, "error.more[0]"},
	} {
		for _, levels := range []int{loquat.MaxDepth - c.above, loquat.MaxDepth - c.above + 1, 9_995, 1 << 20} {
			t.Run(fmt.Sprintf("%s, %d", c.name, levels), func(t *testing.T) {
				text := strings.Replace(c.chunk, "%s", nested(levels), 1)
				var last error
				for _, err := range provider.DecodeStream(strings.NewReader("data: "+text+"\n\ndata: [DONE]\n\n"), "main") {
					last = err
				}
				_, whole := provider.DecodeCompletion([]byte(strings.Replace(text, `"delta"`, `"message"`, 1)))
				if levels+c.above <= loquat.MaxDepth {
					if c.name != "error" && (last != nil || whole != nil) {
						t.Errorf("a stream ends with %v, a whole answer with %v", last, whole)
					}
					return
				}
				want := "JSON nests deeper than 128 levels at "
				if last == nil || !strings.Contains(last.Error(), want+c.place) {
					t.Errorf("a stream ends with %.300v, want %q", last, want+c.place)
				}
				if whole == nil || !strings.Contains(whole.Error(), want) {
					t.Errorf("a whole answer ends with %.300v", whole)
				}
			})
		}
	}
	p := provider.New(provider.Options{Transport: &script{steps: []step{{body: `{"data":[{"id":"m","more":` + nested(200) + `}]}`}}}})
	if _, err := p.Models(t.Context(), providertest.Config(providertest.URL)); err == nil || !strings.Contains(err.Error(), "at data[0].more") {
		t.Errorf("models: %v", err)
	}
}
