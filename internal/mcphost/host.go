package mcphost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/private"
)

// Options configure a plugin's process.
type Options struct {
	CacheDir string // holds one writable folder for each plugin
	Logger   *slog.Logger

	// Redact removes secrets from a text. Nil means that there are none.
	Redact func(text string) string

	// OnLine is called with each line that a plugin logs. If nil, the lines go to Logger.
	OnLine func(line string)

	// Required makes requests fail while the plugin does not run.
	Required bool

	// Guard kills the plugin's processes if Loquat is killed. If nil, they must end by
	// themselves.
	Guard *Guard
}

// Plugin is a directory with a plugin.json, and its process while it runs.
type Plugin struct {
	dir      string
	opts     Options
	manifest Manifest
	faults   []config.Problem // of the manifest; if there are any, the process is never started
	logs     *logs

	stop    context.CancelFunc // set by Start
	done    chan struct{}      // closed when the process and its supervisor have ended
	started chan struct{}      // closed when the first start has succeeded, failed or timed out
	start   sync.Once

	onChange func() // never nil; called when what the plugin offers may have changed

	mu       sync.Mutex
	session  *session // nil while it does not run
	status   plugin.Status
	graceEnd time.Time         // until then, UIElements waits for the process to run
	changed  chan struct{}     // closed and replaced when session or status changes
	tools    []plugin.Tool     // of the newest list, also while the process restarts
	listed   map[string]listed // all tools of the newest list, by name
	problems []string          // of the newest list
}

// New reads the manifest of a directory and starts nothing. If the manifest is invalid,
// the plugin's state is failed and its status says why.
func New(dir string, opts Options) *Plugin {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Redact == nil {
		opts.Redact = func(text string) string { return text }
	}
	if cache, err := filepath.Abs(opts.CacheDir); err == nil {
		opts.CacheDir = cache // absolute, because the process runs in another directory
	}
	p := &Plugin{dir: dir, opts: opts, done: make(chan struct{}), started: make(chan struct{}), changed: make(chan struct{}), onChange: func() {}}
	p.manifest, p.faults = ReadManifest(dir)
	p.logs = newLogs(opts.Logger.With("plugin", p.Name()), opts.Redact, opts.OnLine)
	p.status = plugin.Status{State: plugin.StateStarting, Version: p.manifest.Version, Required: opts.Required}
	if len(p.faults) > 0 {
		p.status.State, p.status.Detail = plugin.StateFailed, "its manifest is wrong"
		for _, f := range p.faults {
			p.status.Problems = append(p.status.Problems, f.String())
		}
	}
	return p
}

// Name returns the name in the manifest, or "path:" and the directory if there is none.
func (p *Plugin) Name() string { return cmp.Or(p.manifest.Name, "path:"+p.dir) }

// Kind returns the kind in the manifest, or unknown if there is none.
func (p *Plugin) Kind() string { return cmp.Or(p.manifest.Kind, plugin.KindUnknown) }

// Dir returns the plugin's directory.
func (p *Plugin) Dir() string { return p.dir }

// Faults returns the problems of the manifest.
func (p *Plugin) Faults() []config.Problem { return p.faults }

// commandLine returns the command that starts the process, quoted for a shell.
func (p *Plugin) commandLine() string { return p.command().String() }

func (p *Plugin) command() command {
	c := p.manifest.command(p.dir, p.cache(), os.Environ())
	c.guard = p.opts.Guard
	return c
}

func (p *Plugin) cache() string { return filepath.Join(p.opts.CacheDir, p.Name()) }

// OnChange registers a function that is called when the process has started or ended, and
// when it has listed its tools again. It panics after Start: the process could already have started, and
// nobody would be told.
func (p *Plugin) OnChange(changed func()) {
	if p.stop != nil {
		panic("mcphost: OnChange after Start of " + p.Name())
	}
	before := p.onChange
	p.onChange = func() { before(); changed() }
}

