package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/ui"
)

// shower is a plugin whose elements the test supplies.
type shower struct {
	name, kind string
	brought    string
	show       func(context.Context, ui.Input) ([]loquat.Object, error)
	tags       func() []string
}

func (p *shower) Name() string      { return p.name }
func (p *shower) Kind() string      { return p.kind }
func (p *shower) BroughtBy() string { return p.brought }

func (p *shower) UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
	return p.show(ctx, in)
}

func (p *shower) Tags(loquat.Object, []loquat.Model) []string {
	if p.tags == nil {
		return nil
	}
	return p.tags()
}

// model is a shower that is also a provider.
type model struct {
	*shower
	Provider
	selector string
}

func (m model) Selector() string { return m.selector }

func one(key string) func(context.Context, ui.Input) ([]loquat.Object, error) {
	return func(context.Context, ui.Input) ([]loquat.Object, error) {
		return []loquat.Object{loquat.Object{}.Set("key", key)}, nil
	}
}

func newTestGatherer(t *testing.T, plugins ...Plugin) *Gatherer {
	t.Helper()
	r, err := NewRegistry(plugins...)
	if err != nil {
		t.Fatal(err)
	}
	return NewGatherer(r, slog.New(slog.DiscardHandler), func([]loquat.Object) {})
}

// keys asks all plugins and returns the keys of their elements.
func (g *Gatherer) keys(ctx context.Context) string {
	var keys []string
	for _, e := range g.Gather(ctx, g.registry.Plugins(), func(Plugin) ui.Input { return ui.Input{Config: loquat.Object{}} }) {
		keys = append(keys, e.String("key"))
	}
	return strings.Join(keys, " ")
}

func TestCorePlugins(t *testing.T) {
	mine := model{&shower{name: "mine", kind: KindProvider}, nil, "a"}
	other := model{&shower{name: "other", kind: KindProvider}, nil, "b"}
	g := newTestGatherer(t, mine, other,
		&shower{name: "ext", kind: KindExtension, brought: "mine"}, &shower{name: "alien", kind: KindExtension, brought: "other"},
		&shower{name: "free", kind: KindExtension}, &shower{name: "feature", kind: KindFeature}, &shower{name: "tool", kind: KindTool},
		&shower{name: "app", kind: KindApplication})
	names := func(plugins []Plugin) string {
		var out []string
		for _, p := range plugins {
			out = append(out, p.Name())
		}
		return strings.Join(out, " ")
	}
	if got := names(g.registry.Core("a")); got != "mine ext free feature tool" {
		t.Errorf("core plugins: %s", got)
	}
	if got := names(g.registry.Applications()); got != "app" {
		t.Errorf("application plugins: %s", got)
	}
}

// Elements follow the order of the plugins, regardless of which plugin returns first, and
// name their owner.
func TestGatherInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(key string, d time.Duration) func(context.Context, ui.Input) ([]loquat.Object, error) {
			return func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
				time.Sleep(d)
				return []loquat.Object{loquat.Object{}.Set("ui_type", "session_action").Set("id", key).Set("key", key).Set("action_id", "x").Set("action_owner", "me")}, nil
			}
		}
		g := newTestGatherer(t,
			&shower{name: "a", kind: KindExtension, show: late("1", time.Second)},
			&shower{name: "b", kind: KindFeature, show: late("2", time.Millisecond)},
			&shower{name: "c", kind: KindApplication, show: late("3", time.Minute/60)})
		began := time.Now()
		elements := g.Gather(t.Context(), g.registry.Plugins(), func(Plugin) ui.Input { return ui.Input{} })
		if took := time.Since(began); took != time.Second {
			t.Errorf("three plugins side by side took %s", took)
		}
		var got []string
		for _, e := range elements {
			got = append(got, e.String("plugin")+e.String("id")+e.String("action_owner"))
		}
		if want := []string{"a1provider_extension", "b2feature", "c3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The context of a call that times out ends with DeadlineExceeded, so the plugin can report a timeout.
func TestGivenUpCallsAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		g := newTestGatherer(t, &shower{name: "slow", kind: KindTool, show: func(ctx context.Context, _ ui.Input) ([]loquat.Object, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, cause
		}})
		g.keys(t.Context())
		synctest.Wait()
		if !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", cause)
		}
	})
}

