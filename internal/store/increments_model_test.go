package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// incrementsModel publishes increments of several requests and compares what readers find in
// the database with what was published.
type incrementsModel struct {
	dirs   []string
	driver *sqlite.DB
	s      *store.Store

	sessions []string // those that requests run on
	spare    []string // those that take the place of a deleted session
	deleted  []string
	running  map[string]*store.Request // by session
	ended    map[string]bool           // by request
	log      []loquat.Record
	newest   loquat.EventID // ever assigned
	floor    loquat.EventID // the model has every event above it

	readers []*laggingReader
	between func()          // runs at the next read of the database, before it begins
	silent  map[string]bool // requests that ended without an event, which no service does
}

// laggingReader reads the log in windows, now and then.
type laggingReader struct {
	at    loquat.EventID
	shown map[string]int // increments, by request
}

// The database agrees with a model of the log whatever happens in between: commits, sorting,
// ends of requests, cleanups and crashes. No event id is assigned twice.
func TestIncrementsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &incrementsModel{sessions: []string{"a", "b", "c", "d"}, spare: []string{"e", "f", "g", "h"}, running: map[string]*store.Request{}, ended: map[string]bool{},
			silent: map[string]bool{}}
		defer m.remove()
		m.open(t, m.newDir(t))
		for _, id := range slices.Concat(m.sessions, m.spare) {
			m.update(t, func(tx *store.Tx, publish publishFunc) error {
				h, err := tx.CreateSession(id, "default", nil)
				if err == nil {
					err = tx.SetUser(&h, userOf[id])
				}
				if err != nil {
					return err
				}
				if err := publish(loquat.Event{Type: loquat.SessionCreated}, &h, nil); err != nil {
					return err
				}
				return tx.Checkpoint(&h, nil, false)
			})
		}
		m.forgetUntracked(t)
		for range 3 {
			m.readers = append(m.readers, &laggingReader{at: m.floor, shown: map[string]int{}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"read":    m.read,
			"read2":   m.read,
			"start":   m.start,
			"stream":  m.stream,
			"stream2": m.stream,
			"end":     m.end,
			"delete":  m.delete,
			"sort":    func(t *rapid.T) { m.update(t, func(tx *store.Tx, _ publishFunc) error { return tx.SortIncrements() }) },
			"cleanup": func(t *rapid.T) { m.must(t, m.s.Cleanup(t.Context())) },
			"fail":    m.fail,
			"crash":   m.crash,
			"":        m.check,
		})
	})
}

func (m *incrementsModel) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *incrementsModel) newDir(t *rapid.T) string {
	dir, err := os.MkdirTemp("", "increments")
	m.must(t, err)
	m.dirs = append(m.dirs, dir)
	return dir
}

func (m *incrementsModel) open(t *rapid.T, dir string) {
	var err error
	m.driver, err = sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	m.must(t, err)
	m.s, err = store.Open(t.Context(), hookedDriver{m.driver, &m.between}, store.Options{Logger: slog.New(slog.DiscardHandler)})
	m.must(t, err)
}

func (m *incrementsModel) remove() {
	m.s.Close()
	for _, dir := range m.dirs {
		os.RemoveAll(dir)
	}
}

// hookedDriver lets the log change after a read has begun and before its snapshot.
type hookedDriver struct {
	*sqlite.DB
	between *func()
}

func (d hookedDriver) Read(ctx context.Context, fn func(store.SQL) error) error {
	if between := *d.between; between != nil {
		*d.between = nil
		between()
	}
	return d.DB.Read(ctx, fn)
}

type publishFunc func(loquat.Event, *store.Head, *store.Request) error

// update runs fn in a transaction and adds what it published to the model.
func (m *incrementsModel) update(t *rapid.T, fn func(*store.Tx, publishFunc) error) {
	t.Helper()
	var published []loquat.Record
	m.must(t, m.s.Update(t.Context(), func(tx *store.Tx) error {
		published = nil
		return fn(tx, func(e loquat.Event, h *store.Head, q *store.Request) error {
			id, err := tx.Publish(e, h, q)
			e.SessionID = h.SessionID
			if q != nil {
				e.RequestID = q.RequestID
			}
			if listed(e.Type) {
				e.User = userOf[h.SessionID]
			}
			rec, _ := e.Encode()
			rec.ID, rec.At = id, tx.Now
			published = append(published, rec)
			return err
		})
	}))
	for _, rec := range published {
		if rec.ID <= m.newest {
			t.Fatalf("event %s was assigned after %s", rec.ID, m.newest)
		}
		m.newest = rec.ID
	}
	m.log = append(m.log, published...)
	m.newest = max(m.newest, m.s.Last())
}

