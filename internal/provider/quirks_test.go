package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"loquat"
)

// decoded runs a stream through the decoder alone.
func decoded(t *testing.T, r io.Reader) outcome {
	t.Helper()
	var o outcome
	for c, err := range DecodeStream(r, "main") {
		o.take(t, c, err)
	}
	return o
}

// TestOwnRecordings reads testdata/*.sse. Comments at the top of each file describe the
// recording, and `: want` lines list the expected results.
func TestOwnRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(raw)) {
				if w, ok := strings.CutPrefix(line, ": want "); ok {
					want = append(want, strings.TrimSpace(w))
				}
			}
			for how, frame := range framings {
				for _, r := range []io.Reader{strings.NewReader(frame(string(raw))), iotest.OneByteReader(strings.NewReader(frame(string(raw))))} {
					if got := describe(decoded(t, r)); !slices.Equal(got, want) {
						t.Errorf("%s:\n got %s\nwant %s", how, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
					}
				}
			}
		})
	}
}

// describe lists the results of an outcome, in the words of the recordings' `want` lines.
func describe(o outcome) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, strings.TrimSpace(fmt.Sprintf(format, args...))) }
	if o.text != "" {
		add("text %q", o.text)
	}
	if o.reasoning != "" {
		add("reasoning %q", o.reasoning)
	}
	if o.reply != nil {
		for _, c := range o.reply.ToolCalls {
			if strings.HasPrefix(c.ID, "call_") {
				c.ID = "made up"
			}
			line := fmt.Sprintf("call %s %s %s", c.ID, c.Name, c.Arguments)
			if len(c.Extra)+len(c.FunctionExtra) > 0 {
				extra, _ := json.Marshal(c.Extra)
				line += " with " + string(extra)
			}
			add("%s", line)
		}
		if o.err == nil {
			add("finish %s", o.reply.FinishReason)
		}
		keys := sortedKeys(o.reply.Metadata)
		for _, k := range keys {
			switch k {
			case "provider", "model", "reasoning", "reasoning_content":
			default:
				if !strings.HasSuffix(k, "_formatted") {
					add("%s %s", k, o.reply.Metadata[k])
				}
			}
		}
	}
	if e, ok := errors.AsType[*loquat.Error](o.err); ok {
		add("error %s", e.Detail)
	}
	return out
}

func TestLongLine(t *testing.T) {
	text := strings.Repeat("long ", 100_000)
	if o := decoded(t, strings.NewReader(says(text)+done)); o.err != nil || o.text != text {
		t.Errorf("a line of 500 kB: %v", o.err)
	}
	endless := io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, 1<<30))
	if o := decoded(t, endless); o.err == nil || !strings.Contains(o.err.Error(), "too large") {
		t.Errorf("a line of a gigabyte: %v", o.err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestTooManyCalls(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":\"c%d\",\"function\":{\"name\":\"f\"}}]}}]}\n\n", i, i)
	}
	if o := decoded(t, strings.NewReader(b.String()+done)); o.err == nil || !strings.Contains(o.err.Error(), "1024 tool calls") {
		t.Errorf("2000 calls: %v", o.err)
	}
}

func TestIDsAreUnique(t *testing.T) {
	line := "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"index\":1,\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}}]}\n\n"
	seen := map[string]bool{}
	for range 100 {
		for _, c := range decoded(t, strings.NewReader(line+done)).reply.ToolCalls {
			seen[c.ID] = true
		}
	}
	if len(seen) != 200 {
		t.Errorf("200 calls have %d ids", len(seen))
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567"} {
		if got := string(appendThousands(nil, strconv.AppendInt(nil, n, 10))); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// An answer is read even if it is a stream where JSON was requested, or the reverse.
func TestOtherKindOfAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		stream bool
	}{
		"JSON for a stream": {hello, true},
		"stream for JSON":   {says("hel") + says("lo") + done, false},
		"JSON after spaces": {"\n\n  " + hello, true},
	} {
		o := chat(t, &script{steps: []step{{body: tc.body}}}, retryConfig(nil), tc.stream)
		if o.err != nil || o.reply.Content != "hello" || tc.stream && o.text != "hello" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

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
	f.Fuzz(func(t *testing.T, data []byte) {
		var fast chunkDecoder
		if !fast.decodeFast(data) {
			return
		}
		var general chunk
		if err := decodeGeneral(data, &general, "delta", "message"); err != nil {
			t.Fatalf("%q is taken by the fast decoder only: %v", data, err)
		}
		if got, want := fast.chunk.String(), general.String(); got != want {
			t.Fatalf("%q\n fast %s\ngeneral %s", data, got, want)
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

// No input causes a panic, and the result does not depend on how the input is split.
func FuzzDecodeStream(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.sse")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole := describe(decoded(t, bytes.NewReader(raw)))
		pieces := describe(decoded(t, iotest.OneByteReader(bytes.NewReader(raw))))
		if !slices.Equal(whole, pieces) {
			t.Errorf("whole %q\npieces %q", whole, pieces)
		}
	})
}
