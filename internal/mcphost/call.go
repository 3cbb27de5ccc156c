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

// The bounds of the progress of one call that waits to be taken: how much it may be, in
// bytes, before the process has to wait too, and how long that has to in all, for its
// other calls wait with it. What comes then is left out.
const (
	maxWaiting = 1 << 20
	maxHoldUp  = time.Second
)

// part is progress of a call.
type part struct {
	text            string
	progress, total *float64
}

// size counts some bytes for the part itself.
func (p part) size() int { return len(p.text) + 64 }

// call is a question to a process while it is open.
type call struct {
	token string          // for its progress; "" when none is wanted
	id    jsonrpc.ID      // guarded by the wire
	raw   json.RawMessage // its result, once the SDK has returned

	filled  chan struct{} // signalled when parts wait
	emptied chan struct{} // signalled when they have been taken
	left    chan struct{} // closed when nobody takes them any more

	patience time.Duration // that the process has left for it; of the wire's reader

	mu      sync.Mutex
	parts   []part
	size    int
	omitted int // parts that came after those that wait
}

func newCall(token string) *call {
	return &call{token: token, patience: maxHoldUp, filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1), left: make(chan struct{})}
}

// add appends a part. While too much waits it waits, too, as long as its patience lasts.
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

// append reports whether there was room for a part, or it is left out.
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

// take returns the parts that wait, and says how many are missing after them.
func (c *call) take() []part {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := c.parts
	if c.omitted > 0 {
		parts = append(parts, part{text: fmt.Sprintf("\n[%d parts are left out: they came faster than they could be taken]\n", c.omitted)})
	}
	c.parts, c.size, c.omitted = nil, 0, 0
	signal(c.emptied)
	return parts
}

// leave says that nobody takes parts any more; the wire calls it once.
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

// errTimeout is why a call ends that takes too long.
var errTimeout = errors.New("it took too long")

// ask makes a request of the SDK and returns the result as it came. What the process
// reports meanwhile goes to progress, all of it before ask returns the result.
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
	go func() { done <- request(ctx, c) }() // it may be stuck in writing
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

// explain says in the words of this package why a question had no answer.
func (s *session) explain(ctx context.Context, err error, timeout time.Duration) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errTimeout) {
			s.doubt()
			return fmt.Errorf("no answer within %v", timeout)
		}
		if errors.Is(cause, context.DeadlineExceeded) {
			s.doubt()
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
