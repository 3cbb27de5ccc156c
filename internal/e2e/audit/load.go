package audit

import (
	"context"
	"fmt"
	"maps"
	"math"
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

	ctx     context.Context // of the followers
	stop    context.CancelFunc
	running sync.WaitGroup
	active  context.Context // of the users
	halt    context.CancelFunc
	users   sync.WaitGroup

	mu       sync.Mutex
	random   *rand.Rand
	watchers []*watcher
	initial  map[string]*loquat.Session // as they were created
	ended    map[string]loquat.Request
	gone     map[string]bool // sessions that the log says are deleted
	folds    int
	audited  *Truth // of the last audit
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

	Name   string           // is in every text that the load sends; may be empty
	Agents []string         // of the sessions, at random; nil means the default
	Tools  []map[string]any // calls of tools that replies may make: {name, arguments}
	Keeps  bool             // no session is deleted
	// Vanish reports whether a session of an agent may disappear because the call failed that made it, such as
	// that of a response. Then sessions in which nothing has begun may disappear, too. Vanish may be nil.
	Vanish  func(sessionID, agentID string) bool
	Again   string                      // begins texts that others may send twice, because their calls cannot be repeated safely; "" means none
	Deleted func(sessionID string) bool // whether somebody else asked for the deletion of a session; may be nil
}

// New returns a load without clients.
func New(ctx context.Context, opts Options) *Load {
	l := &Load{
		opts: opts, from: opts.From, random: opts.Random, witness: newWitness(),
		initial: map[string]*loquat.Session{}, ended: map[string]loquat.Request{}, gone: map[string]bool{},
	}
	l.ctx, l.stop = context.WithCancel(ctx)
	l.active, l.halt = context.WithCancel(l.ctx)
	l.crowd = &crowd{
		c: opts.Client, promises: &promises{kinds: map[string]int{}}, states: &stateLedger{}, deleting: map[string]bool{},
		fault: opts.Fault, opened: l.watchSession, few: opts.Sessions, from: opts.From,
		name: opts.Name, agents: opts.Agents, tools: opts.Tools, keeps: opts.Keeps,
	}
	return l
}

// Run starts the clients.
func (l *Load) Run() {
	l.watch(&watcher{name: "poller of everything"})
	l.watch(&watcher{name: "stream of everything", stream: true})
	for range l.opts.Users {
		u := l.user()
		l.users.Go(func() { u.run(l.active) })
	}
	for range l.opts.Streams {
		u := l.user()
		l.users.Go(func() { u.talk(l.active) })
	}
}

// Halt ends the clients that change something. The others go on.
func (l *Load) Halt() {
	l.halt()
	l.users.Wait()
}

