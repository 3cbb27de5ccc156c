package provider_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"loquat"
	"loquat/internal/provider"
)

// decoded runs a stream through the decoder alone.
func decoded(t *testing.T, r io.Reader) outcome {
	t.Helper()
	var o outcome
	for c, err := range provider.DecodeStream(r, "main") {
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
		for _, k := range slices.Sorted(maps.Keys(o.reply.Metadata)) {
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
