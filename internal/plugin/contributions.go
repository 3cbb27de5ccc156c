package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/ui"
)

const (
	callTimeout = 2 * time.Second // a response waits at most this long for a plugin
	failPause   = 5 * time.Second // a plugin is skipped for this long after a failed call
	maxCalls    = 32              // concurrent calls of one plugin; limits the goroutines that hang, and further calls wait
	maxLogged   = 50              // limit of logged faults in one plugin's elements
)

// Gatherer asks plugins for their contributions to the UI, all plugins at the same time.
//
// A plugin that fails, or takes longer than callTimeout, is left out and reported in the
// log and by Problems. It is skipped while its call hangs, and for failPause afterwards.
type Gatherer struct {
	registry     *Registry
	log          *slog.Logger
	learn        func([]loquat.Object)
	contributors map[string]*contributor // by the name of the plugin; never modified
}

// NewGatherer returns a Gatherer for a registry's plugins. The Gatherer calls learn with a
// plugin's raw contribution before Unheard stops listing that plugin.
func NewGatherer(r *Registry, log *slog.Logger, learn func([]loquat.Object)) *Gatherer {
	g := &Gatherer{registry: r, log: log, learn: learn, contributors: map[string]*contributor{}}
	for _, p := range r.Plugins() {
		if e, ok := p.(Elements); ok {
			g.contributors[p.Name()] = &contributor{elements: e, log: log.With("plugin", p.Name()), slots: make(chan struct{}, maxCalls)}
		}
	}
	return g
}

// Core returns the plugins whose elements belong to an agent: the agent's provider, and
// all extensions, features and tools, except the extensions of other providers.
func (r *Registry) Core(selector string) []Plugin {
	own, _ := r.Provider(selector)
	foreign := func(p Plugin) bool {
		v, ok := p.(Provider)
		return ok && v != own
	}
	var out []Plugin
	for _, p := range r.plugins {
		e, brought := p.(Extension)
		switch {
		case p.Kind() == KindApplication, foreign(p):
		case brought && slices.ContainsFunc(r.plugins, func(by Plugin) bool { return by.Name() == e.BroughtBy() && foreign(by) }):
		default:
			out = append(out, p)
		}
	}
	return out
}

// Applications returns the application plugins.
func (r *Registry) Applications() []Plugin {
	return slices.DeleteFunc(slices.Clone(r.plugins), func(p Plugin) bool { return p.Kind() != KindApplication })
}