// Start starts the process in the background, and restarts it whenever it dies, until
// Stop.
func (p *Plugin) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(p.manifest.startTimeout(), p.closeFirstStart)
	p.mu.Lock()
	p.graceEnd = time.Now().Add(startGrace)
	p.mu.Unlock()
	go func() {
		defer close(p.done)
		defer p.closeFirstStart()
		defer late.Stop()
		if len(p.faults) > 0 {
			p.opts.Logger.Error("plugin cannot be started", "plugin", p.Name(), "problems", p.status.Problems)
			return
		}
		supervise(ctx, p.live, p.recordEnd)
	}()
}

// startGrace is how long UIElements waits for the process after Start and after the
// process ended. So a page that is loaded right after the server started has the elements,
// their secret keys are known before values are shown, and a request that is sent during a
// restart has its settings.
const startGrace = 1500 * time.Millisecond

func (p *Plugin) closeFirstStart() { p.start.Do(func() { close(p.started) }) }

// FirstStart returns a channel that is closed when the first start has succeeded, failed
// or timed out.
func (p *Plugin) FirstStart() <-chan struct{} { return p.started }

// AwaitRunning waits up to callWait for a process that is starting.
func (p *Plugin) AwaitRunning(ctx context.Context) error {
	_, err := p.awaitRunning(ctx, callWait)
	return err
}

// Stop ends the process and its process group, and waits for them.
func (p *Plugin) Stop() {
	if p.stop == nil {
		return
	}
	p.stop()
	<-p.done
}

// live runs the process once, until the process or ctx ends.
func (p *Plugin) live(ctx context.Context) error {
	s, err := p.begin(ctx)
	if err != nil {
		return err
	}
	p.opts.Logger.Info("plugin runs", "plugin", p.Name(), "pid", s.proc.pid, "tools", len(p.Tools()))
	listing, cancel := context.WithCancel(ctx)
	var relisting sync.WaitGroup
	relisting.Go(func() { p.relist(listing, s) })
	err = s.await(ctx)
	cancel()
	relisting.Wait() // otherwise a late list would set the ended session again
	if ctx.Err() != nil {
		p.leave(errStopped)
		s.stop()
	} else {
		p.leave(cmp.Or(err, errEnded))
		s.close()
	}
	return err
}

// begin starts the process and lists its tools. Afterwards calls can use it.
func (p *Plugin) begin(ctx context.Context) (*session, error) {
	if err := os.MkdirAll(p.cache(), 0o700); err != nil {
		return nil, fmt.Errorf("make its cache: %w", err)
	}
	if err := private.Restrict(p.cache()); err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	left := max(minListTimeout, p.manifest.startTimeout()-time.Since(began))
	listing := time.Now()
	if err := p.list(ctx, s, left); err != nil {
		s.close()
		if time.Since(listing) >= left {
			err = fmt.Errorf("%w; set start_timeout_seconds higher if it needs longer", err)
		}
		return nil, err
	}
	return s, nil
}

// open starts the process. If the process dies when asked for its protocol version, open
// starts it again with the older handshake.
func (p *Plugin) open(ctx context.Context) (*session, error) {
	s, err := open(ctx, p.command(), p.manifest, false, p.logs)
	if errors.Is(err, errNoVersion) {
		s, err = open(ctx, p.command(), p.manifest, true, p.logs)
	}
	return s, err
}

// list asks the process for its tools and stores them. Each page may take up to timeout.
func (p *Plugin) list(ctx context.Context, s *session, timeout time.Duration) error {
	all, problems, err := s.listTools(ctx, timeout)
	if err != nil {
		if why := s.reason(); why != nil {
			err = why
		}
		return err
	}
	tools, more := p.offer(all)
	problems = append(problems, more...)
	listed := make(map[string]listed, len(all))
	for _, l := range slices.Backward(all) {
		listed[l.Name] = l
	}
	for place, name := range p.manifest.places() {
		if l, ok := listed[name]; !ok {
			problems = append(problems, fmt.Sprintf("%s %s: there is no tool %q", manifestName, place, name))
		} else if l.needsTask() {
			problems = append(problems, fmt.Sprintf("%s %s: tool %q %s", manifestName, place, name, onlyAsTask))
		}
	}
	slices.Sort(problems)
	defer p.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.tools, p.listed, p.problems = s, tools, listed, problems
	p.setState(plugin.StateRunning, "")
	p.closeFirstStart()
	return nil
}

