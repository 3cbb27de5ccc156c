//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// logOf returns the ids and bodies of the log above an id, in windows.
func logOf(t *testing.T, s *store.Store, since loquat.EventID) (out []string) {
	t.Helper()
	for {
		records, err := s.Events(t.Context(), since, store.Filter{}, store.Bounds{Events: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			return out
		}
		for _, r := range records {
			out = append(out, fmt.Sprintf("%s %s %s", r.ID, r.SessionID, r.Body))
		}
		since = records[len(records)-1].ID
	}
}

// sameLog checks that all stores show the same log. They are level within a second.
func sameLog(t *testing.T, stores ...*store.Store) {
	t.Helper()
	level(t, stores...)
	want := logOf(t, stores[0], 0)
	for i, s := range stores[1:] {
		if got := logOf(t, s, 0); !slices.Equal(got, want) {
			t.Errorf("node %d has %d events, node 0 has %d", i+1, len(got), len(want))
		}
	}
}

// level waits until the tails of all stores end with the log.
func level(t *testing.T, stores ...*store.Store) {
	t.Helper()
	var last loquat.EventID
	for _, s := range stores {
		last = max(last, s.Last())
	}
	eventually(t, "all tails are level", func() bool {
		return !slices.ContainsFunc(stores, func(s *store.Store) bool { return s.Last() < last })
	})
}

// openNodes opens stores on one database.
func openNodes(t *testing.T, url string, n int, lease time.Duration) (out []*store.Store) {
	t.Helper()
	for i := range n {
		s, _ := openStore(t, postgres.Options{URL: url, Node: fmt.Sprint("node-", i), Lease: lease})
		out = append(out, s)
	}
	return out
}

// A follower of each node sees every event of all nodes once, in order, without a gap, and an
// answered change is in the answering node's log at once.
func TestNodesShareOneLog(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 3, 0)
	mustCreate(t, nodes[0], "s")
	const perWorker = 60
	var writers, readers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make([][]loquat.EventID, len(nodes))
	for i, s := range nodes {
		readers.Go(func() {
			w := s.Watch(store.Filter{})
			defer w.Stop()
			release := context.AfterFunc(ctx, w.Wake)
			defer release()
			for at := loquat.EventID(0); ; {
				done := ctx.Err() != nil
				records, err := w.Events(context.Background(), nil, at, "", store.Bounds{Events: 100})
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range records {
					seen[i] = append(seen[i], r.ID)
					at = r.ID
				}
				if len(records) > 0 {
					continue
				}
				if done {
					return
				}
				<-w.C()
			}
		})
		for range 4 {
			writers.Go(func() {
				for range perWorker {
					id, err := store.Do(t.Context(), s, func(tx *store.Tx) (loquat.EventID, error) { return say(tx, "s", fmt.Sprint("node ", i)) })
					if err != nil {
						t.Error(err)
						return
					}
					if s.Last() < id {
						t.Errorf("event %s was answered when the node's log ended at %s", id, s.Last())
					}
				}
			})
		}
	}
	writers.Wait()
	level(t, nodes...)
	stop()
	readers.Wait()
	for i, ids := range seen {
		if len(ids) != 1+len(nodes)*4*perWorker {
			t.Errorf("node %d showed %d events", i, len(ids))
		}
		for k, id := range ids {
			if id != loquat.EventID(k+1) {
				t.Fatalf("node %d showed event %s at place %d", i, id, k+1)
			}
		}
	}
	sameLog(t, nodes...)
}

// say publishes a partial event of a session.
func say(tx *store.Tx, session, text string) (loquat.EventID, error) {
	h, err := tx.Head(session)
	if err != nil {
		return 0, err
	}
	return tx.Publish(loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: text}}, &h, nil)
}

