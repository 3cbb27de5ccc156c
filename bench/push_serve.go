package main

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/bridge"
)

// pushLog is a log in memory, so that only pushing is measured.
type pushLog struct {
	mu      sync.Mutex
	records []loquat.Record
	changed chan struct{}
}

func (l *pushLog) publish(content string) {
	rec, err := pushEvent(content)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	rec.ID = loquat.EventID(len(l.records) + 1)
	l.records = append(l.records, rec)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Latest implements bridge.Log.
func (l *pushLog) Latest() loquat.EventID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return loquat.EventID(len(l.records))
}

// Check implements bridge.Log. The log never removes events.
func (l *pushLog) Check(context.Context, loquat.EventID) error { return nil }

// Window implements bridge.Log.
func (l *pushLog) Window(ctx context.Context, since, until loquat.EventID, _ string, wait time.Duration) ([]loquat.Record, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		l.mu.Lock()
		to := loquat.EventID(len(l.records))
		window, changed := l.records[since:max(since, min(to, cmp.Or(until, to), since+1000))], l.changed
		l.mu.Unlock()
		if len(window) > 0 || wait <= 0 {
			return window, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// AppendEvent implements bridge.Log.
func (l *pushLog) AppendEvent(_ context.Context, dst []byte, rec loquat.Record, _ bool) ([]byte, error) {
	return rec.AppendJSON(dst, nil), nil
}

// pushEvent returns an event that is never merged with another, so that each is one frame.
func pushEvent(content string) (loquat.Record, error) {
	return loquat.Event{Type: loquat.ErrorEvent, SessionID: "s", RequestID: "r", Detail: content}.Encode()
}

func admitAll(context.Context, string, netip.Addr) (bridge.Principal, error) {
	return bridge.Principal{During: func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }}, nil
}

// broadcast is the baseline. It has a queue, a writer and a reader for each socket, as the
// hub has, and sends the same bytes to all sockets. It closes a socket whose queue is full.
type broadcast struct {
	mu     sync.Mutex
	queues map[chan []byte]bool
	last   loquat.EventID
}

func (b *broadcast) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	if _, _, err := ws.Read(r.Context()); err != nil { // the join
		return
	}
	if ws.Write(r.Context(), websocket.MessageText, []byte("{}")) != nil {
		return
	}
	queue := make(chan []byte, 512)
	b.mu.Lock()
	b.queues[queue] = true
	b.mu.Unlock()
	ctx := ws.CloseRead(context.Background())
	for {
		select {
		case frame, ok := <-queue: // a write without a timeout is the cheapest
			if !ok || ws.Write(context.Background(), websocket.MessageText, frame) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (b *broadcast) publish(content string) {
	rec, err := pushEvent(content)
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	rec.ID = b.last
	frame := append(rec.AppendJSON([]byte(`["1",null,"events:server:home","session_event",{"event":`), nil), "}]"...)
	for q := range b.queues {
		select {
		case q <- frame:
		default:
			close(q)
			delete(b.queues, q)
		}
	}
}
