package terminal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

const (
	// chunkRate is the number of chunks per second of the reply.
	chunkRate = 200
	// maxCPU is the part of a core that the client may use.
	maxCPU = 0.10
	// maxGrowth is how much the memory of the client may grow while the reply streams, besides a few times
	// the text itself.
	maxGrowth = 8 << 20
)

// paragraphs is the text of a long reply: paragraphs, lists, tables and code, over and over.
const paragraphs = `## Part %d

A paragraph with **bold** words, some ` + "`code`" + `, a [link](https://example.org/%[1]d) and enough text to fill
more than one line of the terminal, whatever its width may be.

- an item with a few words
- another one, number %[1]d

` + "```go\nfunc part%[1]d() int {\n\treturn %[1]d // with a comment\n}\n```" + `

| a | b |
|---|---|
| %[1]d | two |

`

// The client shows a long, fast reply with little work and memory. LOQUAT_TERMINAL_SECONDS sets how long.
func TestLongFastReply(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures, and takes a while")
	}
	seconds, most := binary.Number(t, "LOQUAT_TERMINAL_SECONDS", 20), maxCPU
	if os.Getenv("LOQUAT_TERMINAL_SECONDS") == "" {
		most *= 3 // CI runs other tests at the same time
	}
	chunks := (seconds + 10) * chunkRate
	var text strings.Builder
	for i := 1; text.Len() < 6*chunks; i++ {
		fmt.Fprintf(&text, paragraphs, i)
	}
	script, err := json.Marshal(map[string]any{"text": text.String(), "chunks": chunks, "rate": chunkRate})
	if err != nil {
		t.Fatal(err)
	}
	url, c := binary.ServerAt(t, config(binary.ScriptedBackend(t, backend.Options{Script: script}), ""))
	s := server{c, url}
	s.session(t, "fast", "Fast", nil)
	x := s.chat(t, 100, 40, "fast")
	x.press("Go", "enter")
	x.wait("Part 2")
	time.Sleep(3 * time.Second) // what is loaded once is loaded
	p := &binary.Process{Cmd: x.cmd}
	resident := func() int { return int(binary.Memory(t, p, "RssAnon")) } // without the pages of files
	cpu, memory, at := binary.ProcessorTime(t, p), resident(), time.Now()
	part := func() float64 { return float64(binary.ProcessorTime(t, p)-cpu) / float64(time.Since(at)) } // of a core
	const parts = 5
	for n := range parts {
		time.Sleep(time.Duration(seconds) * time.Second / parts)
		t.Logf("after %d/%d: %.1f %% of a core, %d KiB", n+1, parts, 100*part(), resident()>>10)
	}
	used, grown := part(), resident()-memory
	if !strings.Contains(x.screen(), "writing") {
		t.Fatalf("the reply does not stream any more:\n%s", x.screen())
	}
	t.Logf("%.3f s of CPU in each second, memory grew by %d KiB from %d KiB, the text has %d KiB", used, grown>>10, memory>>10, text.Len()>>10)
	if used > most {
		t.Errorf("the client used %.1f %% of a core, more than %.0f %%", 100*used, 100*most)
	}
	if most := maxGrowth + 4*text.Len(); grown > most {
		t.Errorf("the memory of the client grew by %d KiB, more than %d", grown>>10, most>>10)
	}
}
