// Package trace_test checks the traces that the real program sends to a collector.
package trace_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// asPlugin turns the test program into a plugin with a tool. Its value is the file that gets the `_meta` of calls.
const asPlugin = "TRACE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if file := os.Getenv(asPlugin); file != "" {
		runPlugin(file)
		return
	}
	os.Exit(m.Run())
}

func runPlugin(file string) {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	type city struct {
		City string `json:"city"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "weather"}, func(_ context.Context, req *mcp.CallToolRequest, in city) (*mcp.CallToolResult, any, error) {
		meta, err := json.Marshal(req.Params.Meta)
		if err == nil {
			err = os.WriteFile(file, meta, 0o600)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sun in " + in.City}}}, nil, err
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{}) // it ends with its standard input
}

// troubled is a backend: the first call is refused, the stream of the second breaks, the third asks for a tool, and the
// fourth answers.
type troubled struct {
	mu      sync.Mutex
	calls   int
	parents []string // the header traceparent of each call
}

func (b *troubled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.ReadAll(r.Body)
	b.mu.Lock()
	b.calls++
	n := b.calls
	b.parents = append(b.parents, r.Header.Get("Traceparent"))
	b.mu.Unlock()
	send := func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	if n == 1 {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", binary.EventStream)
	const end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n"
	switch n {
	case 2:
		send(`data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"}}]}` + "\n\n")
		panic(http.ErrAbortHandler)
	case 3:
		send(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call-1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]}}]}` + "\n\n")
		send(fmt.Sprintf(end, "tool_calls", 10, 3))
	default:
		send(binary.SSEText("It is sunny.") + fmt.Sprintf(end, "stop", 20, 4))
	}
}

// traced is a server whose spans a collector gets.
type traced struct {
	collected *collected
	backend   *troubled
	api       *client.Client
	server    *binary.Process
	meta      string // the file of the plugin
}

func start(t *testing.T, protocol, more string) *traced {
	t.Helper()
	r := &traced{collected: &collected{t: t, metrics: map[string]bool{}}, backend: &troubled{}, meta: filepath.Join(t.TempDir(), "meta")}
	endpoint := r.collected.overHTTP
	if protocol == "grpc" {
		endpoint = r.collected.overGRPC
	}
	scripted := httptest.NewServer(r.backend)
	t.Cleanup(scripted.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifest := binary.MustJSON(t, map[string]any{"name": "weather", "kind": "tool", "command": self, "env": map[string]string{asPlugin: r.meta}})
	if err := os.WriteFile(filepath.Join(dir, "plugin.json"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"plugins": ["loquat.providers.reference_generic_compatible", "path:%s"],
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "rate_limit_retry_delays_seconds": [0.05], "stream_recovery": {"mode": "early_only"}}},
		"telemetry": {"endpoint": %q, "protocol": %q, "headers": {"api-key": "the-key-of-the-collector"}%s}}`, dir, scripted.URL, endpoint(), protocol, more)
	cfg := binary.WriteConfig(t, text)
	r.server = binary.Start(t, nil, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	if r.api, err = client.New(r.server.URL, client.Options{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a message as a client with a span, and waits for the end of the request.
func (r *traced) ask(t *testing.T, id, traceparent string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+"/sessions", strings.NewReader(`{"session_id": "s-`+id+`", "send": {"content": "the-question", "request_id": "`+id+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		req.Header.Set("Traceparent", traceparent)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	binary.FollowRequest(t.Context(), t, r.api, id)
}

// outline returns the names of a tree, one to a line, with what a test looks at. Spans that begin at once are in no order.
func outline(n *node, depth int) string {
	out := strings.Repeat("  ", depth) + n.Name
	for _, key := range []string{"error.type", "http.response.status_code", "http.request.resend_count", "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "loquat.request.status"} {
		if v, ok := n.attributes[key]; ok {
			out += " " + v
		}
	}
	for _, e := range n.Events {
		a := attributes(e.Attributes)
		out += " (" + e.Name + " " + a["loquat.retry.cause"] + ")"
	}
	out += "\n"
	slices.SortStableFunc(n.children, func(a, b *node) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, child := range n.children {
		out += outline(child, depth+1)
	}
	return out
}

const wanted = `invoke_agent default completed
  chat demo tool_calls 10 (loquat.retry rate_limit) (loquat.retry stream)
    POST 429 429
    POST stream 200 1
    POST 200 2
  commit
  execute_tool weather
  commit
  chat demo stop 20
    POST 200
  commit
`

// A request with a retry, a recovery of its stream and a tool is one tree, below the span of the client.
func TestOneTree(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			r := start(t, protocol, "")
			const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
			r.ask(t, "one", "00-"+trace+"-"+parent+"-01")
			r.server.End(t) // sends what is left
			trees := r.collected.trees()
			roots := trees[trace]
			if len(trees) != 1 || len(roots) != 1 {
				t.Fatalf("%d traces, %d roots: %v", len(trees), len(roots), r.collected.spans)
			}
			if got := outline(roots[0], 0); got != wanted {
				t.Errorf("the tree is\n%swant\n%s", got, wanted)
			}
			root := roots[0]
			if hex.EncodeToString(root.ParentSpanId) != parent || root.attributes["gen_ai.conversation.id"] != "s-one" || root.attributes["loquat.request.id"] != "one" {
				t.Errorf("the root is %v", root)
			}
			if s := r.collected.service; s["service.name"] != "loquat" || s["service.version"] == "" || s["service.instance.id"] == "" {
				t.Errorf("the service is %v", s)
			}
			for _, key := range r.collected.keys {
				if key != "the-key-of-the-collector" {
					t.Errorf("a call of the collector has the key %q", key)
				}
			}
			r.checkContext(t, root)
			all := fmt.Sprint(r.collected.spans)
			for _, secret := range []string{"the-question", "It is sunny", "Oslo", "sun in"} {
				if strings.Contains(all, secret) {
					t.Errorf("spans without content have %q", secret)
				}
			}
			if log := r.server.Log.String(); !strings.Contains(log, trace) || strings.Contains(log, "the-key-of-the-collector") {
				t.Errorf("the log does not name the trace, or has a secret:\n%s", log)
			}
		})
	}
}

// checkContext checks that the backend and the plugin were told the spans of their calls.
func (r *traced) checkContext(t *testing.T, root *node) {
	t.Helper()
	var attempts, tools []*spans.Span
	for _, phase := range root.children {
		if phase.Name == "execute_tool weather" {
			tools = append(tools, phase.Span)
		}
		for _, n := range phase.children {
			attempts = append(attempts, n.Span)
		}
	}
	named := func(s *spans.Span) string {
		return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
	}
	for i, parent := range r.backend.parents {
		if want := named(attempts[i]); parent != want {
			t.Errorf("call %d of the backend has the traceparent %q, want %q", i, parent, want)
		}
	}
	meta, err := os.ReadFile(r.meta)
	if err != nil || len(tools) != 1 || !strings.Contains(string(meta), named(tools[0])) {
		t.Errorf("the plugin was sent %s, %v", meta, err)
	}
}

// With content the spans have the texts. Metrics are sent if wanted.
func TestContentAndMetrics(t *testing.T) {
	r := start(t, "http", `, "content": true, "metrics": true`)
	r.ask(t, "one", "")
	r.server.End(t)
	all := fmt.Sprint(r.collected.spans)
	for _, text := range []string{"the-question", "It is sunny", "Oslo", "sun in Oslo"} {
		if !strings.Contains(all, text) {
			t.Errorf("the spans do not have %q: %s", text, all)
		}
	}
	for _, name := range []string{"loquat_requests_running", "loquat_store_commit_seconds", "go_goroutines"} {
		if !r.collected.metrics[name] {
			t.Errorf("the metric %s was not sent: %v", name, r.collected.metrics)
		}
	}
}

// What the client's span says, and the share of the configuration otherwise, decides whether a request is traced.
func TestSampling(t *testing.T) {
	r := start(t, "http", `, "sample_ratio": 0`)
	r.ask(t, "not", "")
	r.ask(t, "also-not", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	r.ask(t, "broken", "00-0-b7-01")
	r.ask(t, "traced", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.server.End(t)
	trees := r.collected.trees()
	if len(trees) != 1 || len(trees["1af7651916cd43dd8448eb211c80319c"]) != 1 {
		t.Errorf("traces: %v", trees)
	}
}

// The environment names a collector, for each signal if need be, and its protocol and headers, where the configuration
// does not.
func TestEnvironment(t *testing.T) {
	const prefix, key = "OTEL_EXPORTER_OTLP_", "the-key-of-the-environment"
	for name, test := range map[string]struct {
		env             func(http, grpc string) []string // without the prefix
		telemetry       func(http, grpc string) string
		traces, metrics bool
	}{
		"http":                    {env: func(http, _ string) []string { return []string{"ENDPOINT=" + http, "PROTOCOL=http/protobuf"} }, traces: true, metrics: true},
		"grpc":                    {env: func(_, grpc string) []string { return []string{"ENDPOINT=" + grpc, "PROTOCOL=grpc"} }, traces: true, metrics: true},
		"the headers alone, http": {telemetry: func(http, _ string) string { return fmt.Sprintf(`, "endpoint": %q`, http) }, traces: true, metrics: true},
		"the headers alone, grpc": {telemetry: func(_, grpc string) string { return fmt.Sprintf(`, "endpoint": %q, "protocol": "grpc"`, grpc) }, traces: true, metrics: true},
		"for traces":              {env: func(http, _ string) []string { return []string{"TRACES_ENDPOINT=" + http + "/v1/traces"} }, traces: true},
		"for metrics":             {env: func(http, _ string) []string { return []string{"METRICS_ENDPOINT=" + http + "/v1/metrics"} }, metrics: true},
		"a protocol for each": {env: func(http, grpc string) []string {
			return []string{"ENDPOINT=" + http, "METRICS_ENDPOINT=" + grpc, "METRICS_PROTOCOL=grpc"}
		}, traces: true, metrics: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &collected{t: t, metrics: map[string]bool{}}
			http, grpc := c.overHTTP(), c.overGRPC()
			env, telemetry := []string{"OTEL_SERVICE_NAME=my-chat", prefix + "HEADERS=api-key=" + key}, ""
			if test.env != nil {
				for _, variable := range test.env(http, grpc) {
					env = append(env, prefix+variable)
				}
			}
			if test.telemetry != nil {
				telemetry = test.telemetry(http, grpc)
			}
			log := askOnce(t, env, telemetry)
			if (len(c.trees()) == 1) != test.traces || (len(c.metrics) > 0) != test.metrics || strings.Contains(log, "could not be sent") {
				t.Errorf("%d traces, %d metrics; the log:\n%s", len(c.trees()), len(c.metrics), log)
			}
			if test.traces && c.service["service.name"] != "my-chat" {
				t.Errorf("the service is %v", c.service)
			}
			for _, got := range c.keys {
				if got != key {
					t.Errorf("a call of the collector has the key %q", got)
				}
			}
		})
	}
}

// askOnce starts a server with metrics, makes one request, and returns the log once the server has ended.
func askOnce(t *testing.T, env []string, telemetry string) string {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	cfg := binary.WriteConfig(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}}, "telemetry": {"metrics": true%s}}`, scripted, telemetry))
	server := binary.Start(t, env, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	api := binary.NewClient(t, server.URL)
	s, err := api.CreateSession(t.Context(), loquat.NewSession{Send: &loquat.Send{Content: new("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	binary.FollowRequest(t.Context(), t, api, s.ActiveRequestID)
	server.End(t)
	return server.Log.String()
}

// A collector that is away, or hangs, delays nothing.
func TestCollectorIsAway(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	away := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	}))
	defer away.Close()
	for _, endpoint := range []string{"http://" + binary.FreeAddress(t), away.URL} {
		url, api := binary.ServerAt(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": %q}}, "telemetry": {"endpoint": %q}}`,
			binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})+"/v1", endpoint))
		began := time.Now()
		for n := range 20 {
			s, err := api.CreateSession(t.Context(), loquat.NewSession{Send: &loquat.Send{Content: new("hi")}})
			if err != nil {
				t.Fatalf("%s: %d: %v", url, n, err)
			}
			binary.FollowRequest(t.Context(), t, api, s.ActiveRequestID)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("twenty requests took %s while %s was away", took, endpoint)
		}
	}
}

// A relayed request is a tree of its own, or below the span of its client.
func TestRelayedRequest(t *testing.T) {
	r := start(t, "http", "")
	r.backend.calls = 3 // it answers at once
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+"/v1/chat/completions", strings.NewReader(`{"model": "default", "stream": true, "messages": [{"role": "user", "content": "hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.server.End(t)
	roots := r.collected.trees()[trace]
	if len(roots) != 1 {
		t.Fatalf("%d roots: %v", len(roots), r.collected.spans)
	}
	if got, want := outline(roots[0], 0), "chat demo 20\n  POST 200\n"; got != want || roots[0].Kind != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
