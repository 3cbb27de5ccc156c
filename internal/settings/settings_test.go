package settings_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/ui"
)

// backend is a provider that lists no models.
type backend struct{}

func (backend) Name() string     { return "test.backend" }
func (backend) Kind() string     { return plugin.KindProvider }
func (backend) Selector() string { return "fake" }
func (backend) ConfigSchema() config.Schema {
	return config.Schema{{Key: "model", Kind: config.String}}
}
func (backend) Models(context.Context, loquat.Object) ([]loquat.Model, error) { return nil, nil }
func (backend) Chat(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(func(loquat.Chunk, error) bool) {}
}

// feature is a plugin whose only element writes to a path that the test sets.
type feature struct {
	mu      sync.Mutex
	path    string // config_path of the setting `tone`
	err     error
	asked   int
	changed func()
}

func (*feature) Name() string                { return "test.feature" }
func (*feature) Kind() string                { return plugin.KindFeature }
func (f *feature) OnChange(changed func())   { f.changed = changed }
func (f *feature) set(change func(*feature)) { f.mu.Lock(); defer f.mu.Unlock(); change(f) }

func (f *feature) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *feature) UIElements(context.Context, ui.Input) ([]loquat.Object, error) {
	time.Sleep(time.Millisecond) // others that ask at the same time come meanwhile
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	return []loquat.Object{loquat.Object{}.Set("key", "tone").Set("type", "text").Set("config_path", f.path)}, nil
}

type rig struct {
	t *testing.T
	*settings.Resolver
	feature *feature
}

func newRig(t *testing.T) rig {
	t.Helper()
	f := &feature{path: "first"}
	registry, err := plugin.NewRegistry(backend{}, f)
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Parse([]byte(`{"providers": {"main": {"provider": "fake", "model": "m"}}}`), config.ProcessEnvironment())
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	return rig{t, settings.New(settings.Options{Config: config.NewLive(cfg), Plugins: registry, Logger: slog.New(slog.DiscardHandler), Redactor: &config.Redactor{}}), f}
}

// tone resolves with an override of tone and returns the paths that have its value.
func (r rig) tone(value string) string {
	r.t.Helper()
	out, err := r.Resolve(r.t.Context(), loquat.DefaultAgent, loquat.Object{}.Set("tone", value))
	if err != nil {
		r.t.Fatal(err)
	}
	found := ""
	for _, path := range []string{"first", "second"} {
		if out.Config.String(path) == value {
			found += path
		}
	}
	out.Config.Set("first", "spoiled by its user").Set("second", "spoiled by its user")
	return found
}

func (r rig) want(when, value, path string, asked int) {
	r.t.Helper()
	if got := r.tone(value); got != path {
		r.t.Errorf("%s: the value is at %q, want %q", when, got, path)
	}
	if n := r.feature.count(); n != asked {
		r.t.Errorf("%s: the plugin was asked %d times, want %d", when, n, asked)
	}
}

// Requests share what was resolved until something that it depends on changes.
func TestSettingsAreResolvedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.want("first request", "warm", "first", 2) // once before any plugin is shown secrets, once in full
		var together sync.WaitGroup
		for range 100 {
			together.Go(func() { r.tone("warm") })
			together.Go(func() { r.tone("cool") })
		}
		together.Wait()
		r.want("hundreds of requests with two overrides", "warm", "first", 3)
		r.want("and again", "cool", "first", 3)

		r.feature.set(func(f *feature) { f.path = "second" })
		r.feature.changed()
		r.want("the plugin reports a change", "warm", "second", 4)
		r.want("and the other override", "cool", "second", 5)

		r.Invalidate()
		r.want("a state changed", "warm", "second", 6)
	})
}

// A plugin that changes without a report is asked again by the requests that follow.
func TestSilentChangesAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.want("first request", "warm", "first", 2)
		r.feature.set(func(f *feature) { f.path = "second" })
		r.want("at once", "warm", "first", 2)
		time.Sleep(2 * time.Second)
		r.want("the request that has it asked again", "warm", "first", 2)
		synctest.Wait()
		time.Sleep(time.Second)
		r.want("the request after it", "warm", "second", 3)
		synctest.Wait()
	})
}

// What clients look at, requests run with from then on.
func TestRequestsFollowWhatIsShown(t *testing.T) {
	looks := map[string]func(rig, loquat.Object) error{
		"schema": func(r rig, overrides loquat.Object) error {
			_, err := r.UISchema(r.t.Context(), loquat.DefaultAgent, overrides)
			return err
		},
		"values": func(r rig, overrides loquat.Object) error {
			_, err := r.Values(r.t.Context(), loquat.DefaultAgent, overrides)
			return err
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.want("before", "warm", "first", 2)
				r.feature.set(func(f *feature) { f.path = "second" })
				if err := look(r, loquat.Object{}.Set("tone", "warm")); err != nil {
					t.Fatal(err)
				}
				r.want("after a client looked", "warm", "second", 4)
			})
		})
	}
}

// Settings that were resolved without a plugin's elements are not kept.
func TestSettingsWithoutAPluginAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feature.set(func(f *feature) { f.err = errors.New("out of order") })
		if got := r.tone("warm"); got != "" {
			t.Errorf("without the plugin the value is at %q", got)
		}
		r.feature.set(func(f *feature) { f.err = nil })
		time.Sleep(time.Minute) // a plugin that failed is left alone for a while
		r.tone("warm")
		synctest.Wait()
		if got := r.tone("warm"); got != "first" {
			t.Errorf("once the plugin answers the value is at %q", got)
		}
	})
}

// While a plugin that has answered before does not answer, its last elements say what the overrides mean: for requests
// whose settings are known, and for others.
func TestSettingsOfAPluginThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.want("before", "warm", "first", 2)
		r.feature.set(func(f *feature) { f.err = errors.New("it is busy") })
		for round := range 3 {
			time.Sleep(2 * time.Second)
			if got := r.tone("warm"); got != "first" {
				t.Errorf("round %d: the value is at %q", round, got)
			}
			synctest.Wait() // the settings were resolved again in the background
			if got := r.tone(fmt.Sprint("cool", round)); got != "first" {
				t.Errorf("round %d: another value is at %q", round, got)
			}
		}
		r.feature.changed() // its process has ended
		if got := r.tone("warm"); got != "first" {
			t.Errorf("after the end of its process the value is at %q", got)
		}
		r.feature.set(func(f *feature) { f.err, f.path = nil, "second" })
		time.Sleep(time.Minute)
		r.tone("warm")
		synctest.Wait()
		if got := r.tone("warm"); got != "second" {
			t.Errorf("once the plugin answers the value is at %q", got)
		}
	})
}

// A caller that leaves does not take the resolution from those who wait with it.
func TestCallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := r.Resolve(ctx, loquat.DefaultAgent, loquat.Object{"tone": json.RawMessage(`"warm"`)})
			left <- err
		}()
		stayed := make(chan string)
		go func() { stayed <- r.tone("warm") }()
		cancel()
		if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left: %v", err)
		}
		if got := <-stayed; got != "first" {
			t.Errorf("the caller that stayed: %q", got)
		}
	})
}
