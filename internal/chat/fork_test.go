package chat_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// gauge is a database that notes the largest transaction, in rows, and can call back
// before each.
type gauge struct {
	store.Driver
	mu      sync.Mutex // messages are indexed in the background
	largest int64
	before  func()
}

func (g *gauge) Write(ctx context.Context, fn func(store.SQL) error) error {
	g.mu.Lock()
	before := g.before
	g.mu.Unlock()
	if before != nil {
		before()
	}
	var rows int64
	err := g.Driver.Write(ctx, func(q store.SQL) error { return fn(gauged{q, &rows}) })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = max(g.largest, rows)
	return err
}

// beforeWrites sets what is called before each transaction; nil for nothing.
func (g *gauge) beforeWrites(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = fn
}

// takeLargest returns the rows of the largest transaction since the last call.
func (g *gauge) takeLargest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.largest
	g.largest = 0
	return n
}

type gauged struct {
	store.SQL
	rows *int64
}

func (g gauged) Exec(query string, args ...any) (int64, error) {
	n, err := g.SQL.Exec(query, args...)
	*g.rows += n
	return n, err
}

// longSession makes a session of so many messages.
func longSession(r *rig, messages int) loquat.Snapshot {
	r.t.Helper()
	p := loquat.NewSession{Messages: make([]loquat.NewMessage, messages)}
	for i := range p.Messages {
		p.Messages[i] = loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprint("message ", i)}
	}
	s, err := r.CreateSession(r.t.Context(), chat.Call{}, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestForkOfLongSessionIsManySmallTransactions(t *testing.T) {
	const messages = 3000
	g := &gauge{}
	r := newRigOn(t, func(db store.Driver) store.Driver { g.Driver = db; return g })
	s := longSession(r, messages)
	last := r.Latest()
	g.takeLargest()
	call := chat.Call{IdempotencyKey: "k", Method: "POST", Path: "/fork"}
	fork, err := r.ForkSession(t.Context(), call, s.SessionID, loquat.Fork{})
	if err != nil {
		t.Fatal(err)
	}
	if n := g.takeLargest(); n > messages/4 {
		t.Errorf("one transaction wrote %d rows", n)
	}
	if !reflect.DeepEqual(fork.Messages, s.Messages) {
		t.Errorf("the fork has %d messages, or others; want %d", len(fork.Messages), messages)
	}
	if got := story(r.log("", last)); got != "session_created* checkpoint*" {
		t.Errorf("events of the fork: %s", got)
	}
	if _, err := r.AppendMessage(t.Context(), chat.Call{}, fork.SessionID, loquat.NewMessage{Role: loquat.RoleUser, Content: "more"}); err != nil {
		t.Fatal(err)
	}
	last = r.Latest()
	repeat, err := r.ForkSession(t.Context(), call, s.SessionID, loquat.Fork{})
	if now := r.Latest(); now != last {
		t.Errorf("the repeat published events after %s up to %s", last, now)
	}
	if err != nil || !reflect.DeepEqual(repeat, fork) {
		t.Errorf("a repeat is answered with other than the fork: session %s of %d messages, %v", repeat.SessionID, len(repeat.Messages), err)
	}
}

// A change of a long session during its copy is in the copy, or the copy starts again.
func TestForkOfSessionThatChanges(t *testing.T) {
	g := &gauge{}
	r := newRigOn(t, func(db store.Driver) store.Driver { g.Driver = db; return g })
	s := longSession(r, 1200)
	changes := make(chan struct{})
	go func() {
		defer close(changes)
		for i := range 7 {
			_, err := r.ModifyMessage(t.Context(), chat.Call{}, s.SessionID, i, fmt.Sprint("changed ", i))
			if err != nil {
				t.Error(err)
			}
		}
	}()
	fork, err := r.ForkSession(t.Context(), chat.Call{}, s.SessionID, loquat.Fork{})
	<-changes
	if err != nil {
		t.Fatal(err)
	}
	// Whatever it has of the changes, it has from the first on.
	n := 0
	for n < 7 && fork.Messages[n].Content == fmt.Sprint("changed ", n) {
		n++
	}
	for i := n; i < len(fork.Messages); i++ {
		if fork.Messages[i].Content != fmt.Sprint("message ", i) {
			t.Fatalf("after %d changes message %d is %q", n, i, fork.Messages[i].Content)
		}
	}
}

// A fork that its caller gives up, or that a crash cuts short, leaves nothing.
func TestForkGivenUp(t *testing.T) {
	g := &gauge{}
	r := newRigOn(t, func(db store.Driver) store.Driver { g.Driver = db; return g })
	s := longSession(r, 1200)
	ctx, cancel := context.WithCancel(t.Context())
	writes := 0
	g.beforeWrites(func() {
		if writes++; writes == 2 {
			cancel()
		}
	})
	if fork, err := r.ForkSession(ctx, chat.Call{}, s.SessionID, loquat.Fork{}); err == nil {
		t.Fatalf("forked to %s", fork.SessionID)
	}
	g.beforeWrites(nil)
	draft, err := r.store.PrepareCopy(t.Context(), s.SessionID, "left", nil)
	if err != nil {
		t.Fatal(err)
	}
	dead := r.Service
	r.restart()
	dead.Stop(expired())
	if err := r.store.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = r.store.View(t.Context(), func(q *store.Reader) error {
		rest, err := q.Messages(draft.Head, draft.Head.Rev, 0, -1)
		if len(rest) != 0 {
			t.Errorf("%d messages of a fork that a crash cut short are left", len(rest))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.Sessions(t.Context(), loquat.SessionQuery{Limit: 10})
	if err != nil || len(list.Sessions) != 1 {
		t.Errorf("%d sessions, %v; want the one that was forked", len(list.Sessions), err)
	}
}

// A fork shows where its messages come from, also when the source is gone.
func TestOriginOfAFork(t *testing.T) {
	r := newRig(t)
	source := r.create(loquat.NewSession{Messages: []loquat.NewMessage{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}})
	empty := r.create(loquat.NewSession{})
	for name, c := range map[string]struct {
		of   string
		fork loquat.Fork
		want *int
	}{
		"all messages":  {source.SessionID, loquat.Fork{}, new(1)},
		"up to the 1st": {source.SessionID, loquat.Fork{UpToIndex: new(0)}, new(0)},
		"no messages":   {empty.SessionID, loquat.Fork{}, nil},
	} {
		fork, err := r.ForkSession(t.Context(), chat.Call{}, c.of, c.fork)
		if err != nil {
			t.Fatal(err)
		}
		want := loquat.Origin{SourceSessionID: c.of, SourceIndex: c.want}
		list, err := r.Sessions(t.Context(), loquat.SessionQuery{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []loquat.Origin{fork.Origin, r.snapshot(fork.SessionID).Origin, list.Sessions[0].Origin} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	}
	if source.Origin != (loquat.Origin{}) {
		t.Errorf("a session that is no fork has the origin %+v", source.Origin)
	}
}
