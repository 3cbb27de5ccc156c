package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// workload is a set of bodies that are decoded one by one.
type workload struct {
	name   string
	bodies [][]byte
}

// chunks counts the data lines that are chunks.
func (w workload) chunks() int {
	n := 0
	for _, body := range w.bodies {
		for line := range bytes.Lines(body) {
			if isChunk(line) {
				n++
			}
		}
	}
	return n
}

func isChunk(line []byte) bool {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	return ok && !bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]"))
}

// size returns the total size of the bodies.
func (w workload) size() int {
	n := 0
	for _, body := range w.bodies {
		n += len(body)
	}
	return n
}

// synthetic returns a workload of one long reply in the usual format of backends. delta
// returns the delta of the i-th chunk.
func synthetic(name string, delta func(i int) string) workload {
	const n = 2000
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,`+
			`"model":"bench-1","system_fingerprint":"fp_10c08bf97d","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":null}]}`+"\n\n", delta(i))
	}
	b.WriteString(`data: {"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"bench-1",` +
		`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":2000,"total_tokens":2019}}` + "\n\n")
	b.WriteString("data: [DONE]\n\n")
	return workload{name, [][]byte{b.Bytes()}}
}

func syntheticWorkloads() []workload {
	words := []string{" the", " quick", " brown", "\\n\\n", " \\\"fox\\\"", " jumps", " überall", "."}
	return []workload{
		synthetic("synthetic text", func(i int) string { return `{"content":"` + words[i%len(words)] + `"}` }),
		synthetic("synthetic reasoning", func(i int) string {
			return `{"content":null,"reasoning_content":"` + words[i%len(words)] + `"}`
		}),
		synthetic("synthetic tool call", func(i int) string {
			if i == 0 {
				return `{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"write","arguments":""}}]}`
			}
			return `{"tool_calls":[{"index":0,"function":{"arguments":"` + words[i%len(words)] + `"}}]}`
		}),
		synthetic("synthetic, unknown fields", func(i int) string {
			return `{"content":"` + words[i%len(words)] + `","phase":"answer","score":0.25},"vendor":{"ids":[1,2e3],"note":"x\\ty"}`
		}),
	}
}

// recordedWorkloads groups the recorded streams by their content. It returns nil if there are
// not recordings.
func recordedWorkloads() ([]workload, error) {
	shared := os.Getenv("LOQUAT_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "shared")
	}
	files, err := filepath.Glob(filepath.Join(shared, "fixtures", "*", "*.sse"))
	if err != nil {
		return nil, err
	}
	groups := []workload{{name: "recorded: tools"}, {name: "recorded: reasoning"}, {name: "recorded: other"}}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		group := &groups[2]
		switch base := filepath.Base(file); {
		case strings.Contains(base, "tools"):
			group = &groups[0]
		case strings.Contains(base, "reasoning"):
			group = &groups[1]
		}
		group.bodies = append(group.bodies, body)
	}
	if len(files) == 0 {
		return nil, nil
	}
	return groups, nil
}

// fromMemory reads the bodies from memory, so that almost only decoding is measured.
func fromMemory(w workload) source {
	return source{bodies: len(w.bodies), open: func(i int) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(w.bodies[i])), nil
	}}
}

// fromLoopback reads the bodies over HTTP, as a client would. The time includes the request.
// The server writes in blocks, because that is the fastest way to send a body. Writing event
// by event would make raw reading slower and the ratios to raw reading too good.
func fromLoopback(w workload) (src source, stop func(), err error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return source{}, nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil || i < 0 || i >= len(w.bodies) {
			http.NotFound(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		for block := range slices.Chunk(w.bodies[i], 64<<10) {
			if _, err := rw.Write(block); err != nil {
				return
			}
		}
	})}
	go server.Serve(lis)
	open := func(i int) (io.ReadCloser, error) {
		res, err := http.Get(fmt.Sprintf("http://%s/%d", lis.Addr(), i))
		if err != nil {
			return nil, err
		}
		return res.Body, nil
	}
	return source{len(w.bodies), open, true}, func() { server.Close() }, nil
}
