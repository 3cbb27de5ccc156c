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
		superseded := s.event.Type == loquat.Partial || s.event.Type == loquat.ToolPartial
		if !logged[id] && !superseded && !t.deleted(s.event.SessionID) {
			faults = append(faults, fmt.Errorf("a client saw an event that the log no longer holds: %s", s.text))
		}
	}
	return faults
}

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
	random  *rand.Rand

	mu    sync.Mutex
	folds map[string]*loquat.Fold
	void  map[string]bool // requests whose stream restarted: the final may differ from the draft
	at    loquat.EventID
}

// follow goes on until ctx ends or its only session is deleted; any other end is a
// fault.
func (w *watcher) follow(ctx context.Context) error {
	for ctx.Err() == nil && !w.finished() {
		var err error
		if w.stream {
			err = w.followStream(ctx)
		} else {
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
	if err := w.witness.see(e); err != nil {
		return err
	}
	f := w.folds[e.SessionID]
	if f == nil {
		f = binary.EmptyFold(e.SessionID)
		if e.Session != nil && e.Type == loquat.SessionCreated {
			f = loquat.NewFold(loquat.Snapshot{Session: *e.Session})
		}
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
	for w.position() < last {
		select {
		case <-ctx.Done():
			return 0, []error{fmt.Errorf("%s came to %s, the log ends at %s", w.name, w.position(), last)}
		case <-time.After(5 * time.Millisecond):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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
