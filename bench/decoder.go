package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"text/tabwriter"

	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	goopenai "github.com/sashabaranov/go-openai"

	"loquat/internal/provider"
)

// decoders are the decoders to compare. The first is the baseline, the second is ours.
var decoders = []contender{
	{"raw reading", readRaw},
	{"loquat", decodeLoquat},
	{"encoding/json", decodeJSON},
	{"openai-go", decodeOpenAI},
	{"go-openai", decodeGoOpenAI},
}

// The aims.
const (
	maxTimesRaw  = 4.0
	minTimesPeer = 4.0
	maxAllocs    = 2.0
)

// readRaw reads every line and does nothing else.
func readRaw(body io.ReadCloser) func() (int, error) {
	return func() (int, error) { return eachLine(body, func([]byte) error { return nil }) }
}

// lines has a buffer larger than any line. It is shared, because only one decoder runs at a
// time.
var lines = bufio.NewReaderSize(nil, 1<<20)

// eachLine calls chunk with the data of each line that is a chunk.
func eachLine(body io.Reader, chunk func([]byte) error) (n int, err error) {
	lines.Reset(body)
	for {
		line, err := lines.ReadSlice('\n')
		if isChunk(line) {
			n++
			if err := chunk(bytes.TrimSpace(line[len("data:"):])); err != nil {
				return n, err
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func decodeLoquat(body io.ReadCloser) func() (int, error) {
	return func() (n int, err error) {
		for _, err := range provider.DecodeStream(body, "bench") {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
}

// decodeJSON decodes with the standard library into the fewest fields that a client needs.
func decodeJSON(body io.ReadCloser) func() (int, error) {
	type chunk struct {
		Model   string `json:"model"`
		Choices []struct {
			Delta struct {
				Content          string `json:"content"`
				Reasoning        string `json:"reasoning"`
				ReasoningContent string `json:"reasoning_content"`
				ToolCalls        []struct {
					Index    int    `json:"index"`
					ID       string `json:"id"`
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage json.RawMessage `json:"usage"`
	}
	return func() (int, error) {
		return eachLine(body, func(data []byte) error {
			var c chunk
			return json.Unmarshal(data, &c)
		})
	}
}

func decodeOpenAI(body io.ReadCloser) func() (int, error) {
	stream := ssestream.NewStream[openai.ChatCompletionChunk](ssestream.NewDecoder(&http.Response{Body: body}), nil)
	return func() (n int, err error) {
		for stream.Next() {
			_ = stream.Current()
			n++
		}
		return n, stream.Err()
	}
}

// answering is an HTTP client that always returns the same body.
type answering struct{ body io.ReadCloser }

func (a answering) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: a.body, Header: http.Header{}}, nil
}

func decodeGoOpenAI(body io.ReadCloser) func() (int, error) {
	config := goopenai.DefaultConfig("")
	config.HTTPClient = answering{body}
	stream, err := goopenai.NewClientWithConfig(config).CreateChatCompletionStream(context.Background(), goopenai.ChatCompletionRequest{Model: "bench"})
	return func() (n int, _ error) {
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				n++
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return n, err
	}
}

func benchDecoder(w io.Writer) ([]verdict, error) {
	recorded, err := recordedWorkloads()
	if err != nil {
		return nil, err
	}
	if recorded == nil {
		fmt.Fprintln(w, "no recordings: LOQUAT_SHARED (default ../shared next to the project) has no fixtures")
	}
	worst := worstOf{all: newTable("workload", "raw", "Loquat", "encoding/json", "openai-go", "go-openai", "Loquat, × raw", "fastest peer, × Loquat, from memory", "allocations per chunk")}
	for _, load := range append(syntheticWorkloads(), recorded...) {
		load = readable(w, load)
		if len(load.bodies) == 0 {
			continue
		}
		if err := benchWorkload(w, load, &worst); err != nil {
			return nil, fmt.Errorf("%s: %w", load.name, err)
		}
	}
	return worst.verdicts(), worst.all.print(w)
}

// readable leaves out the bodies that some decoder cannot read to the end, so that all
// decoders do the same work. It prints how many it left out.
func readable(w io.Writer, load workload) workload {
	failed := map[string]int{}
	kept := workload{name: load.name}
	for _, body := range load.bodies {
		fine := true
		for _, c := range decoders {
			if _, err := c.prepare(io.NopCloser(bytes.NewReader(body)))(); err != nil {
				failed[c.name]++
				fine = false
			}
		}
		if fine {
			kept.bodies = append(kept.bodies, body)
		}
	}
	for _, c := range decoders {
		if n := failed[c.name]; n > 0 {
			fmt.Fprintf(w, "%s: %s ends in an error on %d of %d bodies, which are left out for all\n", load.name, c.name, n, len(load.bodies))
		}
	}
	return kept
}

func benchWorkload(w io.Writer, load workload, worst *worstOf) error {
	chunks := load.chunks()
	memory, err := compare(decoders, fromMemory(load), chunks)
	if err != nil {
		return err
	}
	loopback, stop, err := fromLoopback(load)
	if err != nil {
		return err
	}
	defer stop()
	wire, err := compare(decoders, loopback, chunks)
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%s: %d bodies, %d chunks of %d bytes; %s\n", load.name, len(load.bodies), chunks, load.size()/chunks, fallbacks(load))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tover HTTP\t× raw\tfrom memory\t× raw\tallocs\t")
	for i, c := range decoders {
		fmt.Fprintf(t, "%s\t%.0f ns\t%.2f\t%.0f ns\t%.2f\t%.2f\t\n", c.name,
			median(wire[i].nanos), medianRatio(wire[i], wire[0]), median(memory[i].nanos), medianRatio(memory[i], memory[0]), memory[i].allocs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	worst.note(load.name, wire, memory)
	return nil
}

// fallbacks returns how many chunks our decoder could not decode in its single pass.
func fallbacks(load workload) string {
	decoded, general := 0, 0
	for _, body := range load.bodies {
		stats := provider.DecodeStats(bytes.NewReader(body))
		decoded += stats.Chunks
		general += stats.Fallbacks
	}
	return fmt.Sprintf("loquat read %d of %d (%.1f %%) the general way", general, decoded, 100*float64(general)/float64(decoded))
}

// worstOf keeps the worst workload of each aim, and a row of every workload.
type worstOf struct {
	all               *table
	raw, peer, allocs struct {
		value float64
		text  string
	}
}

func (o *worstOf) note(name string, wire, memory []result) {
	const ours, firstPeer = 1, 3
	if v := medianRatio(wire[ours], wire[0]); v > o.raw.value {
		o.raw.value, o.raw.text = v, fmt.Sprintf("%.2f at worst (%s)", v, name)
	}
	fastest := math.Inf(1)
	for i := firstPeer; i < len(decoders); i++ {
		fastest = min(fastest, medianRatio(memory[i], memory[ours]))
		if v := medianRatio(memory[i], memory[ours]); o.peer.value == 0 || v < o.peer.value {
			o.peer.value, o.peer.text = v, fmt.Sprintf("%.2f at worst (%s, %s)", v, decoders[i].name, strings.TrimSpace(name))
		}
	}
	if v := memory[ours].allocs; v > o.allocs.value {
		o.allocs.value, o.allocs.text = v, fmt.Sprintf("%.2f at worst (%s)", v, name)
	}
	row := []string{name}
	for _, r := range wire {
		row = append(row, fmt.Sprintf("%.0f ns", median(r.nanos)))
	}
	o.all.add(append(row, fmt.Sprintf("%.1f", medianRatio(wire[ours], wire[0])), fmt.Sprintf("%.1f", fastest), fmt.Sprintf("%.1f", memory[ours].allocs))...)
}

func (o *worstOf) verdicts() []verdict {
	return []verdict{
		{fmt.Sprintf("decoding takes at most %.0f× raw reading of the same body over HTTP", maxTimesRaw), o.raw.value <= maxTimesRaw, o.raw.text},
		{fmt.Sprintf("decoding is at least %.0f× faster than the fastest peer", minTimesPeer), o.peer.value >= minTimesPeer, o.peer.text},
		{fmt.Sprintf("at most %.0f allocations per chunk, including those for the whole reply", maxAllocs), o.allocs.value <= maxAllocs, o.allocs.text},
	}
}
