package audit

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/client"
)

// Load is a set of clients that change sessions and follow the log. They go on while servers
// die and come back. Make one with New, start the clients with Run.
type Load struct {
	opts    Options
	crowd   *crowd
	witness *witness
	from    loquat.EventID // the log's newest event before the load

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	random   *rand.Rand
	watchers []*watcher
	initial  map[string]*loquat.Session // as they were created
	ended    map[string]loquat.Request
	folds    int
}

// Options configure a Load.
type Options struct {
	Client   *client.Client // of a server, or of a load balancer
	Random   *rand.Rand
	From     loquat.EventID // newest event of the log; 0 for a new log
	Sessions int            // that users change at random
	Users    int            // each makes one call at a time
	Streams  int            // further sessions; each has a reply that streams at any time, and a follower
	Fault    func(error)    // is called with what is wrong
}

// New returns a load without clients.
func New(ctx context.Context, opts Options) *Load {
	l := &Load{
		opts: opts, from: opts.From, random: opts.Random, witness: newWitness(),
		initial: map[string]*loquat.Session{}, ended: map[string]loquat.Request{},
	}
	l.ctx, l.stop = context.WithCancel(ctx)
	l.crowd = &crowd{
		c: opts.Client, promises: &promises{kinds: map[string]int{}}, states: &stateLedger{}, deleting: map[string]bool{},
		fault: opts.Fault, opened: l.watchSession, few: opts.Sessions, from: opts.From,
	}
	return l
}

// Run starts the clients.
func (l *Load) Run() {
	l.watch(&watcher{name: "poller of everything"})
	l.watch(&watcher{name: "stream of everything", stream: true})
	for range l.opts.Users {
		u := l.user()
		l.running.Go(func() { u.run(l.ctx) })
	}
	for range l.opts.Streams {
		u := l.user()
		l.running.Go(func() { u.talk(l.ctx) })
	}
}

// Stop ends the clients.
func (l *Load) Stop() {
	l.stop()
	l.running.Wait()
}

func (l *Load) user() user { return user{l.crowd, rand.New(rand.NewPCG(l.Seed(), 2))} }

// Seed draws a number for a random source of another goroutine.
func (l *Load) Seed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Uint64()
}

// watchSession adds a follower of a new session, which polls or reads a stream.
func (l *Load) watchSession(s loquat.Snapshot) {
	kind := "poller"
	w := &watcher{query: client.Query{SessionID: s.SessionID, OmitSession: l.Seed()%3 > 0}, at: s.CursorEventID}
	if w.stream = l.Seed()%2 == 0; w.stream {
		kind = "stream"
	}
	w.name, w.folds = kind+" of session "+s.SessionID, map[string]*loquat.Fold{s.SessionID: loquat.NewFold(s)}
	l.watch(w)
}

func (l *Load) watch(w *watcher) {
	w.c, w.witness, w.states, w.random = l.crowd.c, l.witness, l.crowd.states, rand.New(rand.NewPCG(l.Seed(), 1))
	w.void, w.at = map[string]bool{}, max(w.at, l.from)
	if w.folds == nil {
		w.folds = map[string]*loquat.Fold{}
	}
	l.mu.Lock()
	l.watchers = append(l.watchers, w)
	l.mu.Unlock()
	l.running.Go(func() {
		if err := w.follow(l.ctx); err != nil {
			l.opts.Fault(err)
		}
	})
}

// Pause runs fn while no client changes anything. Requests that run go on.
func (l *Load) Pause(fn func()) {
	l.crowd.gate.Lock()
	defer l.crowd.gate.Unlock()
	fn()
}

