package settings

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/plugin"
)

// lister is a provider whose list of models a test decides.
type lister struct {
	plugin.Provider
	list  func() ([]loquat.Model, error)
	calls int // guarded by mu
	mu    sync.Mutex
}

func (l *lister) Models(context.Context, loquat.Object) ([]loquat.Model, error) {
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	return l.list()
}

// Those who can do without a list of models wait for it once: a backend that does not
// give one is asked again only after a pause, and an old list serves while a new one is
// asked for.
func TestModelsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, err := 10*time.Second, error(nil)
		l := &lister{list: func() ([]loquat.Model, error) {
			time.Sleep(slow)
			return []loquat.Model{{ID: "m"}}, err
		}}
		c, e := newModelCache(func() {}), Resolved{ProviderID: "p", Provider: l, Config: loquat.Object{}}
		soon := func() (int, time.Duration) {
			began := time.Now()
			return len(c.soon(t.Context(), e)), time.Since(began)
		}
		if n, took := soon(); n != 0 || took != modelsPatience {
			t.Errorf("a slow backend: %d models after %s", n, took)
		}
		for range 5 {
			if n, took := soon(); n != 0 || took != 0 {
				t.Errorf("asked again: %d models after %s", n, took)
			}
		}
		time.Sleep(slow) // the answer comes late, and counts
		if n, took := soon(); n != 1 || took != 0 || l.calls != 1 {
			t.Errorf("after the late answer: %d models after %s, %d calls", n, took, l.calls)
		}
		time.Sleep(modelsAge)
		if n, took := soon(); n != 1 || took != 0 {
			t.Errorf("an old list: %d models after %s", n, took)
		}
		synctest.Wait()
		time.Sleep(slow)
		if synctest.Wait(); l.calls != 2 || time.Since(c.look(e).at) > slow {
			t.Errorf("the old list was not renewed: %d calls", l.calls)
		}
		e.ProviderID, slow, err = "other", 0, errors.New("down")
		for range 5 {
			if n, took := soon(); n != 0 || took != 0 {
				t.Errorf("a backend that is down: %d models after %s", n, took)
			}
		}
		if l.calls != 3 {
			t.Errorf("a backend that is down was asked %d times", l.calls-2)
		}
		time.Sleep(modelsPause)
		err = nil
		if n, _ := soon(); n != 1 {
			t.Error("a backend that is up again is not asked")
		}
	})
}

// The lists of two keys of one backend are two, and an answer from before a reload of the configuration does not count.
func TestModelsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type answer struct {
			name  string
			after time.Duration
		}
		var next atomic.Value
		l := &lister{list: func() ([]loquat.Model, error) {
			a := next.Load().(answer)
			time.Sleep(a.after)
			return []loquat.Model{{ID: a.name}}, nil
		}}
		c := newModelCache(func() {})
		with := func(key string) Resolved {
			return Resolved{ProviderID: "p", Provider: l, Config: loquat.Object{}.Set("api_key", key)}
		}
		models := func(key string) string {
			list, err := c.get(t.Context(), with(key), false)
			if err != nil || len(list) != 1 {
				t.Fatalf("%v %v", list, err)
			}
			return list[0].ID
		}
		next.Store(answer{"first", 0})
		models("one")
		next.Store(answer{"second", 0})
		if got := models("one") + " " + models("two"); got != "first second" {
			t.Errorf("the keys have the models %s", got)
		}
		next.Store(answer{"of the old configuration", time.Second})
		c.ask(t.Context(), with("three"))
		time.Sleep(time.Second / 2)
		c.forget()
		next.Store(answer{"of the new one", 0})
		if got := models("three"); got != "of the new one" {
			t.Errorf("after the reload: %s", got)
		}
		time.Sleep(time.Second) // the old answer has come
		if got := models("three"); got != "of the new one" {
			t.Errorf("after the old answer: %s", got)
		}
	})
}

// A panic of a provider that lists its models is its own failure, and not the end of
// the process.
func TestModelsPanic(t *testing.T) {
	l := &lister{list: func() ([]loquat.Model, error) { panic("no list") }}
	c, e := newModelCache(func() {}), Resolved{ProviderID: "p", Provider: l, Config: loquat.Object{}}
	if models, err := c.get(t.Context(), e, false); err == nil || !strings.Contains(err.Error(), "no list") {
		t.Errorf("got %v, %v", models, err)
	}
	if models := c.soon(t.Context(), e); models != nil {
		t.Errorf("got %v", models)
	}
}
