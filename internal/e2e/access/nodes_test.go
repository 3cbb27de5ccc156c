//go:build unix

package access_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
	"loquat/internal/phx"
	"loquat/internal/store/postgres/pgtest"
)

// cluster is three nodes on one database.
type cluster struct {
	t     *testing.T
	nodes []*binary.Process
}

// startCluster starts three nodes with a backend. listen is the store.listen_url; "" means that
// of the database.
func startCluster(t *testing.T, backend, provider, listen string) *cluster {
	t.Helper()
	server := pgtest.Start(t, "fsync=off")
	store, err := json.Marshal(map[string]string{"url": server.URL("postgres"), "listen_url": listen})
	if err != nil {
		t.Fatal(err)
	}
	if listen == "" {
		store = fmt.Appendf(nil, `{"url": %q}`, server.URL("postgres"))
	}
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": %q%s}}, "store": %s}`, backend+"/v1", provider, store)
	file := binary.WriteConfig(t, text)
	c := &cluster{t: t}
	for range 3 {
		c.nodes = append(c.nodes, binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data")))
	}
	return c
}

// call makes a call at a node and returns its status and answer.
func (c *cluster) call(node int, token, method, path, body string) (status int, answer string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.nodes[node].URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return binary.AnswerOf(c.t, resp)
}

// get makes a call that must succeed and returns the string fields of its answer.
func (c *cluster) get(node int, token, method, path, body string) (out map[string]string) {
	c.t.Helper()
	status, answer := c.call(node, token, method, path, body)
	var fields map[string]any
	if status/100 != 2 || json.Unmarshal([]byte(answer), &fields) != nil {
		c.t.Fatalf("%s %s at node %d: %d %s", method, path, node, status, answer)
	}
	out = map[string]string{}
	for name, value := range fields {
		out[name] = fmt.Sprint(value)
	}
	return out
}

// A scope allows the same at every node, at once after its token was made at another one.
func TestAccessOnEveryNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "http://127.0.0.1:1", "", "")
	full := c.get(0, "", "POST", "/tokens", `{"name": "full"}`)["token"]
	c.get(1, full, "POST", "/sessions", `{"session_id": "one"}`)
	c.get(2, full, "POST", "/sessions", `{"session_id": "two"}`)
	const ok, unknown, denied = 200, 401, 403
	calls := []struct {
		method, path, body string
		want               map[string]int // by token
	}{
		{"GET", "/sessions", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": ok, "one": denied, "device": ok}},
		{"GET", "/sessions/one", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": ok, "one": ok, "device": ok}},
		{"GET", "/sessions/two", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": ok, "one": denied, "device": ok}},
		{"GET", "/events?session_id=one", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": ok, "one": ok, "device": ok}},
		{"POST", "/sessions/one/messages", `{"role": "user", "content": "x"}`, map[string]int{"": unknown, "wrong": unknown, "full": 201, "read": denied, "one": 201, "device": denied}},
		{"GET", "/tokens", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": denied, "one": denied, "device": denied}},
		{"GET", "/devices", "", map[string]int{"": unknown, "wrong": unknown, "full": ok, "read": denied, "one": denied, "device": denied}},
		{"GET", "/healthz", "", map[string]int{"": ok, "wrong": ok, "full": ok, "read": ok, "one": ok, "device": ok}},
	}
	for made := range c.nodes {
		tokens := map[string]string{"": "", "wrong": "nonsense", "full": c.get(made, full, "POST", "/tokens", `{"name": "another"}`)["token"]}
		code := c.get(made, full, "POST", "/pairing", `{}`)["code"]
		claim := func(node int) string {
			return c.get(node, "", "POST", "/pairing/claim", fmt.Sprintf(`{"code": %q, "device_name": "phone"}`, code))["token"]
		}
		tokens["device"] = claim((made + 1) % 3)
		if status, _ := c.call((made+2)%3, "", "POST", "/pairing/claim", fmt.Sprintf(`{"code": %q, "device_name": "phone"}`, code)); status != unknown {
			t.Errorf("a code that was claimed at another node: %d", status)
		}
		tokens["read"] = c.get(made, full, "POST", "/tokens", `{"name": "read", "scope": "read"}`)["token"]
		tokens["one"] = c.get(made, full, "POST", "/tokens", `{"name": "one", "scope": "session", "session_id": "one"}`)["token"]
		for node := range c.nodes {
			for _, call := range calls {
				for name, want := range call.want {
					if status, answer := c.call(node, tokens[name], call.method, call.path, call.body); status != want {
						t.Errorf("%s %s at node %d with the token %q of node %d: %d %s, want %d", call.method, call.path, node, name, made, status, answer, want)
					}
				}
			}
		}
	}
}

// follower is a stream, a long poll or a socket that runs with a token.
type follower struct {
	kind string
	node int
	end  <-chan time.Time
}

func (c *cluster) follow(node int, token string) (out []follower) {
	c.t.Helper()
	watch := func(kind string, wait func()) {
		end := make(chan time.Time, 1)
		go func() {
			wait()
			end <- time.Now()
		}()
		out = append(out, follower{kind, node, end})
	}
	request := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(c.t.Context(), "GET", c.nodes[node].URL+path, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			c.t.Error(err)
			return nil
		}
		return resp
	}
	stream := request("/events/stream")
	if stream == nil || stream.StatusCode != 200 {
		c.t.Fatalf("a stream at node %d: %v", node, stream)
	}
	first := bufio.NewReader(stream.Body)
	watch("stream", func() { _, _ = io.Copy(io.Discard, first); stream.Body.Close() })
	latest := c.get(node, token, "GET", "/events", "")["latest_event_id"]
	watch("poll", func() {
		if resp := request("/events?wait=60&since_id=" + latest); resp != nil {
			if resp.StatusCode != 401 {
				c.t.Errorf("a poll at node %d ended with %d", node, resp.StatusCode)
			}
			resp.Body.Close()
		}
	})
	socket, err := phx.Dial(c.t.Context(), "ws"+strings.TrimPrefix(c.nodes[node].URL, "http")+"/bridge", phx.ClientOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	serverID := c.get(node, token, "POST", "/pairing", `{}`)["server_id"]
	if _, err := socket.Join(c.t.Context(), "events:server:"+serverID, map[string]any{"token": token}); err != nil {
		c.t.Fatalf("join at node %d: %v", node, err)
	}
	watch("socket", func() { <-socket.Context().Done(); socket.Close() })
	return out
}

// A token that is revoked at one node ends what runs with it at all nodes within a second, also
// at nodes that get no notifications from the database.
func TestTokenRevokedAtAnotherNode(t *testing.T) {
	t.Parallel()
	for name, listen := range map[string]string{"with notifications": "", "without notifications": "postgres://postgres@127.0.0.1:1/postgres?sslmode=disable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, "http://127.0.0.1:1", "", listen)
			full := c.get(0, "", "POST", "/tokens", `{"name": "admin"}`)["token"]
			for round := range 3 {
				made := c.get(round, full, "POST", "/tokens", `{"name": "guest"}`)
				var followers []follower
				for node := range c.nodes {
					followers = append(followers, c.follow(node, made["token"])...)
				}
				time.Sleep(300 * time.Millisecond) // polls wait
				revoked := time.Now()
				if status, answer := c.call((round+1)%3, full, "DELETE", "/tokens/"+made["token_id"], ""); status != 204 {
					t.Fatalf("%d %s", status, answer)
				}
				var slowest time.Duration
				for _, f := range followers {
					select {
					case at := <-f.end:
						slowest = max(slowest, at.Sub(revoked))
					case <-time.After(10 * time.Second):
						t.Errorf("a %s at node %d does not end", f.kind, f.node)
					}
				}
				if slowest > time.Second {
					t.Errorf("the last of %d followers ended %s after the token was revoked", len(followers), slowest)
				}
				t.Logf("the last of %d followers ended after %s", len(followers), slowest)
				for node := range c.nodes {
					if status, _ := c.call(node, made["token"], "GET", "/sessions", ""); status != 401 {
						t.Errorf("the revoked token at node %d: %d", node, status)
					}
				}
			}
		})
	}
}

// arrivals is a backend that records when requests arrive.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// start starts the backend and returns its URL.
func (a *arrivals) start(t *testing.T) string {
	t.Helper()
	ln, err := listenStamping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: ln, Config: &http.Server{
		Handler:     a,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := receivedAt(r.Context().Value(connKey{}).(net.Conn))
	_, _ = io.Copy(io.Discard, r.Body)
	if strings.HasSuffix(r.URL.Path, "/chat/completions") {
		a.mu.Lock()
		a.at = append(a.at, now)
		a.mu.Unlock()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, binary.SSEText("hello")+binary.SSEStop)
}

// pacedSessions is how many sessions send at each node, unless LOQUAT_PACED_SESSIONS says
// otherwise.
const pacedSessions = 12

// Requests of all nodes to one base_url keep their distance at the backend. They use nearly all
// of the rate that the distance allows, and no node is left behind.
func TestPacingOverNodes(t *testing.T) {
	sessions := binary.Number(t, "LOQUAT_PACED_SESSIONS", pacedSessions)
	backend := &arrivals{}
	c := startCluster(t, backend.start(t), `, "min_request_interval_seconds": 0.2`, "")
	for i := range sessions * 3 {
		id := fmt.Sprint("s", i)
		c.get(i%3, "", "POST", "/sessions", fmt.Sprintf(`{"session_id": %q}`, id))
		c.get(i%3, "", "POST", "/sessions/"+id+"/send", `{"content": "hi"}`)
	}
	deadline := time.Now().Add(time.Duration(sessions*3) * 400 * time.Millisecond)
	var at []time.Time
	for len(at) < sessions*3 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		backend.mu.Lock()
		at = slices.Clone(backend.at)
		backend.mu.Unlock()
	}
	if len(at) != sessions*3 {
		t.Fatalf("%d of %d requests arrived", len(at), sessions*3)
	}
	slices.SortFunc(at, time.Time.Compare)
	closest := time.Hour
	for i := range at[1:] {
		closest = min(closest, at[i+1].Sub(at[i]))
	}
	took := at[len(at)-1].Sub(at[0])
	t.Logf("%d requests within %s, the closest two %s apart", len(at), took, closest)
	if closest < 195*time.Millisecond {
		t.Errorf("two requests arrived %s apart", closest)
	}
	if ideal := time.Duration(len(at)-1) * 200 * time.Millisecond; took > ideal*13/10 {
		t.Errorf("%d requests took %s, and %s is possible", len(at), took, ideal)
	}
}
