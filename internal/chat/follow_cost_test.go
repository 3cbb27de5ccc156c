package chat_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
	"loquat/internal/store"
)

// readCount is a database that counts the reading transactions.
type readCount struct {
	store.Driver
	reads atomic.Int64
}

func (c *readCount) Read(ctx context.Context, fn func(store.SQL) error) error {
	c.reads.Add(1)
	return c.Driver.Read(ctx, fn)
}

// Followers learn from memory what happens, whatever they filter by: it costs the
// database nothing that they are many.
func TestFollowersDoNotAskTheDatabase(t *testing.T) {
	const followers, texts = 100, 20
	db := &readCount{}
	r := newRigOn(t, func(d store.Driver) store.Driver { db.Driver = d; return db })
	gate := make(chan struct{})
	r.provider.then(phase{chunks: make([]loquat.Chunk, texts), gate: gate, reply: loquat.Reply{Content: "done"}})
	for i := range texts {
		r.provider.phases[0].chunks[i].Text = fmt.Sprint(i)
	}
	s := r.create(loquat.NewSession{})
	sent := r.send(s.SessionID, loquat.Send{Content: text("go"), Stream: new(true)})
	var all sync.WaitGroup
	positions := make([]atomic.Int64, followers)
	for i := range positions {
		q := feed.Query{SessionID: s.SessionID, Wait: time.Minute, Push: true}
		if i%2 == 0 {
			q = feed.Query{RequestID: sent.RequestID, Wait: time.Minute, Push: true}
		}
		all.Go(func() { followTo(t, r, q, sent.CursorEventID, &positions[i]) })
	}
	heardAll := func() bool {
		latest := int64(r.Latest())
		for i := range positions {
			if positions[i].Load() < latest {
				return false
			}
		}
		return true
	}
	r.waitFor("followers at the newest event", heardAll)
	before, first := db.reads.Load(), r.Latest()
	for range texts {
		latest := r.Latest()
		gate <- struct{}{}
		r.waitFor("an event that all have heard", func() bool { return r.Latest() > latest && heardAll() })
	}
	events, reads := int64(r.Latest()-first), db.reads.Load()-before
	close(gate)
	all.Wait()
	if reads > 2*followers { // they may have asked as much before they began to wait
		t.Errorf("%d reads for %d events to %d followers", reads, events, followers)
	}
}

// followTo follows to the end of a request.
func followTo(t *testing.T, r *rig, q feed.Query, since loquat.EventID, position *atomic.Int64) {
	for {
		q.Since = &since
		w, err := r.Events(t.Context(), q)
		if err != nil {
			t.Error(err)
			return
		}
		for _, rec := range w.Events {
			if _, err := r.AppendEvent(t.Context(), nil, rec); err != nil {
				t.Error(err)
			}
			since = rec.ID
			position.Store(int64(since))
			if rec.Type == loquat.RequestCompleted {
				return
			}
		}
	}
}

// BenchmarkPollOfLongSession is a client that comes back after a thousand messages.
func BenchmarkPollOfLongSession(b *testing.B) {
	r := newRig(b)
	s := longSession(r, 1000)
	since := r.Latest()
	for i := range 500 {
		m := loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprint("and another message, of which there are many: ", i)}
		if _, err := r.AppendMessage(b.Context(), chat.Call{}, s.SessionID, m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		w, err := r.Events(b.Context(), feed.Query{Since: &since, SessionID: s.SessionID})
		if err != nil {
			b.Fatal(err)
		}
		var out []byte
		for _, rec := range w.Events {
			if out, err = r.AppendEvent(b.Context(), out[:0], rec); err != nil {
				b.Fatal(err)
			}
		}
	}
}