// relistDelay limits how often a process that keeps changing its tools, or does not list them, is asked for them.
var relistDelay = backoff.Backoff{First: time.Second, Max: time.Minute}

// relist lists the tools again whenever the process reports that they changed.
func (p *Plugin) relist(ctx context.Context, s *session) {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		if err := p.list(ctx, s, p.manifest.timeout()); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			p.opts.Logger.Warn("plugin did not list its tools again", "plugin", p.Name(), "error", err)
			failures++
			signal(s.changed) // it is asked again
		}
		if relistDelay.Wait(ctx, failures) != nil {
			return
		}
	}
}

// leave removes the session of an ended process. Its tools stay known.
func (p *Plugin) leave(why error) {
	defer p.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.graceEnd = nil, time.Now().Add(startGrace)
	p.setState(plugin.StateStarting, p.opts.Redact(why.Error()))
}

// setState sets the state and wakes the calls that wait for it. p.mu is held.
func (p *Plugin) setState(state, detail string) {
	p.status.State, p.status.Detail = state, detail
	close(p.changed)
	p.changed = make(chan struct{})
}

// recordEnd stores and logs why the process ended and when it is restarted.
func (p *Plugin) recordEnd(why error, pause time.Duration, failed bool) {
	detail := p.opts.Redact(why.Error())
	p.opts.Logger.Warn("plugin does not run", "plugin", p.Name(), "reason", detail, "again_in", pause)
	p.mu.Lock()
	defer p.mu.Unlock()
	state := plugin.StateStarting
	if failed {
		state = plugin.StateFailed
	}
	p.status.Restarts++
	p.setState(state, fmt.Sprintf("%s; it is started again after %v", detail, pause))
	p.closeFirstStart()
}

// Status returns the plugin's state and problems.
func (p *Plugin) Status() plugin.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status
	status.Problems = slices.Concat(status.Problems, p.problems)
	return status
}

// Tools returns the tools that the process offers, or offered before it ended.
func (p *Plugin) Tools() []plugin.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tools
}

// lists reports whether the process has a tool of that name.
func (p *Plugin) lists(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.listed[name]
	return ok
}

// running returns the session of the running process.
func (p *Plugin) running() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return p.session, nil
	}
	why := fmt.Sprintf("plugin %s is not running (%s)", p.Name(), p.status.State)
	if p.status.Detail != "" {
		why += ": " + p.status.Detail
	}
	return nil, &loquat.Error{Code: loquat.CodeUnavailable, Detail: why}
}

// callWait is how long a call waits for a process that starts.
const callWait = 5 * time.Second

// awaitRunning returns the session of the process, and waits for it up to patience. It
// does not wait for a plugin that has failed.
func (p *Plugin) awaitRunning(ctx context.Context, patience time.Duration) (*session, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		p.mu.Lock()
		changed, failed := p.changed, p.status.State == plugin.StateFailed
		p.mu.Unlock()
		s, err := p.running()
		if err == nil || failed {
			return s, err
		}
		select {
		case <-changed:
		case <-late.C:
			return nil, err
		case <-p.done:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// call calls a tool of the process. It waits for a process that is starting.
func (p *Plugin) call(ctx context.Context, u use) (*answer, error) {
	s, err := p.awaitRunning(ctx, callWait)
	if err != nil {
		return nil, err
	}
	return p.callIn(ctx, s, u)
}

// callIn calls a tool in one session.
func (p *Plugin) callIn(ctx context.Context, s *session, u use) (*answer, error) {
	a, err := s.callTool(ctx, p.manifest.timeout(), u)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", p.Name(), err)
	}
	return a, nil
}

// The plugin interfaces that Plugin implements.
var (
	_ plugin.Process       = (*Plugin)(nil)
	_ plugin.Notifier      = (*Plugin)(nil)
	_ plugin.Reporter      = (*Plugin)(nil)
	_ plugin.Toolbox       = (*Plugin)(nil)
	_ plugin.RequestEditor = (*Plugin)(nil)
	_ plugin.Elements      = (*Plugin)(nil)
	_ plugin.Actor         = (*Plugin)(nil)
)
