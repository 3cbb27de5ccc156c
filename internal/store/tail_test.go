package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"loquat"
)

// tailModel is a tail that holds everything, and its watches.
type tailModel struct {
	tail    *tail
	log     []loquat.Record
	deleted map[string]loquat.EventID
	last    loquat.EventID
	runs    map[string]string         // the request that runs in a session
	ends    map[string]loquat.EventID // of requests
	sorted  loquat.EventID            // the end of the log when increments were sorted last
	watches map[*Watch]loquat.EventID // the end of the log when each joined
}

var tailSessions = []string{"a", "b", "c", "d"}

// userOfTail returns the user to whom a session of these tests belongs.
func userOfTail(session string) string {
	return map[string]string{"a": "ann", "b": "bob", "c": "ann"}[session]
}

// TestTailAgainstAPlainLog compares the tail with a plain log under random commits, deletions,
// followers and reads. The tail may refuse to answer only about what it dropped.
func TestTailAgainstAPlainLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := loquat.EventID(rapid.IntRange(0, 5).Draw(t, "start"))
		m := &tailModel{tail: newTail(start, 0), last: start, deleted: map[string]loquat.EventID{}, runs: map[string]string{}, ends: map[string]loquat.EventID{},
			watches: map[*Watch]loquat.EventID{}}
		for _, session := range tailSessions {
			m.runs[session] = "request of before in " + session
		}
		m.tail.bounds = tailBounds{events: 16, bytes: 400}
		t.Repeat(map[string]func(*rapid.T){
			"commit": m.commit,
			"join":   m.join,
			"leave":  m.leave,
			"sort":   m.sort,
			"skip":   m.skip,
			"":       m.check,
		})
	})
}

func (m *tailModel) commit(t *rapid.T) {
	var batch []loquat.Record
	for range rapid.IntRange(1, 6).Draw(t, "events") {
		m.last++
		r := loquat.Record{ID: m.last, SessionID: rapid.SampledFrom(tailSessions).Draw(t, "session"), Body: make([]byte, rapid.IntRange(2, 60).Draw(t, "size"))}
		if rapid.IntRange(0, 15).Draw(t, "deletes") == 0 && m.deleted[r.SessionID] == 0 {
			r.Type, r.RequestID = loquat.SessionDeleted, ""
			m.deleted[r.SessionID] = r.ID
			gone := func(old loquat.Record) bool { return old.SessionID == r.SessionID }
			m.log, batch = slices.DeleteFunc(m.log, gone), slices.DeleteFunc(batch, gone)
		} else if m.deleted[r.SessionID] != 0 {
			continue // a deleted session has no further events
		} else {
			m.next(t, &r)
		}
		r.User = userOfTail(r.SessionID)
		batch = append(batch, r)
	}
	m.tail.add(m.last, batch)
	m.log = append(m.log, batch...)
	for w := range m.watches {
		matches := slices.ContainsFunc(batch, func(r loquat.Record) bool { return w.filter.matches(&r) })
		select {
		case <-w.C():
			if !matches {
				t.Fatalf("a follower of %s was woken by %v", of(w.filter), batch)
			}
		default:
			if matches {
				t.Fatalf("a follower of %s was not woken by %v", of(w.filter), batch)
			}
		}
	}
	if len(batch) == 0 {
		m.last = m.tail.end()
	}
}

// next chooses the type of a session's next event, and its request.
func (m *tailModel) next(t *rapid.T, r *loquat.Record) {
	kinds := []loquat.EventType{loquat.MessageAppended, loquat.RequestStarted}
	if m.runs[r.SessionID] != "" {
		kinds = []loquat.EventType{loquat.MessageAppended, loquat.Partial, loquat.Partial, loquat.ToolPartial, loquat.Final, loquat.RequestCompleted}
	}
	r.Type = rapid.SampledFrom(kinds).Draw(t, "type")
	switch r.Type {
	case loquat.MessageAppended:
		return
	case loquat.RequestStarted:
		m.runs[r.SessionID] = fmt.Sprint("request ", r.ID)
	}
	r.RequestID = m.runs[r.SessionID]
	if r.Type == loquat.RequestCompleted {
		m.ends[r.RequestID] = r.ID
		m.runs[r.SessionID] = ""
	}
}

func (m *tailModel) sort(*rapid.T) {
	m.sorted = m.last
	m.tail.noteSorted(m.sorted)
}

// skip lets the tail go on above events that it has not seen.
func (m *tailModel) skip(t *rapid.T) {
	m.last += loquat.EventID(rapid.IntRange(0, 3).Draw(t, "skipped"))
	m.tail.skip(m.last)
	for w := range m.watches {
		m.watches[w] = m.last
		select {
		case <-w.C():
		default:
			if len(w.parts) > 0 {
				t.Fatalf("a follower of %s was not woken", of(w.filter))
			}
		}
	}
}

