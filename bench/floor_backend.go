package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"
)

// floorEnv is the variable that makes this program a child process of the section floor:
// "relay", "proxy" or "backend".
const floorEnv = "LOQUAT_BENCH_FLOOR"

// serveFloor is the child process.
func serveFloor(kind string) error {
	switch kind {
	case "relay":
		return serveRelay()
	case "proxy":
		return serveProxy()
	case "backend":
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/chat/completions", streamMarks)
		return serveChild("127.0.0.1:0", mux)
	}
	return fmt.Errorf("%s is %q", floorEnv, kind)
}

// order is the stream that the last user message asks the backend for.
var order = regexp.MustCompile(`stream (\d+) chunks at (\d+)/s`)

// orderOf returns the message that makes the backend stream chunks at a rate.
func orderOf(chunks, rate int) string { return fmt.Sprintf("stream %d chunks at %d/s", chunks, rate) }

// Each chunk has 20 bytes of text: its number within the stream, and the time at which it
// was made.
const (
	markFormat = "#%04d@%010d~abc"
	markLength = len("#0000@0123456789~") // without the filler
	markWraps  = 1e10                     // the time is in microseconds, modulo this
)

// streamMarks streams chunks on a fixed schedule, so that a late chunk delays no other.
func streamMarks(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	orders := order.FindAllSubmatch(body, -1)
	if err != nil || len(orders) == 0 {
		http.Error(w, "no message says what to stream", http.StatusBadRequest)
		return
	}
	last := orders[len(orders)-1]
	chunks, _ := strconv.Atoi(string(last[1]))
	rate, _ := strconv.Atoi(string(last[2]))
	began, gap := time.Now(), time.Second/time.Duration(rate)
	head := fmt.Sprintf(`data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":%d,"model":"bench","choices":[{"index":0,`, began.UnixNano(), began.Unix())
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	for i := range chunks {
		time.Sleep(time.Until(began.Add(time.Duration(i) * gap)))
		mark := fmt.Sprintf(markFormat, i, time.Now().UnixMicro()%markWraps)
		if _, err := fmt.Fprintf(w, "%s\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n", head, mark); err != nil {
			return
		}
		if err := flusher.Flush(); err != nil {
			return
		}
	}
	time.Sleep(time.Until(began.Add(time.Duration(chunks) * gap)))
	if _, err := fmt.Fprintf(w, "%s\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", head, chunks, chunks+9); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
	}
}