// What a view saw is in the node's log when the view returns, although another node wrote it.
func TestViewWaitsForTheTail(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	for i := range 50 {
		id := fmt.Sprint("s", i)
		mustCreate(t, nodes[i%2], id)
		err := nodes[1-i%2].View(t.Context(), func(r *store.Reader) error {
			_, err := r.Head(id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := nodes[1-i%2].Last(); got < loquat.EventID(i+1) {
			t.Fatalf("the log ends at %s, and the view saw event %d", got, i+1)
		}
	}
}

// Without notifications a node sees the events of others within about a second.
func TestNotificationsAreLost(t *testing.T) {
	t.Parallel()
	name, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	mustCreate(t, nodes[0], "a")
	level(t, nodes...)
	admin := connect(t, pgtest.Shared(t).URL("postgres"))
	stop := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			_, _ = admin.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND query LIKE 'LISTEN%'", name)
		}
	})
	defer func() { close(stop); ending.Wait() }()
	time.Sleep(100 * time.Millisecond)
	for i := range 3 {
		id, began := fmt.Sprint("b", i), time.Now()
		mustCreate(t, nodes[0], id)
		last := nodes[0].Last()
		eventually(t, "the other node has the event", func() bool { return nodes[1].Last() >= last })
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the other node saw the event after %s", took)
		}
	}
}

// A node whose lease ran out is fenced: it writes nothing under its old hold, begins another
// one, and goes on.
func TestNodeThatWasFenced(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	mustCreate(t, nodes[0], "s")
	var left atomic.Int64
	nodes[0].OnLeave(func() { left.Add(1) })
	owner := nodes[0].Owner()
	rid := run(t, nodes[0], "s", "r", owner)
	exec(t, connect(t, url), "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 second', seen_at = '-infinity' WHERE owner = '"+owner+"'")
	eventually(t, "the request is an orphan", func() bool {
		found, err := store.Read(t.Context(), nodes[1], (*store.Reader).Orphans)
		return err == nil && len(found) == 1 && found[0].RequestID == "r"
	})
	failed := make(chan error, 1)
	o := nodes[0].NewOutbox(store.Request{RID: rid, Owner: owner}, streamer(func(err error) { failed <- err }))
	before := nodes[1].Last()
	o.Ready()
	if err := <-failed; !errors.Is(err, store.ErrFenced) {
		t.Errorf("increments of the old hold: %v", err)
	}
	mustCreate(t, nodes[0], "after")
	if nodes[0].Owner() == owner {
		t.Error("the node has its old hold")
	}
	if left.Load() != 1 {
		t.Errorf("the node left its hold %d times", left.Load())
	}
	sameLog(t, nodes...)
	if got := nodes[1].Last(); got != before+1 {
		t.Errorf("the fenced node wrote %d events", got-before)
	}
}

type streamer func(error)

func (s streamer) PublishIncrements(*store.Tx) error {
	panic("increments of a fenced request were published")
}
func (s streamer) IncrementsFailed(err error) { s(err) }

// run stores a running request.
func run(t *testing.T, s *store.Store, session, id, owner string) int64 {
	t.Helper()
	rid, err := store.Do(t.Context(), s, func(tx *store.Tx) (int64, error) {
		h, err := tx.Head(session)
		if err != nil {
			return 0, err
		}
		q := store.Request{Request: loquat.Request{RequestID: id}, Send: []byte("{}"), Answer: []byte("{}")}
		if err := tx.AddRunning(&h, &q, owner); err != nil {
			return 0, err
		}
		_, err = tx.Publish(loquat.Event{Type: loquat.RequestStarted}, &h, &q)
		return q.RID, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rid
}

// A node that cannot reach the database leaves its hold before others may end it.
func TestNodeLeavesBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	const lease = 5 * time.Second
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Node: "a", Lease: lease})
	mustCreate(t, s, "before")
	left := make(chan time.Time, 1)
	s.OnLeave(func() { left <- time.Now() })
	owner := s.Owner()
	cut := time.Now()
	server.Stop()
	select {
	case at := <-left:
		if took := at.Sub(cut); took >= lease {
			t.Errorf("the node left after %s", took)
		}
	case <-time.After(2 * lease):
		t.Fatal("the node did not leave")
	}
	if s.Leads() {
		t.Error("a node without a hold leads")
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	recovers(t, s, db, "after")
	if s.Owner() == owner {
		t.Error("the node has its old hold")
	}
	eventually(t, "the node leads again", s.Leads)
}

