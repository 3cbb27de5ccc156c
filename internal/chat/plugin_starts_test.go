package chat_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// process is a plugin whose process starts when the test says so. It offers a tool, a
// setting and an edit of requests.
type process struct {
	name string
	tool string

	mu     sync.Mutex
	first  chan struct{} // closed when the first start has come to an end
	status plugin.Status
	await  func(context.Context) // what AwaitRunning does, nil for nothing
}

func newProcess(name, tool string) *process {
	return &process{name: name, tool: tool, first: make(chan struct{}), status: plugin.Status{State: plugin.StateStarting}}
}

func (p *process) Name() string                { return p.name }
func (*process) Kind() string                  { return plugin.KindFeature }
func (*process) Start(context.Context)         {}
func (*process) Stop()                         {}
func (p *process) FirstStart() <-chan struct{} { return p.first }

func (p *process) AwaitRunning(ctx context.Context) error {
	if p.await != nil {
		p.await(ctx)
	}
	if p.runs() {
		return nil
	}
	s := p.Status()
	return loquat.Errorf(loquat.CodeUnavailable, "plugin %s is not running (%s): %s", p.name, s.State, s.Detail)
}

func (p *process) Status() plugin.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// become ends the first start, with the plugin in some state.
func (p *process) become(state, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.State, p.status.Detail = state, detail
	close(p.first)
}

func (p *process) setState(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.State = state
}

func (p *process) runs() bool { return p.Status().State == plugin.StateRunning }

func (p *process) Tools() []plugin.Tool {
	if !p.runs() {
		return nil
	}
	return []plugin.Tool{tool{p.tool, func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: "from " + p.name}, nil
	}}}
}

func (p *process) UIElements(context.Context, ui.Input) ([]loquat.Object, error) {
	if !p.runs() {
		return nil, plugin.ErrDown
	}
	return []loquat.Object{loquat.Object{}.Set("key", p.name+"_depth").Set("type", "number").Set("config_path", "request_options."+p.name)}, nil
}

func (p *process) EditRequest(_ context.Context, req *loquat.LLMRequest) error {
	if p.runs() {
		req.Params = req.Params.Clone().Set("edited_by", p.name)
	}
	return nil
}

// waits returns when a request waits for plugins, and fails if the model was asked.
func (r *rig) waits(requestID string) {
	r.t.Helper()
	asked := len(r.provider.seen())
	r.waitFor("the request to wait", func() bool {
		for line := range strings.Lines(r.said.String()) {
			if strings.Contains(line, "request waits for plugins") && strings.Contains(line, requestID) {
				return true
			}
		}
		return false
	})
	if n := len(r.provider.seen()); n != asked {
		r.t.Fatal("the model was asked before the plugins had started")
	}
}

// A request that is sent while a plugin starts waits for it: the model is shown its
// tools, overrides of its settings count, it edits the request, and the plugin that is
// listed first keeps the name of its tool.
func TestRequestsWaitForPluginsThatStart(t *testing.T) {
	r := newRig(t)
	running := newProcess("slow", "act")
	running.become(plugin.StateRunning, "")
	r.load("", running)
	overrides := loquat.Object{}.Set(loquat.MetaOverrides, json.RawMessage(`{"slow_depth": 7}`))
	session := r.create(loquat.NewSession{Metadata: overrides}).SessionID

	slow, fast := newProcess("slow", "act"), newProcess("fast", "act")
	fast.become(plugin.StateRunning, "")
	r.load("", slow, fast)
	r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("act")}})
	sent := r.send(session, loquat.Send{Content: text("go")})
	r.waits(sent.RequestID)
	if ready := r.Ready(t.Context()); ready.Ready || ready.Detail["plugin slow"] != "starting for the first time; requests wait for it" {
		t.Errorf("while a plugin starts, readiness is %+v", ready)
	}
	slow.become(plugin.StateRunning, "")
	if q := r.ended(sent.RequestID); q.Status != loquat.StatusCompleted {
		t.Fatalf("the request is %s: %s", q.Status, q.Error)
	}
	req := r.provider.seen()[0]
	if len(req.Tools) != 1 || req.Params.String("edited_by") == "" || string(req.Config.Object("request_options")["slow"]) != "7" {
		t.Errorf("the model is asked with tools %s, params %v, config %v", req.Tools, req.Params, req.Config)
	}
	if got := transcript(r.snapshot(session).Messages); got != "user:go | assistant: | tool:from slow | assistant:ok" {
		t.Errorf("the session is %s", got)
	}
	if ready := r.Ready(t.Context()); !ready.Ready {
		t.Errorf("after the start, readiness is %+v", ready)
	}
}