// Tags returns the capabilities that plugins report for themselves or for their backend.
func (g *Gatherer) Tags(plugins []Plugin, config loquat.Object, models []loquat.Model) []string {
	tags := []string{}
	for _, p := range plugins {
		t, ok := p.(Tagger)
		if !ok {
			continue
		}
		err := contain(func() error {
			tags = append(tags, t.Tags(config.Clone(), models)...)
			return nil
		})
		if err != nil {
			g.log.Error("a plugin failed to report its tags", "plugin", p.Name(), "error", err)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// Gather asks plugins for their elements and normalises them in the order of the plugins.
// input returns the input for a plugin.
func (g *Gatherer) Gather(ctx context.Context, plugins []Plugin, input func(Plugin) ui.Input) []loquat.Object {
	return g.normalize(plugins, g.askAll(ctx, plugins, input))
}

// GatherLast is Gather with the last elements of the plugins that do not answer: what users have set
// and what they click has to count while a process is busy or restarts.
func (g *Gatherer) GatherLast(ctx context.Context, plugins []Plugin, input func(Plugin) ui.Input) []loquat.Object {
	contributions := g.askAll(ctx, plugins, input)
	for i, p := range plugins {
		if c, ok := g.contributors[p.Name()]; ok && contributions[i] == nil {
			contributions[i] = c.last.Load()
		}
	}
	return g.normalize(plugins, contributions)
}

// askAll returns the contribution of each plugin, nil for none.
func (g *Gatherer) askAll(ctx context.Context, plugins []Plugin, input func(Plugin) ui.Input) []*contribution {
	contributions := make([]*contribution, len(plugins))
	var calls sync.WaitGroup
	for i, p := range plugins {
		if c, ok := g.contributors[p.Name()]; ok {
			in := input(p)
			calls.Go(func() { contributions[i] = c.ask(ctx, in) })
		}
	}
	calls.Wait()
	for i, p := range plugins {
		if c := contributions[i]; c != nil {
			g.learn(c.elements)
			g.contributors[p.Name()].last.Store(c)
		}
	}
	return contributions
}

func (g *Gatherer) normalize(plugins []Plugin, contributions []*contribution) []loquat.Object {
	var given []ui.Contribution
	for i, p := range plugins {
		if c := contributions[i]; c != nil {
			given = append(given, ui.Contribution{Plugin: p.Name(), Owner: elementOwner(p), Elements: c.elements})
		}
	}
	elements, faults := ui.Normalize(given)
	for _, c := range given {
		g.contributors[c.Plugin].noteFaults(slices.DeleteFunc(slices.Clone(faults), func(f ui.ElementError) bool { return f.Plugin != c.Plugin }))
	}
	return elements
}

// elementOwner returns the action_owner of a plugin's elements, "" for none.
func elementOwner(p Plugin) string {
	if owner := ownerOf(p); owner != KindApplication {
		return owner
	}
	return ""
}

// Problems returns why parts of a plugin's contribution, or all of it, are left out.
func (g *Gatherer) Problems(p Plugin) []string {
	c, ok := g.contributors[p.Name()]
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	if c.failure != "" {
		out = append(out, "its elements are left out: "+c.failure)
	}
	return append(out, c.faults...)
}

// Unheard returns the plugins that have elements but have not contributed any yet.
func (g *Gatherer) Unheard(plugins []Plugin) (out []Plugin) {
	for _, p := range plugins {
		if c, ok := g.contributors[p.Name()]; ok && c.last.Load() == nil {
			out = append(out, p)
		}
	}
	return out
}

// ErrDown reports that a plugin contributes nothing because its process does not run.
// This is not a failure: the plugin is not skipped.
var ErrDown = errors.New("it does not run")

// Missing returns a sentence for each plugin that contributes nothing at the moment.
func (g *Gatherer) Missing(plugins []Plugin) (out []string) {
	for _, p := range plugins {
		c, ok := g.contributors[p.Name()]
		if !ok {
			continue
		}
		c.mu.Lock()
		if why := cmp.Or(c.failure, c.down); why != "" {
			out = append(out, fmt.Sprintf("plugin %s does not give its settings at the moment: %s", p.Name(), why))
		}
		c.mu.Unlock()
	}
	return out
}

// contributor calls one plugin and records how the last calls ended.
type contributor struct {
	elements Elements
	log      *slog.Logger
	slots    chan struct{}                // holds one value for each call that has not returned
	last     atomic.Pointer[contribution] // that was learned

	mu      sync.Mutex
	hanging int       // calls that timed out and have not returned
	until   time.Time // when the plugin is called again after a failure
	failure string    // why the plugin is left out, "" if it is not
	down    string    // why the last call found no process, "" if it found one
	faults  []string  // of single elements in the newest contribution
	logged  []string  // faults of any contribution that are in the log
}

// contribution holds the elements that a plugin returned.
type contribution struct{ elements []loquat.Object }

// ask calls the plugin. It returns nil if the plugin is skipped or fails, or if ctx ends.
// The call continues without its caller, so a cancelled caller is not a failure.
func (c *contributor) ask(ctx context.Context, in ui.Input) *contribution {
	if c.skipped() {
		return nil
	}
	noSlot := time.NewTimer(callTimeout)
	defer noSlot.Stop()
	select {
	case c.slots <- struct{}{}:
	case <-noSlot.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	if c.skipped() { // a call before this one failed
		<-c.slots
		return nil
	}
	select {
	case result := <-c.start(ctx, in):
		return result
	case <-ctx.Done():
		return nil
	}
}

func (c *contributor) skipped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hanging > 0 || time.Now().Before(c.until)
}

// start calls the plugin in a goroutine, which frees a slot when the call returns. The
// result is nil if the call fails or times out.
func (c *contributor) start(ctx context.Context, in ui.Input) <-chan *contribution {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	result := make(chan *contribution, 1)
	returnsInTime := context.AfterFunc(ctx, func() {
		c.noteHang()
		result <- nil
	})
	in.Config, in.State, in.Tags, in.Models = in.Config.Clone(), in.State.Clone(), slices.Clone(in.Tags), slices.Clone(in.Models)
	go func() {
		defer cancel()
		defer func() { <-c.slots }()
		var elements []loquat.Object
		err := contain(func() (err error) {
			elements, err = c.elements.UIElements(ctx, in)
			return err
		})
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errTimeout // it returned at the same moment
		}
		switch {
		case !returnsInTime():
			c.noteLateReturn()
		case c.noteReturn(err):
			result <- &contribution{elements}
		default:
			result <- nil
		}
	}()
	return result
}

var errTimeout = fmt.Errorf("it did not answer within %s", callTimeout)

// noteHang records that a call timed out.
func (c *contributor) noteHang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging++
	c.fail(errTimeout)
}

// noteLateReturn records that a call returned after it timed out. It may run before noteHang.
func (c *contributor) noteLateReturn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging--
	c.until = time.Now().Add(failPause)
}

// noteReturn records how a call within the timeout ended, and reports whether it succeeded.
func (c *contributor) noteReturn(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = ""
	switch {
	case errors.Is(err, ErrDown):
		c.down = err.Error()
	case err != nil:
		c.fail(err)
	case c.hanging <= 0: // else the plugin is still skipped
		if c.failure != "" {
			c.log.Info("the elements of a plugin are included again")
		}
		c.failure, c.until = "", time.Time{}
	}
	return err == nil
}

// fail records a failure of the plugin. The caller must hold c.mu.
func (c *contributor) fail(err error) {
	if c.failure != err.Error() {
		c.failure = err.Error()
		c.log.Warn("the elements of a plugin are left out", "error", err)
	}
	c.until = time.Now().Add(failPause)
}

// noteFaults records the faults of a contribution. It logs each fault once: a plugin
// returns different elements for different sessions, so the same fault appears repeatedly.
func (c *contributor) noteFaults(faults []ui.ElementError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
	for _, f := range faults {
		text := f.Message
		if f.Element != "" {
			text = fmt.Sprintf("element %s is left out: %s", f.Element, f.Message)
		}
		c.faults = append(c.faults, text)
		if len(c.logged) < maxLogged && !slices.Contains(c.logged, text) {
			c.logged = append(c.logged, text)
			c.log.Warn("an element of a plugin is left out", "element", f.Element, "problem", f.Message)
		}
	}
}

// contain runs a call of a plugin and returns a panic as an error.
func contain(call func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = &panicError{fault: fault, stack: string(debug.Stack())}
		}
	}()
	return call()
}

// panicError reports a panic of a plugin. Only the log shows its stack.
type panicError struct {
	fault any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.fault) }

// LogValue returns the message with the stack.
func (e *panicError) LogValue() slog.Value { return slog.StringValue(e.Error() + "\n" + e.stack) }
