package mcphost

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"loquat/internal/plugin"
)

// Invalid UTF-8 in an answer is replaced before clients read it.
func TestBrokenText(t *testing.T) {
	line, err := new(wire).readFrame(bufio.NewReader(strings.NewReader("{\"a\": \"\x94\"}\n")))
	if err != nil || string(line) != "{\"a\": \"\ufffd\"}" {
		t.Errorf("read %q (%v)", line, err)
	}
}

// An answer over the bound fails only its call. The process and its other calls continue.
func TestTooLargeResult(t *testing.T) {
	p, log := startFake(t, "", nil)
	running(t, p)
	for _, n := range []int{16 << 20, 40 << 20} {
		_, err := findTool(t, p, "big").Call(t.Context(), plugin.ToolCall{Name: "big", Arguments: arguments(n)})
		if err == nil || !strings.Contains(err.Error(), "its answer has more than 16 MiB; divide large results") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	result, err := findTool(t, p, "big").Call(t.Context(), plugin.ToolCall{Name: "big", Arguments: arguments(3)})
	if err != nil || result.Content != "xxx" || p.Status().Restarts > 0 {
		t.Errorf("the next call: %q, %v; %+v\n%s", result.Content, err, p.Status(), log)
	}
}

// Only the id of a message that is too long is kept.
func TestEnvelope(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{"id":8,"method":"x","a":[1,{"id":9}]}}`: `7`,
		`{"result":{"text":"a \" , \"id\":8 } \\"},"id":"q,}1"}`:                   `"q,}1"`,
		` { "id" : 7 , "result" : [ ] } `:                                          `7`,
		`{"result":1}`:                                                             ``,
		`{"result":"\\","id":3}`:                                                   `3`,
		`{"id":7,"method":"roots/list"}`:                                           `7 asks`,
		`[{"id":7,"result":1}]`:                                                    ``,
		`{"id":{"a":1},"x":2}`:                                                     ``,
	} {
		for _, step := range []int{1, 3, 1000} {
			var e envelope
			for at := 0; at < len(text); at += step {
				e.read([]byte(text[at:min(at+step, len(text))]))
			}
			got := string(e.id)
			if e.asks {
				got += " asks"
			}
			if got != want {
				t.Errorf("%s in steps of %d is for %q, want %q", text, step, got, want)
			}
		}
	}
}

// FuzzEnvelope compares envelope with a full JSON decoder.
func FuzzEnvelope(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`)
	f.Add(`{"result":{"text":"a \" , \"id\":8 } \\"},"id":"q,}1","method":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		var e envelope
		e.read([]byte(text))
		var whole map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &whole) != nil || strings.Contains(text, `\u`) {
			return
		}
		id := string(whole["id"])
		if _, asks := whole["method"]; asks != e.asks {
			t.Errorf("%s: asks %v", text, e.asks)
		}
		if id != "" && id[0] != '{' && id[0] != '[' && len(id) < maxWord && id != string(e.id) {
			t.Errorf("%s is for %s, not %s", text, id, e.id)
		}
	})
}

// A batch is split into its messages, up to a bound.
func TestBatch(t *testing.T) {
	batch := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`{"id":1},`, n), ",") + "]" }
	for text, want := range map[string]int{
		`{"id":1}`: 1, batch(0): 1, batch(1): 1, batch(maxBatch): maxBatch, batch(maxBatch + 1): -1, `[1,`: 1, `[1,x]`: 1, `[`: 1,
	} {
		got, err := messages([]byte(text))
		if err != nil && want >= 0 || len(got) != max(want, 0) {
			t.Errorf("%.20s… is %d messages, %v; want %d", text, len(got), err, want)
		}
	}
}

// A call that does not take its progress delays other calls only briefly, and gets a note
// about the missing parts.
func TestProgressThatNobodyTakes(t *testing.T) {
	t.Parallel()
	p, _ := startFake(t, "", manifest{"timeout_seconds": 60})
	running(t, p)
	const n = 40_000
	began, stuck, ended := make(chan struct{}, n), make(chan struct{}), make(chan error, 1)
	var parts []string
	go func() {
		_, err := findTool(t, p, "count").Call(t.Context(), plugin.ToolCall{Name: "count", Arguments: arguments(n), Progress: func(part string, _, _ *float64) {
			began <- struct{}{}
			<-stuck
			parts = append(parts, part)
		}})
		ended <- err
	}()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 3 {
		if _, err := findTool(t, p, "big").Call(ctx, plugin.ToolCall{Name: "big", Arguments: arguments(3)}); err != nil {
			t.Errorf("another call: %v", err)
		}
	}
	eventually(t, "the result of the one that is stuck", func() bool {
		s, err := p.running()
		if err != nil {
			t.Fatal(err)
		}
		s.wire.mu.Lock()
		defer s.wire.mu.Unlock()
		return len(s.wire.calls) == 0
	})
	close(stuck)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	left := n - len(parts) + 1
	if note := fmt.Sprintf("\n[%d parts are left out: they arrived faster than they could be stored]\n", left); len(parts) < 1000 || left < 1000 || parts[0] != "0;" || parts[len(parts)-1] != note {
		t.Errorf("%d parts, the last is %q, not %q", len(parts), parts[len(parts)-1], note)
	}
}
