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

// How long plugins are waited for. One that failed or was too slow is left alone for a
// while, longer each time. Then it is on trial: what it answers at once counts, and
// when it takes longer it is heard in the background, so that it delays nobody twice.
const (
	patience   = 2 * time.Second
	onTrial    = 100 * time.Millisecond
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

const (
	maxCalls = 32 // of one plugin at a time; more wait
	maxTold  = 50 // faults of one plugin that are logged
)

// Gatherer asks plugins for the elements that they show, all of them side by side.
//
// It promises that no plugin delays an answer by more than two seconds, nor a second
// answer because of the same trouble, and that one that fails is left out, told of in
// the log and in Problems, and comes back by itself.
type Gatherer struct {
	registry *Registry
	log      *slog.Logger
	learn    func([]loquat.Object)
	askers   map[string]*asker // by the name of the plugin; not changed
}

// NewGatherer makes the gatherer of a registry's plugins. What a plugin answers goes to
// learn as it came, before it counts as heard.
func NewGatherer(r *Registry, log *slog.Logger, learn func([]loquat.Object)) *Gatherer {
	g := &Gatherer{registry: r, log: log, learn: learn, askers: map[string]*asker{}}
	for _, p := range r.Plugins() {
		if e, ok := p.(Elements); ok {
			g.askers[p.Name()] = &asker{plugin: p, elements: e, log: log.With("plugin", p.Name()), slots: make(chan struct{}, maxCalls)}
		}
	}
	return g
}

// Core returns the plugins whose elements belong to an agent: its own provider, and
// all extensions, features and tools but the extensions of other providers.
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

// Tags returns what some plugins say that they, or their backend, can do.
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
			g.log.Error("a plugin cannot name its tags", "plugin", p.Name(), "error", err)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// Gather asks plugins for their elements and normalises them; input is what each is
// given. The order is that of the plugins.
func (g *Gatherer) Gather(ctx context.Context, plugins []Plugin, input func(Plugin) ui.Input) []loquat.Object {
	answers := make([]*asking, len(plugins))
	var asked sync.WaitGroup
	for i, p := range plugins {
		if a, ok := g.askers[p.Name()]; ok {
			in := input(p)
			asked.Go(func() { answers[i] = a.ask(ctx, in) })
		}
	}
	asked.Wait()
	var given []ui.Contribution
	for i, p := range plugins {
		if c := answers[i]; c != nil && c.err == nil {
			g.learn(c.result)
			g.askers[p.Name()].heard.Store(true)
			given = append(given, ui.Contribution{Plugin: p.Name(), Owner: elementOwner(p), Elements: c.result})
		}
	}
	elements, faults := ui.Normalize(given)
	for _, c := range given {
		g.askers[c.Plugin].noteFaults(slices.DeleteFunc(slices.Clone(faults), func(f ui.ElementError) bool { return f.Plugin != c.Plugin }))
	}
	return elements
}

// elementOwner is what stands as action_owner in the elements of a plugin; "" is none.
func elementOwner(p Plugin) string {
	if owner := ownerOf(p); owner != KindApplication {
		return owner
	}
	return ""
}

// Problems says what of a plugin's elements is left out, and why.
func (g *Gatherer) Problems(p Plugin) []string {
	a, ok := g.askers[p.Name()]
	if !ok {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	if a.trouble != "" {
		out = append(out, "its elements are left out: "+a.trouble)
	}
	return append(out, a.faults...)
}

// Unheard returns those of some plugins that have not said yet what elements they have.
func (g *Gatherer) Unheard(plugins []Plugin) (out []Plugin) {
	for _, p := range plugins {
		if a, ok := g.askers[p.Name()]; ok && !a.heard.Load() {
			out = append(out, p)
		}
	}
	return out
}

// ErrDown is that a plugin's process does not run, so that it shows nothing. Asking it
// is no trouble, and it is asked again at once.
var ErrDown = errors.New("it does not run")

// Missing says which of some plugins do not give their elements at the moment, and why.
func (g *Gatherer) Missing(plugins []Plugin) (out []string) {
	for _, p := range plugins {
		a, ok := g.askers[p.Name()]
		if !ok {
			continue
		}
		a.mu.Lock()
		if why := cmp.Or(a.trouble, a.down); why != "" {
			out = append(out, fmt.Sprintf("plugin %s does not give its settings at the moment: %s", p.Name(), why))
		}
		a.mu.Unlock()
	}
	return out
}

// asker asks one plugin, and remembers how that went.
type asker struct {
	plugin   Plugin
	elements Elements
	log      *slog.Logger
	slots    chan struct{} // holds one for each call that has not returned
	heard    atomic.Bool   // once an answer of it was learned

	mu       sync.Mutex
	overdue  int       // calls that were given up and have not returned
	trying   bool      // a call on trial runs
	failures int       // in a row
	until    time.Time // no call before it
	trouble  string    // of the last call, "" when it went well
	down     string    // why the last call found no process, "" when there was one
	faults   []string  // of single elements in the newest answer
	told     []string  // those of any answer that the log has
}

// asking is one call.
type asking struct {
	done   chan struct{} // closed when it has returned, elements and err being set
	late   chan struct{} // closed when it is given up
	result []loquat.Object
	err    error
	trial  bool
}

// ask calls the plugin and returns the call once it has returned, nil when it cannot be
// waited for.
func (a *asker) ask(ctx context.Context, in ui.Input) *asking {
	trial, ok := a.admit()
	if !ok {
		return nil
	}
	wait := patience
	if trial {
		wait = onTrial
	}
	soon := time.NewTimer(wait)
	defer soon.Stop()
	select {
	case a.slots <- struct{}{}:
	case <-soon.C: // others ask it at the moment: what becomes of them tells how it is
		a.leave(trial)
		return nil
	case <-ctx.Done():
		a.leave(trial)
		return nil
	}
	c := a.start(ctx, in, trial)
	impatient := soon.C
	if !trial {
		impatient = nil // late comes then
	}
	select {
	case <-c.done:
		return c
	case <-c.late:
	case <-impatient:
	case <-ctx.Done():
	}
	return nil
}

// admit says whether the plugin is asked now, and whether that is a trial.
func (a *asker) admit() (trial, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.overdue > 0:
		return false, false
	case a.failures == 0:
		return false, true
	case a.trying || time.Now().Before(a.until):
		return true, false
	}
	a.trying = true
	return true, true
}

// leave takes back an admission that came to no call.
func (a *asker) leave(trial bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trying = a.trying && !trial
}

// start calls the plugin. The call outlives whoever asked: what becomes of it counts.
func (a *asker) start(ctx context.Context, in ui.Input, trial bool) *asking {
	c := &asking{done: make(chan struct{}), late: make(chan struct{}), trial: trial}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	giveUp := time.AfterFunc(patience, func() { a.giveUp(c); cancel(context.DeadlineExceeded) })
	in.Config, in.State, in.Tags, in.Models = in.Config.Clone(), in.State.Clone(), slices.Clone(in.Tags), slices.Clone(in.Models)
	go func() {
		defer cancel(nil)
		c.err = contain(func() (err error) {
			c.result, err = a.elements.UIElements(ctx, in)
			return err
		})
		giveUp.Stop()
		a.settle(c)
	}()
	return c
}

// giveUp notes that a call takes too long, unless it has returned.
func (a *asker) giveUp(c *asking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	a.overdue++
	a.fail(fmt.Errorf("it did not answer within %s", patience))
	close(c.late)
}

// settle notes how a call went that has returned.
func (a *asker) settle(c *asking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	<-a.slots
	a.trying = a.trying && !c.trial
	select {
	case <-c.late:
		c.result, c.err = nil, errors.New("late")
		a.overdue--
		a.until = time.Now().Add(pauseAfter(a.failures))
	default:
		a.down = ""
		switch {
		case errors.Is(c.err, ErrDown):
			c.result, a.down = nil, c.err.Error()
		case c.err != nil:
			c.result = nil
			a.fail(c.err)
		default:
			a.recover()
		}
	}
	close(c.done)
}

func (a *asker) fail(err error) {
	if a.trouble != err.Error() {
		a.trouble = err.Error()
		a.log.Warn("the elements of a plugin are left out", "error", err)
	}
	a.failures++
	a.until = time.Now().Add(pauseAfter(a.failures))
}

func (a *asker) recover() {
	if a.failures > 0 {
		a.log.Info("a plugin shows its elements again")
	}
	a.failures, a.trouble = 0, ""
}

func pauseAfter(failures int) time.Duration {
	pause := firstPause
	for range failures - 1 {
		if pause *= 2; pause >= lastPause {
			return lastPause
		}
	}
	return pause
}

// noteFaults remembers what of an answer is left out. Each fault is logged once: what
// a plugin shows differs from session to session, so that faults come and go.
func (a *asker) noteFaults(faults []ui.ElementError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
	for _, f := range faults {
		text := f.Message
		if f.Element != "" {
			text = fmt.Sprintf("element %s is left out: %s", f.Element, f.Message)
		}
		a.faults = append(a.faults, text)
		if len(a.told) < maxTold && !slices.Contains(a.told, text) {
			a.told = append(a.told, text)
			a.log.Warn("an element of a plugin is left out", "element", f.Element, "problem", f.Message)
		}
	}
}

// contain makes an error of a plugin's panic.
func contain(call func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = &panicError{fault: fault, stack: string(debug.Stack())}
		}
	}()
	return call()
}

// panicError is a panic of a plugin. Only the log shows where it came from.
type panicError struct {
	fault any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.fault) }

// LogValue adds the stack.
func (e *panicError) LogValue() slog.Value { return slog.StringValue(e.Error() + "\n" + e.stack) }
