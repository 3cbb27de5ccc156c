//go:build unix

package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/front"
	"loquat/internal/store/postgres/pgtest"
)

// fault is something that happens to one of three nodes.
type fault struct {
	name   string
	signal syscall.Signal
	heal   func(f *front.Front, node int)
	// The bounds of a pause include calls that the node had begun: they wait for it.
	// The bounds, from the fault on: of failed calls, and of the end of the node's request.
	calls, request time.Duration
}

// What clients see of a node that fails, behind HAProxy. docs/scale.md has the figures.
func TestWhatClientsSee(t *testing.T) {
	faults := []fault{{"killed", syscall.SIGKILL, func(*front.Front, int) {}, 5 * time.Second, 15 * time.Second}}
	if os.Getenv("LOQUAT_SCALE_FAULTS") != "" {
		faults = append(faults,
			fault{"stopped", syscall.SIGTERM, func(*front.Front, int) {}, 0, 20 * time.Second},
			fault{"paused", syscall.SIGSTOP, func(f *front.Front, node int) {
				_ = f.Servers[node].Cmd.Process.Signal(syscall.SIGCONT) // or its end fails the test
			}, 20 * time.Second, 15 * time.Second})
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			f := behindHAProxy(t)
			request := f.longRequest(t, 0)
			p := f.probe(t)
			time.Sleep(2 * time.Second)
			struck := time.Now()
			if err := f.Servers[0].Cmd.Process.Signal(fault.signal); err != nil {
				t.Fatal(err)
			}
			ended := f.awaitEnd(t, request)
			if fault.heal(f.Front, 0); fault.signal == syscall.SIGKILL {
				f.Servers[0].Stopped(t)
			}
			calls, failed, last := p.finish()
			within := time.Duration(0)
			if failed > 0 {
				within = last.Sub(struck)
			}
			t.Logf("%s: %d of %d calls failed, the last %s after the fault; its request ended %s after the fault",
				fault.name, failed, calls, within.Round(10*time.Millisecond), ended.Sub(struck).Round(10*time.Millisecond))
			if within > fault.calls {
				t.Errorf("calls failed for %s, more than %s", within, fault.calls)
			}
			if took := ended.Sub(struck); took > fault.request {
				t.Errorf("the request ended after %s, more than %s", took, fault.request)
			}
		})
	}
}

type balanced struct{ *front.Front }

func behindHAProxy(t *testing.T) balanced {
	t.Helper()
	_, url := pgtest.Shared(t).Database(t)
	config, err := json.Marshal(map[string]any{
		"server": map[string]any{"public_url": "https://chat.example.org", "trusted_proxies": []string{"127.0.0.1"}},
		"store":  map[string]any{"url": url},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := front.New(t, len(addresses), string(config))
	f.Run(front.Proxies[2], deployed(t, samples["haproxy"]), addresses...)
	return balanced{f}
}

// longRequest starts a request at a node, which would take a minute.
func (f balanced) longRequest(t *testing.T, node int) string {
	t.Helper()
	c := f.Direct(node)
	overrides := json.RawMessage(`{"request_options": {"loquat_script": {"chunks": 6000, "rate": 100}}}`)
	s, err := c.CreateSession(t.Context(), loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: new("hello")})
	if err != nil {
		t.Fatal(err)
	}
	return sent.RequestID
}

// awaitEnd follows a request at another node until its end.
func (f balanced) awaitEnd(t *testing.T, request string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range f.Direct(1).Follow(ctx, client.Query{RequestID: request, OmitSession: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == loquat.RequestCompleted {
			return time.Now()
		}
	}
	t.Fatal("the request has no end")
	return time.Time{}
}

// probe makes a call every 20 ms and repeats none.
type probe struct {
	stop   context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	calls  int
	failed int
	last   time.Time
}

func (f balanced) probe(t *testing.T) *probe {
	t.Helper()
	session := f.Session(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := &probe{stop: cancel}
	t.Cleanup(func() { cancel(); p.wait.Wait() })
	p.wait.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			p.wait.Go(func() {
				resp, err := f.Post(context.WithoutCancel(ctx), "/sessions/"+session+"/messages", fmt.Sprintf(`{"role": "user", "content": "%d"}`, n), fmt.Sprint("probe-", n))
				if err == nil {
					resp.Body.Close()
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.calls++
				if err != nil || resp.StatusCode != http.StatusCreated {
					p.failed++
					p.last = time.Now()
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
	})
	return p
}

func (p *probe) finish() (calls, failed int, last time.Time) {
	p.stop()
	p.wait.Wait()
	return p.calls, p.failed, p.last
}