// The oldest live node leads. When it ends, the next one does.
func TestOldestNodeLeads(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 3, 0)
	listed := func(s *store.Store) (ids []string) {
		list, err := s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			if n.Self != (n.NodeID == s.Node().NodeID) || n.Leads != (len(ids) == 0) {
				t.Errorf("listed as %+v", n)
			}
			ids = append(ids, n.NodeID)
		}
		return ids
	}
	if got := listed(nodes[1]); !slices.Equal(got, []string{"node-0", "node-1", "node-2"}) {
		t.Errorf("the nodes are %q", got)
	}
	for i, s := range nodes {
		if s.Leads() != (i == 0) {
			t.Errorf("node %d leads: %v", i, s.Leads())
		}
	}
	if err := nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next node leads", nodes[1].Leads)
	if nodes[2].Leads() {
		t.Error("two nodes lead")
	}
	if got := listed(nodes[2]); !slices.Equal(got, []string{"node-1", "node-2"}) {
		t.Errorf("the nodes are %q", got)
	}
}

// A second process with the same node id ends the hold of the first. The first then goes on
// under another id, so that the two do not end each other's holds for ever.
func TestTwoProcessesOfOneNode(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	first, _ := openStore(t, postgres.Options{URL: url, Node: "same"})
	mustCreate(t, first, "a")
	owner := first.Owner()
	second, _ := openStore(t, postgres.Options{URL: url, Node: "same"})
	for i := range 3 {
		mustCreate(t, second, fmt.Sprint("b", i))
		mustCreate(t, first, fmt.Sprint("c", i))
	}
	if first.Owner() == owner || first.Node().NodeID == "same" || second.Node().NodeID != "same" {
		t.Errorf("the nodes are %q and %q", first.Node().NodeID, second.Node().NodeID)
	}
	sameLog(t, first, second)
}