// forgetUntracked starts the model after the events that it did not see.
func (m *incrementsModel) forgetUntracked(t *rapid.T) {
	m.log, m.newest, m.floor = nil, m.s.Last(), m.s.Last()
}

func (m *incrementsModel) session(t *rapid.T, running bool) (id string, ok bool) {
	var fit []string
	for _, id := range m.sessions {
		if (m.running[id] != nil) == running {
			fit = append(fit, id)
		}
	}
	if len(fit) == 0 {
		return "", false
	}
	return rapid.SampledFrom(fit).Draw(t, "session"), true
}

func (m *incrementsModel) start(t *rapid.T) {
	id, ok := m.session(t, false)
	if !ok {
		t.Skip()
	}
	q := &store.Request{Request: loquat.Request{RequestID: fmt.Sprintf("%s-%d", id, m.newest)}}
	m.update(t, func(tx *store.Tx, publish publishFunc) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		if err := tx.EnqueueRequest(&h, q, store.AtTheEnd); err != nil {
			return err
		}
		if err := tx.StartRequest(q, "me"); err != nil {
			return err
		}
		stream := true
		return publish(loquat.Event{Type: loquat.RequestStarted, Stream: &stream}, &h, q)
	})
	m.running[id] = q
}

// anIncrement draws an event that a request streams.
func anIncrement(t *rapid.T) loquat.Event {
	text := rapid.OneOf(rapid.String(), rapid.StringN(0, 9, 40), rapid.Just(`"}}`), rapid.Just("\u2028\xff")).Draw(t, "text")
	if rapid.IntRange(0, 30).Draw(t, "large") == 0 {
		text += string(bytes.Repeat([]byte("x"), 90_000))
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return loquat.Event{Type: loquat.ToolPartial, Phase: loquat.PhaseStream, ToolCallID: "call", Payload: &loquat.Payload{Part: &text}}
	case 1:
		return loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Metadata: loquat.Object{"reasoning": loquat.Quote(text)}}}
	case 2:
		return loquat.Event{Type: loquat.RetryScheduled, Attempt: 1}
	}
	return loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: text}}
}

