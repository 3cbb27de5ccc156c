//go:build unix

package together_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/e2e/webhooks"
	"loquat/internal/faultproxy"
	"loquat/internal/jwt/jwttest"
	"loquat/internal/store/postgres/pgtest"
)

// The secrets of a town, which no log may have. A Mover looks for town-secret in each log.
const (
	fullToken   = "town-secret-token-full"
	bridgeToken = "town-secret-token-bridge"
	serverID    = "home"
)

// shape is where the sessions are.
type shape struct {
	nodes    int
	program  string // "" means the usual one
	raced    bool
	database *pgtest.Server // nil: the data directory
}

func embedded(t testing.TB) shape {
	program, raced := programOf(t)
	return shape{nodes: 1, program: program, raced: raced}
}

func threeNodes(t testing.TB) shape {
	return shape{nodes: nodeCount, database: pgtest.Start(t, "fsync=off", "max_connections=200")}
}

// person is who makes calls.
type person struct {
	name  string // "" is everybody: a token of scope full
	word  string // is in every text of the person, and nobody else may see it
	token string
	api   *client.Client
	http  *http.Client
}

// town is the servers, and all that they depend on.
type town struct {
	shape
	t    testing.TB
	dir  string
	mark string // argument of the plugin's processes

	nodes     []*binary.Mover
	backend   *binary.Mover
	bridge    *binary.Mover
	receivers map[string]*webhooks.Receiver // by user; "" gets everything
	copier    *copier                       // nil with a database

	fronts, databases []*faultproxy.Proxy // in front of the nodes, and between them and the database
	below, push       *faultproxy.Proxy   // in front of the backend, and of the bridge
	people            []*person
	spreads           []*binary.Spread // of the clients

	restarts atomic.Int64 // of the database: of each the beginning and the end

	mu     sync.Mutex
	counts map[string]int
}

func (w *town) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// line puts a faulty network in front of an address. split is the part of the connections whose bytes are
// written one by one, which a slow machine can do for short ones alone.
func (w *town) line(target string, seed uint64, within int, split float64) *faultproxy.Proxy {
	w.t.Helper()
	p, err := faultproxy.Start(faultproxy.Options{
		Target: target, Seed: seed, Cut: 0.4, Stall: 0.2, Split: split, Slow: 0.15, Within: within, StallFor: 1500 * time.Millisecond, Rate: 256 << 10,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Close() })
	return p
}

// newTown starts everything.
func newTown(t testing.TB, seed uint64, s shape) *town {
	t.Helper()
	w := &town{shape: s, t: t, dir: t.TempDir(), mark: fmt.Sprint(pluginMark, os.Getpid(), "-", strings.ReplaceAll(t.Name(), " ", "-")), counts: map[string]int{}, receivers: map[string]*webhooks.Receiver{}}
	at, bridgeAt := binary.FreeAddress(t), binary.FreeAddress(t)
	w.backend = &binary.Mover{T: t, Address: at, Args: []string{"backend", "--listen", at}}
	w.below = w.line(at, seed, 32<<10, 0.1)
	w.push = w.line(bridgeAt, seed+1, 256<<10, 0)
	bridgeConfig := w.write("bridge.json", map[string]any{
		"bridge": map[string]any{"servers": map[string]string{serverID: bridgeToken}}, "server": map[string]any{"public_url": "http://" + w.push.Addr()},
	})
	w.bridge = &binary.Mover{T: t, Address: bridgeAt, Args: []string{"bridge", "--config", bridgeConfig, "--listen", bridgeAt}}
	w.writePlugin()
	issuer := jwttest.New(t)
	for i := range s.nodes {
		w.addNode(i, seed, issuer)
	}
	for _, m := range append([]*binary.Mover{w.backend, w.bridge}, w.nodes...) {
		w.revive(m)
		t.Cleanup(func() { w.bury(m) })
	}
	w.people = []*person{
		{name: "", token: fullToken}, {name: "ann", word: "kestrel", token: tokenOf("ann")}, {name: "bob", word: "heron", token: tokenOf("bob")},
		{name: "carol", word: "osprey", token: issuer.Token(t, "carol", 24*time.Hour, nil)},
	}
	for _, p := range w.people {
		w.connect(p)
	}
	w.addWebhooks()
	if s.database == nil {
		w.copier = w.startCopier()
	}
	return w
}

