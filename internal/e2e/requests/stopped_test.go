//go:build unix

package requests_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// A server that was stopped for longer than its timeout, as by a debugger or a paused
// container, does not call backends silent that wrote all the time.
func TestServerThatWasStopped(t *testing.T) {
	const (
		streams = 8
		chunks  = 100
		timeout = 2 * time.Second
		stop    = 3 * timeout
	)
	t.Parallel()
	begun := make(chan struct{}, streams)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range chunks {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			if i == 0 {
				begun <- struct{}{}
			}
			time.Sleep(100 * time.Millisecond)
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(backend.Close)
	settings := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "timeout": %v, "base_url": "%s/v1"}}}`, timeout.Seconds(), backend.URL)
	config := binary.WriteConfig(t, settings)
	server := binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var requests []string
	for range streams {
		s, err := c.CreateSession(t.Context(), loquat.NewSession{})
		if err != nil {
			t.Fatal(err)
		}
		content, stream := "hi", true
		sent, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: &content, Stream: &stream})
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, sent.RequestID)
	}
	for range streams {
		<-begun
	}
	if err := server.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stop)
	if err := server.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, id := range requests {
		events := binary.FollowRequest(t.Context(), t, c, id)
		final := ""
		for _, e := range events {
			switch e.Type {
			case loquat.ErrorEvent:
				t.Errorf("request %s failed: %s", id, e.Detail)
			case loquat.Final:
				final = e.Messages[0].Content
			}
		}
		if final != strings.Repeat("x", chunks) {
			t.Errorf("request %s: %d of %d chunks arrived", id, len(final), chunks)
		}
	}
}