// Marks of shared state and signals reach the other nodes, and not their sender.
func TestSharedStateAndSignals(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 3, 0)
	var changed, signals [3]atomic.Int64
	for i, s := range nodes {
		s.OnChanged("tokens", func(context.Context) error {
			changed[i].Add(1)
			return nil
		})
		s.OnChanged("other", func(context.Context) error {
			t.Error("another kind was reported")
			return nil
		})
		s.OnSignal("cancel", func(payload string) {
			if payload != "r" {
				t.Errorf("got the signal %q", payload)
			}
			signals[i].Add(1)
		})
	}
	var ready [3]atomic.Bool
	for i, s := range nodes {
		s.OnSignal("ready", func(string) { ready[i].Store(true) })
	}
	eventually(t, "the others listen", func() bool {
		err := nodes[1].Update(t.Context(), func(tx *store.Tx) error { tx.Signal("ready", ""); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return ready[0].Load() && ready[2].Load()
	})
	err := nodes[1].Update(t.Context(), func(tx *store.Tx) error {
		tx.MarkChanged("tokens")
		tx.MarkChanged("tokens")
		tx.Signal("cancel", "r")
		tx.Signal("unknown", "x")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others know", func() bool {
		return changed[0].Load() == 1 && changed[2].Load() == 1 && signals[0].Load() == 1 && signals[2].Load() == 1
	})
	// Too much for one notification: the state of the kind still arrives.
	err = nodes[0].Update(t.Context(), func(tx *store.Tx) error {
		tx.MarkChanged("tokens")
		tx.Signal("cancel", strings.Repeat("x", 9000))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others look", func() bool { return changed[1].Load() == 1 && changed[2].Load() == 2 })
	time.Sleep(1200 * time.Millisecond) // another look reports nothing again
	if changed[0].Load() != 1 || changed[1].Load() != 1 || changed[2].Load() != 2 || signals[1].Load() != 0 {
		t.Errorf("changes %d %d %d, own signals %d", changed[0].Load(), changed[1].Load(), changed[2].Load(), signals[1].Load())
	}
}

// The database goes back to an earlier state while nodes use it, as after a failover to a
// standby that lagged. No id gets a second meaning, and ids that are lost are foreign.
func TestDatabaseThatLostTransactions(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"another timeline, nothing lost": `UPDATE log SET timeline = '0000000X'`,
		"events lost":                    `DELETE FROM events WHERE event_id >= 3; DELETE FROM sessions WHERE session_id >= 'c'; UPDATE log SET last_event_id = 2`,
	} {
		_, url := pgtest.Shared(t).Database(t)
		nodes := openNodes(t, url, 3, 0)
		for i, id := range []string{"a", "b", "c", "d"} {
			mustCreate(t, nodes[i%2], id)
		}
		level(t, nodes...)
		lost := name == "events lost"
		last := nodes[0].Last()
		exec(t, connect(t, url), statement)
		mustCreate(t, nodes[0], "next")
		next := nodes[0].Last()
		if next <= last+1 {
			t.Errorf("%s: event %s follows %s", name, next, last)
		}
		eventually(t, "all nodes know", func() bool { return nodes[1].Last() == next && nodes[2].Last() == next })
		sameLog(t, nodes...)
		for i, s := range nodes {
			if s.Foreign(last) != lost || s.Foreign(2) || s.Foreign(next) || !s.Foreign(next-2) {
				t.Errorf("%s: node %d: foreign ids are wrong", name, i)
			}
			if got := s.ExistsSince("a", last); got {
				t.Errorf("%s: node %d trusts what it knew of sessions", name, i)
			}
		}
		mustCreate(t, nodes[2], "more")
		if got := nodes[2].Last(); got != next+1 {
			t.Errorf("%s: event %s follows %s", name, got, next)
		}
		id := nodes[0].ID()
		again, _ := openStore(t, postgres.Options{URL: url, Node: "late"})
		if again.ID() != id || again.Foreign(last) != lost {
			t.Errorf("%s: a later node has another log", name)
		}
		sameLog(t, append(nodes, again)...)
	}
}

// A client that lags reads a window at a node whose database hides the first increments of a request
// that has ended, and the next window at another node, which still has all of them in memory. It is
// not shown the last ones alone.
func TestClientMovesAfterARequestHasEnded(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	owner := openNodes(t, url, 1, 0)[0]
	mustCreate(t, owner, "s")
	publish := startRequest(t, owner, "s")
	publish(loquat.RequestStarted, "")
	publish(loquat.Partial, "first")
	late, _ := openStore(t, postgres.Options{URL: url, Node: "late"})
	mustCreate(t, owner, "between")
	between := owner.Last()
	publish(loquat.Partial, "last")
	publish(loquat.RequestCompleted, "")
	if err := owner.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}

	shown := func(records []loquat.Record) (out []loquat.EventID) {
		for _, r := range records {
			if r.Type == loquat.Partial {
				out = append(out, r.ID)
			}
		}
		return out
	}
	since := loquat.EventID(0)
	for since < between {
		window, err := late.Events(t.Context(), since, store.Filter{}, store.Bounds{Events: 1})
		if err != nil || len(window) == 0 || len(shown(window)) > 0 {
			t.Fatalf("the first window: %v, %v", window, err)
		}
		since = window[0].ID
	}
	if err := owner.CatchUp(t.Context()); err != nil { // as every poll does
		t.Fatal(err)
	}
	for _, f := range []store.Filter{{}, {SessionID: "s"}, {RequestID: "r"}} {
		window, err := owner.Events(t.Context(), since, f, store.Bounds{Events: 100})
		if err != nil || len(window) == 0 || len(shown(window)) > 0 {
			t.Errorf("the next window, %+v: increments %v, %v", f, shown(window), err)
		}
	}
}

// startRequest begins a request of a session, and returns a function that publishes its events.
func startRequest(t *testing.T, s *store.Store, session string) (publish func(kind loquat.EventType, text string)) {
	t.Helper()
	q := store.Request{Request: loquat.Request{RequestID: "r"}}
	update := func(fn func(*store.Tx, *store.Head) error) {
		t.Helper()
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head(session)
			if err != nil {
				return err
			}
			return fn(tx, &h)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *store.Tx, h *store.Head) error {
		return errors.Join(tx.EnqueueRequest(h, &q, store.AtTheEnd), tx.StartRequest(&q, s.Owner()))
	})
	return func(kind loquat.EventType, text string) {
		t.Helper()
		update(func(tx *store.Tx, h *store.Head) error {
			e := loquat.Event{Type: kind}
			if kind == loquat.Partial {
				e.Message = &loquat.Delta{Role: loquat.RoleAssistant, Content: text}
			}
			if kind == loquat.RequestCompleted {
				if err := tx.EndRequest(&q, loquat.StatusCompleted, ""); err != nil {
					return err
				}
			}
			_, err := tx.Publish(e, h, &q)
			return err
		})
	}
}

