//go:build unix

package mcphost

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/plugin"
)

// killFake kills the process of a plugin and returns when the plugin has noticed.
func killFake(t *testing.T, p *Plugin) {
	t.Helper()
	s, err := p.running()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.proc.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.wire.ended
	eventually(t, "the end of the process", func() bool { return p.Status().State != plugin.StateRunning || p.Status().Restarts > 0 })
}

// callCount calls the tool `count` as a phase does that got its tools earlier.
func callCount(ctx context.Context, tool plugin.Tool) (string, error) {
	result, err := tool.Call(ctx, plugin.ToolCall{Name: "count", Arguments: arguments(3)})
	return result.Content, err
}

// A plugin keeps its tools while its process restarts, and calls of all kinds wait for
// the restart.
func TestCallsDuringRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(t *testing.T, p *Plugin, count plugin.Tool) (string, error)
	}{
		{"tool", func(t *testing.T, _ *Plugin, count plugin.Tool) (string, error) { return callCount(t.Context(), count) }},
		{"action", func(t *testing.T, p *Plugin, _ plugin.Tool) (string, error) {
			r, err := p.Act(t.Context(), plugin.ActionCall{ActionID: "answer", Params: object(t, with(`{"structuredContent": 3}`))})
			return string(r.Result), err
		}},
		{"transform", func(t *testing.T, p *Plugin, _ plugin.Tool) (string, error) {
			req := loquat.LLMRequest{Params: object(t, with(`{"structuredContent": {"params": {"n": 3}}}`))}
			err := p.EditRequest(t.Context(), &req)
			return string(req.Params["n"]), err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, "", manifest{"kind": "feature", "actions": []string{"answer"}, "transforms": []string{"bare"}})
			running(t, p)
			count, offered := findTool(t, p, "count"), len(p.Tools())
			killFake(t, p)
			if got := len(p.Tools()); got != offered {
				t.Errorf("%d tools while it restarts, %d before", got, offered)
			}
			if got, err := c.call(t, p, count); err != nil || got != "3" {
				t.Errorf("the call answers %q, %v", got, err)
			}
			if s := p.Status(); s.Restarts != 1 || s.State != plugin.StateRunning {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A call of a plugin that does not restart in time fails with an error that names the
// plugin, its state and the reason. Its tools stay known.
func TestCallOfAPluginThatStaysDown(t *testing.T) {
	t.Parallel()
	p, _ := startFake(t, "live once", manifest{"ui": []string{"bare"}})
	running(t, p)
	count := findTool(t, p, "count")
	killFake(t, p)
	_, err := callCount(t.Context(), count)
	if err == nil || !strings.Contains(err.Error(), "plugin fake is not running (starting): it ended: exit status 3") || !strings.Contains(err.Error(), "started again after") {
		t.Errorf("the call: %v", err)
	}
	findTool(t, p, "count")

	p.recordEnd(err, failedDelay, true) // as after many failures in a row
	if _, err := callCount(t.Context(), count); err == nil || !strings.Contains(err.Error(), "plugin fake is not running (failed): ") {
		t.Errorf("the call of a failed plugin: %v", err)
	}
}

// A call that waits for a restart ends when it is cancelled or the plugin is stopped.
func TestEndOfACallDuringRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *Plugin, cancel func())
		want string
	}{
		{"cancel", func(_ *Plugin, cancel func()) { cancel() }, "context canceled"},
		{"stop", func(p *Plugin, _ func()) { p.Stop() }, "plugin fake is not running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, "live once", nil)
			running(t, p)
			count := findTool(t, p, "count")
			killFake(t, p)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := callCount(ctx, count)
				ended <- err
			}()
			c.end(p, cancel)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the call: %v", err)
			}
		})
	}
}

// The tools of a process are those of its newest start.
func TestToolsAfterRestart(t *testing.T) {
	t.Parallel()
	p, _ := startFake(t, "change tools", nil)
	running(t, p)
	offered := len(p.Tools())
	killFake(t, p)
	running(t, p)
	if got := len(p.Tools()); got != offered-1 {
		t.Errorf("%d tools after the restart, %d before", got, offered)
	}
}

// The first start ends when the process runs, when it fails, and at the latest after the
// start timeout.
func TestFirstStart(t *testing.T) {
	for _, c := range []struct {
		name, how string
		manifest  manifest
		state     string
		detail    string
	}{
		{"runs", "", nil, plugin.StateRunning, ""},
		{"ends", "no start", nil, plugin.StateStarting, "it ended: exit status 3"},
		{"takes too long", "never start", manifest{"start_timeout_seconds": 0.5}, plugin.StateStarting, "it did not answer within 500ms of its start; set start_timeout_seconds higher if it needs longer"},
		{"cannot be started", "", manifest{"command": "./nothing"}, plugin.StateStarting, "there is no program"},
		{"has no valid manifest", "", manifest{"kind": "wrong"}, plugin.StateFailed, "its manifest is wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFake(t, c.how, c.manifest)
			select {
			case <-p.FirstStart():
			case <-time.After(30 * time.Second):
				t.Fatal("the first start has not ended after 30 s")
			}
			eventually(t, "the state", func() bool { s := p.Status(); return s.State == c.state && strings.Contains(s.Detail, c.detail) })
		})
	}
}

// AwaitRunning returns nil once the process runs, and an error if the plugin was stopped.
func TestAwaitRunning(t *testing.T) {
	t.Parallel()
	p, _ := startFake(t, "", nil)
	running(t, p)
	killFake(t, p)
	if err := p.AwaitRunning(t.Context()); err != nil {
		t.Errorf("a process that comes back: %v", err)
	}
	p.Stop()
	if err := p.AwaitRunning(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin fake is not running") {
		t.Errorf("a process that was stopped: %v", err)
	}
}
