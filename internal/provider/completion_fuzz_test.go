package provider_test

import (
	"testing"
	"unicode/utf8"

	"loquat/internal/provider"
)

// FuzzCompletion decodes any bytes as an answer that is not streamed. The result must be
// either a chunk or a failure, and text must be UTF-8.
func FuzzCompletion(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"message":{"role":"assistant","content":"hi","tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"stop"}],"usage":{"total_tokens":3}}`,
		`{"choices":[{"index":0,"message":{"content":[{"type":"thinking","thinking":[{"text":"t"}]},{"type":"text","text":"\ud800"}],"reasoning_details":[{"text":"d"}]}}]}`,
		`{"error":{"message":"no","code":429}}`, `[{"error":"no"}]`, `{"choices":[]}`, `{"choices":null,"detail":"x"}`, `null`, `<html>`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := provider.DecodeCompletion(data)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q fails without words", data)
			}
			return
		}
		for _, c := range got {
			if !utf8.ValidString(c.Text) {
				t.Errorf("%q says %q", data, c.Text)
			}
		}
	})
}
