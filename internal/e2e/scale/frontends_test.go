//go:build unix

package scale_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/e2e/front"
	"loquat/internal/store/postgres/pgtest"
)

// addresses are what the samples call the nodes.
var addresses = []string{"10.0.0.11:8787", "10.0.0.12:8787", "10.0.0.13:8787"}

// samples are the files of deploy/ by the name of the program.
var samples = map[string]string{"nginx": "nginx.conf", "caddy": "Caddyfile", "haproxy": "haproxy.cfg"}

// The load balancers of deploy/ work unchanged, except for addresses and paths, in front of three
// nodes: everything that a proxy must pass, and a node that stops and starts again.
func TestLoadBalancers(t *testing.T) {
	for _, proxy := range front.Proxies {
		t.Run(proxy.Name, func(t *testing.T) {
			sample, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", samples[proxy.Name]))
			if err != nil {
				t.Fatal(err)
			}
			_, url := pgtest.Shared(t).Database(t)
			config, err := json.Marshal(map[string]any{
				"server": map[string]any{"public_url": "https://chat.example.org", "trusted_proxies": []string{"127.0.0.1"}},
				"store":  map[string]any{"url": url},
			})
			if err != nil {
				t.Fatal(err)
			}
			f := front.New(t, len(addresses), string(config))
			f.Run(proxy, string(sample), addresses...)
			t.Run("rolling restart", func(t *testing.T) { rollingRestart(t, f) })
			f.Check(t)
		})
	}
}

// rollingRestart stops and starts one node after the other while clients write and follow. No
// call fails, every request completes, and every follower ends with the stored session.
func rollingRestart(t *testing.T, f *front.Front) {
	c := newCrowd(t, f)
	for node := range f.Servers {
		c.work(t)
		if err := f.Servers[node].Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := f.Servers[node].Stopped(t); code != 0 {
			t.Errorf("node %d exits with %d:\n%s", node, code, f.Servers[node].Log)
		}
		c.work(t)
		f.Restart(node)
		binary.Eventually(t, "the node is ready", func() bool { return binary.Readiness(t, f.Servers[node].URL) == http.StatusOK })
	}
	c.finish(t)
}

// crowd is clients that write and follow through the proxy. Writers repeat a call with 502 once,
// with its key.
type crowd struct {
	f         *front.Front
	api       *client.Client
	writing   sync.WaitGroup
	following sync.WaitGroup
	stop      context.CancelFunc
	ctx       context.Context // of the writers
	calls     atomic.Int64
	members   []*member

	mu       sync.Mutex
	problems []string
}

// member is a session with its writer and its follower.
type member struct {
	session string

	followed atomic.Pointer[[]loquat.Message] // what the follower has
}

func newCrowd(t *testing.T, f *front.Front) *crowd {
	t.Helper()
	c := &crowd{f: f, api: f.API()}
	following, leave := context.WithCancel(t.Context())
	c.ctx, c.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		c.stop()
		leave()
		c.writing.Wait()
		c.following.Wait()
	})
	for i := range 4 {
		m := &member{session: f.Session(t)}
		c.members = append(c.members, m)
		c.following.Go(func() { c.follow(following, m) })
		if i == 0 {
			c.writing.Go(func() { c.send(m) })
		} else {
			c.writing.Go(func() { c.append(m) })
		}
	}
	return c
}

func (c *crowd) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// post makes a call that must succeed, and decodes its answer.
func (c *crowd) post(path, body string, answer any) bool {
	key := rand.Text()
	resp, err := c.f.Post(context.WithoutCancel(c.ctx), path, body, key)
	if err == nil && resp.StatusCode == http.StatusBadGateway { // nginx cannot know whether the node carried the call out
		resp.Body.Close()
		resp, err = c.f.Post(context.WithoutCancel(c.ctx), path, body, key)
	}
	if err != nil {
		c.problem("%s: %v", path, err)
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode < 300 {
		err = json.Unmarshal(text, answer)
	}
	if err != nil || resp.StatusCode >= 300 {
		c.problem("%s: %s %s %v", path, resp.Status, text, err)
		return false
	}
	c.calls.Add(1)
	return true
}

// append appends one message after another.
func (c *crowd) append(m *member) {
	var answer struct{}
	for i := 0; c.ctx.Err() == nil; i++ {
		if !c.post("/sessions/"+m.session+"/messages", fmt.Sprintf(`{"role": "user", "content": "%d"}`, i), &answer) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// send sends, and follows the request until its end, again and again.
func (c *crowd) send(m *member) {
	for c.ctx.Err() == nil {
		var sent loquat.SendResult
		if !c.post("/sessions/"+m.session+"/send", `{"content": "hello"}`, &sent) {
			return
		}
		for e, err := range c.api.Follow(context.WithoutCancel(c.ctx), client.Query{RequestID: sent.RequestID, OmitSession: true}) {
			if err != nil {
				c.problem("follow request %s: %v", sent.RequestID, err)
				return
			}
			if e.Type == loquat.RequestCompleted {
				break
			}
		}
		r, err := c.api.Request(context.WithoutCancel(c.ctx), sent.RequestID)
		if err != nil || r.Status != loquat.StatusCompleted {
			c.problem("request %s ended as %s, %v", sent.RequestID, r.Status, err)
		}
	}
}

func (c *crowd) follow(ctx context.Context, m *member) {
	for u, err := range c.api.FollowSession(ctx, m.session) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.problem("follow session %s: %v", m.session, err)
			return
		}
		messages := u.State.Messages()
		m.followed.Store(&messages)
	}
}

// work waits until the crowd has made some more calls.
func (c *crowd) work(t *testing.T) {
	t.Helper()
	until := c.calls.Load() + 30
	binary.Eventually(t, "clients make calls", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.calls.Load() >= until || len(c.problems) > 0
	})
}

// finish stops the writers, and compares what the followers have with what is stored.
func (c *crowd) finish(t *testing.T) {
	t.Helper()
	c.stop()
	c.writing.Wait()
	for _, m := range c.members {
		stored, err := c.api.Session(t.Context(), m.session)
		if err != nil {
			t.Fatal(err)
		}
		binary.Eventually(t, "the follower has every message", func() bool {
			return slices.EqualFunc(*m.followed.Load(), stored.Messages, func(a, b loquat.Message) bool { return a.ID == b.ID && a.Content == b.Content })
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.problems {
		t.Error(p)
	}
	t.Logf("%d calls of %d clients", c.calls.Load(), len(c.members))
}
