package bridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/phx/phxtest"
)

// nodeLog is the log as one of several nodes sees it: a moment late.
type nodeLog struct {
	*memLog
	mu   sync.Mutex
	seen loquat.EventID
}

func (l *nodeLog) look(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		l.mu.Lock()
		l.seen = l.memLog.Latest()
		l.mu.Unlock()
		time.Sleep(every)
	}
}

func (l *nodeLog) Latest() loquat.EventID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

func (l *nodeLog) Window(ctx context.Context, since, until loquat.EventID, wait time.Duration) ([]loquat.Record, error) {
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		seen := l.Latest()
		switch {
		case since > seen:
			return nil, loquat.Errorf(loquat.CodeGone, "there is no such event")
		case since < seen:
			if until == 0 || until > seen {
				until = seen
			}
			return l.memLog.Window(ctx, since, until, 0)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case time.Now().After(end):
			return nil, nil
		}
	}
}

// nodes are forwarders of several nodes with one log, of which one at a time leads.
type nodes struct {
	leader     atomic.Int32
	forwarders []*Forwarder
}

func startNodes(t *testing.T, o *remoteServer, url string, n int) *nodes {
	t.Helper()
	ns := &nodes{}
	ctx, stop := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	t.Cleanup(func() { stop(); looking.Wait() })
	for i := range n {
		log := &nodeLog{memLog: o.log}
		looking.Go(func() { log.look(ctx, time.Duration(1+40*i)*time.Millisecond) })
		ns.forwarders = append(ns.forwarders, o.forwardAs(t, url, "server-token", log, func() bool { return int(ns.leader.Load()) == i }))
	}
	return ns
}

// move makes the next node lead and waits until it is connected.
func (ns *nodes) move(t *testing.T) {
	t.Helper()
	former := int(ns.leader.Load())
	next := (former + 1) % len(ns.forwarders)
	ns.leader.Store(int32(next))
	until(t, "another node forwards", func() bool { return ns.forwarders[next].Connected() && !ns.forwarders[former].Connected() })
}

// One of several nodes forwards. While the forwarder moves from node to node, apps receive each
// event once and in order.
func TestForwarderMoves(t *testing.T) {
	testMoves(t, func(url string) (receive func(events loquat.EventID)) {
		p := call(t, url)
		p.join(rigTopic, map[string]any{"token": "good", "since_id": loquat.EventID(0).String()})
		return func(events loquat.EventID) {
			for next := loquat.EventID(1); next <= events; next++ {
				if got := p.next(); got.event != eventSession || got.eventID() != next {
					t.Fatalf("%s %s instead of event %s", got.event, got.payload, next)
				}
			}
		}
	})
}

// The same, with the npm client in both releases.
func TestNpmForwarderMoves(t *testing.T) {
	phxtest.Dir(t)
	testMoves(t, func(url string) (receive func(events loquat.EventID)) {
		var clients []*phxtest.Client
		for _, pkg := range phxtest.Packages {
			c := phxtest.Start(t, phxtest.Options{URL: "ws" + strings.TrimPrefix(url, "http"), Package: pkg, Vsn: "2.0.0"})
			c.Join(rigTopic, map[string]any{"token": "good", "since_id": loquat.EventID(0).String()}, true)
			clients = append(clients, c)
		}
		return func(events loquat.EventID) {
			for i, c := range clients {
				receiveEach(t, phxtest.Packages[i], c, events)
			}
		}
	})
}

func testMoves(t *testing.T, follow func(url string) (receive func(events loquat.EventID))) {
	const events, moves = 600, 5
	o := newRemoteServer()
	_, url := newBridge(t, History{})
	ns := startNodes(t, o, url, 3)
	until(t, "a node forwards", ns.forwarders[0].Connected)
	receive := follow(url)
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range events {
			o.log.add(loquat.Event{Type: loquat.ErrorEvent, SessionID: "one", RequestID: "r", Detail: fmt.Sprint(i)})
			time.Sleep(5 * time.Millisecond)
		}
	})
	for range moves {
		time.Sleep(100 * time.Millisecond)
		ns.move(t)
	}
	receive(events)
	for i, f := range ns.forwarders {
		if leads := int(ns.leader.Load()) == i; f.Connected() != leads || f.leading.Load() != leads {
			t.Errorf("node %d is connected: %v, and leads: %v", i, f.Connected(), leads)
		}
	}
}

// A leader that comes back from a pause after another node has taken over disturbs it once at
// most.
func TestFormerLeaderComesBack(t *testing.T) {
	o := newRemoteServer()
	h, url := newBridge(t, History{})
	var leads [2]atomic.Bool
	var forwarders [2]*Forwarder
	leads[0].Store(true)
	for i := range forwarders {
		forwarders[i] = o.forwardAs(t, url, "server-token", o.log, leads[i].Load)
	}
	until(t, "the first forwards", forwarders[0].Connected)
	leads[1].Store(true) // both believe that they lead
	until(t, "the bridge has another connection", func() bool { return forwarders[1].Connected() })
	leads[0].Store(false)
	until(t, "the first has given up", func() bool { return !forwarders[0].leading.Load() && !forwarders[0].Connected() })
	until(t, "the second forwards", func() bool { return forwarders[1].Connected() && h.remotes["home"].connected() })
	id := o.log.partial("one", "x")
	until(t, "the bridge has the event", func() bool { return forwarders[1].Acknowledged() == id })
}
