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
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/private"
)

// Options are what a plugin's process is run with.
type Options struct {
	CacheDir string // holds one writable folder for each plugin
	Logger   *slog.Logger

	// Mask takes the secrets out of a text. Nil: there are none.
	Mask func(text string) string

	// Said is given each line that a plugin says. Nil: the lines are logged.
	Said func(line string)

	// Required plugins are those without which requests fail.
	Required bool

	// Guard outlives a Loquat that is killed. Nil: what a plugin has started then has
	// to end by itself.
	Guard *Guard
}

// Plugin is a directory with a plugin.json, and its process while it runs.
type Plugin struct {
	dir      string
	opts     Options
	manifest Manifest
	faults   []config.Problem // of the manifest; with any it is never started
	logs     *logs

	stop    context.CancelFunc // set by Start
	done    chan struct{}      // closed when nothing is left of it
	started chan struct{}      // closed when its first start has come to an end
	start   sync.Once

	onChange func() // never nil; called when what the plugin offers may have changed

	mu       sync.Mutex
	session  *session // nil while it does not run
	status   plugin.Status
	soon     time.Time         // until then, who wants elements waits for the process
	changed  chan struct{}     // closed and replaced when session or status changes
	tools    []plugin.Tool     // of the newest list, also while the process restarts
	listed   map[string]listed // all of the newest list
	problems []string          // of the newest list
}

// New reads the manifest of a directory. Nothing is started. A manifest that is wrong
// makes a plugin that has failed and says why.
func New(dir string, opts Options) *Plugin {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Mask == nil {
		opts.Mask = func(text string) string { return text }
	}
	if cache, err := filepath.Abs(opts.CacheDir); err == nil {
		opts.CacheDir = cache // the process runs elsewhere
	}
	p := &Plugin{dir: dir, opts: opts, done: make(chan struct{}), started: make(chan struct{}), changed: make(chan struct{}), onChange: func() {}}
	p.manifest, p.faults = ReadManifest(dir)
	p.logs = newLogs(opts.Logger.With("plugin", p.Name()), opts.Mask, opts.Said)
	p.status = plugin.Status{State: plugin.StateStarting, Version: p.manifest.Version, Required: opts.Required}
	if len(p.faults) > 0 {
		p.status.State, p.status.Detail = plugin.StateFailed, "its manifest is wrong"
		for _, f := range p.faults {
			p.status.Problems = append(p.status.Problems, f.String())
		}
	}
	return p
}

// Name is the name in the manifest, or the directory when it has none.
func (p *Plugin) Name() string { return cmp.Or(p.manifest.Name, "path:"+p.dir) }

// Kind is the kind in the manifest, or unknown when it has none.
func (p *Plugin) Kind() string { return cmp.Or(p.manifest.Kind, plugin.KindUnknown) }

// Dir is the plugin's directory.
func (p *Plugin) Dir() string { return p.dir }

// Faults are what is wrong with the manifest.
func (p *Plugin) Faults() []config.Problem { return p.faults }

// CommandLine is how the process is started, as a shell would take it.
func (p *Plugin) CommandLine() string { return p.command().String() }

func (p *Plugin) command() command {
	c := p.manifest.command(p.dir, p.cache(), os.Environ())
	c.guard = p.opts.Guard
	return c
}

func (p *Plugin) cache() string { return filepath.Join(p.opts.CacheDir, p.Name()) }

// OnChange registers a function that is called when the process has started or ended, and
// when it has listed its tools again. It has to be registered before Start.
func (p *Plugin) OnChange(changed func()) {
	before := p.onChange
	p.onChange = func() { before(); changed() }
}

// Start has the process come up in the background. It runs, and is started again when
// it dies, until Stop.
func (p *Plugin) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(p.manifest.startTimeout(), p.endFirstStart)
	p.mu.Lock()
	p.soon = time.Now().Add(comingUp)
	p.mu.Unlock()
	go func() {
		defer close(p.done)
		defer p.endFirstStart()
		defer late.Stop()
		if len(p.faults) > 0 {
			p.opts.Logger.Error("plugin cannot be started", "plugin", p.Name(), "problems", p.status.Problems)
			return
		}
		supervise(ctx, p.live, p.fallen)
	}()
}

// comingUp is how long after its start, and after its end, a process is waited for by
// those who want its elements: a page that is loaded with the server finds them, what
// they call secret is known before others are told it, and a request that is sent while
// the process restarts has its settings.
const comingUp = 1500 * time.Millisecond

func (p *Plugin) endFirstStart() { p.start.Do(func() { close(p.started) }) }

// FirstStart is closed when the first start has come to an end.
func (p *Plugin) FirstStart() <-chan struct{} { return p.started }

// AwaitRunning waits a moment for a process that starts.
func (p *Plugin) AwaitRunning(ctx context.Context) error {
	_, err := p.awaitRunning(ctx, callPatience)
	return err
}