// A plugin whose process is down is missing, but has not failed: it is asked again at once.
func TestPluginsThatAreDown(t *testing.T) {
	down := true
	g := newTestGatherer(t, &shower{name: "good", kind: KindTool, show: one("good")}, &shower{name: "bad", kind: KindTool, show: func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
		if down {
			return nil, fmt.Errorf("%w: it is starting", ErrDown)
		}
		return one("bad")(ctx, in)
	}})
	plugins := g.registry.Plugins()
	if got := g.keys(t.Context()); got != "good" {
		t.Errorf("shown are %s", got)
	}
	want := "plugin bad does not give its settings at the moment: it does not run: it is starting"
	if got := strings.Join(g.Missing(plugins), "\n"); got != want || len(g.Problems(plugins[1])) > 0 {
		t.Errorf("missing is %q, problems are %q", got, g.Problems(plugins[1]))
	}
	down = false
	if got := g.keys(t.Context()); got != "good bad" || len(g.Missing(plugins)) > 0 {
		t.Errorf("shown are %s, missing is %q", got, g.Missing(plugins))
	}
}

// A plugin that hangs delays a response by two seconds. It is then skipped while its call
// hangs, and for failPause afterwards. After the next successful call it is included again.
func TestHangingPluginIsSkipped(t *testing.T) {
	for _, c := range []struct {
		name  string
		heeds bool // whether the plugin returns when its call is cancelled
	}{{"one that heeds its cancellation", true}, {"one that does not", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				well, calls := make(chan struct{}), 0
				g := newTestGatherer(t, &shower{name: "good", kind: KindTool, show: one("good")}, &shower{name: "bad", kind: KindTool,
					show: func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
						calls++
						stop := ctx.Done()
						if !c.heeds {
							stop = nil
						}
						select {
						case <-well:
							return one("bad")(ctx, in)
						case <-stop:
							return nil, ctx.Err()
						}
					}})
				var delay time.Duration
				ask := func() string {
					began := time.Now()
					keys := g.keys(t.Context())
					delay = time.Since(began)
					return keys
				}
				if got := ask(); got != "good" || delay != callTimeout {
					t.Errorf("the first answer: %q after %s", got, delay)
				}
				if problems := g.Problems(g.registry.Plugins()[1]); len(problems) != 1 || !strings.Contains(problems[0], "did not answer within 2s") {
					t.Errorf("problems: %q", problems)
				}
				last := time.Now()
				for range 500 { // at least 100 seconds
					if got := ask(); got != "good" || delay > callTimeout {
						t.Fatalf("a later answer: %q after %s", got, delay)
					}
					if missing := g.Missing(g.registry.Plugins()); len(missing) != 1 {
						t.Fatalf("missing: %q", missing)
					}
					if delay > 0 {
						if pause := time.Since(last) - delay; pause < failPause || !c.heeds {
							t.Fatalf("an answer is delayed %s after the last one", pause)
						}
						last = time.Now()
					}
					time.Sleep(200 * time.Millisecond)
				}
				if calls < 10 && c.heeds || calls > 20 || calls > 1 && !c.heeds {
					t.Errorf("it was called %d times", calls)
				}
				close(well)
				for deadline := time.Now().Add(time.Minute); ask() != "good bad"; time.Sleep(100 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("it does not come back")
					}
				}
				if problems := g.Problems(g.registry.Plugins()[1]); len(problems) > 0 || delay > 0 {
					t.Errorf("after it came back: %q, %s", problems, delay)
				}
			})
		})
	}
}

