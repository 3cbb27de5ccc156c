package binary

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/client"
)

// ScriptedBackend starts a scripted backend in this process.
func ScriptedBackend(t *testing.T, opts backend.Options) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ServeScripted(t, opts, ln)
	return "http://" + ln.Addr().String()
}

// ServeScripted lets a scripted backend answer on ln.
func ServeScripted(t *testing.T, opts backend.Options, ln net.Listener) {
	t.Helper()
	b, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// ServerWith starts a server with a configuration.
func ServerWith(t *testing.T, config string) *client.Client {
	t.Helper()
	_, c := ServerAt(t, config)
	return c
}

// ServerAt starts a server with a configuration. It also returns the URL of the server.
func ServerAt(t *testing.T, config string) (url string, _ *client.Client) {
	t.Helper()
	path, err := racePath()
	if err != nil {
		t.Fatal(err)
	}
	p := startServer(t, path, config)
	t.Cleanup(func() { p.logErrors(t) })
	return p.URL, NewClient(t, p.URL)
}

// NewClient returns a client of the server at a URL, which closes its connections at the end of
// the test.
func NewClient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// startServer starts the server of a program, with a configuration and a new data directory.
func startServer(t *testing.T, program, config string) *Process {
	t.Helper()
	cfg := WriteConfig(t, config)
	return start(t, program, nil, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
}

// singleServer returns a server with a configuration.
func singleServer(t *testing.T, config string) []*Process {
	t.Helper()
	path, err := Path()
	if err != nil {
		t.Fatal(err)
	}
	return []*Process{startServer(t, path, config)}
}

// logErrors repeats the errors of the server's log in the log of the test.
func (p *Process) logErrors(t testing.TB) {
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, "level=ERROR") {
			t.Logf("server: %s", line)
		}
	}
}

// EventStream is the media type of a stream, SSEStop its end.
const (
	EventStream = "text/event-stream"
	SSEStop     = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
)

// SSEText returns the event of a backend that brings text.
func SSEText(text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
}