// Stop ends the process with all that it has started.
func (p *Plugin) Stop() {
	if p.stop == nil {
		return
	}
	p.stop()
	<-p.done
}

// live runs the process once, until it ends or ctx does.
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
	relisting.Wait() // or a list that just came would bring back what leaves
	if ctx.Err() != nil {
		p.leave(errStopped)
		s.stop()
	} else {
		p.leave(cmp.Or(err, errEnded))
		s.close()
	}
	return err
}

// begin starts a life: from then on the process is there for calls.
func (p *Plugin) begin(ctx context.Context) (*session, error) {
	if err := os.MkdirAll(p.cache(), 0o700); err != nil {
		return nil, fmt.Errorf("make its cache: %w", err)
	}
	if err := private.Restrict(p.cache()); err != nil {
		return nil, err
	}
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.list(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open starts the process. One that dies of the question for its version is asked in
// the older way.
func (p *Plugin) open(ctx context.Context) (*session, error) {
	s, err := open(ctx, p.command(), p.manifest, false, p.logs)
	if errors.Is(err, errVersion) {
		s, err = open(ctx, p.command(), p.manifest, true, p.logs)
	}
	return s, err
}

// list takes over what the process offers.
func (p *Plugin) list(ctx context.Context, s *session) error {
	all, problems, err := s.listTools(ctx)
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
			problems = append(problems, fmt.Sprintf("%s %s: there is no tool %q", ManifestName, place, name))
		} else if l.needsTask() {
			problems = append(problems, fmt.Sprintf("%s %s: tool %q %s", ManifestName, place, name, onlyAsTask))
		}
	}
	slices.Sort(problems)
	defer p.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.tools, p.listed, p.problems = s, tools, listed, problems
	p.setState(plugin.StateRunning, "")
	p.endFirstStart()
	return nil
}

// relistPause keeps a process that changes its tools without end from being asked so.
const relistPause = time.Second

// relist asks again whenever the process says that its tools are others.
func (p *Plugin) relist(ctx context.Context, s *session) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		if err := p.list(ctx, s); err != nil && ctx.Err() == nil {
			p.opts.Logger.Warn("plugin did not list its tools again", "plugin", p.Name(), "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(relistPause):
		}
	}
}

// leave takes an ended process away from those who would call it. Its tools stay known.
func (p *Plugin) leave(why error) {
	defer p.onChange()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.soon = nil, time.Now().Add(comingUp)
	p.setState(plugin.StateStarting, p.opts.Mask(why.Error()))
}

// setState sets the state and wakes the calls that wait for it. p.mu is held.
func (p *Plugin) setState(state, detail string) {
	p.status.State, p.status.Detail = state, detail
	close(p.changed)
	p.changed = make(chan struct{})
}

// fallen is called with why a life has ended, and what comes now.
func (p *Plugin) fallen(why error, pause time.Duration, failed bool) {
	detail := p.opts.Mask(why.Error())
	p.opts.Logger.Warn("plugin does not run", "plugin", p.Name(), "reason", detail, "again_in", pause)
	p.mu.Lock()
	defer p.mu.Unlock()
	state := plugin.StateStarting
	if failed {
		state = plugin.StateFailed
	}
	p.status.Restarts++
	p.setState(state, fmt.Sprintf("%s; it is started again after %v", detail, pause))
	p.endFirstStart()
}

// Status is how the plugin is.
func (p *Plugin) Status() plugin.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status
	status.Problems = slices.Concat(status.Problems, p.problems)
	return status
}

// Tools are those that the process offers, or offered before it ended.
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

// running returns the life in which the process is.
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

// callPatience is how long a call waits for a process that starts.
const callPatience = 5 * time.Second

// awaitRunning is running that waits for a process that starts. It does not wait for
// one that has failed.
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

// call calls a tool of the process, which may have to start first.
func (p *Plugin) call(ctx context.Context, u use) (*answer, error) {
	s, err := p.awaitRunning(ctx, callPatience)
	if err != nil {
		return nil, err
	}
	return p.callIn(ctx, s, u)
}

// callIn calls a tool in one life of the process.
func (p *Plugin) callIn(ctx context.Context, s *session, u use) (*answer, error) {
	a, err := s.callTool(ctx, p.manifest.timeout(), u)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", p.Name(), err)
	}
	return a, nil
}

// The powers of a process.
var (
	_ plugin.Process       = (*Plugin)(nil)
	_ plugin.Notifier      = (*Plugin)(nil)
	_ plugin.Reporter      = (*Plugin)(nil)
	_ plugin.Toolbox       = (*Plugin)(nil)
	_ plugin.RequestEditor = (*Plugin)(nil)
	_ plugin.Elements      = (*Plugin)(nil)
	_ plugin.Actor         = (*Plugin)(nil)
)