func tokenOf(user string) string { return "town-secret-token-of-" + user }

// revive starts a process again, as a supervisor would: a node does not start while its database is away.
func (w *town) revive(m *binary.Mover) {
	const attempts = 30 // a slow machine may start a node too late for the test
	for attempt := 1; ; attempt++ {
		err := m.Launch()
		if err == nil {
			err = m.Now().Listening()
		}
		if err == nil {
			return
		}
		w.bury(m)
		if attempt == attempts {
			w.t.Errorf("%v does not start: %v", m.Args, err)
			return
		}
		w.count("failed start")
		time.Sleep(200 * time.Millisecond)
	}
}

// bury ends a process at the end of the test.
func (w *town) bury(m *binary.Mover) {
	if p := m.Now(); p != nil && p.Cmd.ProcessState == nil {
		_ = p.Cmd.Process.Kill()
		_ = p.Cmd.Wait() // it was killed
	}
}

func (w *town) write(name string, v any) (path string) {
	w.t.Helper()
	path = filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, binary.MustJSON(w.t, v), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// writePlugin writes the manifest of the plugin that the test program is.
func (w *town) writePlugin() {
	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("plugin/plugin.json", map[string]any{
		"name": "numbers", "kind": "feature", "command": program, "args": []string{w.mark}, "timeout_seconds": 10, "actions": []string{"double_now"},
	})
}

// agents are the agents of the nodes. The first three differ in what they do when a stream breaks, the
// others in their replies.
func agents() map[string]any {
	list := map[string]any{
		"default":  map[string]any{"provider": "main"},
		"early":    map[string]any{"provider": "main", "stream_recovery": map[string]any{"mode": "early_only"}},
		"stubborn": map[string]any{"provider": "main", "stream_recovery": map[string]any{"mode": "aggressive", "max_retries": 5}},
	}
	for name, script := range responders {
		list[name] = map[string]any{"provider": "main", "request_options": map[string]any{"loquat_script": script}}
	}
	return list
}

// config returns the configuration of servers without the parts that only a node has.
func (w *town) config() map[string]any {
	provider := map[string]any{
		"provider": "reference_generic_compatible", "model": "demo", "base_url": "http://" + w.below.Addr() + "/v1", "timeout": 10,
		"retry_on_status": map[string]any{"503": []float64{0.02}}, "retry_on_timeout": []float64{0.1}, "stream_recovery": map[string]any{"mode": "aggressive", "max_retries": 1},
	}
	return map[string]any{
		"plugins":   []string{"loquat.providers.reference_generic_compatible", "loquat.features.request_options", "path:" + filepath.Join(w.dir, "plugin")},
		"providers": map[string]any{"main": provider, relayed: provider},
		"agents":    agents(),
		"limits":    map[string]any{"max_tool_rounds": 2},
		"server":    map[string]any{"shutdown_grace_seconds": 1, "auth_tokens": []any{map[string]any{"name": "full", "token": fullToken, "scope": "full"}}},
	}
}

// addNode prepares a node, with its part of the network.
func (w *town) addNode(i int, seed uint64, issuer *jwttest.Issuer) {
	at, dir := binary.FreeAddress(w.t), fmt.Sprint("node", i)
	c := w.config()
	server := c["server"].(map[string]any)
	for _, user := range []string{"ann", "bob"} {
		server["auth_tokens"] = append(server["auth_tokens"].([]any), map[string]any{"name": user, "token": tokenOf(user), "scope": "user", "user": user})
	}
	server["jwt"] = []any{map[string]any{"issuer": issuer.URL, "audience": "loquat", "jwks_url": issuer.URL}}
	delays := make([]float64, 400)
	for n := range delays {
		delays[n] = 0.3
	}
	c["webhooks"] = map[string]any{"allow_private_addresses": true, "retry_delays_seconds": delays}
	c["bridge"] = map[string]any{"url": "ws://" + w.push.Addr() + "/bridge", "server_id": serverID, "token": bridgeToken}
	if w.database != nil {
		line := w.line(fmt.Sprint("127.0.0.1:", w.database.Port), seed+10+uint64(i), 1<<20, 0)
		w.databases = append(w.databases, line)
		u, err := url.Parse(w.database.URL("postgres"))
		if err != nil {
			w.t.Fatal(err)
		}
		u.Host = line.Addr()
		c["store"] = map[string]any{"url": u.String(), "statement_timeout_seconds": 5}
	}
	args := []string{"serve", "--config", w.write(dir+"/loquat.json", c), "--listen", at, "--data", filepath.Join(w.dir, dir, "data")}
	w.nodes = append(w.nodes, &binary.Mover{T: w.t, Address: at, Program: w.program, Args: args, Expected: expectedErrors})
	w.fronts = append(w.fronts, w.line(at, seed+20+uint64(i), 128<<10, 0.1))
}

// expectedErrors are in the log of a node while its database is away.
var expectedErrors = []string{"the store fails"}

// connect makes the client of a person. Its calls go to all nodes in turn, over a faulty network.
func (w *town) connect(p *person) {
	w.t.Helper()
	var routes []binary.Route
	for i, m := range w.nodes {
		routes = append(routes, binary.Route{Through: w.fronts[i].Addr(), Server: m.Address})
	}
	spread := binary.NewSpread(&http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 15 * time.Second}, routes...)
	w.spreads = append(w.spreads, spread)
	var foreign []string
	for _, other := range w.people {
		if p.word != "" && other.word != "" && other != p {
			foreign = append(foreign, other.word)
		}
	}
	p.http = &http.Client{Transport: &guarded{next: spread, foreign: foreign, fault: func(text string) { w.t.Errorf("%s saw a text of another user: %s", p.name, text) }}}
	api, err := client.New("http://127.0.0.1", client.Options{Token: p.token, HTTPClient: p.http})
	if err != nil {
		w.t.Fatal(err)
	}
	p.api = api
	w.t.Cleanup(spread.CloseIdleConnections)
}

