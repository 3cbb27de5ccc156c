package settings

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"loquat"
)

const (
	maxResolved  = 1024        // the bound of a cache, in entries
	maxKey       = 16 << 10    // bytes of a key: larger overrides are rare, and are resolved each time
	refreshAfter = time.Second // the use of an entry of this age resolves it again
)

// cache keeps resolved settings.
//
// Key: agent and overrides, of at most maxKey. Bound: maxResolved entries, the least recently used goes.
// Invalidation: the generation, which grows when a plugin's process starts, ends or says
// that it changed, when the state of an application plugin changes on any node, when a backend lists
// other models and when an element calls another setting secret. Elements that change
// without any of these are noticed by a refresh: the use of an entry older than
// refreshAfter has it resolved again in the background, at most once at a time.
// Settings that were resolved while a plugin did not answer are not kept, and replace none.
type cache struct {
	generation atomic.Uint64
	entries    *lru.Cache[string, entry]
	resolving  singleflight.Group // by key and generation
}

type entry struct {
	resolved   Resolved
	generation uint64
	at         time.Time
}

func newCache() *cache {
	entries, err := lru.New[string, entry](maxResolved)
	if err != nil {
		panic("settings: " + err.Error()) // only for a size below 1
	}
	return &cache{entries: entries}
}

func (c *cache) invalidate() { c.generation.Add(1) }

// drop forgets the settings of one agent with these overrides.
func (c *cache) drop(agentID string, overrides loquat.Object) {
	if key, err := cacheKey(agentID, overrides); err == nil {
		c.entries.Remove(key)
	}
}

func cacheKey(agentID string, overrides loquat.Object) (string, error) {
	if len(overrides) == 0 {
		return agentID, nil
	}
	b, err := json.Marshal(overrides) // its keys are sorted
	if err != nil {
		return "", fmt.Errorf("encode overrides: %w", err)
	}
	return agentID + "\n" + string(b), nil
}

// resolveFunc resolves again and reports whether the result may be kept.
type resolveFunc func(context.Context) (out Resolved, keep bool, err error)

// get returns the cached settings or resolves them. Concurrent callers share one call of
// resolve, which does not end with its first caller.
func (c *cache) get(ctx context.Context, agentID string, overrides loquat.Object, resolve resolveFunc) (Resolved, error) {
	key, err := cacheKey(agentID, overrides)
	if err != nil {
		return Resolved{}, err
	}
	if len(key) > maxKey {
		out, _, err := resolve(ctx)
		return out, err
	}
	generation := c.generation.Load()
	if e, ok := c.entries.Get(key); ok && e.generation == generation {
		if time.Since(e.at) > refreshAfter {
			c.start(ctx, key, generation, resolve)
		}
		return e.resolved.clone(), nil
	}
	select {
	case r := <-c.start(ctx, key, generation, resolve):
		if r.Err != nil {
			return Resolved{}, r.Err
		}
		return r.Val.(Resolved).clone(), nil
	case <-ctx.Done():
		return Resolved{}, context.Cause(ctx)
	}
}

// start resolves in the background, unless this already runs. A result counts for the
// generation in which its resolution began.
func (c *cache) start(ctx context.Context, key string, generation uint64, resolve resolveFunc) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return c.resolving.DoChan(key+"\n"+strconv.FormatUint(generation, 10), func() (any, error) {
		out, keep, err := resolve(ctx)
		if keep {
			c.entries.Add(key, entry{resolved: out, generation: generation, at: time.Now()})
		} else if e, ok := c.entries.Peek(key); ok && e.generation != generation {
			c.entries.Remove(key)
		}
		return out, err
	})
}

// clone returns a copy whose configs the caller may change.
func (r Resolved) clone() Resolved {
	r.Config, r.Redacted = r.Config.Clone(), r.Redacted.Clone()
	return r
}
