package provider

import (
	"context"
	"slices"
	"sync"
	"time"
)

// pacer keeps the starts of requests to one base URL apart. Who waits is served in
// order; who gives up leaves no gap.
type pacer struct {
	mu    sync.Mutex
	lanes map[string]*lane
}

// lane is the queue of one base URL.
type lane struct {
	mu      sync.Mutex
	busy    bool            // someone is waiting for its moment
	waiting []chan struct{} // those behind, in order
	last    time.Time       // when the last request started
}

// wait returns when a request to scope may start, interval after the one before.
func (p *pacer) wait(ctx context.Context, scope string, interval time.Duration) error {
	l := p.lane(scope, interval > 0)
	if l == nil {
		return ctx.Err()
	}
	if interval <= 0 {
		l.started()
		return ctx.Err()
	}
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	if err := sleep(ctx, time.Until(l.lastStart().Add(interval))); err != nil {
		return err
	}
	l.started()
	return nil
}

// lane finds the lane of scope; only who paces makes one.
func (p *pacer) lane(scope string, create bool) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[scope]
	if l == nil && create {
		if p.lanes == nil {
			p.lanes = map[string]*lane{}
		}
		l = &lane{}
		p.lanes[scope] = l
	}
	return l
}

func (l *lane) started() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
}

func (l *lane) lastStart() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// enter waits until all who came before have started.
func (l *lane) enter(ctx context.Context) error {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting, turn)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		l.leave() // it was our turn at that very moment: pass it on
	}
	return ctx.Err()
}

// leave lets the next one in.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy = false
		return
	}
	close(l.waiting[0])
	l.waiting = slices.Delete(l.waiting, 0, 1)
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
