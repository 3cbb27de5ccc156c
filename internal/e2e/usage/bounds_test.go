//go:build unix

package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// The bounds of the test.
const (
	boundClients = 50
	boundRunning = 4
	boundTokens  = 1500
	boundSends   = 30 // a minute
)

// Fifty clients of one user at three nodes keep to the bounds of the user together, and do not hold up
// another user.
func TestBoundsOverNodes(t *testing.T) {
	b := newMeasured()
	backend := httptest.NewServer(b)
	t.Cleanup(backend.Close)
	nodes := binary.StartNodes(t, binary.NodesOptions{Count: 3, Config: fmt.Sprintf(`{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "words", "base_url": "%s/v1"}},
		"server": {"auth_tokens": [{"name": "a", "token": "the-token-of-the-backend", "scope": "full"}], "roles": {
			"running": {"bounds": {"running_requests": %d}}, "tokens": {"bounds": {"tokens_per_day": %d}}, "minute": {"bounds": {"requests_per_minute": %d}}}}}`,
		backend.URL, boundRunning, boundTokens, boundSends)})
	crowd := func(role string, until time.Duration) *crowd {
		c := newCrowd(t, nodes, role)
		ctx, cancel := context.WithTimeout(t.Context(), until)
		defer cancel()
		c.run(ctx)
		c.awaitEnd(t)
		return c
	}
	for _, role := range []string{"running", "tokens", "minute"} {
		c := crowd(role, 4*time.Second)
		most, calls, tokens, largest := b.of(role)
		t.Logf("%s: %d sent, refused %v; at the backend %d calls, at most %d at once, %d tokens, the largest %d", role, c.sent, c.refused, calls, most, tokens, largest)
		if len(c.refused) == 0 || c.sent == 0 {
			t.Errorf("%s: %d sent, refused %v", role, c.sent, c.refused)
		}
		switch role {
		case "running":
			if most > boundRunning+1 {
				t.Errorf("%d requests ran at once, the bound is %d", most, boundRunning)
			}
		case "tokens":
			if tokens > boundTokens+largest || tokens < boundTokens-largest {
				t.Errorf("%d tokens were used, the bound is %d, and the largest request has %d", tokens, boundTokens, largest)
			}
		case "minute":
			if calls > boundSends+1 || calls < boundSends {
				t.Errorf("%d requests in less than a minute, the bound is %d", calls, boundSends)
			}
		}
	}
	if os.Getenv("LOQUAT_BOUNDS_OTHERS") == "" {
		return // what follows is a measurement, which a test cannot judge
	}
	within, beyond := newCrowd(t, nodes, "running"), newCrowd(t, nodes, "running")
	within.clients = boundRunning
	var alone, beside, crowded []time.Duration
	for n := range 3 { // in turns, because a machine is not equally busy all the time
		alone = append(alone, others(t, nodes, fmt.Sprint("alone-", n), nil)...)
		beside = append(beside, others(t, nodes, fmt.Sprint("within-", n), within)...)
		crowded = append(crowded, others(t, nodes, fmt.Sprint("beyond-", n), beyond)...)
	}
	p99 := func(took []time.Duration) time.Duration {
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	t.Logf("another user: p99 %v alone, %v beside %d clients (refused %v), %v beside %d clients (refused %v): %.2f times", p99(alone),
		p99(beside), boundRunning, within.refused, p99(crowded), boundClients, beyond.refused, float64(p99(crowded))/float64(p99(beside)))
}

// others returns the times that sends of another user take, beside a crowd.
func others(t *testing.T, nodes *binary.Nodes, name string, beside *crowd) []time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	if beside != nil {
		running.Go(func() { beside.run(ctx) })
		time.Sleep(2 * time.Second) // all begin at once
	}
	var took []time.Duration
	for n := range 400 {
		id := fmt.Sprintf("bob-%s-%d", name, n)
		begun := time.Now()
		status, _, err := ask(ctx, http.MethodPost, nodes.List[n%3].Address, "/sessions", "bob", "", fmt.Sprintf(`{"session_id": %q, "send": {"content": "bob"}}`, id))
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d %v", id, status, err)
		}
		took = append(took, time.Since(begun))
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	running.Wait()
	slices.Sort(took)
	t.Logf("%s: p50 %v p90 %v p95 %v max %v", name, took[len(took)/2], took[len(took)*9/10], took[len(took)*95/100], took[len(took)-1])
	return took
}

