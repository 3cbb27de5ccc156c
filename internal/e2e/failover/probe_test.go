//go:build unix

package failover_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

func startNode(t *testing.T, database, model string) *binary.Process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "timeout": 10,
		"retry_on_status": {"503": [0.02]}, "stream_recovery": {"mode": "aggressive", "max_retries": 1}}}, "limits": {"max_tool_rounds": 2},
		"store": {"url": %q}}`, model, database)
	binary.WriteFile(t, file, text)
	return binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
}

// probe makes changes at one node, one after the other, and watches its readiness.
type probe struct {
	url     string
	session string

	mu      sync.Mutex
	answers []answer
	unready time.Time // first answer of /readyz that was red
	stream  streamed
}

// answer is the answer to a change.
type answer struct {
	at         time.Time // when it came
	took       time.Duration
	status     int // 0 if none came
	retryAfter string
	body       string
	text       string // of the message
}

// streamed is what a stream that was open before the fault showed.
type streamed struct {
	events int
	err    error // why it ended, unless the probe ended it
	last   time.Time
}

// probe starts a probe at each node. stop ends them.
func (n *nodes) probe(t *testing.T) (stop func() []*probe) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	n.probes = nil
	for _, server := range n.servers {
		p := &probe{url: server.URL, session: fmt.Sprintf("probe-%d", time.Now().UnixNano())}
		n.probes = append(n.probes, p)
		if status, body := p.post(ctx, "/sessions", fmt.Sprintf(`{"session_id": %q}`, p.session)).result(); status != 201 {
			t.Fatalf("%d %s", status, body)
		}
		running.Go(func() { p.change(ctx) })
		running.Go(func() { p.watchReadiness(ctx) })
		running.Go(func() { p.follow(ctx) })
	}
	binary.Eventually(t, "the streams show changes", func() bool {
		return !slices.ContainsFunc(n.probes, func(p *probe) bool { return p.shown().IsZero() })
	})
	return func() []*probe {
		cancel()
		running.Wait()
		return n.probes
	}
}

func (a answer) result() (int, string) { return a.status, a.body }

// post makes one change. It waits as long as a client would.
func (p *probe) post(ctx context.Context, path, body string) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	began := time.Now()
	defer func() { a.at, a.took = time.Now(), time.Since(began) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), body: string(text)}
}

// change appends messages. Several are on their way at any time, as from several clients.
func (p *probe) change(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for serial := 1; ctx.Err() == nil; serial++ {
		running.Go(func() {
			text := fmt.Sprint(p.session, " ", serial)
			a := p.post(ctx, "/sessions/"+p.session+"/messages", fmt.Sprintf(`{"role": "user", "content": %q}`, text))
			a.text = text
			if ctx.Err() == nil {
				p.mu.Lock()
				p.answers = append(p.answers, a)
				p.mu.Unlock()
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *probe) watchReadiness(ctx context.Context) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
		if err != nil {
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			p.mu.Lock()
			if resp.StatusCode == http.StatusServiceUnavailable && p.unready.IsZero() {
				p.unready = time.Now()
			}
			p.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// follow reads one stream, which is not opened again.
func (p *probe) follow(ctx context.Context) {
	err := p.readStream(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		p.stream.err = fmt.Errorf("the stream ended: %w", err)
	}
}

func (p *probe) readStream(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/events/stream?session_id="+p.session, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			p.mu.Lock()
			p.stream.events++
			p.stream.last = time.Now()
			p.mu.Unlock()
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

// shown returns when the stream showed its newest event.
func (p *probe) shown() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream.last
}

// success returns when a change that was made after at succeeded.
func (p *probe) success(at time.Time) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.status == http.StatusCreated && a.at.After(at) {
			return a.at, true
		}
	}
	return time.Time{}, false
}

func (p *probe) awaitSuccess(t *testing.T, after time.Time) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, ok := p.success(after); ok {
			return
		}
	}
	t.Fatalf("%s stores nothing after the promotion", p.url)
}

// check checks what a client of this node saw.
func (p *probe) check(t *testing.T, began, promoted time.Time, f fault) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var firstRefused, back time.Time
	var refused int
	var longest time.Duration
	reasons, wrong := map[string]int{}, map[string]int{}
	for _, a := range p.answers {
		longest = max(longest, a.took)
		switch {
		case a.status == http.StatusCreated:
			if a.at.After(promoted) && back.IsZero() {
				back = a.at
			}
		case a.status == http.StatusServiceUnavailable && a.retryAfter != "":
			refused++
			reasons[a.body]++
			if firstRefused.IsZero() {
				firstRefused = a.at
			}
		default:
			wrong[fmt.Sprintf("a change was answered with %d, Retry-After %q: %s", a.status, a.retryAfter, a.body)]++
		}
	}
	t.Logf("%s: refused from %s to %s after the fault (%d changes), back %s after the promotion, longest answer %s; not ready from %s; stream %d events, %v",
		p.url, since(began, firstRefused), since(began, back), refused, since(promoted, back), longest.Round(100*time.Millisecond), since(began, p.unready), p.stream.events, p.stream.err)
	for reason, n := range wrong {
		t.Errorf("%d × %s", n, reason)
	}
	for reason, n := range reasons {
		t.Logf("%d × %s", n, reason)
	}
	if d := back.Sub(promoted); d > backIn {
		t.Errorf("changes succeeded %s after the promotion", d)
	}
	if !f.inPlace && p.unready.IsZero() {
		t.Error("the server was always ready")
	}
	if p.stream.err != nil {
		t.Error(p.stream.err)
	}
	if p.stream.last.Before(back) {
		t.Error("the stream that was open before the fault showed nothing after it")
	}
}

func since(began, at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.Sub(began).Round(100 * time.Millisecond).String()
}