// Audit compares everything that was promised and seen with what the server says now. The load
// has to be paused, and no request may run.
func (l *Load) Audit(ctx context.Context) (faults []error) {
	t, err := l.read(ctx)
	if err != nil {
		return []error{fmt.Errorf("read the log: %w", err)}
	}
	faults = append(t.Check(), l.witness.missing(t)...)
	for _, event := range t.log {
		faults = append(faults, l.witness.see(event))
	}
	faults = append(faults, l.crowd.promises.check(t)...)
	faults = append(faults, l.crowd.states.check(t)...)
	faults = append(faults, l.crowd.onlyOnce(t)...)
	l.mu.Lock()
	watchers := slices.Clone(l.watchers)
	l.mu.Unlock()
	for _, w := range watchers {
		n, wrong := w.compare(ctx, t)
		l.folds += n
		faults = append(faults, wrong...)
	}
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

// Settle waits until nothing runs. Its error names the requests that still run when ctx ends.
func (l *Load) Settle(ctx context.Context) error {
	var busy []string
	for {
		var err error
		if busy, err = l.busy(ctx); err == nil && len(busy) == 0 {
			return nil
		}
		if err != nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
			return fmt.Errorf("list sessions, of which %v were busy: %w", busy, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("requests run for ever: %v", busy)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// busy returns the running requests of all sessions.
func (l *Load) busy(ctx context.Context) (busy []string, err error) {
	for token := ""; ; {
		list, err := l.crowd.c.Sessions(ctx, loquat.SessionQuery{Limit: 200, PageToken: token, Archived: loquat.ArchivedToo})
		if err != nil {
			return busy, err
		}
		for _, s := range list.Sessions {
			if s.ActiveRequestID != "" {
				busy = append(busy, s.ActiveRequestID)
			}
		}
		if token = list.NextPageToken; token == "" {
			return busy, nil
		}
	}
}

// read reads the log from the load's beginning, and all sessions and requests in it.
func (l *Load) read(ctx context.Context) (*Truth, error) {
	var log []loquat.Event
	for at := l.from; ; {
		w, err := l.crowd.c.Events(ctx, client.Query{Since: &at, OmitSession: true, Limit: 5000})
		if err != nil {
			return nil, err
		}
		if len(w.Events) == 0 {
			break
		}
		log = append(log, w.Events...)
		at = log[len(log)-1].EventID
	}
	t := NewTruth(log)
	t.dropOlder(l.from)
	for id, events := range t.bySession {
		if t.deleted(id) {
			if !l.crowd.wasDeleting(id) {
				return nil, fmt.Errorf("session %s was deleted by nobody", id)
			}
			continue
		}
		var err error
		if events[0].Session, err = l.sessionAtFirst(ctx, events[0]); err != nil {
			return nil, err
		}
		if t.Sessions[id], err = l.crowd.c.Session(ctx, id); err != nil {
			return nil, err
		}
	}
	for id, events := range t.ByRequest {
		if t.deleted(events[0].SessionID) {
			continue
		}
		q, known := l.ended[id]
		if !known {
			var err error
			if q, err = l.crowd.c.Request(ctx, id); err != nil {
				return nil, err
			}
		}
		t.Requests[id], l.ended[id] = q, q
	}
	return t, nil
}

// sessionAtFirst returns the session within the event that created it.
func (l *Load) sessionAtFirst(ctx context.Context, created loquat.Event) (*loquat.Session, error) {
	if s := l.initial[created.SessionID]; s != nil {
		return s, nil
	}
	before := created.EventID - 1
	w, err := l.crowd.c.Events(ctx, client.Query{Since: &before, SessionID: created.SessionID, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(w.Events) != 1 || w.Events[0].Session == nil {
		return nil, fmt.Errorf("%s comes without its session", describe(created))
	}
	l.initial[created.SessionID] = w.Events[0].Session
	return w.Events[0].Session, nil
}

func (c *crowd) wasDeleting(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleting[id]
}

// onlyOnce fails if the log holds a change twice, acknowledged or not. Each change has a
// unique text.
func (c *crowd) onlyOnce(t *Truth) (faults []error) {
	first := map[string]loquat.EventID{}
	for _, e := range t.log {
		if e.Type != loquat.MessageAppended && e.Type != loquat.MessageModified {
			continue
		}
		if before, ok := first[*e.Content]; ok {
			faults = append(faults, fmt.Errorf("%q was done twice, by events %s and %s", *e.Content, before, e.EventID))
		}
		first[*e.Content] = e.EventID
	}
	return faults
}

// Tally counts what loads did.
type Tally struct {
	Acknowledged map[string]int // changes, by their kind
	Requests     int
	Seen         int // events delivered to clients
	Folds        int // compared with what is stored
	States       int // snapshots, and sessions within events, compared with the log
	Audits       int
}

// Add adds what a load did. The load has been stopped.
func (n *Tally) Add(l *Load) {
	if n.Acknowledged == nil {
		n.Acknowledged = map[string]int{}
	}
	for kind, k := range l.crowd.promises.counts() {
		n.Acknowledged[kind] += k
	}
	n.Requests += len(l.ended)
	n.Seen += l.witness.delivered()
	n.States += l.crowd.states.count()
	n.Folds += l.folds
}

func (n *Tally) String() string {
	changes := 0
	for kind, k := range n.Acknowledged {
		if kind != "repeat" { // it changes nothing
			changes += k
		}
	}
	return fmt.Sprintf("%d acknowledged changes (%s); %d requests, each with one end; %d events delivered; %d folds and %d snapshots compared in %d audits",
		changes, Counts(n.Acknowledged), n.Requests, n.Seen, n.Folds, n.States, n.Audits)
}

// Counts lists counts in the order of their names.
func Counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(parts, ", ")
}