// A call that is queued behind hanging calls is not made and causes no further delay.
func TestCallsBehindHangingOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		g := newTestGatherer(t, &shower{name: "bad", kind: KindTool, show: func(ctx context.Context, _ ui.Input) ([]loquat.Object, error) {
			calls.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		began := time.Now()
		var asked sync.WaitGroup
		for range 3 * maxCalls {
			asked.Go(func() { g.keys(t.Context()) })
		}
		asked.Wait()
		if took := time.Since(began); took != callTimeout || calls.Load() != maxCalls {
			t.Errorf("%d calls in %s", calls.Load(), took)
		}
	})
}

// The success of a call does not hide that another call hangs.
func TestSuccessDuringAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, release := make(chan time.Duration, 2), make(chan struct{})
		calls <- time.Hour
		calls <- 1900 * time.Millisecond
		p := &shower{name: "p", kind: KindTool, show: func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
			select {
			case <-time.After(<-calls):
			case <-release:
			}
			return one("p")(ctx, in)
		}}
		g := newTestGatherer(t, p)
		go g.keys(t.Context())
		time.Sleep(time.Second)
		if got := g.keys(t.Context()); got != "p" || len(g.Missing([]Plugin{p})) != 1 {
			t.Errorf("elements: %q, missing: %q", got, g.Missing([]Plugin{p}))
		}
		close(release)
		close(calls)
		time.Sleep(failPause)
		if got := g.keys(t.Context()); got != "p" || len(g.Missing([]Plugin{p})) != 0 {
			t.Errorf("after the pause: %q, missing: %q", got, g.Missing([]Plugin{p}))
		}
	})
}

// A plugin that fails or panics is left out, and is not called again at once.
func TestFailingPlugin(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no luck") },
		"panic": func() error { panic("no luck") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, ill := 0, true
				bad := &shower{name: "bad", kind: KindTool, tags: func() []string { return []string{"b", "a"} }, show: func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
					if calls++; ill {
						return nil, fail()
					}
					return one("bad")(ctx, in)
				}}
				g := newTestGatherer(t, bad, &shower{name: "good", kind: KindTool, show: one("good"), tags: func() []string { panic("no tags") }})
				for range 5 {
					if got := g.keys(t.Context()); got != "good" {
						t.Fatalf("elements: %s", got)
					}
				}
				if problems := g.Problems(bad); calls != 1 || len(problems) != 1 || !strings.Contains(problems[0], "no luck") {
					t.Errorf("%d calls, problems %q", calls, problems)
				}
				ill = false
				time.Sleep(failPause)
				if got := g.keys(t.Context()); got != "bad good" || len(g.Problems(bad)) > 0 {
					t.Errorf("when it is well again: %s, %q", got, g.Problems(bad))
				}
				if tags := g.Tags(g.registry.Plugins(), nil, nil); !slices.Equal(tags, []string{"a", "b"}) {
					t.Errorf("tags: %q", tags)
				}
			})
		})
	}
}

// A call that its caller cancels does not count as a failure of the plugin.
func TestCallerGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGatherer(t, &shower{name: "slow", kind: KindTool, show: func(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
			time.Sleep(time.Second)
			return one("slow")(ctx, in)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if got := g.keys(ctx); got != "" {
			t.Errorf("elements after the caller left: %s", got)
		}
		if got := g.keys(t.Context()); got != "slow" || len(g.Problems(g.registry.Plugins()[0])) > 0 {
			t.Errorf("the next caller: %q, %q", got, g.Problems(g.registry.Plugins()[0]))
		}
	})
}