// superseded reports whether a reader must not be shown an increment: its request has ended, and
// increments were sorted since.
func (m *tailModel) superseded(r *loquat.Record) bool {
	end, ended := m.ends[r.RequestID]
	return isIncrement(r.Type) && ended && end <= m.sorted
}

// anyFilter chooses a filter of one session, of several, or of all.
func anyFilter(t *rapid.T) Filter {
	one := rapid.SampledFrom(append(tailSessions, "", "quiet"))
	if rapid.Bool().Draw(t, "several") {
		among := NewSelection(rapid.SliceOfN(one.Filter(func(id string) bool { return id != "" }), 0, 4).Draw(t, "sessions"), rapid.Bool().Draw(t, "list"))
		if among.List {
			among.User = rapid.SampledFrom([]string{"", "ann", "bob", "carl"}).Draw(t, "user")
		}
		return Filter{Among: among}
	}
	if rapid.IntRange(0, 3).Draw(t, "of a user") == 0 {
		return Filter{User: rapid.SampledFrom([]string{"ann", "bob", "carl"}).Draw(t, "all of user")}
	}
	return Filter{SessionID: one.Draw(t, "session")}
}

func of(f Filter) string {
	if f.Among != nil {
		return fmt.Sprintf("%+v", *f.Among)
	}
	return fmt.Sprintf("%+v", f)
}

func (m *tailModel) join(t *rapid.T) {
	w := &Watch{store: &Store{tail: m.tail}, c: make(chan struct{}, 1)}
	w.filter = anyFilter(t)
	m.tail.join(w)
	m.watches[w] = m.last
}

func (m *tailModel) leave(t *rapid.T) {
	for w := range m.watches {
		w.Stop()
		delete(m.watches, w)
		return
	}
}

func (m *tailModel) check(t *rapid.T) {
	f := anyFilter(t)
	if f.Among == nil && len(m.log) > 0 && rapid.IntRange(0, 3).Draw(t, "of a request") == 0 {
		f.RequestID = rapid.SampledFrom(m.log).Draw(t, "of the request of").RequestID
	}
	since := loquat.EventID(rapid.Int64Range(0, int64(m.last)).Draw(t, "since"))
	b := bound{events: rapid.IntRange(1, 9).Draw(t, "limit"), bytes: rapid.IntRange(1, 200).Draw(t, "bytes")}
	var want []loquat.Record
	newest := loquat.EventID(0) // of the filter's session
	left := b
	for i := range m.log {
		r := &m.log[i]
		if whole := (Filter{SessionID: f.SessionID, User: f.User, Among: f.Among}); whole.matches(r) {
			newest = r.ID
		}
		if r.ID > since && f.matches(r) && !m.superseded(r) {
			if !left.admits(len(r.Body)) {
				left.events = 0
				continue
			}
			want = append(want, *r)
		}
	}
	got, ok := m.since(f, since, b)
	if ok && !slices.EqualFunc(got, want, func(a, b loquat.Record) bool { return a.ID == b.ID && a.SessionID == b.SessionID }) {
		t.Fatalf("%s since %d: %v, want %v", of(f), since, got, want)
	}
	if !ok && since >= m.last {
		t.Fatalf("the tail does not know what follows the newest event %d", m.last)
	}
	if exists := m.tail.existsSince(f.SessionID, since); exists && m.deleted[f.SessionID] > since {
		t.Fatalf("%q was deleted at %d, after %d", f.SessionID, m.deleted[f.SessionID], since)
	}
	for w, joined := range m.watches {
		if w.filter.SessionID != f.SessionID || w.filter.User != f.User || of(Filter{Among: w.filter.Among}) != of(Filter{Among: f.Among}) {
			continue
		}
		if at := max(joined, newest); !ok && since >= at {
			t.Fatalf("a follower of %s since %d is level at %d, but has to read the database at %d", of(w.filter), joined, at, since)
		}
		if w.Newest() < newest || w.Newest() > m.last {
			t.Fatalf("the newest event of %s is %d, not %d; the log ends at %d", of(w.filter), newest, w.Newest(), m.last)
		}
		if w.filter.SessionID != "" && since >= joined && m.deleted[w.filter.SessionID] <= since && !m.tail.existsSince(w.filter.SessionID, since) {
			t.Fatalf("followed since %d, %q is not known to exist since %d", joined, w.filter.SessionID, since)
		}
	}
	if n := len(m.tail.all.load()); n > m.tail.bounds.events {
		t.Fatalf("the tail holds %d events", n)
	}
	m.tail.ended.Range(func(request, _ any) bool {
		if !slices.ContainsFunc(m.tail.all.load(), func(r *loquat.Record) bool { return r.Type == loquat.RequestCompleted && r.RequestID == request }) {
			t.Fatalf("the tail remembers the end of %s", request)
		}
		return true
	})
	if parts := len(tailSessions) + 2*len([]string{"ann", "bob"}); len(m.watches) == 0 && len(m.tail.sessions) > parts {
		t.Fatalf("the tail keeps %d parts that nobody follows", len(m.tail.sessions))
	}
}

