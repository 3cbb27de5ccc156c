//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/bridge"
	"loquat/internal/feed"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// lagging is the driver of a node that gets no notifications. While it lags, only reads for a
// client reach the database.
type lagging struct {
	*postgres.DB
	lags  atomic.Bool
	reads atomic.Int64 // for clients
	after func()       // called after a read for a client, before its result is known; may be nil
}

type clientKey struct{}

// forClient returns the context of a client's call.
func forClient(ctx context.Context) context.Context {
	return context.WithValue(ctx, clientKey{}, true)
}

func (d *lagging) Listen(store.Listener) {}

func (d *lagging) Read(ctx context.Context, fn func(store.SQL) error) error {
	if ctx.Value(clientKey{}) == nil {
		if d.lags.Load() {
			return errors.New("the node lags")
		}
		return d.DB.Read(ctx, fn)
	}
	d.reads.Add(1)
	err := d.DB.Read(ctx, fn)
	if d.after != nil {
		d.after()
	}
	return err
}

// interrupted is two nodes and a reply with an event between two of its increments. Both nodes know
// them. From then on the second node lags.
type interrupted struct {
	first, second  *store.Store
	driver         *lagging // of the second node
	before, within loquat.EventID
}

func newInterrupted(t *testing.T) interrupted {
	t.Helper()
	_, url := pgtest.Shared(t).Database(t)
	in := interrupted{first: openNodes(t, url, 1, 0)[0], driver: &lagging{DB: open(t, postgres.Options{URL: url, Node: "lagging"})}}
	var err error
	if in.second, err = store.Open(t.Context(), in.driver, store.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.second.Close() })
	mustCreate(t, in.first, "s")
	run(t, in.first, "s", "r", in.first.Owner())
	in.before = in.first.Last()
	publish(t, in.first, partial("Once upon "))
	in.within = publish(t, in.first, loquat.Event{Type: loquat.RetryScheduled})
	publish(t, in.first, partial("a time"))
	level(t, in.first, in.second)
	in.driver.lags.Store(true)
	return in
}

