//go:build unix

package mcphost

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// Tools are listed page by page. Tools that models cannot call are left out.
func TestTools(t *testing.T) {
	for _, how := range []string{"odd tools", "odd tools,ignore discover", "odd tools,die of discover"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, how, manifest{"actions": []string{"crash", "gone"}})
			running(t, p)
			var names []string
			for _, tool := range p.Tools() {
				names = append(names, tool.Name())
			}
			if got := strings.Join(names, " "); got != "count big hang junk flood stdin environment answer ask change child late bare" {
				t.Errorf("tools are %s", got)
			}
			schema := string(findTool(t, p, "count").Schema())
			if want := `{"type":"function","function":{"name":"count","description":"does count","parameters":{"properties":{"n":{"type":"integer"}},"type":"object"}}}`; schema != want {
				t.Errorf("schema %s\nwant   %s", schema, want)
			}
			problems := strings.Join(p.Status().Problems, "\n")
			for _, want := range []string{`"count" is left out: it is listed twice`, `"a.b" is left out: models can only call`, `"list" is left out: its inputSchema`,
				"tools[17]: is not a tool", `plugin.json actions[1]: there is no tool "gone"`} {
				if !strings.Contains(problems, want) {
					t.Errorf("problems lack %q:\n%s", want, problems)
				}
			}
		})
	}
}

// A tool that runs only as a task is not offered to models and is reported wherever the
// manifest names it. A tool for which tasks are optional is offered.
func TestTasks(t *testing.T) {
	modelTool := `tool "task_required" is left out: it runs only as a task (execution.taskSupport is "required"), which Loquat does not support`
	action := `plugin.json actions[0]: tool "task_required" runs only as a task (execution.taskSupport is "required"), which Loquat does not support`
	for _, c := range []struct {
		name     string
		manifest manifest
		problem  string
		use      string
	}{
		{"for models", manifest{}, modelTool, ""},
		{"for Loquat", manifest{"actions": []string{"task_required"}}, action, "actions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, "tasks", c.manifest)
			running(t, p)
			var names []string
			for _, tool := range p.Tools() {
				if name, ok := strings.CutPrefix(tool.Name(), "task_"); ok {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != "forbidden null number odd optional" {
				t.Errorf("offered are %s", got)
			}
			if got := p.Status().Problems; !slices.Equal(got, []string{c.problem}) {
				t.Errorf("problems %q", got)
			}
			report := Check(t.Context(), p.Dir(), Options{CacheDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			if !slices.Equal(report.Faults, []string{c.problem}) {
				t.Errorf("the check reports %q", report.Faults)
			}
			if i := slices.IndexFunc(report.Tools, func(r ReportedTool) bool { return r.Name == "task_required" }); i < 0 || report.Tools[i].Use != c.use {
				t.Errorf("the check lists %+v", report.Tools)
			}
		})
	}
}

// All progress of a call comes before its result, in order, and none after it.
func TestProgress(t *testing.T) {
	p, _ := startFake(t, "", nil)
	running(t, p)
	count, late := findTool(t, p, "count"), findTool(t, p, "late")
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			for i := range 50 {
				n := i * 7 % 40
				var got, want strings.Builder
				over := false
				call := plugin.ToolCall{Name: "count", Arguments: arguments(n), Progress: func(part string, progress, total *float64) {
					if over {
						t.Error("progress after the result")
					}
					fmt.Fprintf(&got, "%s%v/%v ", part, *progress, *total)
				}}
				result, err := count.Call(t.Context(), call)
				over = true
				if err != nil || result.Content != fmt.Sprint(n) {
					t.Errorf("result %+v, %v", result, err)
				}
				for i := range n {
					fmt.Fprintf(&want, "%d;%d/%d ", i, i+1, n)
				}
				if got.String() != want.String() {
					t.Errorf("progress %q\nwant     %q", got.String(), want.String())
				}
				if _, err := late.Call(t.Context(), call); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
}

// A process that breaks the protocol is ended, with a reason that names the remedy, and is
// restarted.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		tool   string
		n      int
		result string // of the call, an error
		reason string
	}{
		{"junk", 0, "ended meanwhile: it printed \"debug: about to answer\"", `it printed "debug: about to answer" to its standard output, which is only for the protocol; print to standard error`},
		{"crash", 7, "ended meanwhile: it ended: exit status 7", "it ended: exit status 7"},
		{"flood", 0, "ended meanwhile", "it floods: more than 500 messages a second"},
		{"ask", 10_000, "ended meanwhile", "it sent more than 64 requests"},
		{"hang", 0, "no answer within 1s", ""},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			timeout := 20
			if c.tool == "hang" {
				timeout = 1
			}
			p, log := startFake(t, "", manifest{"timeout_seconds": timeout})
			if c.tool == "ask" && testing.Short() {
				t.Skip("a race between questions and answers")
			}
			running(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			_, err := findTool(t, p, c.tool).Call(ctx, plugin.ToolCall{Name: c.tool, Arguments: arguments(c.n)})
			if err == nil || !strings.Contains(err.Error(), c.result) {
				t.Errorf("the call: %v", err)
			}
			if c.reason == "" {
				eventually(t, "the cancellation", func() bool { return strings.Contains(log.String(), "was cancelled") })
				if s := p.Status(); s.State != plugin.StateRunning || s.Restarts != 0 {
					t.Errorf("one late answer has ended the process: %+v", s)
				}
				return
			}
			eventually(t, "the restart", func() bool { s := p.Status(); return s.Restarts == 1 && s.State == plugin.StateRunning })
			if !strings.Contains(log.String(), strings.ReplaceAll(c.reason, `"`, `\"`)) {
				t.Errorf("the log lacks %q:\n%s", c.reason, log)
			}
			result, err := findTool(t, p, "count").Call(ctx, plugin.ToolCall{Name: "count", Arguments: arguments(3)})
			if err != nil || result.Content != "3" {
				t.Errorf("after the restart: %+v, %v", result, err)
			}
		})
	}
}

// A result up to the bound is accepted.
func TestLargeResult(t *testing.T) {
	p, _ := startFake(t, "", nil)
	running(t, p)
	const n = 16<<20 - 1000
	result, err := findTool(t, p, "big").Call(t.Context(), plugin.ToolCall{Name: "big", Arguments: arguments(n)})
	if err != nil || len(result.Content) != n {
		t.Errorf("%d bytes, %v", len(result.Content), err)
	}
}

// A process that hangs is detected and restarted, whether a call timed out or the context
// of a call for elements ended first.
func TestHanging(t *testing.T) {
	t.Parallel()
	t.Run("call", func(t *testing.T) {
		hang(t, 0.5, func(p *Plugin) error {
			_, err := findTool(t, p, "count").Call(t.Context(), plugin.ToolCall{Name: "count", Arguments: arguments(1)})
			return err
		})
	})
	t.Run("elements", func(t *testing.T) {
		hang(t, 2, func(p *Plugin) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
			_, err := p.UIElements(ctx, ui.Input{})
			return err
		})
	})
}

