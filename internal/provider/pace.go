package provider

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat/internal/backoff"
)

// pacer spaces the starts of requests to one base URL. Waiting requests start in order. A
// request that gives up leaves no gap.
type pacer struct {
	mu     sync.Mutex
	scopes map[string]*paceScope
}

// paceScope is the pacing of one base URL.
type paceScope struct {
	next *semaphore.Weighted // held by the request that starts next; it serves waiters in order

	mu   sync.Mutex
	last time.Time // when the last request started
}

// wait returns when a request to a scope may start: interval after the start of the previous request.
func (p *pacer) wait(ctx context.Context, scope string, interval time.Duration) error {
	s := p.scope(scope, interval > 0)
	if s == nil {
		return ctx.Err()
	}
	if interval <= 0 {
		s.started()
		return ctx.Err()
	}
	if err := s.next.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.next.Release(1)
	if err := backoff.Sleep(ctx, time.Until(s.lastStart().Add(interval))); err != nil {
		return err
	}
	s.started()
	return nil
}

// scope returns the pacing of a base URL. Only a request with an interval creates one.
func (p *pacer) scope(name string, create bool) *paceScope {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.scopes[name]
	if s == nil && create {
		if p.scopes == nil {
			p.scopes = map[string]*paceScope{}
		}
		s = &paceScope{next: semaphore.NewWeighted(1)}
		p.scopes[name] = s
	}
	return s
}

func (s *paceScope) started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

func (s *paceScope) lastStart() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
