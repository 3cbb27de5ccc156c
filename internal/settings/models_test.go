package settings

import (
	"context"
	"errors"
	"strings"
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
	calls int
}

func (l *lister) Models(context.Context, loquat.Object) ([]loquat.Model, error) {
	l.calls++
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
