package chat

import (
	"context"
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

// effective returns the effective config of a session, and the provider it chooses.
func (s *Service) effective(h store.Head) (effective, error) {
	return s.effectiveOf(h.AgentID, h.Metadata.Object(loquat.MetaOverrides))
}

func (s *Service) effectiveOf(agentID string, overrides loquat.Object) (effective, error) {
	base, _, err := s.config.Base(agentID)
	if err != nil {
		return effective{}, err
	}
	cfg, providerID, err := s.config.Effective(agentID, s.offered(overrides, base))
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

// offered returns those overrides that the agent offers. They were checked when they
// were written, but since then the session may have changed its agent, or the server
// its configuration: a base_url of one agent must not get the key of another.
func (s *Service) offered(overrides, base loquat.Object) loquat.Object {
	if len(overrides) == 0 {
		return nil
	}
	out := make(loquat.Object, len(overrides))
	for key, value := range overrides {
		if len(s.faultsOf(loquat.Object{key: value}, base, "")) == 0 {
			out[key] = value
		}
	}
	return out
}

// faultsOf finds what is wrong with overrides of an agent.
func (s *Service) faultsOf(overrides, base loquat.Object, location string) []loquat.FieldError {
	return config.CheckOverrides(location, overrides, base, s.schema, config.OverridableKeys(s.schema, base))
}

// Agents lists the agents that a session may use.
func (s *Service) Agents() []Agent {
	out := []Agent{}
	for _, id := range s.config.Agents() {
		if base, providerID, err := s.config.Base(id); err == nil {
			out = append(out, Agent{AgentID: id, ProviderID: providerID, Model: base.String("model")})
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
		return nil, loquat.Invalid("query.agent_id", "is %q, which is no agent; there is %s", agentID, strings.Join(s.config.Agents(), ", "))
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

// modelCache keeps the models of backends. Calls for one backend at one time share
// one question to it.
type modelCache struct {
	asking singleflight.Group

	mu    sync.Mutex
	lists map[string]modelList
}

type modelList struct {
	models []loquat.Model
	at     time.Time
}

func newModelCache() *modelCache { return &modelCache{lists: map[string]modelList{}} }

func (c *modelCache) get(ctx context.Context, e effective, refresh bool) ([]loquat.Model, error) {
	key := e.providerID + "\n" + e.config.String("base_url")
	c.mu.Lock()
	list, ok := c.lists[key]
	c.mu.Unlock()
	if ok && !refresh && time.Since(list.at) < modelsAge {
		return list.models, nil
	}
	// The question outlives the caller that happened to come first: others share it.
	result := c.asking.DoChan(key, func() (any, error) {
		models, err := e.provider.Models(context.WithoutCancel(ctx), e.config)
		if err != nil {
			return nil, err
		}
		c.put(key, models)
		return models, nil
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.([]loquat.Model), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *modelCache) put(key string, models []loquat.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lists) >= modelsKept {
		clear(c.lists)
	}
	c.lists[key] = modelList{models: models, at: time.Now()}
}
