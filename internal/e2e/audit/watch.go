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
	"loquat/internal/e2e/binary"
)

// witness remembers every event that any client has seen, before and after crashes.
type witness struct {
	mu    sync.Mutex
	seen  map[loquat.EventID]sighting
	count int // events delivered, repeats included

	filled sync.Map // the first event of each session besides those of its beginning and its end
	agents sync.Map // with which sessions were created
}

// sighting is what an id was seen to mean.
type sighting struct {
	event loquat.Event // without its session
	text  string
}

func newWitness() *witness { return &witness{seen: map[loquat.EventID]sighting{}} }

// see notes an event. It fails when its id was seen to mean something else.
func (w *witness) see(e loquat.Event) error {
	e.Session = nil
	now := sighting{event: e, text: textOf(e)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	if first, ok := w.filled.Load(e.SessionID); e.Type != loquat.SessionCreated && e.Type != loquat.SessionDeleted && e.Type != loquat.Checkpoint && (!ok || e.EventID < first.(loquat.EventID)) {
		w.filled.Store(e.SessionID, e.EventID)
	}
	if e.Type == loquat.SessionCreated {
		w.agents.Store(e.SessionID, e.AgentID)
	}
	before, known := w.seen[e.EventID]
	if !known {
		w.seen[e.EventID] = now
		return nil
	}
	if !before.agrees(now) {
		return fmt.Errorf("event %s means two things:\n  %s\n  %s", e.EventID, before.text, now.text)
	}
	return nil
}

// agrees allows for compaction, which puts what came before in front of a partial.
func (s sighting) agrees(other sighting) bool {
	a, b := s.event, other.event
	if a.Type != loquat.Partial || b.Type != loquat.Partial {
		return s.text == other.text
	}
	return a.RequestID == b.RequestID && a.SessionID == b.SessionID &&
		(strings.HasSuffix(a.Message.Content, b.Message.Content) || strings.HasSuffix(b.Message.Content, a.Message.Content))
}

// missing returns an error for each event that a client saw and the log no longer holds.
// Superseded increments and events of deleted sessions may be missing.
func (w *witness) missing(t *Truth) (faults []error) {
	logged := make(map[loquat.EventID]bool, len(t.log))
	for _, e := range t.log {
		logged[e.EventID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.seen {
		if !logged[id] && !superseded(s.event.Type) && !t.deleted(s.event.SessionID) {
			faults = append(faults, fmt.Errorf("a client saw an event that the log no longer holds: %s", s.text))
		}
	}
	return faults
}

// superseded reports whether events of a type may be merged, or be removed after the reply.
func superseded(t loquat.EventType) bool { return t == loquat.Partial || t == loquat.ToolPartial }

// story returns the events of a session that any client saw since the first event of a request,
// one a line.
func (w *witness) story(sessionID, requestID string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text strings.Builder
	began := false
	for _, id := range slices.Sorted(maps.Keys(w.seen)) {
		s := w.seen[id]
		began = began || s.event.RequestID == requestID
		if began && s.event.SessionID == sessionID {
			text.WriteString("\n  " + s.text)
		}
	}
	return text.String()
}

func (w *witness) delivered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// watcher is a client that follows the log through every crash, and folds.
type watcher struct {
	name    string
	c       *client.Client
	witness *witness
	states  *stateLedger
	query   client.Query // one session, or all
	stream  bool         // by Server-Sent Events; else by polls of random windows
	reloads bool         // loads its session now and then, and follows from there
	random  *rand.Rand
	start   loquat.EventID // after which the watcher gets events

	by func(ctx context.Context, since loquat.EventID, take func(loquat.Event) error) error // makes a connection by another way, unless nil

	mu    sync.Mutex
	got   map[loquat.EventID]bool // without increments
	broke error                   // why the last connection by another way ended
	folds map[string]*loquat.Fold
	bare  map[string]bool // sessions that were created in events without the session
	void  map[string]bool // requests whose stream restarted: the final may differ from the draft
	at    loquat.EventID
}

// follow goes on until ctx ends or its only session is deleted; any other end is a
// fault.
func (w *watcher) follow(ctx context.Context) error {
	for ctx.Err() == nil && !w.finished() {
		var err error
		switch {
		case w.by != nil:
			err = w.followElsewhere(ctx)
		case w.stream:
			err = w.followStream(ctx)
		case w.reloads:
			err = w.reload(ctx)
		default:
			err = w.poll(ctx)
		}
		switch code := loquat.CodeOf(err); {
		case ctx.Err() != nil || w.finished() || code == "":
		case code == loquat.CodeUnavailable: // the server is down until its next start
		case code == loquat.CodeRateLimited: // on a slow machine the clients together read too slowly
			time.Sleep(time.Second)
		default:
			return fmt.Errorf("%s after %s: %w", w.name, w.position(), err)
		}
	}
	return nil
}

func (w *watcher) finished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.folds[w.query.SessionID]
	return f != nil && f.Deleted()
}

func (w *watcher) position() loquat.EventID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// followStream follows one stream for a while, then resumes with another connection.
func (w *watcher) followStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(50+w.random.IntN(1500))*time.Millisecond)
	defer cancel()
	q := w.query
	at := w.position()
	q.Since = &at
	for e, err := range w.c.Follow(ctx, q) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.take(e); err != nil || w.finished() {
			return err
		}
	}
	return nil
}

