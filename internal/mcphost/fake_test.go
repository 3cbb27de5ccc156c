package mcphost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/plugin"
)

// behaviour is the environment variable that turns the test program into a plugin.
const behaviour = "MCPHOST_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if how, ok := os.LookupEnv(behaviour); ok {
		behave(how)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == watchArgument {
		Watch(os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

// watchArgument turns the test program into the helper of a Guard.
const watchArgument = "watch"

// fakeServer is a small plugin that can misbehave.
type fakeServer struct {
	how   string
	again bool // it has run before
	lost  atomic.Bool
	mu    sync.Mutex
}

// behave runs the fake plugin on standard input and output; how names its behaviour.
func behave(how string) {
	f := &fakeServer{how: how}
	if f.does("junk at start") {
		fmt.Println("Server starting…")
	}
	if f.does("no start") {
		fmt.Fprintln(os.Stderr, "cannot find hunter2's settings")
		os.Exit(3)
	}
	if _, err := os.OpenFile(filepath.Join(os.Getenv(cacheVariable), "lived"), os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		f.again = true
	}
	if f.again && f.does("live once") {
		fmt.Fprintln(os.Stderr, "cannot start again")
		os.Exit(3)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if f.does("outlive input") {
				select {}
			}
			return
		}
		var m message
		if json.Unmarshal(line, &m) == nil {
			go f.handle(m)
		}
	}
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string        `json:"name"`
		Arguments loquat.Object `json:"arguments"`
		Cursor    string        `json:"cursor"`
		RequestID int           `json:"requestId"`
		Meta      struct {
			Token json.RawMessage `json:"progressToken"`
			About json.RawMessage `json:"loquat"`
		} `json:"_meta"`
	} `json:"params"`
}

func (f *fakeServer) does(what string) bool {
	return slices.Contains(strings.Split(f.how, ","), what)
}

func (f *fakeServer) send(v any) {
	b, _ := json.Marshal(v)
	f.mu.Lock()
	defer f.mu.Unlock()
	os.Stdout.Write(append(b, '\n'))
}

