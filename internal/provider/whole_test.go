package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"loquat"
)

// A completion of the usual shape is read by the scanner. The result must equal that of
// decodeGeneral.
func TestWholeCompletionsDecodeAlike(t *testing.T) {
	for _, c := range []struct {
		text string
		fast bool
	}{
		{`{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a\n\"b\" \u00e9 \ud83d\ude00"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, true},
		{`{"choices":[{"message":{"content":null,"reasoning_content":"r","reasoning":"s","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}`, true},
		{`{"choices":[{"message":{"content":"a","refusal":"no","annotations":[{"url":"u"}]},"logprobs":null}],"citations":["c"]}`, true},
		{`{"choices":[{"message":{"content":"a"},"delta":{"content":"b"}}]}`, true},
		{`{"choices":[{"delta":{"content":"b"}}]}`, false},
		{`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"image","x":1}]}}]}`, false},
		{`{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":1}}}]}}]}`, false},
		{`{"choices":[{"index":1,"message":{"content":"b"}},{"index":0,"message":{"content":"a"}}]}`, false},
		{`{"choices":[{"message":{"content":"a"}}],"error":{"message":"no"}}`, false},
	} {
		var quick, general chunkDecoder
		quick.contentKey = "message"
		if got := quick.decodeFast([]byte(c.text)); got != c.fast {
			t.Errorf("%s: in passing %v", c.text, got)
		}
		got, err := (&chunkDecoder{}).decodeWhole([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeGeneral([]byte(c.text), &general.chunk, "message", "delta"); err != nil {
			t.Fatal(err)
		}
		reply := func(ch *chunk) string {
			ch.failure = nil
			var col collector
			inc, _, err := col.add(ch)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal([]any{inc, col.reply("main", "m")})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if a, b := reply(got), reply(&general.chunk); a != b {
			t.Errorf("%s\nin passing %s\nin general %s", c.text, a, b)
		}
	}
}

// readPieces returns the same bytes and error as io.ReadAll for all kinds of readers.
func TestReadPieces(t *testing.T) {
	for _, size := range []int{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, 5 << 20} {
		data := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		for name, r := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "by half": iotest.HalfReader, "with its end": iotest.DataErrReader,
			"cut": func(r io.Reader) io.Reader { return io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF)) },
		} {
			got, err := readPieces(r(bytes.NewReader(data)))
			if !bytes.Equal(got, data) || name == "cut" && err != io.ErrUnexpectedEOF || name != "cut" && err != nil {
				t.Errorf("%d bytes %s: %d bytes, %v", size, name, len(got), err)
			}
		}
	}
}

// Reading a large reply allocates few times its size, streamed or not.
func TestLargeRepliesAreNotCopiedToGrow(t *testing.T) {
	const size = 32 << 20
	text := strings.Repeat(`All happy families are alike.\n`, 32)
	whole := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat(text, size/len(text)) + `"},"finish_reason":"stop"}]}`)
	stream := []byte(strings.Repeat(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n", text), size/len(text)) + "data: [DONE]\n\n")
	for _, c := range []struct {
		name  string
		read  func(t *testing.T) *loquat.Reply
		times float64
	}{
		{"whole", func(t *testing.T) *loquat.Reply {
			data, err := readPieces(bytes.NewReader(whole))
			if err != nil {
				t.Fatal(err)
			}
			var r reading
			if f := r.completion(data, func(loquat.Chunk) bool { return true }); f != nil {
				t.Fatal(f.err)
			}
			return r.collector.reply("main", "m")
		}, 4.5}, // two to read it, one without its escapes, one as a text
		{"streamed", func(t *testing.T) *loquat.Reply {
			var r reading
			if f := r.stream(bytes.NewReader(stream), func(loquat.Chunk) bool { return true }); f != nil {
				t.Fatal(f.err)
			}
			return r.collector.reply("main", "m")
		}, 3.5}, // an increment, a piece, a text
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply := c.read(t)
		runtime.ReadMemStats(&after)
		if got := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(reply.Content)); got > c.times+raceCopies || len(reply.Content) < size*9/10 {
			t.Errorf("%s: %.1f times the %d bytes of the text are allocated, want at most %.1f", c.name, got, len(reply.Content), c.times+raceCopies)
		}
	}
}

// The arguments of tool calls have a separate limit.
func TestBoundOfArguments(t *testing.T) {
	piece := strings.Repeat("x", 1<<20)
	stream := strings.Repeat(`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"`+piece+`"}}]}}]}`+"\n\n", 17)
	var last error
	for _, err := range DecodeStream(strings.NewReader(stream), "main") {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "have more than 16777216 bytes") {
		t.Errorf("%.300v", last)
	}
}