func (m *incrementsModel) stream(t *rapid.T) {
	type part struct {
		id string
		e  loquat.Event
	}
	var parts []part
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		if id, ok := m.session(t, true); ok {
			parts = append(parts, part{id, anIncrement(t)})
		}
	}
	flush := rapid.IntRange(0, 20).Draw(t, "flush after")
	m.update(t, func(tx *store.Tx, publish publishFunc) error {
		for i, p := range parts {
			q := m.running[p.id]
			if err := publish(p.e, &store.Head{SID: q.SID, SessionID: p.id, User: userOf[p.id]}, q); err != nil {
				return err
			}
			if i == flush { // a reader within the batch
				if _, err := tx.SizeOfRequestEvents(*q, 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (m *incrementsModel) end(t *rapid.T) {
	id, ok := m.session(t, true)
	if !ok {
		t.Skip()
	}
	q := m.running[id]
	silent := rapid.Bool().Draw(t, "without an event") // then an increment may have the newest id
	m.update(t, func(tx *store.Tx, publish publishFunc) error {
		if err := tx.EndRequest(q, loquat.StatusCompleted, ""); err != nil || silent {
			return err
		}
		return publish(loquat.Event{Type: loquat.RequestCompleted}, &store.Head{SID: q.SID, SessionID: id, User: userOf[id]}, q)
	})
	delete(m.running, id)
	m.ended[q.RequestID] = true
	m.silent[q.RequestID] = silent
}

// read lets a reader read its next window. Of each request it sees the beginning of the increments,
// without a gap, however far it lags and wherever the window comes from.
func (m *incrementsModel) read(t *rapid.T) {
	r := rapid.SampledFrom(m.readers).Draw(t, "reader")
	if rapid.Bool().Draw(t, "changes meanwhile") {
		m.between = func() {
			m.change(t)
			m.change(t)
		}
	}
	before := r.at
	window, err := m.s.Events(t.Context(), r.at, store.Filter{}, store.Bounds{Events: rapid.SampledFrom([]int{1, 3, 20}).Draw(t, "window")})
	m.must(t, err)
	m.between = nil
	m.requireNoneMissing(t, before, window)
	for _, rec := range window {
		r.at = rec.ID
		if rec.Type != loquat.Partial && rec.Type != loquat.ToolPartial || m.silent[rec.RequestID] {
			continue
		}
		before := 0
		for _, e := range m.log {
			if e.RequestID == rec.RequestID && e.ID < rec.ID && e.Type == rec.Type {
				before++
			}
		}
		shown := rec.RequestID + string(rec.Type)
		if r.shown[shown] != before {
			t.Fatalf("a reader is shown increment %s of request %s, the number %d, after %d of them", rec.ID, rec.RequestID, before+1, r.shown[shown])
		}
		r.shown[shown]++
	}
}

// change makes one change to the log, if it can.
func (m *incrementsModel) change(t *rapid.T) {
	_, running := m.session(t, true)
	switch kind := rapid.IntRange(0, 3).Draw(t, "change"); {
	case kind == 0 && running:
		m.end(t)
	case kind == 1 || !running:
		m.must(t, m.s.Cleanup(t.Context()))
	default:
		m.stream(t)
	}
}

// requireNoneMissing requires that a window leaves out no event but increments of ended requests.
func (m *incrementsModel) requireNoneMissing(t *rapid.T, since loquat.EventID, window []loquat.Record) {
	got := map[loquat.EventID]bool{}
	last := since
	for _, rec := range window {
		if rec.ID <= last {
			t.Fatalf("event %s is shown after %s", rec.ID, last)
		}
		last = rec.ID
		got[rec.ID] = true
	}
	for _, want := range m.log {
		optional := m.ended[want.RequestID] && (want.Type == loquat.Partial || want.Type == loquat.ToolPartial)
		if want.ID > since && want.ID <= last && !got[want.ID] && !optional {
			t.Fatalf("a window from %s to %s lacks %s (%s)", since, last, want.ID, want.Type)
		}
	}
}

// delete deletes a session, after which only its session_deleted can be read.
func (m *incrementsModel) delete(t *rapid.T) {
	if len(m.spare) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.sessions)-1).Draw(t, "deleted session")
	id := m.sessions[i]
	gone := loquat.Event{Type: loquat.SessionDeleted, SessionID: id, User: userOf[id]}
	rec, err := gone.Encode()
	m.must(t, err)
	m.update(t, func(tx *store.Tx, _ publishFunc) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		if q := m.running[id]; q != nil {
			if err := tx.EndRequest(q, loquat.StatusCancelled, ""); err != nil {
				return err
			}
		}
		err = tx.DeleteSession(&h)
		rec.ID, rec.At = h.Cursor, tx.Now
		return err
	})
	m.log = slices.DeleteFunc(m.log, func(r loquat.Record) bool { return r.SessionID == id })
	m.log = append(m.log, rec)
	m.sessions[i], m.spare = m.spare[0], m.spare[1:]
	m.deleted = append(m.deleted, id)
	delete(m.running, id)
}

var errModel = errors.New("this update fails")

// fail rolls a transaction back that wrote increments.
func (m *incrementsModel) fail(t *rapid.T) {
	id, ok := m.session(t, true)
	if !ok {
		t.Skip()
	}
	err := m.s.Update(t.Context(), func(tx *store.Tx) error {
		q := m.running[id]
		if _, err := tx.Publish(anIncrement(t), &store.Head{SID: q.SID, SessionID: id}, q); err != nil {
			return err
		}
		if err := tx.SortIncrements(); err != nil {
			return err
		}
		return errModel
	})
	if !errors.Is(err, errModel) {
		t.Fatal(err)
	}
}

// crash continues with the files that a killed process leaves.
func (m *incrementsModel) crash(t *rapid.T) {
	if len(m.dirs) > 4 {
		t.Skip()
	}
	from, to := m.dirs[len(m.dirs)-1], m.newDir(t)
	m.must(t, os.CopyFS(to, os.DirFS(from)))
	m.must(t, m.s.Close())
	m.open(t, to)
	if m.s.Last() != m.newest {
		t.Fatalf("after a crash the log ends at %s, not at %s", m.s.Last(), m.newest)
	}
}

func (m *incrementsModel) check(t *rapid.T) {
	f := store.Filter{}
	var of *store.Request
	switch rapid.IntRange(0, 5).Draw(t, "filter") {
	case 0:
		some := rapid.SliceOfN(rapid.SampledFrom(append(slices.Concat(m.sessions, m.deleted), "unknown")), 0, 3).Draw(t, "of sessions")
		f.Among = store.NewSelection(some, rapid.Bool().Draw(t, "list"))
		if f.Among.List {
			f.Among.User = rapid.SampledFrom([]string{"", "", "ann", "bob"}).Draw(t, "user")
		}
	case 1:
		f.SessionID = rapid.SampledFrom(slices.Concat(m.sessions, m.deleted)).Draw(t, "of session")
	case 2:
		if id, ok := m.session(t, true); ok {
			of = m.running[id]
			f.RequestID = of.RequestID
		}
	case 3:
		f.User = rapid.SampledFrom([]string{"ann", "bob", "carl"}).Draw(t, "all of user")
	}
	since := max(m.floor, m.newest-loquat.EventID(rapid.IntRange(0, len(m.log)+1).Draw(t, "since")))
	limit := rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "limit")
	m.must(t, m.s.View(t.Context(), func(r *store.Reader) error {
		got, err := r.DatabaseEvents(since, f, limit)
		if err != nil {
			return err
		}
		m.compare(t, got, since, f, limit)
		if of == nil {
			return nil
		}
		var all []loquat.Record
		size := 0
		if err := r.EachRequestEvent(*of, since, true, func(rec loquat.Record) error {
			size += len(rec.Body)
			all = append(all, rec)
			return nil
		}); err != nil {
			return err
		}
		m.compare(t, all, since, f, 1<<30)
		if n, err := r.SizeOfRequestEvents(*of, since); n != int64(size) || err != nil {
			t.Fatalf("the events of a request have %d bytes, %v, not %d", size, err, n)
		}
		return nil
	}))
	if rapid.IntRange(0, 3).Draw(t, "verify") > 0 {
		return
	}
	err := m.driver.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { t.Fatal(problem) })
		return nil
	})
	m.must(t, err)
}

