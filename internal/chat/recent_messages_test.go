package chat_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// countedReads counts the reading transactions of a store.
type countedReads struct {
	store.Driver
	n atomic.Int64
}

func (d *countedReads) Read(ctx context.Context, fn func(store.SQL) error) error {
	d.n.Add(1)
	return d.Driver.Read(ctx, fn)
}

// A worker gets what the transactions of this process wrote without reading it, and reads it
// after any other change. Either way its messages are those of the store.
func TestHistoryWithoutReading(t *testing.T) {
	synctest.Test(t, historyWithoutReading) // no time passes, so nothing is read in the background
}

func historyWithoutReading(t *testing.T) {
	reads := &countedReads{}
	r := newRigOn(t, func(db store.Driver) store.Driver { reads.Driver = db; return reads }, tool{"look", func(context.Context, plugin.ToolCall) (plugin.ToolResult, error) {
		return plugin.ToolResult{Content: "seen", Metadata: loquat.Object{"from": []byte(`{ "a": [1,  2] }`)}}, nil
	}})
	s := r.create(loquat.NewSession{})
	called := make(chan int64, 10) // reads before each call of the model
	r.provider.chat = func(_ context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
		called <- reads.n.Load()
		r.checkHistory(req)
		p := r.provider.next(req)
		return func(yield func(loquat.Chunk, error) bool) { yield(loquat.Chunk{Reply: &p.reply}, p.err) }
	}
	synctest.Wait() // until what reads at the start has read
	for _, c := range []struct {
		name   string
		change func()
		send   loquat.Send
		reads  bool
	}{
		{"the first send", func() {}, loquat.Send{Content: text("one")}, false},
		{"the next send", func() {}, loquat.Send{Content: text("two")}, false},
		{"a round of tools", func() {
			r.provider.then(phase{reply: loquat.Reply{ToolCalls: calls("look"), Metadata: loquat.Object{"details": []byte(`[ {"x" : 1} ]`)}}})
		}, loquat.Send{Content: text("three")}, false},
		{"after a round of tools", func() {}, loquat.Send{Content: text("four")}, false},
		{"after an append", func() {
			if _, err := r.AppendMessage(t.Context(), chat.Call{}, s.SessionID, loquat.NewMessage{Role: loquat.RoleUser, Content: "more"}); err != nil {
				t.Fatal(err)
			}
		}, loquat.Send{}, true},
		{"after a change of a message", func() {
			if _, err := r.ModifyMessage(t.Context(), chat.Call{}, s.SessionID, 0, "changed"); err != nil {
				t.Fatal(err)
			}
		}, loquat.Send{Content: text("five")}, true},
		{"after that", func() {}, loquat.Send{Content: text("six")}, true},
		{"delete_from", func() {}, loquat.Send{DeleteFrom: new(2), Content: text("again")}, true},
		{"delete_from 0", func() {}, loquat.Send{DeleteFrom: new(0), Content: text("anew")}, false},
		{"after a failure", func() { r.provider.then(phase{err: loquat.Errorf(loquat.CodeBackendError, "cut")}) }, loquat.Send{Content: text("seven")}, false},
		{"long messages", func() {}, loquat.Send{Content: text(strings.Repeat("long ", 20_000))}, true},
	} {
		c.change()
		before := reads.n.Load()
		c.send.Stream = new(false)
		q := r.send(s.SessionID, c.send)
		if got := <-called > before; got != c.reads {
			t.Errorf("%s: reads the store: %v", c.name, got)
		}
		r.ended(q.RequestID)
		for len(called) > 0 {
			<-called
		}
	}
}