// A node that is far behind does not read what it missed, but its readers find it.
func TestNodeFarBehind(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	writer := openNodes(t, url, 1, 0)[0]
	mustCreate(t, writer, "s")
	reader, _ := openStore(t, postgres.Options{URL: url, Node: "reader"})
	conn := connect(t, url)
	exec(t, conn, `BEGIN; LOCK TABLE log IN ACCESS EXCLUSIVE MODE`) // nobody reads
	exec(t, conn, `INSERT INTO events (event_id, sid, type, rev, omit_messages, at, body)
		SELECT i, 1, 'partial', 0, 0, 0, convert_to('{"type":"partial","session_id":"s","message":{"role":"assistant","content":"' || i || '"}}', 'UTF8') FROM generate_series(2, 30000) i;
		UPDATE log SET last_event_id = 30000; COMMIT`)
	eventually(t, "the node is level", func() bool { return reader.Last() == 30000 })
	if got := logOf(t, reader, 0); len(got) != 30000 {
		t.Errorf("the reader finds %d events", len(got))
	}
	mustCreate(t, writer, "t")
	sameLog(t, reader, writer)
}

// The removal by age on one node is known to the others, whose readers are then told.
func TestRemovalByAgeOnAnotherNode(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	db := open(t, postgres.Options{URL: url, Node: "cleaner"})
	cleaner, err := store.Open(t.Context(), db, store.Options{Logger: slog.New(slog.DiscardHandler), Retention: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleaner.Close() })
	other, _ := openStore(t, postgres.Options{URL: url, Node: "other"})
	mustCreate(t, other, "s")
	for range 5 {
		if err := other.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head("s")
			if err != nil {
				return err
			}
			tx.Describe(&h, "default", nil)
			return tx.Checkpoint(&h, nil, false)
		}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Millisecond)
	if err := cleaner.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed, err := store.Read(t.Context(), other, func(r *store.Reader) (loquat.EventID, error) { return r.NewestRemoved(store.Filter{}) })
	if err != nil || removed == 0 {
		t.Fatalf("removed up to %s, %v", removed, err)
	}
	if got, settled := other.NewestRemovedOverall(); got != removed || !settled {
		t.Errorf("the other node knows of the removal up to %s (settled: %v), not %s", got, settled, removed)
	}
}