// followElsewhere makes one connection by another way.
func (w *watcher) followElsewhere(ctx context.Context) error {
	var fault error
	err := w.by(ctx, w.position(), func(e loquat.Event) error {
		fault = w.take(e)
		return fault
	})
	if err != nil {
		w.mu.Lock()
		w.broke = err
		w.mu.Unlock()
	}
	if fault == nil && err != nil {
		wait(ctx, 50*time.Millisecond) // until it can connect
	}
	return fault
}

// reload loads the session and follows for a while, like a client that connects in the middle of a reply.
func (w *watcher) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(50+w.random.IntN(3000))*time.Millisecond)
	defer cancel()
	for u, err := range w.c.FollowSession(ctx, w.query.SessionID) {
		switch {
		case ctx.Err() != nil:
			return nil
		case loquat.CodeOf(err) == loquat.CodeNotFound: // it is deleted
			w.end()
			return nil
		case err != nil:
			return err
		case u.Event == nil:
			w.begin(u.State)
		default:
			if err := w.take(*u.Event); err != nil || w.finished() {
				return err
			}
		}
	}
	return nil
}

// end notes that the session is deleted.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.folds[w.query.SessionID]
	f.Apply(loquat.Event{EventID: f.Cursor() + 1, Type: loquat.SessionDeleted, SessionID: w.query.SessionID})
}

// begin continues from a session that was just loaded.
func (w *watcher) begin(s *loquat.Fold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = s.Cursor()
	w.folds[w.query.SessionID] = loquat.NewFold(loquat.Snapshot{CursorEventID: s.Cursor(), Session: loquat.Session{
		SessionID: w.query.SessionID, AgentID: s.AgentID(), Metadata: s.Metadata(), Messages: s.Messages()}})
}

func (w *watcher) poll(ctx context.Context) error {
	q := w.query
	at := w.position()
	q.Since, q.Limit = &at, 1+w.random.IntN(1<<w.random.IntN(10))
	if w.random.IntN(4) > 0 {
		q.Wait = time.Duration(1+w.random.IntN(2000)) * time.Millisecond
	}
	window, err := w.c.Events(ctx, q)
	if err != nil {
		return err
	}
	for _, e := range window.Events {
		if err := w.take(e); err != nil {
			return err
		}
	}
	if len(window.Events) < q.Limit {
		time.Sleep(time.Duration(w.random.IntN(60)) * time.Millisecond) // to read more than one event at a time
	}
	return nil
}

// take applies the next event.
func (w *watcher) take(e loquat.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.EventID <= w.at {
		return fmt.Errorf("event %s comes after %s", e.EventID, w.at)
	}
	w.at = e.EventID
	if !superseded(e.Type) {
		w.got[e.EventID] = true
	}
	if err := w.witness.see(e); err != nil {
		return err
	}
	f := w.folds[e.SessionID]
	if f == nil {
		f = binary.EmptyFold(e.SessionID)
		if e.Session != nil && e.Type == loquat.SessionCreated {
			f = loquat.NewFold(loquat.Snapshot{Session: *e.Session})
		}
		w.bare[e.SessionID] = e.Session == nil
		w.folds[e.SessionID] = f
	}
	if e.Session != nil && !e.Session.MessagesOmitted && w.random.IntN(4) == 0 {
		w.states.add(state{"the session within event " + e.EventID.String(), e.SessionID, e.EventID, e.Session.Messages})
	}
	if e.Type == loquat.RetryScheduled && e.Cause == loquat.CauseStream {
		w.void[e.RequestID] = true // the partial that says so may be compacted away
	}
	if err := keepsDraft(f.Draft(), e); err != nil && !w.void[e.RequestID] {
		return fmt.Errorf("%w; what was seen of the session since the request began:%s", err, w.witness.story(e.SessionID, e.RequestID))
	}
	f.Apply(e)
	return nil
}