// crowd are clients of the user whose name is a role.
type crowd struct {
	nodes   *binary.Nodes
	role    string
	token   string
	clients int

	mu      sync.Mutex
	sent    int
	refused map[string]int // by bound
}

func newCrowd(t *testing.T, nodes *binary.Nodes, role string) *crowd {
	t.Helper()
	c := &crowd{nodes: nodes, role: role, refused: map[string]int{}, clients: boundClients}
	status, body, err := ask(t.Context(), http.MethodPost, nodes.List[0].Address, "/tokens", "", "", fmt.Sprintf(`{"name": "x", "scope": "user", "user": %q, "role": %q}`, role, role))
	var made struct{ Token string }
	if err != nil || status != http.StatusCreated || json.Unmarshal(body, &made) != nil {
		t.Fatalf("make a token: %d %s %v", status, body, err)
	}
	c.token = made.Token
	return c
}

// run lets the clients send until ctx ends.
func (c *crowd) run(ctx context.Context) {
	var clients sync.WaitGroup
	for n := range c.clients {
		clients.Go(func() {
			address := c.nodes.List[n%len(c.nodes.List)].Address
			for i := 0; ctx.Err() == nil; i++ {
				c.send(ctx, address)
			}
		})
	}
	clients.Wait()
}

func (c *crowd) send(ctx context.Context, address string) {
	status, body, err := ask(ctx, http.MethodPost, address, "/sessions", "", c.token, fmt.Sprintf(`{"send": {"content": "of %s"}}`, c.role))
	if err != nil {
		return
	}
	var p struct{ Bound string }
	_ = json.Unmarshal(body, &p)
	c.mu.Lock()
	if status == http.StatusCreated {
		c.sent++
	} else {
		c.refused[fmt.Sprintf("%d %s", status, p.Bound)]++
	}
	c.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
}

// awaitEnd waits until no request of the crowd runs.
func (c *crowd) awaitEnd(t *testing.T) {
	t.Helper()
	binary.Eventually(t, "the requests end", func() bool {
		_, body, err := ask(t.Context(), http.MethodGet, c.nodes.List[0].Address, "/usage?group_by=user", "", c.token, "")
		var list struct{ Usage []struct{ Requests int } }
		return err == nil && json.Unmarshal(body, &list) == nil && len(list.Usage) == 1 && list.Usage[0].Requests >= c.sent
	})
}

// ask makes a call, as the backend of an app, for a user if one is given, or with a token.
func ask(ctx context.Context, method, address, path, user, token, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if token == "" {
		token = "the-token-of-the-backend"
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if user != "" {
		req.Header.Set("On-Behalf-Of", user)
	}
	resp, err := manyConnections.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// manyConnections keeps a connection for each of many clients.
var manyConnections = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * boundClients}}

// measured is a backend that measures what it does for each crowd.
type measured struct {
	mu     sync.Mutex
	byRole map[string]*work
}

type work struct {
	calls, now, most int
	tokens, largest  int64
}

func newMeasured() *measured { return &measured{byRole: map[string]*work{}} }

func (m *measured) of(role string) (most, calls int, tokens, largest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.byRole[role]
	return w.most, w.calls, w.tokens, w.largest
}

// ServeHTTP streams 20 to 60 words, each of which is a token.
func (m *measured) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(string(body), `"of `)
	role, _, _ := strings.Cut(rest, `"`)
	m.mu.Lock()
	if m.byRole[role] == nil {
		m.byRole[role] = &work{}
	}
	k := m.byRole[role]
	k.calls, k.now = k.calls+1, k.now+1
	k.most = max(k.most, k.now)
	words := 20 + k.calls*7%41
	m.mu.Unlock()
	prompt := int64(3 + (len("of "+role)+3)/4)
	sent := int64(0)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		k.now--
		k.tokens, k.largest = k.tokens+prompt+sent, max(k.largest, prompt+sent)
	}()
	w.Header().Set("Content-Type", binary.EventStream)
	for range words {
		if _, err := io.WriteString(w, binary.SSEText(" tok")); err != nil || http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
			return
		}
		sent++
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", prompt, sent)
}
