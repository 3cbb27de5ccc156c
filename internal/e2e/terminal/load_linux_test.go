package terminal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
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
	// maxGrowth is how much the memory of the client may grow while the reply streams, in KiB, besides a
	// few times the text itself.
	maxGrowth = 8 << 10
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
	seconds, most := 20, 3*maxCPU // CI runs other tests at the same time
	if v := os.Getenv("LOQUAT_TERMINAL_SECONDS"); v != "" {
		var err error
		if seconds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
		most = maxCPU
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
	pid := x.cmd.Process.Pid
	cpu, memory, at := cpuOf(t, pid), memoryOf(t, pid), time.Now()
	const parts = 5
	for part := range parts {
		time.Sleep(time.Duration(seconds) * time.Second / parts)
		t.Logf("after %d/%d: %.1f %% of a core, %d KiB", part+1, parts, 100*float64(cpuOf(t, pid)-cpu)/float64(time.Since(at)), memoryOf(t, pid))
	}
	used, grown := float64(cpuOf(t, pid)-cpu)/float64(time.Since(at)), memoryOf(t, pid)-memory
	if !strings.Contains(x.screen(), "writing") {
		t.Fatalf("the reply does not stream any more:\n%s", x.screen())
	}
	t.Logf("%.3f s of CPU in each second, memory grew by %d KiB from %d KiB, the text has %d KiB", used, grown, memory, text.Len()>>10)
	if used > most {
		t.Errorf("the client used %.1f %% of a core, more than %.0f %%", 100*used, 100*most)
	}
	if most := maxGrowth + 4*text.Len()>>10; grown > most {
		t.Errorf("the memory of the client grew by %d KiB, more than %d", grown, most)
	}
}

// cpuOf returns the processor time of a process so far.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const tick = 10 * time.Millisecond // USER_HZ
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// memoryOf returns the resident memory of a process in KiB, without the pages of files.
func memoryOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