// hang stops a process with SIGSTOP and then calls it.
func hang(t *testing.T, timeout float64, ask func(*Plugin) error) {
	t.Helper()
	p, log := startFake(t, "", manifest{"timeout_seconds": timeout, "kind": "feature", "ui": []string{"bare"}})
	running(t, p)
	freeze(t, p)
	wantRestart(t, p, log, ask)
}

// freeze stops the process of a plugin with SIGSTOP.
func freeze(t *testing.T, p *Plugin) {
	t.Helper()
	s, err := p.running()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.proc.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stop", func() bool { // which comes after Kill returns
		state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(s.proc.pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	})
}

// wantRestart calls a plugin that is stopped and waits for its restart.
func wantRestart(t *testing.T, p *Plugin, log *words, ask func(*Plugin) error) {
	t.Helper()
	if err := ask(p); err == nil {
		t.Error("a stopped process has answered")
	}
	eventually(t, "the restart", func() bool { s := p.Status(); return s.Restarts == 1 && s.State == plugin.StateRunning })
	if !strings.Contains(log.String(), "it hangs") {
		t.Errorf("the log:\n%s", log)
	}
}

// A process that hangs is also noticed if it has said that its list of tools may be cached.
func TestHangingAfterACachedList(t *testing.T) {
	t.Parallel()
	p, log := startFake(t, "new protocol", manifest{"timeout_seconds": 0.5})
	running(t, p)
	call := func(name string) error {
		_, err := findTool(t, p, name).Call(t.Context(), plugin.ToolCall{Name: name})
		return err
	}
	if call("hang") == nil {
		t.Error("a call that is not answered has a result")
	}
	s, err := p.running()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the check", func() bool { return !s.checkingAlive.Load() })
	freeze(t, p)
	wantRestart(t, p, log, func(*Plugin) error { return call("count") })
}