// addWebhooks makes a webhook of everything and one of the events of ann.
func (w *town) addWebhooks() {
	w.t.Helper()
	for _, user := range []string{"", "ann"} {
		receiver := webhooks.NewReceiver(w.t)
		if user != "" {
			receiver.Foreign = []string{"heron", "osprey"}
		}
		body := binary.MustJSON(w.t, loquat.NewWebhook{URL: "http://" + receiver.Address + "/hook", User: user})
		var made loquat.Webhook
		for began := time.Now(); made.Secret == ""; time.Sleep(50 * time.Millisecond) {
			status, answer, err := w.people[0].call(w.t.Context(), http.MethodPost, "/webhooks", string(body))
			if err == nil && status == http.StatusCreated {
				err = json.Unmarshal([]byte(answer), &made)
			}
			if time.Since(began) > time.Minute {
				w.t.Fatalf("POST /webhooks: %d %s %v", status, answer, err)
			}
		}
		receiver.Expect(w.t, made.Secret)
		w.receivers[user] = receiver
	}
}

// plugins returns the processes of the plugin.
func (w *town) plugins() (pids []int) {
	out, err := exec.Command("ps", "-e", "-o", "pid=,args=").Output()
	if err != nil {
		w.t.Error(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == w.mark {
			if pid, err := strconv.Atoi(fields[0]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killPlugin kills a process of the plugin, if one runs.
func (w *town) killPlugin(n int) {
	if pids := w.plugins(); len(pids) > 0 {
		_ = syscall.Kill(pids[n%len(pids)], syscall.SIGKILL)
		w.count("plugin")
	}
}

// direct says whether clients connect to the servers themselves.
func (w *town) direct(direct bool) {
	for _, s := range w.spreads {
		s.Direct(direct)
	}
}

// kills returns how often each part was killed.
func (w *town) kills() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}
