//go:build unix

package failover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// lag is how far the asynchronous standby is behind when it is promoted.
const lag = 5 * time.Second

// An asynchronous standby that is promoted lacks changes that clients have seen. No id gets a
// second meaning, and every client ends with the stored state.
func TestAsynchronousFailover(t *testing.T) {
	failovers(t)
	c := cluster(t)
	if err := c.Configure(`{"synchronous_mode": false, "maximum_lag_on_failover": 1000000000}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Configure(`{"synchronous_mode": true, "maximum_lag_on_failover": null}`); err != nil {
			t.Error(err)
		}
	})
	if err := c.Await(patience, false); err != nil {
		t.Fatal(err)
	}
	n := startNodes(t, c)
	l := &lossy{t: t, c: n.client(t), seen: map[loquat.EventID]string{}, folds: map[follower]string{}}
	l.run(func() {
		time.Sleep(time.Second)
		primary, err := c.Primary()
		if err != nil {
			t.Fatal(err)
		}
		primary.Replication.Block()
		time.Sleep(lag)
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		promoted := awaitPromotion(t, primary, false)
		binary.Eventually(t, "changes succeed", func() bool { return l.acknowledgedAfter(promoted) })
		primary.Replication.Unblock() // not before: a standby that does not write yet would receive what was held up
		time.Sleep(2 * time.Second)
		if err := primary.Start(); err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() {
		n.logs(t)
	}
	if err := c.Await(patience, false); err != nil {
		t.Fatal(err)
	}
}

// lossy is clients of a log that loses its newest changes.
type lossy struct {
	t *testing.T
	c *client.Client

	mu     sync.Mutex
	acked  []ack
	seen   map[loquat.EventID]string // what each id meant
	folds  map[follower]string       // messages, as each follower shows them
	reload int                       // times that a follower loaded its session again
}

// follower is one of the followers of a session.
type follower struct {
	session string
	number  int
}

// ack is an acknowledged append.
type ack struct {
	at            time.Time
	session, text string
}

// run runs fn while clients change and follow sessions, and then compares what they saw with
// what is stored.
func (l *lossy) run(fn func()) {
	ctx, stop := context.WithCancel(l.t.Context())
	writing, stopWriting := context.WithCancel(ctx)
	defer stop()
	defer stopWriting()
	var writers, followers sync.WaitGroup
	var ids []string
	for range 6 {
		s := binary.CreateSession(ctx, l.t, l.c, nil)
		ids = append(ids, s.SessionID)
		writers.Go(func() { l.write(writing, s.SessionID) })
		for i := range 2 {
			followers.Go(func() { l.follow(ctx, follower{s.SessionID, i}) })
		}
	}
	time.Sleep(time.Second) // the sessions reach the standby
	fn()
	stopWriting()
	writers.Wait()
	stored := map[string]string{}
	for _, id := range ids {
		s, err := l.c.Session(ctx, id)
		if err != nil {
			l.t.Fatal(err)
		}
		stored[id] = asJSON(s.Messages)
	}
	binary.Eventually(l.t, "every follower shows what is stored", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for f, messages := range l.folds {
			if stored[f.session] != messages {
				return false
			}
		}
		return len(l.folds) == 2*len(ids)
	})
	stop()
	followers.Wait()
	l.report(stored)
}

// write appends messages to a session until ctx ends. It waits for its last call: one that is cancelled might
// still be done after what is stored was read.
func (l *lossy) write(ctx context.Context, session string) {
	for i := 0; ctx.Err() == nil; i++ {
		text := fmt.Sprint("message ", i, " of ", session)
		_, err := l.c.AppendMessage(context.WithoutCancel(ctx), session, loquat.NewMessage{Role: loquat.RoleUser, Content: text})
		if err == nil {
			l.mu.Lock()
			l.acked = append(l.acked, ack{time.Now(), session, text})
			l.mu.Unlock()
		} else if code := loquat.CodeOf(err); ctx.Err() == nil && code != loquat.CodeUnavailable {
			l.t.Errorf("append: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// follow folds a session until ctx ends.
func (l *lossy) follow(ctx context.Context, f follower) {
	for ctx.Err() == nil {
		for u, err := range l.c.FollowSession(ctx, f.session) {
			if err != nil {
				if code := loquat.CodeOf(err); ctx.Err() == nil && code != loquat.CodeUnavailable {
					l.t.Errorf("follow: %v", err)
				}
				break
			}
			l.see(f, u)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (l *lossy) see(f follower, u client.Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.folds[f] = asJSON(u.State.Messages())
	if u.Event == nil {
		l.reload++
		return
	}
	e := *u.Event
	e.Session = nil
	text := asJSON(e)
	if before, ok := l.seen[e.EventID]; ok && before != text {
		l.t.Errorf("event %s means two things:\n%s\n%s", e.EventID, before, text)
	}
	l.seen[e.EventID] = text
}

func (l *lossy) acknowledgedAfter(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked) > 0 && l.acked[len(l.acked)-1].at.After(at)
}

// report requires that the failover lost changes, or this test would show nothing, and that none
// of them came back or are in the log under another id.
func (l *lossy) report(stored map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for _, a := range l.acked {
		var messages []loquat.Message
		if err := json.Unmarshal([]byte(stored[a.session]), &messages); err != nil {
			l.t.Fatal(err)
		}
		found := 0
		for _, m := range messages {
			if m.Content == a.text {
				found++
			}
		}
		if found > 1 {
			l.t.Errorf("%q is stored %d times", a.text, found)
		}
		if found == 0 {
			lost++
		}
	}
	l.t.Logf("%d changes were acknowledged, %d of them were lost; %d events seen; sessions were loaded %d times", len(l.acked), lost, len(l.seen), l.reload)
	if lost == 0 {
		l.t.Error("the failover lost nothing")
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
