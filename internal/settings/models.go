package settings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strconv"
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

// How long a caller that does not need the list of models waits for it, and for how long such
// callers do not wait again for a backend that took longer.
const (
	modelsPatience = 2 * time.Second
	modelsPause    = 30 * time.Second
)

// modelCache keeps the models of backends. Concurrent callers for the same backend share one
// call of it.
type modelCache struct {
	asking  singleflight.Group
	changed func() // called when a backend lists other models than before

	mu     sync.Mutex
	lists  map[string]modelList
	forgot int // how often all were forgotten: an answer from before does not count
}

// modelList is the newest list of a backend's models. If known is false, there was none yet.
type modelList struct {
	known  bool
	models []loquat.Model
	at     time.Time
	slow   time.Time // when the backend last failed to list its models in time
}

func newModelCache(changed func()) *modelCache {
	return &modelCache{changed: changed, lists: map[string]modelList{}}
}

// modelKey has what an answer depends on; of the key of the backend it has the hash.
func modelKey(e Resolved) string {
	secret := sha256.Sum256([]byte(e.Config.String("api_key")))
	return e.ProviderID + "\n" + config.NormalizeURL(e.Config.String("base_url")) + "\n" + hex.EncodeToString(secret[:])
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

// soon returns a backend's models after a short wait at most: of the cached list, while a new
// list is loaded, or none.
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

// ask asks the backend for its models. The call does not end with its first caller, because
// others may wait for it.
func (c *modelCache) ask(ctx context.Context, e Resolved) <-chan singleflight.Result {
	c.mu.Lock()
	forgot := c.forgot
	c.mu.Unlock()
	return c.asking.DoChan(modelKey(e)+"\n"+strconv.Itoa(forgot), func() (any, error) {
		models, err := plugin.Models(context.WithoutCancel(ctx), e.Provider, e.Config)
		c.change(e, func(list *modelList) {
			if c.forgot != forgot {
				return
			}
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

// look returns the newest list of a backend, regardless of its age.
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

// forget drops all lists.
func (c *modelCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.lists)
	c.forgot++
}