func (f *fakeServer) reply(m message, result any) {
	f.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

func (f *fakeServer) refuse(m message, code int, text string) {
	f.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": code, "message": text}})
}

func (f *fakeServer) notify(method string, params any) {
	f.send(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func (f *fakeServer) handle(m message) {
	switch m.Method {
	case "server/discover":
		switch {
		case f.does("die of discover"):
			os.Exit(4)
		case f.does("new protocol"):
			f.reply(m, map[string]any{"resultType": "complete", "supportedVersions": []string{"2026-07-28"}, "capabilities": map[string]any{"tools": map[string]any{}}})
		case !f.does("ignore discover"):
			f.refuse(m, -32601, "Method not found")
		}
	case "initialize":
		if f.does("never start") {
			return
		}
		f.reply(m, map[string]any{"protocolVersion": "2025-06-18", "serverInfo": map[string]string{"name": "fake", "version": "1"},
			"capabilities": map[string]any{"tools": map[string]bool{"listChanged": true}}})
	case "tools/list":
		f.list(m)
	case "tools/call":
		f.call(m)
	case "notifications/cancelled":
		fmt.Fprintln(os.Stderr, "was cancelled")
	}
}

func (f *fakeServer) list(m message) {
	if f.does("slow list") && m.Params.Cursor == "" {
		time.Sleep(time.Second)
	}
	if f.does("lose a list") && f.does("no schema") && !f.lost.Swap(true) {
		return
	}
	object := map[string]any{"type": "object", "properties": map[string]any{"n": map[string]string{"type": "integer"}}}
	tools := []any{}
	for _, name := range []string{"count", "big", "hang", "crash", "junk", "flood", "stdin", "environment", "answer", "ask", "change", "child", "late"} {
		tools = append(tools, map[string]any{"name": name, "description": "does " + name, "inputSchema": object})
	}
	tools = append(tools, map[string]any{"name": "bare", "inputSchema": map[string]string{"type": "object"}})
	if f.does("odd tools") {
		tools = append(tools, map[string]any{"name": "count", "inputSchema": object}, map[string]any{"name": "a.b", "inputSchema": object},
			map[string]any{"name": "list", "inputSchema": []int{1}}, 7)
	}
	if f.does("no schema") {
		tools = append(tools, map[string]any{"name": "schemaless"})
	}
	if f.does("tasks") {
		for name, execution := range map[string]any{
			"required": map[string]any{"taskSupport": "required"}, "optional": map[string]any{"taskSupport": "optional"},
			"forbidden": map[string]any{"taskSupport": "forbidden"}, "null": nil, "number": 7, "odd": map[string]any{"taskSupport": []int{1}},
		} {
			tools = append(tools, map[string]any{"name": "task_" + name, "inputSchema": object, "execution": execution})
		}
		slices.SortStableFunc(tools, func(a, b any) int { // pages need a fixed order
			return strings.Compare(fmt.Sprint(a.(map[string]any)["name"]), fmt.Sprint(b.(map[string]any)["name"]))
		})
	}
	if f.again && f.does("change tools") {
		tools = tools[1:]
	}
	at := 0
	fmt.Sscan(m.Params.Cursor, &at)
	page := map[string]any{"tools": tools[at:min(at+5, len(tools))]}
	if at+5 < len(tools) {
		page["nextCursor"] = fmt.Sprint(at + 5)
	}
	if f.does("new protocol") {
		page["resultType"], page["ttlMs"] = "complete", 3_600_000
	}
	f.reply(m, page)
}

func text1(s string) map[string]any {
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": s}}}
}

func (f *fakeServer) call(m message) {
	var n int
	_ = json.Unmarshal(m.Params.Arguments["n"], &n)
	progress := func(i int) {
		if len(m.Params.Meta.Token) > 0 {
			f.notify("notifications/progress", map[string]any{"progressToken": m.Params.Meta.Token, "progress": i + 1, "total": n, "message": fmt.Sprintf("%d;", i)})
		}
	}
	switch m.Params.Name {
	case "count":
		if f.does("deep") {
			f.deep(m, n)
			return
		}
		for i := range n {
			progress(i)
		}
		f.reply(m, text1(fmt.Sprint(n)))
	case "late":
		f.reply(m, text1("done"))
		progress(0)
	case "about":
		f.reply(m, text1(string(m.Params.Meta.About)))
	case "big":
		f.reply(m, text1(strings.Repeat("x", n)))
	case "hang":
		progress(0)
	case "crash":
		os.Exit(n)
	case "junk":
		fmt.Println("debug: about to answer")
		f.reply(m, text1("done"))
	case "flood":
		f.flood()
	case "stdin":
		select {} // with its input unread, see flood
	case "environment":
		cwd, _ := os.Getwd()
		f.reply(m, text1(strings.Join(append(os.Environ(), "cwd="+cwd), "\n")))
	case "answer", "bare":
		for _, given := range []loquat.Object{m.Params.Arguments, m.Params.Arguments.Object("params")} {
			if raw, ok := given["with"]; ok {
				f.reply(m, raw)
				return
			}
		}
		f.reply(m, map[string]any{"structuredContent": map[string]any{"elements": []any{map[string]any{"key": "got", "arguments": m.Params.Arguments}}}, "content": []any{}})
	case "ask":
		for i := range n {
			f.send(map[string]any{"jsonrpc": "2.0", "id": fmt.Sprint("q", i), "method": "roots/list"})
		}
	case "change":
		f.how += ",no schema"
		for range 1000 {
			f.notify("notifications/tools/list_changed", map[string]any{})
		}
		f.reply(m, text1("changed"))
	case "child":
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			f.refuse(m, 1, err.Error())
			return
		}
		f.reply(m, text1(fmt.Sprint(c.Process.Pid)))
	default:
		f.refuse(m, -32602, "Unknown tool: "+m.Params.Name)
	}
}

// deep sends a notification and an answer that nest n levels deep.
func (f *fakeServer) deep(m message, n int) {
	lists := strings.Repeat("[", n) + strings.Repeat("]", n)
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":"half","more":[%s]}}`+"\n", m.Params.Meta.Token, lists)
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"a":%s}}}`+"\n", m.ID, lists)
}

func (f *fakeServer) flood() {
	frame := []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"none","progress":1}}` + "\n")
	many := bytes.Repeat(frame, 500)
	for {
		f.mu.Lock()
		os.Stdout.Write(many)
		f.mu.Unlock()
	}
}

// words collects the log.
type words struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// manifest is the content of a test's plugin.json.
type manifest map[string]any

// writeManifest makes a plugin's directory; how names the behaviour of its process.
func writeManifest(t testing.TB, how string, more manifest) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := manifest{"name": "fake", "version": "1.2", "kind": "tool", "command": self, "env": map[string]string{behaviour: how}}
	maps.Copy(m, more)
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, manifestName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startFake starts a fake plugin; how names its behaviour.
func startFake(t testing.TB, how string, more manifest) (*Plugin, *words) {
	t.Helper()
	log := &words{}
	p := New(writeManifest(t, how, more), Options{CacheDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(log, nil)),
		Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
	p.Start(t.Context())
	t.Cleanup(p.Stop)
	return p, log
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timeout: waited for %s", what)
}

func running(t testing.TB, p *Plugin) {
	t.Helper()
	eventually(t, "the plugin to run", func() bool { return p.Status().State == plugin.StateRunning })
}

func findTool(t testing.TB, p *Plugin, name string) plugin.Tool {
	t.Helper()
	for _, tool := range p.Tools() {
		if tool.Name() == name {
			return tool
		}
	}
	t.Fatalf("there is no tool %s; status %+v", name, p.Status())
	return nil
}

func arguments(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)) }