// publish publishes an event of request r of session s.
func publish(t *testing.T, s *store.Store, e loquat.Event, also ...func(*store.Tx)) loquat.EventID {
	t.Helper()
	id, err := store.Do(t.Context(), s, func(tx *store.Tx) (loquat.EventID, error) {
		for _, fn := range also {
			fn(tx)
		}
		h, err := tx.Head("s")
		if err != nil {
			return 0, err
		}
		r, err := tx.Request("r")
		if err != nil {
			return 0, err
		}
		return tx.Publish(e, &h, &r)
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func partial(text string) loquat.Event {
	return loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: text}}
}

var final = loquat.Event{Type: loquat.Final, Messages: []loquat.Message{{Role: loquat.RoleAssistant, Content: "Once upon a time"}}}

// follow returns the first events that a client gets from a stream at a node.
func follow(ctx context.Context, f *feed.Feed, q feed.Query, since loquat.EventID) (out []loquat.EventType, err error) {
	q.Since, q.Push = &since, true
	fl, err := f.Follow(forClient(ctx), q)
	if err != nil {
		return nil, err
	}
	defer fl.Stop()
	w, err := fl.Next(forClient(ctx), since, time.Now())
	for _, r := range w.Events {
		out = append(out, r.Type)
	}
	return out, err
}

// filters are the queries of streams of the session, the request, and everything.
var filters = []feed.Query{{}, {SessionID: "s"}, {SessionID: "s", RequestID: "r"}}

// A stream leaves out the increments of a reply that has ended. If it is cut off within, the
// client continues at another node that has not seen the end yet. There it does not get the
// rest of the increments without the first.
func TestResumeAtALaggingNode(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	f := feed.New(in.second)
	for _, q := range filters { // the node has seen the session and the request
		if got, err := follow(t.Context(), f, q, in.before); err != nil || len(got) != 3 {
			t.Fatalf("before the end: %v, %v", got, err)
		}
	}
	publish(t, in.first, final)
	for _, q := range filters {
		want := []loquat.EventType{loquat.RetryScheduled, loquat.Final}
		if got, err := follow(t.Context(), feed.New(in.first), q, in.before); err != nil || !slices.Equal(got, want) {
			t.Fatalf("the first node sends %v, %v", got, err)
		}
		if got, err := follow(t.Context(), f, q, in.within); err != nil || !slices.Equal(got, want[1:]) {
			t.Errorf("%+v: the second node sends %v, %v", q, got, err)
		}
	}
}

// An app that joins the hub of a lagging node makes this node catch up.
func TestJoinAtALaggingNode(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	end := publish(t, in.first, final)
	log := bridge.NewLocalLog(feed.New(in.second))
	if err := log.Check(forClient(t.Context()), in.within); err != nil || log.Latest() != end {
		t.Errorf("the log ends at %s and not at %s, %v", log.Latest(), end, err)
	}
}

// A stream without a cursor starts at that of the session, also at a node that has not seen it yet.
func TestStartAtALaggingNode(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	cursor, err := store.Do(t.Context(), in.first, func(tx *store.Tx) (loquat.EventID, error) {
		h, err := tx.Head("s")
		if err == nil {
			err = tx.Checkpoint(&h, nil, false)
		}
		return h.Cursor, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := in.second.Last(); last >= cursor {
		t.Fatalf("the second node has %s, and the cursor is %s", last, cursor)
	}
	at, err := feed.New(in.second).ResolveCursor(forClient(t.Context()), feed.Query{SessionID: "s"})
	if err != nil || at != cursor || in.second.Last() < cursor {
		t.Errorf("it starts at %s, %v, and the node has %s; the cursor is %s", at, err, in.second.Last(), cursor)
	}
}

// The second node itself may have just committed the end of the reply. The first node may show it
// earlier.
func TestResumeDuringOwnCommit(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	committed, hold := make(chan struct{}), make(chan struct{})
	var committing sync.WaitGroup
	committing.Go(func() {
		publish(t, in.second, final, func(tx *store.Tx) {
			tx.AfterCommit(func() { close(committed); <-hold })
		})
	})
	defer committing.Wait()
	<-committed
	end := in.second.Last() + 1
	eventually(t, "the first node shows the end", func() bool { return in.first.Last() >= end })
	got := make(chan []loquat.EventType)
	go func() {
		events, err := follow(t.Context(), feed.New(in.second), feed.Query{}, in.within)
		if err != nil {
			t.Error(err)
		}
		got <- events
	}()
	var events []loquat.EventType
	select {
	case events = <-got:
		close(hold)
	case <-time.After(300 * time.Millisecond): // it waits for the end of the commit
		close(hold)
		events = <-got
	}
	if !slices.Equal(events, []loquat.EventType{loquat.Final}) {
		t.Errorf("the second node sends %v", events)
	}
}

// Clients that resume at the same time share reads of the database. A read that began before a
// client resumed does not count for this client.
func TestManyResumeAtOnce(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	entered, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	in.driver.after = func() { once.Do(func() { close(entered); <-hold }) }
	f := feed.New(in.second)
	var resuming sync.WaitGroup
	resuming.Go(func() { _, _ = follow(t.Context(), f, feed.Query{}, in.within) })
	<-entered // this read has not seen the end
	publish(t, in.first, final)
	const clients = 200
	for range clients {
		resuming.Go(func() {
			if got, err := follow(t.Context(), f, feed.Query{}, in.within); err != nil || !slices.Equal(got, []loquat.EventType{loquat.Final}) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // most wait now
	close(hold)
	resuming.Wait()
	if n := in.driver.reads.Load(); n > clients/4 {
		t.Errorf("%d clients cost %d reads", clients, n)
	}
}

// A client that leaves while it reads for others, and a database that cannot be read, keep nobody
// waiting.
func TestResumeFails(t *testing.T) {
	t.Parallel()
	in := newInterrupted(t)
	publish(t, in.first, final)
	leaving, leave := context.WithCancel(t.Context())
	in.driver.after = leave
	f := feed.New(in.second)
	if _, err := follow(leaving, f, feed.Query{}, in.within); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("the client that left: %v", err)
	}
	in.driver.after = nil
	if got, err := follow(t.Context(), f, feed.Query{}, in.within); err != nil || !slices.Equal(got, []loquat.EventType{loquat.Final}) {
		t.Errorf("the next client: %v, %v", got, err)
	}
	_, err := f.Follow(t.Context(), feed.Query{Since: &in.within, Push: true}) // not for a client: the read fails
	if loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a database that cannot be read: %v", err)
	}
}