// A cancelled call returns at once, the process is notified, and its later messages are
// dropped.
func TestCancel(t *testing.T) {
	p, log := startFake(t, "", nil)
	running(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := findTool(t, p, "hang").Call(ctx, plugin.ToolCall{Name: "hang", Progress: func(string, *float64, *float64) { cancel() }})
	if err == nil || ctx.Err() == nil {
		t.Errorf("the call: %v", err)
	}
	eventually(t, "the cancellation", func() bool { return strings.Contains(log.String(), "was cancelled") })
}

// A process sees its own variables and the few that are allowed, runs in its directory,
// and can write to its cache.
func TestEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "hunter2")
	t.Setenv("LC_TIME", "C")
	p, _ := startFake(t, "", nil)
	running(t, p)
	result, err := findTool(t, p, "environment").Call(t.Context(), plugin.ToolCall{Name: "environment"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(result.Content) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names = append(names, name)
		switch name {
		case "cwd":
			if value != p.Dir() {
				t.Errorf("runs in %s", value)
			}
		case cacheVariable:
			if err := os.WriteFile(value+"/x", nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range names {
		switch name {
		case "PATH", "HOME", "LANG", "TMPDIR", "TZ", "PWD", "cwd", cacheVariable, behaviour:
		default:
			if !strings.HasPrefix(name, "LC_") {
				t.Errorf("the process sees %s", name)
			}
		}
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "LC_TIME") || !strings.Contains(got, cacheVariable) {
		t.Errorf("the process sees only %s", got)
	}
}

// Stopping a plugin ends all its processes, even those that ignore the end of their input.
// It is also so when the plugin's process ends by itself.
func TestNothingIsLeft(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("needs sleep")
	}
	for _, how := range []string{"", "outlive input", "crash"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, how, nil)
			running(t, p)
			result, err := findTool(t, p, "child").Call(t.Context(), plugin.ToolCall{Name: "child"})
			if err != nil {
				t.Fatal(err)
			}
			var child int
			fmt.Sscan(result.Content, &child)
			if how == "crash" {
				_, _ = findTool(t, p, "crash").Call(t.Context(), plugin.ToolCall{Name: "crash"})
			} else {
				p.Stop()
			}
			eventually(t, "the end of the child", func() bool { return !alive(child) })
		})
	}
}

// alive reports whether a process runs. A zombie does not count.
func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// The tools of a process may change while it runs, even often.
func TestToolsChange(t *testing.T) {
	p, _ := startFake(t, "", nil)
	running(t, p)
	if _, err := findTool(t, p, "change").Call(t.Context(), plugin.ToolCall{Name: "change"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new tool", func() bool { return len(p.Tools()) == 15 })
	if got := string(findTool(t, p, "schemaless").Schema()); !strings.Contains(got, `"parameters":{"type":"object","properties":{}}`) {
		t.Errorf("a tool without a schema has %s", got)
	}
}

// A process that does not answer when it is asked for changed tools is asked again.
func TestToolsAreListedInVain(t *testing.T) {
	t.Parallel()
	p, log := startFake(t, "lose a list", manifest{"timeout_seconds": 0.5})
	running(t, p)
	if _, err := findTool(t, p, "change").Call(t.Context(), plugin.ToolCall{Name: "change"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new tool", func() bool { return len(p.Tools()) == 15 })
	if !strings.Contains(log.String(), "did not list its tools again") {
		t.Errorf("no list was lost:\n%s", log)
	}
}

// The first list of the tools is part of the start, whose limit is the manifest's.
func TestSlowFirstList(t *testing.T) {
	before := minListTimeout
	minListTimeout = 100 * time.Millisecond
	t.Cleanup(func() { minListTimeout = before })
	p, _ := startFake(t, "slow list", manifest{"start_timeout_seconds": 30})
	running(t, p)
	p.Stop()
	p, _ = startFake(t, "slow list", manifest{"start_timeout_seconds": 0.5})
	eventually(t, "the reason", func() bool { return strings.Contains(p.Status().Detail, "set start_timeout_seconds higher") })
	p.Stop()
}

// A process that cannot start is tried again. Its output is logged, and calls fail with
// the reason.
func TestNoStart(t *testing.T) {
	p, log := startFake(t, "no start", manifest{"transforms": []string{"answer"}})
	eventually(t, "a second try", func() bool { return p.Status().Restarts >= 2 })
	s := p.Status()
	if s.State != plugin.StateStarting || !strings.Contains(s.Detail, "exit status 3; its last line on standard error: cannot find ***'s settings") || !strings.Contains(s.Detail, "started again after") {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(log.String(), "cannot find ***'s settings") {
		t.Errorf("the log lacks its words:\n%s", log)
	}
	if _, err := p.running(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a call: %v", err)
	}
}

// Tool calls of a plugin with elements carry the session and its settings. Calls of a
// plain MCP server do not.
func TestAbout(t *testing.T) {
	call := plugin.ToolCall{Name: "about", Arguments: json.RawMessage(`{}`), SessionID: "s", RequestID: "r",
		Config: loquat.Object{}.Set("api_key", "hunter2"), Redacted: loquat.Object{}.Set("api_key", map[string]bool{"set": true}).Set("sides", 20)}
	for _, c := range []struct {
		manifest manifest
		want     string
	}{
		{manifest{"ui": []string{"bare"}}, `{"config":{"api_key":{"set":true},"sides":20},"request_id":"r","session_id":"s"}`},
		{manifest{}, ""},
	} {
		p, _ := startFake(t, "", c.manifest)
		running(t, p)
		result, err := newTool(p, listed{Name: "about"}, json.RawMessage(`{}`)).Call(t.Context(), call)
		if err != nil || result.Content != c.want {
			t.Errorf("with %v the process is told %q (%v)", c.manifest, result.Content, err)
		}
	}
}
