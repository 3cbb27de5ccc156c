package fullscreen

import (
	"context"
	"errors"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/client"
)

const (
	// frame is the shortest time between two messages with events, so that a fast stream does not
	// render for each of its events.
	frame = time.Second / framesPerSecond
	// shortRead is longer than reading an event takes that has arrived. A feed that waited longer has read all,
	// and pauses for a frame: to wait for each event of a fast stream costs more than the events.
	shortRead = time.Millisecond
	// maxPending is the number of events that wait for the model. A feed that has more stops reading.
	maxPending = 5000
)

// feedMsg brings what has happened since the last one.
type feedMsg struct {
	feed   *feed
	events []loquat.Event
	line   *client.LineState // nil if it has not changed
	err    error             // why the feed has ended; nil while it runs
}

// feed follows the log: the list of sessions, and the events of one session.
type feed struct {
	alone  bool // it has no events of other sessions
	cancel context.CancelFunc
	done   <-chan struct{}
	ready  chan struct{} // has room for one signal: something is pending
	room   chan struct{} // has room for one signal: pending was taken

	mu     sync.Mutex
	events []loquat.Event
	line   *client.LineState
	err    error
	taken  time.Time
}

// startFeed follows the events that a query selects.
func startFeed(ctx context.Context, c *client.Client, q client.Query) *feed {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{alone: !q.List, cancel: cancel, done: ctx.Done(), ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	q.OmitSession, q.Line = true, f.setLine
	go f.follow(ctx, c, q)
	return f
}

// stop ends the feed. A nil feed has nothing to stop.
func (f *feed) stop() {
	if f != nil {
		f.cancel()
	}
}

func (f *feed) follow(ctx context.Context, c *client.Client, q client.Query) {
	read := time.Now()
	for e, err := range c.Follow(ctx, q) {
		if err != nil {
			f.change(func() { f.err = err })
			return
		}
		upToDate := time.Since(read) > shortRead
		if f.add(e) > maxPending {
			select {
			case <-f.room:
			case <-ctx.Done():
			}
		}
		if upToDate {
			_ = backoff.Sleep(ctx, frame) // meanwhile events gather in the connection
		}
		read = time.Now()
	}
}

func (f *feed) add(e loquat.Event) (pending int) {
	f.change(func() {
		f.events = append(f.events, e)
		pending = len(f.events)
	})
	return pending
}

func (f *feed) setLine(s client.LineState) { f.change(func() { f.line = &s }) }

func (f *feed) change(fn func()) {
	f.mu.Lock()
	fn()
	f.mu.Unlock()
	signal(f.ready)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// next returns a command that waits for what happens next. It waits long enough after the one
// before, so that events gather.
func (f *feed) next() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-f.ready:
		case <-f.done:
			return nil
		}
		f.mu.Lock()
		rest := frame - time.Since(f.taken)
		f.mu.Unlock()
		time.Sleep(rest)
		f.mu.Lock()
		defer f.mu.Unlock()
		msg := feedMsg{feed: f, events: f.events, line: f.line, err: f.err}
		f.events, f.line, f.taken = nil, nil, time.Now()
		signal(f.room)
		if errors.Is(msg.err, context.Canceled) {
			return nil // the model has begun another feed
		}
		return msg
	}
}
