package chat

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// effective is what a request of a session runs with.
type effective struct {
	providerID string
	provider   plugin.Provider
	config     loquat.Object
}

// effective returns the effective config of a session, and the provider it chooses, as
// far as the schemas know: what only elements tell needs settle, which asks plugins.
func (s *Service) effective(h store.Head) (effective, error) {
	return s.effectiveOf(h.AgentID, h.Metadata.Object(loquat.MetaOverrides))
}

func (s *Service) effectiveOf(agentID string, overrides loquat.Object) (effective, error) {
	base, _, err := s.config.Base(agentID)
	if err != nil {
		return effective{}, err
	}
	return s.effectiveWith(agentID, s.fitting(overrides, base, config.SchemaOffers(s.schema, base)))
}

// effectiveWith returns the effective config with overrides that were checked.
func (s *Service) effectiveWith(agentID string, overrides loquat.Object) (effective, error) {
	cfg, providerID, err := s.config.Effective(agentID, overrides)
	if err != nil {
		return effective{}, err
	}
	selector := cfg.String("provider")
	p, ok := s.plugins.Provider(selector)
	if !ok {
		return effective{}, loquat.Errorf(loquat.CodeUnavailable, "provider %q of agent %q needs a plugin for %q, and none is loaded", providerID, agentID, selector)
	}
	return effective{providerID: providerID, provider: p, config: cfg}, nil
}

// fitting returns those overrides that are offered and fit. They were checked when
// they were written, but since then the session may have changed its agent, or the
// server its configuration: a base_url of one agent must not get the key of another.
// The choice of an endpoint becomes the endpoint as it is configured.
func (s *Service) fitting(overrides, base loquat.Object, offers []config.Offer) loquat.Object {
	if len(overrides) == 0 {
		return nil
	}
	schema := s.concealing()
	out := make(loquat.Object, len(overrides))
	for key, value := range overrides {
		if len(config.CheckOverrides("", loquat.Object{key: value}, base, schema, offers, "")) != 0 || string(value) == "null" {
			continue
		}
		out[key] = value
		i := slices.IndexFunc(offers, func(o config.Offer) bool { return o.Key == key })
		if i >= 0 && offers[i].ChoosesEndpoint() {
			endpoint, _ := config.Endpoint(base, value)
			out[key] = loquat.Quote(endpoint)
		}
	}
	return out
}

// Agents lists the agents that a session may use.
func (s *Service) Agents() []loquat.Agent {
	out := []loquat.Agent{}
	for _, id := range s.config.Agents() {
		if base, providerID, err := s.config.Base(id); err == nil {
			out = append(out, loquat.Agent{AgentID: id, ProviderID: providerID, Model: base.String("model")})
		}
	}
	return out
}

// Models asks the backend of an agent, or of a session, what models it offers. The
// answer is cached.
func (s *Service) Models(ctx context.Context, agentID, sessionID string, refresh bool) ([]loquat.Model, error) {
	var overrides loquat.Object
	if sessionID != "" {
		session := store.Head{}
		err := s.store.View(ctx, func(r *store.Reader) (err error) {
			session, err = r.Head(sessionID)
			return err
		})
		if err != nil {
			return nil, err
		}
		overrides = session.Metadata.Object(loquat.MetaOverrides)
		if agentID == "" {
			agentID = session.AgentID
		}
	}
	if agentID == "" {
		agentID = loquat.DefaultAgent
	}
	e, err := s.effectiveOf(agentID, overrides)
	if err != nil && sessionID == "" {
		return nil, loquat.Invalid("query.agent_id", "is %q, which is no agent; there is %s", loquat.Clip(agentID, loquat.Excerpt), strings.Join(s.config.Agents(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return s.models.get(ctx, e, refresh)
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
	asking singleflight.Group

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

func newModelCache() *modelCache { return &modelCache{lists: map[string]modelList{}} }

func modelKey(e effective) string {
	return e.providerID + "\n" + config.NormalizeURL(e.config.String("base_url"))
}

func (c *modelCache) get(ctx context.Context, e effective, refresh bool) ([]loquat.Model, error) {
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
func (c *modelCache) soon(ctx context.Context, e effective) []loquat.Model {
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
func (c *modelCache) ask(ctx context.Context, e effective) <-chan singleflight.Result {
	return c.asking.DoChan(modelKey(e), func() (any, error) {
		models, err := plugin.Models(context.WithoutCancel(ctx), e.provider, e.config)
		c.change(e, func(list *modelList) {
			if err != nil {
				list.slow = time.Now()
				return
			}
			*list = modelList{known: true, models: models, at: time.Now()}
		})
		return models, err
	})
}

// look returns what is known of a backend, however old.
func (c *modelCache) look(e effective) modelList {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[modelKey(e)]
}

func (c *modelCache) change(e effective, change func(*modelList)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, ok := c.lists[modelKey(e)]
	if !ok && len(c.lists) >= modelsKept {
		clear(c.lists)
	}
	change(&list)
	c.lists[modelKey(e)] = list
}
