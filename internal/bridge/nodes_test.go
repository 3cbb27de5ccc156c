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
	"loquat/internal/phx"
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

func (l *nodeLog) Window(ctx context.Context, since, until loquat.EventID, user string, wait time.Duration) ([]loquat.Record, error) {
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		seen := l.Latest()
		switch {
		case since > seen:
			return nil, loquat.Errorf(loquat.CodeGone, "there is no such event")
		case since < seen:
			if until == 0 || until > seen {
				until = seen
			}
			return l.memLog.Window(ctx, since, until, user, 0)
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	until(t, "the bridge has the event", func() bool { return forwarders[1].acknowledged() == id })
}

// laggingLog is the log of a node whose broadcaster has not read the newest events yet.
type laggingLog struct {
	*memLog
	seen   atomic.Int64 // the newest event that this node has seen
	pumped atomic.Int64 // the newest event that the broadcaster gets
}

func (l *laggingLog) Latest() loquat.EventID { return loquat.EventID(l.seen.Load()) }

func (l *laggingLog) Check(ctx context.Context, since loquat.EventID) error {
	l.seen.Store(int64(l.memLog.Latest()))
	return l.memLog.Check(ctx, since)
}

func (l *laggingLog) Window(ctx context.Context, since, until loquat.EventID, user string, wait time.Duration) ([]loquat.Record, error) {
	for until == 0 && since >= loquat.EventID(l.pumped.Load()) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	if until == 0 {
		until = loquat.EventID(l.pumped.Load())
	}
	return l.memLog.Window(ctx, since, min(until, l.Latest()), user, wait)
}

// lag makes the node see the log up to an event.
func (l *laggingLog) lag(at loquat.EventID) {
	l.seen.Store(int64(at))
	l.pumped.Store(int64(at))
}

// An app that was cut off from the hub of another node, which has left out the increments of a
// reply that ended, gets the end here too, although the broadcaster of this node is behind.
func TestAppMovesToALaggingNode(t *testing.T) {
	log := &laggingLog{memLog: newMemLog()}
	door := newDoor()
	url := serveHub(t, NewHub(Options{Local: &Server{ID: "home", Log: log, Authenticate: door.authenticate}, Logger: quiet}))
	log.partial("one", "Once upon ")
	within := log.add(loquat.Event{Type: loquat.RetryScheduled, SessionID: "one", RequestID: "r-one"})
	log.lag(log.partial("one", "a time"))
	stays := call(t, url)
	stays.join(rigTopic, map[string]any{"token": "good", "since_id": loquat.EventID(0).String()})
	for range 3 {
		stays.next()
	}
	end := log.add(loquat.Event{Type: loquat.Final, SessionID: "one", RequestID: "r-one"})
	moves := call(t, url)
	response, reason := moves.join(rigTopic, map[string]any{"token": "good", "since_id": within.String()})
	if want := (joined{LatestEventID: end}); response != want || reason != "" {
		t.Errorf("joined with %+v %q, want %+v", response, reason, want)
	}
	next := log.add(loquat.Event{Type: loquat.RequestCompleted, SessionID: "one", RequestID: "r-one"})
	for _, want := range []loquat.EventID{end, next} {
		if got := moves.next(); got.eventID() != want {
			t.Fatalf("the app that moved gets %s instead of event %s", got.payload, want)
		}
		log.lag(next) // now the broadcaster gets both
	}
	for _, want := range []loquat.EventID{end, next} {
		if got := stays.next(); got.eventID() != want {
			t.Fatalf("the app that stayed gets %s instead of event %s", got.payload, want)
		}
	}
}

// A bridge that starts again begins at the newest event of the log, although the node that
// forwards to it is behind. Its apps may know later events than this node.
func TestNewBridgeOfALaggingNode(t *testing.T) {
	o := newRemoteServer()
	log := &laggingLog{memLog: o.log}
	log.lag(o.log.partial("one", "a"))
	newest := o.log.partial("one", "b")
	h, url := newBridge(t, History{})
	f := o.forwardAs(t, url, "server-token", log, nil)
	until(t, "the node forwards", f.Connected)
	if got := h.remotes["home"].Latest(); got != newest {
		t.Errorf("the bridge begins at event %s, not %s", got, newest)
	}
}

// unreadableLog is the log of a node that does not reach its database.
type unreadableLog struct{ *memLog }

func (unreadableLog) Check(context.Context, loquat.EventID) error {
	return loquat.Errorf(loquat.CodeUnavailable, "the store cannot be read")
}

// While the database cannot be read, an app is refused and tries again later. It need not load its
// sessions again.
func TestJoinWithoutTheDatabase(t *testing.T) {
	door := newDoor()
	url := serveHub(t, NewHub(Options{Local: &Server{ID: "home", Log: unreadableLog{newMemLog()}, Authenticate: door.authenticate}, Logger: quiet}))
	if response, reason := call(t, url).join(rigTopic, map[string]any{"token": "good", "since_id": "0"}); reason != reasonUnavailable {
		t.Errorf("joined with %+v %q", response, reason)
	}
}

// After a failover to a standby that lacks the newest events, each app gets one gap and then the
// events that follow, whether the bridge is in the server or elsewhere, and whether the forwarder was
// connected during the failover or another node forwards after it.
func TestLogLosesItsTail(t *testing.T) {
	for _, c := range []struct {
		name string
		// start returns the log, the URL of the bridge, and what stops and starts the forwarder.
		start func(t *testing.T) (log *memLog, url string, stop, again func())
	}{
		{"the server's own bridge", func(t *testing.T) (*memLog, string, func(), func()) {
			r := newRig(t, phx.Limits{}, nil)
			return r.log, r.url, func() {}, func() {}
		}},
		{"a forwarder that stays", func(t *testing.T) (*memLog, string, func(), func()) {
			o := newRemoteServer()
			_, url := newBridge(t, History{})
			f := o.forward(t, url, "server-token")
			until(t, "the forwarder is connected", f.Connected)
			return o.log, url, func() {}, func() {}
		}},
		{"a forwarder that moves", func(t *testing.T) (*memLog, string, func(), func()) {
			o := newRemoteServer()
			_, url := newBridge(t, History{})
			f := o.forward(t, url, "server-token")
			until(t, "the forwarder is connected", f.Connected)
			return o.log, url, f.Close, func() { o.forward(t, url, "server-token") }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, url, stop, again := c.start(t)
			whole, one := call(t, url), call(t, url)
			whole.join(rigTopic, map[string]any{"token": "good"})
			one.join(rigTopic, map[string]any{"token": "of-one", "session_id": "one"})
			add := func() loquat.EventID {
				return log.add(loquat.Event{Type: loquat.ErrorEvent, SessionID: "one", RequestID: "r", Detail: "x"})
			}
			for range 5 {
				id := add()
				for _, p := range []*phone{whole, one} {
					if got := p.next(); got.eventID() != id {
						t.Fatalf("%s %s instead of event %s", got.event, got.payload, id)
					}
				}
			}
			stop()
			log.lose(2)
			again()
			kept := log.Latest()
			for i, p := range []*phone{whole, one} {
				if got := p.next(); got.event != eventGap || string(got.payload) != fmt.Sprintf(`{"latest_event_id":%q}`, kept) {
					t.Fatalf("app %d gets %s %s instead of a gap", i, got.event, got.payload)
				}
			}
			after := add()
			for i, p := range []*phone{whole, one} {
				if got := p.next(); got.eventID() != after {
					t.Errorf("app %d gets %s %s instead of the event after the gap", i, got.event, got.payload)
				}
			}
			late := call(t, url)
			if got, reason := late.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000005"}); !got.Gap || got.LatestEventID != after {
				t.Errorf("an app that joins with the id of a lost event: %+v %q", got, reason)
			}
			last := add()
			for i, p := range []*phone{whole, one, late} {
				if got := p.next(); got.eventID() != last {
					t.Errorf("app %d gets %s %s", i, got.event, got.payload)
				}
			}
		})
	}
}
