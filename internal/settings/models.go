package settings

import (
	"context"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
)

// Models returns the models that an agent's backend lists, with the overrides of a
// session. The list is cached; refresh asks the backend again.
func (r *Resolver) Models(ctx context.Context, agentID string, overrides loquat.Object, refresh bool) ([]loquat.Model, error) {
	resolved, err := r.ResolveStatic(agentID, overrides)
	if err != nil {
		return nil, err
	}
	return r.models.get(ctx, resolved, refresh)
}

// How long a list of models counts as new, and how many lists are kept.
const (
	modelsAge  = 5 * time.Minute
	modelsKept = 64
)

// How long those wait for a list of models who can do without, and for how long a
// backend that kept them waiting is not waited for again.
const (
	modelsPatience = 2 * time.Second
	modelsPause    = 30 * time.Second
)

// modelCache keeps the models of backends. Calls for one backend at one time share
// one question to it.
type modelCache struct {
	asking  singleflight.Group
	changed func() // called when a backend lists other models than before

	mu    sync.Mutex
	lists map[string]modelList
}

// modelList is what is known of a backend's models: nothing yet when known is false.
type modelList struct {
	known  bool
	models []loquat.Model
	at     time.Time
	slow   time.Time // when it failed to give a list in time
}

func newModelCache(changed func()) *modelCache {
	return &modelCache{changed: changed, lists: map[string]modelList{}}
}

func modelKey(e Resolved) string {
	return e.ProviderID + "\n" + config.NormalizeURL(e.Config.String("base_url"))
}

func (c *modelCache) get(ctx context.Context, e Resolved, refresh bool) ([]loquat.Model, error) {
	list := c.look(e)
	if list.known && !refresh && time.Since(list.at) < modelsAge {
		return list.models, nil
	}
	select {
	case r := <-c.ask(ctx, e):
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.([]loquat.Model), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// soon returns a backend's models without much waiting: those of an old list, while a
// new one is asked for, or none.
func (c *modelCache) soon(ctx context.Context, e Resolved) []loquat.Model {
	list := c.look(e)
	if list.known && time.Since(list.at) < modelsAge || time.Since(list.slow) < modelsPause {
		return list.models
	}
	answer := c.ask(ctx, e)
	if list.known {
		return list.models
	}
	late := time.NewTimer(modelsPatience)
	defer late.Stop()
	select {
	case r := <-answer:
		if r.Err == nil {
			return r.Val.([]loquat.Model)
		}
	case <-late.C:
	case <-ctx.Done():
		return nil
	}
	c.change(e, func(list *modelList) { list.slow = time.Now() })
	return nil
}

// ask asks the backend. The question outlives the caller that happened to come first:
// others share it.
func (c *modelCache) ask(ctx context.Context, e Resolved) <-chan singleflight.Result {
	return c.asking.DoChan(modelKey(e), func() (any, error) {
		models, err := plugin.Models(context.WithoutCancel(ctx), e.Provider, e.Config)
		c.change(e, func(list *modelList) {
			if err != nil {
				list.slow = time.Now()
				return
			}
			if !reflect.DeepEqual(list.models, models) {
				c.changed()
			}
			*list = modelList{known: true, models: models, at: time.Now()}
		})
		return models, err
	})
}

// look returns what is known of a backend, however old.
func (c *modelCache) look(e Resolved) modelList {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[modelKey(e)]
}

func (c *modelCache) change(e Resolved, change func(*modelList)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, ok := c.lists[modelKey(e)]
	if !ok && len(c.lists) >= modelsKept {
		clear(c.lists)
	}
	change(&list)
	c.lists[modelKey(e)] = list
}