// userOf has the users to whom the sessions of the model belong.
var userOf = map[string]string{"a": "ann", "b": "bob", "e": "ann"}

// listed reports whether events of a type change the list of sessions.
func listed(t loquat.EventType) bool {
	switch t {
	case loquat.SessionCreated, loquat.SessionDeleted, loquat.Checkpoint, loquat.RequestStarted, loquat.RequestCompleted:
		return true
	}
	return false
}

// selects reports whether a Selection has an event.
func selects(s *store.Selection, r loquat.Record) bool {
	return s.List && listed(r.Type) && (s.User == "" || s.User == userOf[r.SessionID]) || s.Has(r.SessionID)
}

// compare requires that got is what the model has above since, except that increments of
// ended requests may be missing.
func (m *incrementsModel) compare(t *rapid.T, got []loquat.Record, since loquat.EventID, f store.Filter, limit int) {
	full := len(got) == limit
	for _, want := range m.log {
		if want.ID <= since || f.Among != nil && !selects(f.Among, want) || f.SessionID != "" && want.SessionID != f.SessionID || f.RequestID != "" && want.RequestID != f.RequestID || f.User != "" && userOf[want.SessionID] != f.User {
			continue
		}
		optional := m.ended[want.RequestID] && (want.Type == loquat.Partial || want.Type == loquat.ToolPartial)
		if len(got) == 0 {
			if full || optional {
				continue
			}
			t.Fatalf("%s event %s is missing", want.Type, want.ID)
		}
		if got[0].ID != want.ID {
			if optional && got[0].ID > want.ID {
				continue
			}
			t.Fatalf("read %s, want %s (%s)", got[0].ID, want.ID, want.Type)
		}
		if g := got[0]; !bytes.Equal(g.Body, want.Body) || g.Type != want.Type || g.RequestID != want.RequestID || g.SessionID != want.SessionID || g.User != userOf[want.SessionID] || !g.At.Equal(want.At) {
			t.Fatalf("read %+v\nwant %+v", g, want)
		}
		got = got[1:]
	}
	if len(got) > 0 {
		t.Fatalf("read event %s, which nobody published", got[0].ID)
	}
}