// Each fault of an element is logged once. It is removed from the problems when the
// plugin has fixed the element.
func TestFaultyElements(t *testing.T) {
	shown := []loquat.Object{loquat.Object{}.Set("key", "a"), loquat.Object{}.Set("key", "b").Set("condition", map[string]any{"near": 1})}
	p := &shower{name: "p", kind: KindTool, show: func(context.Context, ui.Input) ([]loquat.Object, error) { return shown, nil }}
	r, err := NewRegistry(p, &shower{name: "other", kind: KindTool, show: one("c")})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	g := NewGatherer(r, slog.New(slog.NewTextHandler(&log, nil)), func([]loquat.Object) {})
	for range 3 {
		if got := g.keys(t.Context()); got != "a c" {
			t.Errorf("elements: %s", got)
		}
	}
	if problems := g.Problems(p); len(problems) != 1 || !strings.Contains(problems[0], `element b is left out: condition`) {
		t.Errorf("problems: %q", problems)
	}
	faulty := shown
	for _, shown = range [][]loquat.Object{faulty[:1], faulty, nil} {
		g.keys(t.Context())
		if problems := g.Problems(p); len(problems) != max(0, len(shown)-1) {
			t.Errorf("problems of %d elements: %q", len(shown), problems)
		}
	}
	if n := strings.Count(log.String(), "left out"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
}

// doer is a plugin that runs actions.
type doer struct {
	shower
	actions []string
	act     func(context.Context, ActionCall) (ActionResult, error)
}

func (d *doer) Actions() []string { return d.actions }
func (d *doer) Act(ctx context.Context, call ActionCall) (ActionResult, error) {
	return d.act(ctx, call)
}

func TestFindAction(t *testing.T) {
	r, err := NewRegistry(
		&doer{shower: shower{name: "x", kind: KindExtension}, actions: []string{"store", "share"}},
		&doer{shower: shower{name: "f", kind: KindFeature}, actions: []string{"share"}},
		&doer{shower: shower{name: "g", kind: KindFeature}, actions: []string{"share"}},
		&doer{shower: shower{name: "app", kind: KindApplication}, actions: []string{"share"}},
		&shower{name: "idle", kind: KindFeature})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query ActionQuery
		want  string // name of the plugin, or the code
	}{
		{ActionQuery{ActionID: "store"}, "x"},
		{ActionQuery{ActionID: "store", Owner: "feature"}, "not_found"},
		{ActionQuery{ActionID: "sing"}, "not_found"},
		{ActionQuery{ActionID: "share"}, "conflict"},
		{ActionQuery{ActionID: "share", Owner: "application"}, "app"},
		{ActionQuery{ActionID: "share", Owner: "provider_extension"}, "x"},
		{ActionQuery{ActionID: "share", Owner: "feature"}, "conflict"},
		{ActionQuery{ActionID: "share", Owner: "feature", Plugin: "g"}, "g"},
		{ActionQuery{ActionID: "share", Plugin: "idle"}, "not_found"},
	} {
		p, err := c.query.TheActor(r.Actors(c.query))
		got := string(loquat.CodeOf(err))
		if err == nil {
			got = p.Name()
		}
		if got != c.want {
			t.Errorf("%+v: %s (%v), want %s", c.query, got, err, c.want)
		}
	}
	q := ActionQuery{ActionID: "share", Owner: "feature"}
	if _, err := q.TheActor(r.Actors(q)); err == nil || !strings.Contains(err.Error(), "f (feature), g (feature)") {
		t.Errorf("candidates are not told: %v", err)
	}
}

// Act returns when its context ends, and returns a panic as an error.
func TestAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := &doer{act: func(_ context.Context, call ActionCall) (ActionResult, error) {
			if call.ActionID == "panic" {
				panic("oh")
			}
			<-release
			return ActionResult{}, nil
		}}
		if _, err := Act(t.Context(), d, ActionCall{ActionID: "panic"}); err == nil || !strings.Contains(err.Error(), "panic: oh") {
			t.Errorf("a panic: %v", err)
		}
		slow := errors.New("too slow")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, slow)
		defer cancel()
		if _, err := Act(ctx, d, ActionCall{}); !errors.Is(err, slow) {
			t.Errorf("one that ignores its context: %v", err)
		}
		close(release)
	})
}