// keepsDraft fails unless a final begins with the draft that was shown before it.
func keepsDraft(shown *loquat.Draft, e loquat.Event) error {
	if e.Type != loquat.Final || shown == nil || shown.RequestID != e.RequestID {
		return nil
	}
	if len(e.Messages) == 0 || !strings.HasPrefix(e.Messages[0].Content, shown.Content) {
		return fmt.Errorf("%q was shown of request %s, and its final is %s", shown.Content, e.RequestID, textOf(e.Messages))
	}
	return nil
}

// compare compares the folds with what is stored and returns how many there were. It
// waits for what is still on its way.
func (w *watcher) compare(ctx context.Context, t *Truth) (compared int, faults []error) {
	last := loquat.EventID(0)
	if len(t.log) > 0 {
		last = t.log[len(t.log)-1].EventID
	}
	if id := w.query.SessionID; id != "" {
		last = 0
		if events := t.bySession[id]; len(events) > 0 {
			last = events[len(events)-1].EventID
		}
	}
	for w.position() < last && !w.finished() { // a follower that loads a deleted session gets no event of its end
		select {
		case <-ctx.Done():
			return 0, []error{fmt.Errorf("%s came to %s, the log ends at %s (%v)", w.name, w.position(), last, w.broke)}
		case <-time.After(5 * time.Millisecond):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	faults = w.lost(t)
	for id, f := range w.folds {
		stored, ok := t.Sessions[id]
		if _, since := t.bySession[id]; !since {
			continue // it was created before the load
		}
		if !ok {
			if !f.Deleted() {
				faults = append(faults, fmt.Errorf("%s shows session %s, which is deleted", w.name, id))
			}
			continue
		}
		if first := t.bySession[id][0].Session; w.bare[id] && first != nil && len(first.Messages) > 0 {
			continue // the watcher leaves sessions out of events, and would have to load this one
		}
		compared++
		if a, b := AsText(f.Messages()), AsText(stored.Messages); a != b {
			faults = append(faults, fmt.Errorf("%s folds session %s to\n  %s\nand it is\n  %s", w.name, id, a, b))
		}
		if f.Draft() != nil {
			faults = append(faults, fmt.Errorf("%s still shows a draft of session %s", w.name, id))
		}
	}
	return compared, faults
}

// lost returns an error for each event that the watcher should have got and has not. w.mu is held.
func (w *watcher) lost(t *Truth) (faults []error) {
	events := t.log
	if id := w.query.SessionID; id != "" {
		events = t.bySession[id]
	}
	for _, e := range events {
		if !w.reloads && e.EventID > w.start && !superseded(e.Type) && !w.got[e.EventID] {
			faults = append(faults, fmt.Errorf("%s did not get %s", w.name, describe(e)))
		}
	}
	return faults
}

// state is a session as a client saw it at a position of the log: a snapshot at its
// cursor, or the session within an event.
type state struct {
	what, sessionID string
	at              loquat.EventID
	messages        []loquat.Message
}

// stateLedger keeps states until they are compared with the log.
type stateLedger struct {
	mu      sync.Mutex
	waiting []state
	checked int
}

func (l *stateLedger) add(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, s)
}

// check compares each state with the log up to its position. If they agree, a client that
// polls on from there applies each event exactly once.
func (l *stateLedger) check(t *Truth) (faults []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.waiting {
		if t.deleted(s.sessionID) {
			continue
		}
		l.checked++
		what := fmt.Sprintf("%s of %s at %s", s.what, s.sessionID, s.at)
		if err := sameMessages(what, replay(t.bySession[s.sessionID], s.at), s.messages); err != nil {
			faults = append(faults, err)
		}
	}
	l.waiting = nil
	return faults
}

func (l *stateLedger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checked
}