// change runs fn in a transaction, with the head of session s.
func change(t *testing.T, s *store.Store, fn func(*store.Tx, *store.Head) error) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("s")
		if err != nil {
			return err
		}
		return fn(tx, &h)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Readers of several sessions get the increments of all their requests in the order of their ids, also from rows
// that were sorted by request.
func TestIncrementsOfSeveralSessions(t *testing.T) {
	s := openIn(t, t.TempDir(), new(bytes.Buffer))
	defer s.Close()
	var ids []string
	requests := map[string]*store.Request{}
	for _, id := range []string{"a", "b", "c"} {
		createIn(t, s, id)
		ids, requests[id] = append(ids, id), &store.Request{Request: loquat.Request{RequestID: "r" + id}}
	}
	in := func(id string, fn func(*store.Tx, *store.Head) error) {
		t.Helper()
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head(id)
			if err == nil {
				err = fn(tx, &h)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		in(id, func(tx *store.Tx, h *store.Head) error {
			return errors.Join(tx.EnqueueRequest(h, requests[id], store.AtTheEnd), tx.StartRequest(requests[id], "me"))
		})
	}
	for n := range 12 {
		id := ids[n%3]
		in(id, func(tx *store.Tx, h *store.Head) error {
			_, err := tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: "text"}}, h, requests[id])
			return err
		})
		if n%6 == 5 {
			in(id, func(tx *store.Tx, _ *store.Head) error { return tx.SortIncrements() })
		}
	}
	for _, selection := range []*store.Selection{store.NewSelection([]string{"a", "c"}, false), store.NewSelection(ids, true)} {
		var all []loquat.EventID
		for _, limit := range []int{1000, 1, 2, 3, 5} {
			var got []loquat.EventID
			for since := loquat.EventID(0); ; since = got[len(got)-1] {
				var page []loquat.Record
				err := s.View(t.Context(), func(r *store.Reader) (err error) {
					page, err = r.DatabaseEvents(since, store.Filter{Among: selection}, limit)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, rec := range page {
					got = append(got, rec.ID)
				}
				if len(page) < limit {
					break
				}
			}
			if all == nil {
				all = got
			}
			if !slices.IsSorted(got) || !slices.Equal(got, all) {
				t.Errorf("%v: %d at a time are %v, all at once %v", selection.Sessions, limit, got, all)
			}
		}
		if len(all) < 4*len(selection.Sessions) {
			t.Errorf("%v: %d events", selection.Sessions, len(all))
		}
	}
}

// A request of an earlier process ends while a reader is about to read it: the database loses the first
// increments, and the tail the last ones. The reader is not shown the last ones alone.
func TestReadWhileARequestEnds(t *testing.T) {
	dir, between := t.TempDir(), (func())(nil)
	var s *store.Store
	var q store.Request
	open := func() {
		driver, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err == nil {
			s, err = store.Open(t.Context(), hookedDriver{driver, &between}, store.Options{Logger: slog.New(slog.DiscardHandler)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	update := func(fn func(*store.Tx, *store.Head) error) {
		t.Helper()
		change(t, s, fn)
	}
	publish := func(tx *store.Tx, h *store.Head, events ...loquat.Event) error {
		for _, e := range events {
			if _, err := tx.Publish(e, h, &q); err != nil {
				return err
			}
		}
		return nil
	}
	text := loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: "text"}}

	open()
	createIn(t, s, "s")
	update(func(tx *store.Tx, h *store.Head) error {
		q = store.Request{Request: loquat.Request{RequestID: "r"}}
		if err := errors.Join(tx.EnqueueRequest(h, &q, store.AtTheEnd), tx.StartRequest(&q, "me")); err != nil {
			return err
		}
		return publish(tx, h, loquat.Event{Type: loquat.RequestStarted, Stream: new(true)}, text, text)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	defer func() { s.Close() }()
	update(func(tx *store.Tx, h *store.Head) error { return publish(tx, h, text, text) })
	between = func() {
		update(func(tx *store.Tx, h *store.Head) error {
			return errors.Join(tx.EndRequest(&q, loquat.StatusCompleted, ""), publish(tx, h, loquat.Event{Type: loquat.RequestCompleted}))
		})
		if err := s.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]store.Filter{"of the session": {SessionID: "s"}, "of the request": {RequestID: "r"}, "all": {}} {
		got, err := s.Events(t.Context(), 0, f, store.Bounds{Events: 100})
		if err != nil || len(got) == 0 {
			t.Fatalf("%s: %d events, %v", name, len(got), err)
		}
		for _, rec := range got {
			if rec.Type == loquat.Partial {
				t.Errorf("%s: increment %s is shown", name, rec.ID)
			}
		}
	}
}

// The number of increments decides when the committer sorts them.
func TestCommitterSortsIncrements(t *testing.T) {
	var logged bytes.Buffer
	s := openIn(t, t.TempDir(), &logged)
	defer s.Close()
	createIn(t, s, "s")
	q := &store.Request{Request: loquat.Request{RequestID: "r"}}
	update := func(fn func(*store.Tx, *store.Head) error) {
		t.Helper()
		change(t, s, fn)
	}
	update(func(tx *store.Tx, h *store.Head) error {
		if err := tx.EnqueueRequest(h, q, store.AtTheEnd); err != nil {
			return err
		}
		return tx.StartRequest(q, "me")
	})
	const commits, each = 40, 500
	most := 0
	for range commits {
		update(func(tx *store.Tx, h *store.Head) error {
			for range each {
				if _, err := tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: "text"}}, h, q); err != nil {
					return err
				}
			}
			return nil
		})
		err := s.View(t.Context(), func(r *store.Reader) error {
			n, err := r.SharedRows()
			most = max(most, n)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if most >= commits-5 || most < 5 {
		t.Errorf("of %d commits up to %d were left unsorted", commits, most)
	}
	n := 0
	err := s.View(t.Context(), func(r *store.Reader) error {
		return r.EachRequestEvent(*q, 0, true, func(rec loquat.Record) error {
			if rec.Type == loquat.Partial {
				n++
			}
			if !json.Valid(rec.Body) {
				t.Errorf("event %s is %q", rec.ID, rec.Body)
			}
			return nil
		})
	})
	if err != nil || n != commits*each {
		t.Errorf("the request has %d increments, %v", n, err)
	}
}

// A damaged row of increments is reported as damage and not returned.
func TestDamagedIncrements(t *testing.T) {
	for name, statement := range map[string]string{
		"cut":     `UPDATE increments SET body = substr(body, 1, length(body) - 1)`,
		"empty":   `UPDATE increments SET body = x''`,
		"changed": `UPDATE increments SET body = x'ff' || substr(body, 2)`,
	} {
		t.Run(name, func(t *testing.T) {
			driver, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(t.Context(), driver, store.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			createIn(t, s, "s")
			q := &store.Request{Request: loquat.Request{RequestID: "r"}}
			err = s.Update(t.Context(), func(tx *store.Tx) error {
				h, err := tx.Head("s")
				if err != nil {
					return err
				}
				if err := errors.Join(tx.EnqueueRequest(&h, q, store.AtTheEnd), tx.StartRequest(q, "me")); err != nil {
					return err
				}
				for range 3 {
					if _, err := tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: "text"}}, &h, q); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := driver.Write(t.Context(), func(w store.SQL) error { _, err := w.Exec(statement); return err }); err != nil {
				t.Fatal(err)
			}
			found := verify(t, driver)
			if !slices.ContainsFunc(found, func(text string) bool { return bytes.Contains([]byte(text), []byte("increments")) }) {
				t.Errorf("check finds %v", found)
			}
			err = s.View(t.Context(), func(r *store.Reader) error {
				_, err := r.DatabaseEvents(0, store.Filter{SessionID: "s"}, 100)
				return err
			})
			if loquat.CodeOf(err) != loquat.CodeUnavailable || s.Healthy() != store.Damaged {
				t.Errorf("a reader gets %v, the store is %v", err, s.Healthy())
			}
		})
	}
}