// since reads the tail as Store.Events does.
func (m *tailModel) since(f Filter, since loquat.EventID, b bound) ([]loquat.Record, bool) {
	if f.Among == nil {
		return m.tail.since(m.tail.find(f), since, f, b, nil)
	}
	w := &Watch{filter: f}
	m.tail.join(w)
	defer m.tail.leave(w)
	return m.tail.sinceAmong(w.parts, since, f, b, nil)
}

// TestTailWhileItChanges reads, joins and leaves while events are added. Each follower sees
// every event of its session once and in order.
func TestTailWhileItChanges(t *testing.T) {
	const commits, followers = 3000, 8
	tl := newTail(0, 0)
	tl.bounds = tailBounds{events: 1 << 20, bytes: 1 << 30}
	s := &Store{tail: tl}
	var all sync.WaitGroup
	for i := range followers {
		all.Go(func() {
			w := s.Watch(Filter{SessionID: fmt.Sprint("s", i%4)})
			defer w.Stop()
			at, seen := loquat.EventID(0), 0
			var buf []loquat.Record
			for seen < commits/4 {
				newest := w.Newest()
				var ok bool
				if buf, ok = tl.since(w.parts[0], at, Filter{SessionID: w.filter.SessionID}, bound{events: 5, bytes: 1 << 20}, buf[:0]); !ok {
					t.Error("the tail dropped an event")
					return
				}
				for _, r := range buf {
					if r.ID <= at || r.SessionID != w.filter.SessionID || r.ID > tl.end() {
						t.Errorf("%s got %d of %s after %d, the log ends at %d", w.filter.SessionID, r.ID, r.SessionID, at, tl.end())
						return
					}
					at = r.ID
					seen++
				}
				if len(buf) == 0 && w.Newest() == newest {
					<-w.C()
				}
				if seen%100 == 0 {
					s.Watch(w.filter).Stop()
				}
			}
		})
	}
	for i := range commits {
		tl.add(loquat.EventID(i+1), []loquat.Record{{ID: loquat.EventID(i + 1), Type: loquat.Partial, SessionID: fmt.Sprint("s", i%4), Body: []byte("{}")}})
	}
	all.Wait()
}

// TestNewestIsNeverAboveTheEnd looks at followers while the tail skips events. A follower that believed in
// a newest event above the end would read up to the end, and then skip what lies between.
func TestNewestIsNeverAboveTheEnd(t *testing.T) {
	tl := newTail(0, 0)
	s := &Store{tail: tl}
	var watches []*Watch
	for i := range 500 {
		watches = append(watches, s.Watch(Filter{SessionID: fmt.Sprint("s", i)}))
	}
	const skips = 1000
	var skipping sync.WaitGroup
	skipping.Go(func() {
		for id := range loquat.EventID(skips) {
			tl.skip(id + 1)
		}
	})
	defer skipping.Wait()
	for at := 0; tl.end() < skips; at++ {
		w := watches[at%len(watches)]
		if newest := w.Newest(); newest > tl.end() {
			t.Fatalf("the newest event of %s is %d, the log ends before it", w.filter.SessionID, newest)
		}
	}
}

// TestReadingTheTailAllocatesNothing shows that a level follower costs no memory per event.
func TestReadingTheTailAllocatesNothing(t *testing.T) {
	tl := newTail(0, 0)
	w := (&Store{tail: tl}).Watch(Filter{SessionID: "s"})
	for i := range 1000 {
		tl.add(loquat.EventID(i+1), []loquat.Record{{ID: loquat.EventID(i + 1), SessionID: "s", Body: []byte("{}")}})
	}
	buf := make([]loquat.Record, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		got, ok := tl.since(w.parts[0], 998, Filter{SessionID: "s"}, bound{events: 5, bytes: 1 << 20}, buf)
		if !ok || len(got) != 2 {
			t.Fatalf("%v, %v", got, ok)
		}
	}); n != 0 {
		t.Errorf("%v allocations for each read", n)
	}
}