// A follower that has seen events which the database lost is told to load again. One that had
// not seen them continues.
func TestFollowersOfLostEvents(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	for _, id := range []string{"a", "b", "c"} {
		mustCreate(t, nodes[0], id)
	}
	level(t, nodes...)
	var behind, ahead []*feed.Follower
	for _, s := range nodes {
		f := feed.New(s)
		for since, list := range map[loquat.EventID]*[]*feed.Follower{2: &behind, 3: &ahead} {
			fl, err := f.Follow(t.Context(), feed.Query{Since: &since})
			if err != nil {
				t.Fatal(err)
			}
			defer fl.Stop()
			*list = append(*list, fl)
		}
	}
	exec(t, connect(t, url), `DELETE FROM events WHERE event_id = 3; DELETE FROM sessions WHERE session_id = 'c'; UPDATE log SET last_event_id = 2, timeline = 'X'`)
	go func() { _ = create(context.WithoutCancel(t.Context()), nodes[0], "d") }()
	until := time.Now().Add(10 * time.Second)
	for i := range nodes {
		w, err := ahead[i].Next(t.Context(), 3, until)
		if loquat.CodeOf(err) != loquat.CodeGone || len(w.Events) > 0 {
			t.Errorf("node %d: the follower that is ahead gets %v, %v", i, w.Events, err)
		}
		w, err = behind[i].Next(t.Context(), 2, until)
		if err != nil || len(w.Events) != 1 || w.Events[0].SessionID != "d" && w.Events[0].SessionID != "c" {
			t.Errorf("node %d: the follower that is behind gets %v, %v", i, w.Events, err)
		}
	}
}

// Behind a pooler in transaction mode, notifications come over a connection that leads past it.
func TestNotificationsPastAPooler(t *testing.T) {
	t.Parallel()
	program, err := findPooler()
	if err != nil {
		pgtest.Missing(t, "pgbouncer")
	}
	server := pgtest.Shared(t)
	name, direct := server.Database(t)
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", server.StartPooler(t, program), name)
	var nodes []*store.Store
	for i := range 2 {
		s, _ := openStore(t, postgres.Options{URL: url, ListenURL: direct, Node: fmt.Sprint("node-", i)})
		nodes = append(nodes, s)
	}
	var heard atomic.Int64
	nodes[1].OnSignal("topic", func(string) { heard.Add(1) })
	eventually(t, "the other node gets a signal", func() bool {
		err := nodes[0].Update(t.Context(), func(tx *store.Tx) error { tx.Signal("topic", ""); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return heard.Load() > 0
	})
	for i := range 20 {
		mustCreate(t, nodes[i%2], fmt.Sprint("s", i))
	}
	sameLog(t, nodes...)
}

// Without store.listen_url, nodes behind a pooler still see each other's events.
func TestNodesBehindAPooler(t *testing.T) {
	t.Parallel()
	program, err := findPooler()
	if err != nil {
		pgtest.Missing(t, "pgbouncer")
	}
	server := pgtest.Shared(t)
	name, _ := server.Database(t)
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", server.StartPooler(t, program), name)
	nodes := openNodes(t, url, 2, 0)
	for i := range 20 {
		mustCreate(t, nodes[i%2], fmt.Sprint("s", i))
	}
	sameLog(t, nodes...)
}

// Connections of two nodes are cut while COMMIT runs. Each node finds out what became of its
// transaction, although the other one writes meanwhile.
func TestConnectionsOfNodesCutDuringCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	_, direct := server.Database(t)
	var left atomic.Int64
	proxy := startCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port), func() int {
		if rand.IntN(4) > 0 || left.Add(-1) < 0 {
			return pass
		}
		return cutBefore + rand.IntN(2)
	})
	nodes := openNodes(t, through(t, direct, proxy.ln.Addr().String()), 2, 0)
	left.Store(20)
	var ledgers [2]ledger
	ledgers[1].n.Store(1 << 20) // other names
	var filling sync.WaitGroup
	for i, s := range nodes {
		filling.Go(func() { ledgers[i].fillUntil(t, s, 8, func() bool { return left.Load() <= 0 }) })
	}
	filling.Wait()
	level(t, nodes...)
	both := ledger{accepted: slices.Concat(ledgers[0].accepted, ledgers[1].accepted), refused: slices.Concat(ledgers[0].refused, ledgers[1].refused)}
	for _, s := range nodes {
		both.check(t, s)
	}
	if unknown := ledgers[0].unknown + ledgers[1].unknown; unknown > 0 || len(both.refused) == 0 {
		t.Errorf("%d updates refused, %d not known", len(both.refused), unknown)
	}
	sameLog(t, nodes...)
}

