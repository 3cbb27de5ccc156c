//go:build unix

package plugins_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// mcpServers installs the servers that the tests run as plugins, once for each version
// of the lock file, and returns where.
func mcpServers(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs servers from npm")
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	dir, err := installServers()
	if err != nil && unreachable.MatchString(err.Error()) {
		t.Skipf("needs the npm registry: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unreachable are the words of npm for a registry that it cannot reach.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT`)

var installServers = sync.OnceValues(func() (string, error) {
	const from = "testdata/mcp-servers"
	lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "loquat-test", fmt.Sprintf("mcp-servers-%x", sha256.Sum256(lock))[:32])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	building := fmt.Sprintf("%s.%d", dir, os.Getpid())
	defer os.RemoveAll(building)
	if err := os.CopyFS(building, os.DirFS(from)); err != nil {
		return "", err
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = building
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(building, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		} // another run was faster
	}
	return dir, nil
})

// pluginRig is the real server with plugins that are processes.
type pluginRig struct {
	*client.Client
	t      *testing.T
	server *binary.Process
	serve  []string // its command line
	files  string   // what the plugin `files` may read
}

func newPluginRig(t *testing.T) *pluginRig {
	t.Helper()
	files := t.TempDir()
	r := startPluginRig(t, map[string]object{
		"everything": {"args": []string{npmServer(t, "everything")}},
		"files":      {"args": []string{npmServer(t, "filesystem"), files}},
		"flood":      {"args": []string{mustAbs(t, "testdata/mcp-servers/flood.js")}},
	})
	r.files = files
	r.allRun()
	return r
}

// object is JSON that a test writes.
type object = map[string]any

// npmServer is the program of a server from npm.
func npmServer(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(mcpServers(t), "node_modules", "@modelcontextprotocol", "server-"+name, "dist", "index.js")
}

// startPluginRig starts the server with plugins: by their names, what their manifests say
// beyond a node program that is a tool.
func startPluginRig(t *testing.T, plugins map[string]object) *pluginRig {
	t.Helper()
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	entries := []string{"loquat.providers.reference_generic_compatible", "loquat.features.request_options"}
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		dir := t.TempDir()
		manifest := object{"name": name, "kind": "tool", "command": "node", "timeout_seconds": 10}
		maps.Copy(manifest, plugins[name])
		if err := os.WriteFile(filepath.Join(dir, "plugin.json"), binary.MustJSON(t, manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, "path:"+dir)
	}
	text := fmt.Sprintf(`{"plugins": %s, "providers": {"main": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1"}}}`,
		binary.MustJSON(t, entries), backend.URL)
	config := binary.WriteConfig(t, text)
	r := &pluginRig{t: t, serve: []string{"serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir()}}
	r.start()
	return r
}

// start starts the server, also again after its end.
func (r *pluginRig) start() {
	r.t.Helper()
	r.server = binary.Start(r.t, nil, r.serve...)
	c, err := client.New(r.server.URL, client.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.CloseIdleConnections)
	r.Client = c
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// allRun waits until no plugin is named in /readyz.
func (r *pluginRig) allRun() {
	r.t.Helper()
	binary.Eventually(r.t, "the plugins", func() bool {
		resp, err := http.Get(r.server.URL + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var ready struct{ Detail map[string]string }
		return json.NewDecoder(resp.Body).Decode(&ready) == nil && resp.StatusCode == http.StatusOK && len(ready.Detail) == 0
	})
}

// pids are the plugins' processes by name.
func (r *pluginRig) pids() map[string]int {
	out, err := exec.Command("ps", "-e", "-o", "pid=,ppid=,args=").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	pids := map[string]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != strconv.Itoa(r.server.Cmd.Process.Pid) {
			continue
		}
		for name, sign := range map[string]string{"everything": "server-everything", "files": "server-filesystem", "flood": "flood.js"} {
			if strings.Contains(line, sign) {
				pids[name], _ = strconv.Atoi(fields[0])
			}
		}
	}
	return pids
}

// lives reports whether a process runs.
func lives(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !bytes.HasPrefix(bytes.TrimSpace(state), []byte("Z"))
}

// send runs a script on a session of its own and returns session and request.
func (r *pluginRig) send(ctx context.Context, script string) (session, request string, err error) {
	overrides := json.RawMessage(fmt.Sprintf(`{"request_options": {"loquat_script": %s}}`, script))
	s, err := r.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
	if err != nil {
		return "", "", err
	}
	content := "go"
	sent, err := r.Send(ctx, s.SessionID, loquat.Send{Content: &content, Stream: new(true), StreamTools: true})
	return s.SessionID, sent.RequestID, err
}

// story reads all events of a request while it runs, one a window, so that none is
// compacted away.
func (r *pluginRig) story(ctx context.Context, request string) ([]loquat.Event, error) {
	var events []loquat.Event
	q := client.Query{RequestID: request, Limit: 1, Wait: 30 * time.Second, OmitSession: true}
	for {
		w, err := r.Events(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range w.Events {
			events = append(events, e)
			if e.Type == loquat.RequestCompleted {
				return events, nil
			}
			q.Since = &e.EventID
		}
	}
}

// MCP servers from npm run unchanged as plugins. Results have the order of the calls. All
// progress arrives, and before the results.
// LOQUAT_PLUGIN_CALLS says how many streamed calls are made.
func TestPluginServers(t *testing.T) {
	t.Parallel()
	r := newPluginRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	binary.WriteFile(t, filepath.Join(r.files, "a.txt"), "from a file")
	calls := 60
	if s := os.Getenv("LOQUAT_PLUGIN_CALLS"); s != "" {
		calls, _ = strconv.Atoi(s)
	}
	const steps, workers, perRequest = 5, 4, 5
	script := fmt.Sprintf(`{"tool_calls": [
		{"name": "trigger-long-running-operation", "arguments": {"duration": 0.05, "steps": %d}},
		{"name": "get-sum", "arguments": {"a": 20, "b": 22}},
		{"name": "trigger-long-running-operation", "arguments": {"duration": 0.01, "steps": %d}},
		{"name": "read_text_file", "arguments": {"path": %q}},
		{"name": "echo", "arguments": {"message": "hi"}}]}`, steps, steps, filepath.Join(r.files, "a.txt"))
	want := []string{"Long running operation completed. Duration: 0.05 seconds, Steps: 5.", "The sum of 20 and 22 is 42.",
		"Long running operation completed. Duration: 0.01 seconds, Steps: 5.", "from a file", "Echo: hi"}
	var workersDone sync.WaitGroup
	var mu sync.Mutex
	made, increments := 0, 0
	for range workers {
		workersDone.Go(func() {
			for {
				mu.Lock()
				if made >= calls {
					mu.Unlock()
					return
				}
				made += perRequest
				mu.Unlock()
				_, request, err := r.send(ctx, script)
				if err != nil {
					t.Error(err)
					return
				}
				events, err := r.story(ctx, request)
				if err != nil {
					t.Error(err)
					return
				}
				n := checkToolEvents(t, events, want, steps)
				mu.Lock()
				increments += n
				mu.Unlock()
			}
		})
	}
	workersDone.Wait()
	t.Logf("%d streamed calls, %d increments, none late or lost", made, increments)
}

// checkToolEvents holds the events of one request against what its tools have to say, and
// counts the increments of progress.
func checkToolEvents(t *testing.T, events []loquat.Event, want []string, steps int) (increments int) {
	t.Helper()
	var order []string
	phase, last := map[string]string{}, map[string]float64{}
	for _, e := range events {
		switch e.Type {
		case loquat.ToolCalls:
			for _, c := range e.ToolCalls {
				order = append(order, c.ID)
			}
		case loquat.ToolPartial:
			if was := phase[e.ToolCallID]; was == loquat.PhaseEnd || was == "results" || e.Phase != loquat.PhaseStart && was == "" {
				t.Errorf("a late %s of call %s", e.Phase, e.ToolCallID)
			}
			phase[e.ToolCallID] = e.Phase
			if e.Phase == loquat.PhaseStream {
				increments++
				if e.Payload.Progress == nil || *e.Payload.Progress <= last[e.ToolCallID] || *e.Payload.Total != float64(steps) {
					t.Errorf("progress of call %s after %v: %s", e.ToolCallID, last[e.ToolCallID], binary.MustJSON(t, e.Payload))
					continue
				}
				last[e.ToolCallID] = *e.Payload.Progress
			}
		case loquat.ToolResults:
			var texts []string
			for i, m := range e.Messages {
				texts = append(texts, m.Content)
				id := m.Metadata.String(loquat.MetaToolCallID)
				if i >= len(order) || id != order[i] {
					t.Errorf("result %d is of call %s", i, id)
				}
				phase[id] = "results"
			}
			if !slices.Equal(texts, want) {
				t.Errorf("results %q", texts)
			}
		}
	}
	if len(order) != len(want) {
		t.Errorf("%d calls", len(order))
		return increments
	}
	for _, i := range []int{0, 2} { // the calls that report progress
		if got := last[order[i]]; got != float64(steps) {
			t.Errorf("the progress of call %d ends at %v", i, got)
		}
	}
	return increments
}

// Killing, stopping and flooding plugins harms no request of others; and when the
// server ends, in order or not, nothing of them is left.
func TestPluginsHarmNobody(t *testing.T) {
	t.Parallel()
	r := newPluginRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const others = 200
	text := strings.TrimSpace(strings.Repeat("all is well ", 10))
	var running sync.WaitGroup
	run := func(script, want string) {
		running.Go(func() {
			session, request, err := r.send(ctx, script)
			if err != nil {
				t.Error(err)
				return
			}
			for q := (loquat.Request{}); q.EndedAt == nil; time.Sleep(100 * time.Millisecond) {
				if q, err = r.Request(ctx, request); err != nil {
					t.Error(err)
					return
				}
				if q.EndedAt != nil && q.Status != loquat.StatusCompleted {
					t.Errorf("request is %s: %s", q.Status, q.Error)
				}
			}
			s, err := r.Session(ctx, session)
			if err != nil {
				t.Error(err)
			} else if got := s.Messages[len(s.Messages)-1].Content; want != "" && got != want {
				t.Errorf("a reply is %q", got)
			}
		})
	}
	for range others {
		run(fmt.Sprintf(`{"text": %q, "rate": 10}`, text), text)
	}
	for range 3 {
		run(`{"tool_calls": [{"name": "trigger-long-running-operation", "arguments": {"duration": 5, "steps": 50}}]}`, "")
		run(`{"tool_calls": [{"name": "list_allowed_directories"}]}`, "")
		run(`{"tool_calls": [{"name": "flood"}]}`, "")
		pids := r.pids()
		if pid, ok := pids["files"]; ok {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if pid, ok := pids["everything"]; ok {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Second)
	}
	running.Wait()
	for _, pid := range r.pids() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	r.allRun()

	before := r.pids()
	if len(before) != 3 {
		t.Errorf("plugins that run: %v", before)
	}
	if err := r.server.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.server.Stopped(t)
	for name, pid := range before {
		binary.Eventually(t, "the end of "+name, func() bool { return !lives(pid) })
	}
}

// A server that stops on a signal ends its plugins.
func TestPluginsEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := newPluginRig(t)
	before := r.pids()
	if err := syscall.Kill(before["files"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.server.Stopped(t); code != binary.ExitOK {
		t.Errorf("exit code %d", code)
	}
	for name, pid := range before {
		if lives(pid) {
			t.Errorf("%s runs on", name)
		}
	}
}

// When a server is killed, its plugins end, with the processes that they started, even if
// a plugin ignores the end of its input.
func TestNothingOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := `{"name": "parent", "kind": "tool", "command": "sh", "args": ["-c", "sleep 1000 & echo $! > child.new; mv child.new child; wait"]}`
	binary.WriteFile(t, filepath.Join(dir, "plugin.json"), manifest)
	config := fmt.Sprintf(`{"plugins": ["loquat.providers.reference_generic_compatible", %q]}`, "path:"+dir)
	cfg := binary.WriteConfig(t, config)
	server := binary.Start(t, nil, "serve", "--demo", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	var child int
	binary.Eventually(t, "the plugin's child", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "child"))
		if err != nil {
			return false
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	if err := server.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Stopped(t)
	binary.Eventually(t, "the end of the plugin's child", func() bool { return !lives(child) })
}
