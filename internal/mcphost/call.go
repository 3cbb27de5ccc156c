package mcphost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// callKey is the context key of the *call that a request of the SDK is made for.
type callKey struct{}

// Bounds of one call's undelivered progress. Above maxWaiting bytes the connection stops
// reading, which also delays the process's other calls. So it waits at most maxHoldUp per
// call in total; further progress is left out.
const (
	maxWaiting = 1 << 20
	maxHoldUp  = time.Second
)

// part is progress of a call.
type part struct {
	text            string
	progress, total *float64
}

// size returns the part's size with some overhead, in bytes.
func (p part) size() int { return len(p.text) + 64 }

// call is a request to a process that is not finished.
type call struct {
	token string          // for its progress; "" if no progress is requested
	id    jsonrpc.ID      // guarded by the wire
	raw   json.RawMessage // its result, once the SDK has returned

	filled  chan struct{} // signalled when there are parts
	emptied chan struct{} // signalled when the parts were taken
	left    chan struct{} // closed when the call is given up

	patience time.Duration // remaining time to wait in add; owned by the wire's reader

	mu      sync.Mutex
	parts   []part
	size    int
	omitted int // number of parts left out after parts
}

func newCall(token string) *call {
	return &call{token: token, patience: maxHoldUp, filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1), left: make(chan struct{})}
}

// add appends a part. If too much is undelivered, add waits as long as patience lasts.
func (c *call) add(p part, ended <-chan struct{}) {
	for !c.append(p) {
		began := time.Now()
		enough := time.NewTimer(c.patience)
		select {
		case <-c.emptied:
		case <-enough.C:
		case <-c.left:
		case <-ended:
			return
		}
		enough.Stop()
		c.patience -= time.Since(began)
	}
}

// append appends a part, or counts it as omitted if patience is used up. It returns false
// if the caller must wait for room.
func (c *call) append(p part) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.omitted == 0 && c.size < maxWaiting:
		c.parts = append(c.parts, p)
		c.size += p.size()
		signal(c.filled)
	case c.patience > 0 && !c.isLeft():
		return false
	default:
		c.omitted++
	}
	return true
}

// take removes and returns the parts. A note at the end says how many were left out.
func (c *call) take() []part {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := c.parts
	if c.omitted > 0 {
		parts = append(parts, part{text: fmt.Sprintf("\n[%d parts are left out: they arrived faster than they could be stored]\n", c.omitted)})
	}
	c.parts, c.size, c.omitted = nil, 0, 0
	signal(c.emptied)
	return parts
}

// leave marks the call as given up; the wire calls it once.
func (c *call) leave() { close(c.left) }

func (c *call) isLeft() bool {
	select {
	case <-c.left:
		return true
	default:
		return false
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// errTimeout is the cause when a call exceeds its timeout.
var errTimeout = errors.New("it took too long")

// ask makes a request through the SDK and returns the raw result. It passes the call's
// progress to progress, all of it before ask returns.
func (s *session) ask(ctx context.Context, timeout time.Duration, progress func(part), request func(context.Context, *call) error) (json.RawMessage, error) {
	token := ""
	if progress != nil {
		token = s.nextToken()
	}
	c := newCall(token)
	defer s.wire.forget(c)
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, callKey{}, c), timeout, errTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- request(ctx, c) }() // in a goroutine, because writing may block
	deliver := func() {
		for _, p := range c.take() {
			progress(p)
		}
	}
	for {
		select {
		case <-c.filled:
			deliver()
		case err := <-done:
			if progress != nil {
				deliver()
			}
			if err != nil {
				return nil, s.explain(ctx, err, timeout)
			}
			return c.raw, nil
		case <-ctx.Done():
			return nil, s.explain(ctx, ctx.Err(), timeout)
		}
	}
}

// explain converts the error of a request to this package's error.
func (s *session) explain(ctx context.Context, err error, timeout time.Duration) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errTimeout) {
			s.checkAlive()
			return fmt.Errorf("no answer within %v", timeout)
		}
		if errors.Is(cause, context.DeadlineExceeded) {
			s.checkAlive()
		}
		return cause
	}
	if refusal, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return errors.New(refusal.Message)
	}
	if why := s.reason(); why != nil {
		return fmt.Errorf("the process ended meanwhile: %w", why)
	}
	return err
}