// After a crash, queued sends wait for the plugins like others.
func TestQueuedSendsWaitForPlugins(t *testing.T) {
	r := newRig(t)
	gate := make(chan struct{})
	r.provider.then(phase{gate: gate})
	session := r.create(loquat.NewSession{}).SessionID
	r.send(session, loquat.Send{Content: text("first")})
	<-r.provider.entered
	queued := r.send(session, loquat.Send{Content: text("second"), OnBusy: loquat.BusyQueue})

	slow := newProcess("slow", "act")
	crashed := r.Service
	r.load("", slow) // takes up what the other left
	crashed.Stop(expired())
	r.waits(queued.RequestID)
	slow.become(plugin.StateRunning, "")
	if q := r.ended(queued.RequestID); q.Status != loquat.StatusCompleted {
		t.Fatalf("the request is %s: %s", q.Status, q.Error)
	}
	if req := r.provider.seen()[1]; !strings.Contains(string(req.Tools[0]), `"act"`) {
		t.Errorf("the model is shown %s", req.Tools)
	}
}

// A request starts without a plugin that does not run, which the log and Plugins say,
// and fails without one that is required.
func TestRequestsWithoutPlugins(t *testing.T) {
	recovers := func(p *process) { p.await = func(context.Context) { p.setState(plugin.StateRunning) } }
	for _, c := range []struct {
		name     string
		state    string
		required bool
		await    func(*process)
		fails    string
		noted    bool
	}{
		{name: "runs", state: plugin.StateRunning},
		{name: "required, runs", state: plugin.StateRunning, required: true},
		{name: "starts for too long", state: plugin.StateStarting, noted: true},
		{name: "failed", state: plugin.StateFailed, noted: true},
		{name: "required, starts for too long", state: plugin.StateStarting, required: true,
			fails: "plugin slow is not running (starting): it cannot find ***; required_plugins lists it, so nothing runs without it"},
		{name: "required, failed", state: plugin.StateFailed, required: true,
			fails: "plugin slow is not running (failed): it cannot find ***; required_plugins lists it, so nothing runs without it"},
		{name: "required, restarts", state: plugin.StateStarting, required: true, await: recovers},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			slow := newProcess("slow", "act")
			slow.status.Required = c.required
			slow.become(c.state, "it cannot find hunter2")
			if c.await != nil {
				c.await(slow)
			}
			r.load("", slow)
			if ready := r.Ready(t.Context()); !ready.Ready {
				t.Errorf("readiness is %+v", ready)
			}
			q := r.ended(r.send(r.create(loquat.NewSession{}).SessionID, loquat.Send{Content: text("go")}).RequestID)
			if want := map[bool]loquat.RequestStatus{true: loquat.StatusFailed, false: loquat.StatusCompleted}[c.fails != ""]; q.Status != want || q.Error != c.fails {
				t.Errorf("the request is %s: %s", q.Status, q.Error)
			}
			infos := r.Catalog.Plugins()
			info := infos[len(infos)-1]
			if got := strings.Contains(strings.Join(info.Problems, ""), "requests that started while it did not run: 1, the last at 20"); got != c.noted {
				t.Errorf("problems %q", info.Problems)
			}
			if got := strings.Contains(r.said.String(), `msg="request starts while plugins do not run" request_id=`+q.RequestID+` plugins="slow (`+c.state+`)"`); got != c.noted {
				t.Errorf("the log:\n%s", r.said.String())
			}
			if info.Required != c.required {
				t.Errorf("Plugins says required: %v", info.Required)
			}
		})
	}
}

// A request that waits for a plugin is cancelled, and cut off by a shutdown, at once.
func TestEndOfARequestThatWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *rig, requestID string)
		want loquat.RequestStatus
	}{
		{"cancel", func(r *rig, requestID string) {
			if _, err := r.Requests.Cancel(r.t.Context(), chat.Call{}, requestID); err != nil {
				r.t.Error(err)
			}
		}, loquat.StatusCancelled},
		{"shutdown", func(r *rig, _ string) { r.Stop(expired()) }, loquat.StatusFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, required := range []bool{false, true} {
				r := newRig(t)
				slow := newProcess("slow", "act")
				if required { // it has started before and does not come back
					slow.status.Required = true
					slow.become(plugin.StateStarting, "")
					slow.await = func(ctx context.Context) {
						r.Service.Catalog.Plugins() // whatever takes locks goes on
						<-ctx.Done()
					}
				}
				r.load("", slow)
				sent := r.send(r.create(loquat.NewSession{}).SessionID, loquat.Send{Content: text("go")})
				if !required {
					r.waits(sent.RequestID)
				}
				c.end(r, sent.RequestID)
				if q := r.ended(sent.RequestID); q.Status != c.want {
					t.Errorf("the request is %s: %s", q.Status, q.Error)
				}
				if n := len(r.provider.seen()); n != 0 {
					t.Errorf("the model was asked %d times", n)
				}
			}
		})
	}
}