// Stop ends all clients.
func (l *Load) Stop() {
	l.Halt()
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

// watchSession adds a follower of a new session. It polls, reads a stream, or loads the session now and
// then and follows from there.
func (l *Load) watchSession(s loquat.Snapshot) {
	w := &watcher{query: client.Query{SessionID: s.SessionID, OmitSession: l.Seed()%3 > 0}, at: s.CursorEventID}
	kind := []string{"poller", "stream", "reloader"}[l.Seed()%3]
	w.stream, w.reloads = kind == "stream", kind == "reloader"
	w.name, w.folds = kind+" of session "+s.SessionID, map[string]*loquat.Fold{s.SessionID: loquat.NewFold(s)}
	l.watch(w)
}

// Watch adds a follower of everything by another way than the HTTP API. follow makes one connection, which
// begins after the event since, and calls take with each event. An error of take is a fault; an error of
// follow is not: Watch calls it again until the load stops.
func (l *Load) Watch(name string, follow func(ctx context.Context, since loquat.EventID, take func(loquat.Event) error) error) {
	l.watch(&watcher{name: name, by: follow})
}

func (l *Load) watch(w *watcher) {
	w.c, w.witness, w.states, w.random = l.crowd.c, l.witness, l.crowd.states, rand.New(rand.NewPCG(l.Seed(), 1))
	w.void, w.at = map[string]bool{}, max(w.at, l.from)
	w.start, w.got, w.bare = w.at, map[loquat.EventID]bool{}, map[string]bool{}
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
		return []error{fmt.Errorf(readFault+" %w", err)}
	}
	l.audited = t
	faults = append(t.Check(), l.witness.missing(t)...)
	for _, event := range t.log {
		faults = append(faults, l.witness.see(event))
	}
	faults = append(faults, l.crowd.promises.check(t)...)
	faults = append(faults, l.crowd.states.check(t)...)
	faults = append(faults, onlyOnce(t, l.opts.Again)...)
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

// Rest waits until nothing runs and audits, over a network that may break the reading. The load has to be
// paused or halted.
func (l *Load) Rest(ctx context.Context) (faults []error) {
	if err := Retry(ctx, func() error { return l.Settle(ctx) }); err != nil {
		return []error{err}
	}
	err := Retry(ctx, func() error {
		faults = l.Audit(ctx)
		for _, fault := range faults {
			if strings.HasPrefix(fault.Error(), readFault) {
				return fault
			}
		}
		return nil
	})
	if err != nil {
		faults = append(faults, err)
	}
	return faults
}

// readFault begins the error of a log that could not be read.
const readFault = "read the log:"

// Retry repeats a call until it succeeds or ctx ends. The error is that of the last call that ctx did not end.
func Retry(ctx context.Context, fn func() error) (err error) {
	for {
		last := fn()
		if last == nil || err == nil || ctx.Err() == nil {
			err = last
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 100*time.Millisecond)
	}
}

// CompareCopy compares a copy of the log up to an event, such as that of a restored backup, with what
// clients have seen.
func (l *Load) CompareCopy(events []loquat.Event, last loquat.EventID) (faults []error) {
	copied := make(map[loquat.EventID]loquat.Event, len(events))
	for _, e := range events {
		e.Session = nil
		copied[e.EventID] = e
	}
	l.witness.mu.Lock()
	defer l.witness.mu.Unlock()
	for id, seen := range l.witness.seen {
		e, ok := copied[id]
		switch {
		case id > last || l.WasDeleting(seen.event.SessionID) || l.mayVanish(seen.event.SessionID, last):
		case !ok && !superseded(seen.event.Type):
			faults = append(faults, fmt.Errorf("the copy lacks an event that a client saw: %s", seen.text))
		case ok && !seen.agrees(sighting{e, textOf(e)}):
			faults = append(faults, fmt.Errorf("in the copy event %s is\n  %s\nand was\n  %s", id, textOf(e), seen.text))
		}
	}
	return faults
}

// Audited returns the truth that the last audit has read.
func (l *Load) Audited() *Truth { return l.audited }

// Truth reads the log from the load's beginning, with all sessions and requests in it.
func (l *Load) Truth(ctx context.Context) (t *Truth, err error) {
	err = Retry(ctx, func() error {
		t, err = l.read(ctx)
		return err
	})
	return t, err
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
			if !l.WasDeleting(id) {
				return nil, fmt.Errorf("session %s was deleted by nobody", id)
			}
			l.gone[id] = true
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

// WasDeleting reports whether anybody asked for the deletion of a session.
func (l *Load) WasDeleting(sessionID string) bool {
	return l.mayVanish(sessionID, math.MaxInt64) || l.IsDeleting(sessionID) || l.opts.Deleted != nil && l.opts.Deleted(sessionID)
}

// mayVanish reports whether a session may disappear because the call failed that made it, as far as events up
// to an id show.
func (l *Load) mayVanish(sessionID string, upTo loquat.EventID) bool {
	if l.opts.Vanish == nil {
		return false
	}
	if first, filled := l.witness.filled.Load(sessionID); !filled || first.(loquat.EventID) > upTo {
		return true
	}
	agent, _ := l.witness.agents.Load(sessionID)
	id, _ := agent.(string)
	return l.opts.Vanish(sessionID, id)
}

// IsDeleting reports whether the load itself asked for the deletion of a session.
func (l *Load) IsDeleting(sessionID string) bool {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	return l.crowd.deleting[sessionID]
}

// DeletedSessions returns the sessions that were deleted, or whose deletion the load asked for. The load has
// been stopped.
func (l *Load) DeletedSessions() map[string]bool {
	all := maps.Clone(l.gone)
	maps.Copy(all, l.crowd.deleting)
	return all
}

// onlyOnce fails if the log holds a change twice, acknowledged or not. Each change has a
// unique text, except for those that begin with again. It leaves out messages appended to a fork that
// was deleted: what the fork began with can no longer be read, and an alternative may bring it back.
func onlyOnce(t *Truth, again string) (faults []error) {
	first, known, unread := map[string]loquat.EventID{}, map[string]bool{}, map[string]bool{}
	for _, e := range t.log {
		if e.Type == loquat.SessionCreated {
			if began := t.bySession[e.SessionID][0].Session; began != nil { // read adds it there only
				note(known, began.Messages)
			} else {
				unread[e.SessionID] = e.SourceSessionID != ""
			}
		}
		note(known, e.Messages)
		if e.Type != loquat.MessageAppended && e.Type != loquat.MessageModified {
			continue
		}
		if e.Type == loquat.MessageAppended {
			if unread[e.SessionID] || known[e.Message.ID] {
				continue // an alternative has brought the message back; replay checks that it had been deleted
			}
			known[e.Message.ID] = true
		}
		if again != "" && strings.HasPrefix(*e.Content, again) {
			continue
		}
		if before, ok := first[*e.Content]; ok {
			faults = append(faults, fmt.Errorf("%q was done twice, by events %s and %s", *e.Content, before, e.EventID))
		}
		first[*e.Content] = e.EventID
	}
	return faults
}

// note adds the ids of messages to those that are known.
func note(known map[string]bool, messages []loquat.Message) {
	for _, m := range messages {
		known[m.ID] = true
	}
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