// A node that another program stopped in the middle of a transaction does not lock out the
// others for long.
func TestTransactionThatIsIdle(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	hold, held := make(chan struct{}), make(chan struct{})
	var stopped sync.WaitGroup
	var once sync.Once
	stopped.Go(func() {
		err := nodes[0].Update(t.Context(), func(tx *store.Tx) error {
			if _, err := tx.CreateSession("stopped", "default", nil); err != nil {
				return err
			}
			once.Do(func() { close(held) })
			<-hold
			return nil
		})
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			t.Errorf("the update that was stopped: %v", err)
		}
	})
	<-held
	began := time.Now()
	mustCreate(t, nodes[1], "meanwhile")
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("the other node waited %s", took)
	}
	close(hold)
	stopped.Wait()
	sameLog(t, nodes...)
}

// A database of an earlier version keeps its log, with the increments that have higher ids than
// the row of the log.
func TestUpgradeToSeveralNodes(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	conn := connect(t, url)
	exec(t, conn, "CREATE TABLE loquat_schema (version INTEGER NOT NULL); INSERT INTO loquat_schema VALUES (4)")
	for _, step := range []string{"01_store.sql", "02_texts.sql", "03_moves.sql", "04_images.sql"} {
		statements, err := os.ReadFile(filepath.Join("schema", step))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Exec(t.Context(), string(statements)).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, "INSERT INTO log (store_id, last_event_id, owner, epoch, batch) VALUES ('old', 5, 'a', 7, 9); INSERT INTO increments (last_event_id, entries, body) VALUES (8, 1, '\\x00')")
	s, _ := openStore(t, postgres.Options{URL: url})
	if s.ID() != "old" || s.Last() != 8 {
		t.Errorf("the log is %q up to %s", s.ID(), s.Last())
	}
	mustCreate(t, s, "next")
	if s.Last() != 9 {
		t.Errorf("the next event is %s", s.Last())
	}
}

// Reads that use every connection of the pool do not keep a node from renewing its lease.
func TestLeaseSurvivesAFullPool(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	const size, lease = 3, 2 * time.Second
	s, _ := openStore(t, postgres.Options{URL: url, PoolSize: size, Lease: lease})
	mustCreate(t, s, "before") // its connection stays with the writer
	var left atomic.Bool
	s.OnLeave(func() { left.Store(true) })
	owner := s.Owner()
	var readers sync.WaitGroup
	end := make(chan struct{})
	for range size {
		readers.Go(func() {
			_ = s.View(t.Context(), func(r *store.Reader) error { <-end; return nil })
		})
	}
	time.Sleep(3 * lease)
	close(end)
	readers.Wait()
	if left.Load() || s.Owner() != owner {
		t.Error("the node lost its lease")
	}
	mustCreate(t, s, "after")
}

// The steps of an upgrade may take longer than a statement of a running server may.
func TestUpgradeTakesLongerThanAStatement(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	admin := connect(t, url)
	exec(t, admin, `CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		IF coalesce(current_setting('test.slept', true), '') = '' THEN PERFORM pg_sleep(2); PERFORM set_config('test.slept', 'yes', true); END IF;
	END $$`)
	exec(t, admin, `CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION slow()`)
	s, _ := openStore(t, postgres.Options{URL: url, StatementTimeout: time.Second})
	mustCreate(t, s, "after")
}

// A node that was away while newer programs upgraded the database does not come back to a schema
// that it cannot use.
func TestNodeThatWasAwayDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	s, _ := openStore(t, postgres.Options{URL: url})
	mustCreate(t, s, "before")
	conn := connect(t, url)
	exec(t, conn, "UPDATE loquat_schema SET version = version + 2, least = version + 1")
	mustCreate(t, s, "while it lives") // the upgrade would not have been made
	exec(t, conn, "UPDATE nodes SET ended_at = clock_timestamp()")
	refusedWith(t, s, "after", "the database has a newer schema")
}
