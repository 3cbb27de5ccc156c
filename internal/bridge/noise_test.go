package bridge

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"loquat/internal/phx"
)

// record collects log lines for a test.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// Refused joins and invalid frames do not fill the log. When the bridge ends, the log has
// the number of each.
func TestLogOfRefusals(t *testing.T) {
	t.Parallel()
	var log record
	h := NewHub(Options{
		Tokens: map[string]string{"home": "server-token"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Limits: phx.Limits{Upgrades: 10_000, Joins: 10_000, FrameBytes: 1000},
	})
	url := serveHub(t, h)
	o := newRemoteServer()
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	p := call(t, url)
	const each = 300
	for i := range each {
		p.join(serverTopic+"home", map[string]any{"token": fmt.Sprint("guess", i), "store_id": "s"})
		p.join(rigTopic, map[string]any{"token": fmt.Sprint("guess", i)})
	}
	for range each {
		q := call(t, url)
		_ = q.client.Push("x", "y", []byte(`"`+strings.Repeat("x", 2000)+`"`), nil)
		q.gone()
		q.client.Close()
	}
	f.Close()
	h.Close()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) > 120 {
		t.Errorf("%d refusals make %d lines", 3*each, len(lines))
	}
	for what, count := range map[string]int{"a join was refused": each, "a socket was closed": each} {
		left, written := 0, 0
		for _, line := range lines {
			if !strings.Contains(line, what) {
				continue
			}
			if _, after, ok := strings.Cut(line, "left_out="); ok {
				var n int
				fmt.Sscan(after, &n)
				left += n
			} else {
				written++
			}
		}
		if written+left != count {
			t.Errorf("%q: %d lines report %d, want %d", what, written, written+left, count)
		}
	}
}
