package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"loquat"
)

// For any input that the fast decoder accepts, both decoders must return the same chunk.
func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.sse")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				f.Add([]byte(data))
			}
		}
	}
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a\u00e9\ud83d\ude00\u0000\ud800"},"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"x","type":"function","function":{"name":"f","arguments":"{}","strict":true},"extra_content":{}}],"channel":"a"}}],"x":-0.5e+3}`))
	f.Add([]byte(`{"choices":[{"delta":{"reasoning":"a","reasoning_content":"b","function_call":null,"tool_calls":[{"index":0,"type":"custom","custom":"x"}]}}]}`))
	f.Add([]byte(`{"choices":[{"":{"":[]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fast := chunkDecoder{contentKey: "delta"}
		if !fast.decodeFast(data) {
			return
		}
		var general chunk
		if err := decodeGeneral(data, &general, "delta", "message"); err != nil {
			t.Fatalf("%q is accepted by the fast decoder only (decode_fast.go): %v", data, err)
		}
		if got, want := fast.chunk.String(), general.String(); got != want {
			t.Fatalf("%q\n   fast %s\ngeneral %s\nThe two must agree: for a member of a delta, see deltaMember in decode_fast.go and addChoice in decode_general.go.", data, got, want)
		}
	})
}

// String describes a chunk. The loop cleans the values that are kept unchanged.
func (c *chunk) String() string {
	fields := func(list []field) string {
		var out []string
		for _, f := range list {
			out = append(out, fmt.Sprintf("%s=%s", f.key, loquat.CleanRaw(f.value)))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	s := fmt.Sprintf("%q %q %q %q %q %q %s %s %q %v %v %v [%s] [%s]", c.model, c.text, c.reasoning, c.reasoningContent, c.refusal, c.finish,
		loquat.CleanRaw(c.usage), c.failure, c.parts, c.whole, c.choices, c.choice, fields(c.fields), fields(c.notes))
	if c.legacy != nil {
		s += fmt.Sprintf(" legacy %q %q [%s]", c.legacy.name, c.legacy.args, fields(c.legacy.fnExtra))
	}
	for _, d := range c.calls {
		s += fmt.Sprintf(" call %d %v %q %q %q [%s] [%s]", d.index, d.custom, d.id, d.name, d.args, fields(d.extra), fields(d.fnExtra))
	}
	return s
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567"} {
		if got := string(appendThousands(nil, strconv.AppendInt(nil, n, 10))); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
