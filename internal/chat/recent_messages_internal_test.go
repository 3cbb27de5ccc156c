package chat

import (
	"fmt"
	"testing"

	"loquat/internal/store"
)

// A cancel before a worker exists makes the worker read its history and the cancel. The messages
// stay for the next request.
func TestForgetStart(t *testing.T) {
	c := newRecentMessages()
	c.add(0, store.Head{SID: 1, Checkpoint: 5}, "a")
	if _, ok, err := c.history("a"); !ok || err != nil {
		t.Fatalf("a start without messages: %v, %v", ok, err)
	}
	w := workers{recent: c, byID: map[string]*worker{}}
	w.cancel("a", errCancelled)
	if _, ok, _ := c.history("a"); ok {
		t.Error("the worker of a cancelled request would not read the cancel")
	}
	c.add(5, store.Head{SID: 1, Checkpoint: 9}, "b")
	if _, ok, _ := c.history("b"); !ok {
		t.Error("the next request reads the messages, which are known")
	}
	c.add(7, store.Head{SID: 1, Checkpoint: 12, Count: 1}, "c")
	if _, ok, _ := c.history("c"); ok {
		t.Error("a message that is not known is left out")
	}
	if _, ok, _ := c.history("b"); ok || len(c.sessions) != 0 {
		t.Error("old messages are kept")
	}
}

// The number of sessions does not grow without bound, and no counts are left behind.
func TestRecentMessagesAreBounded(t *testing.T) {
	c := newRecentMessages()
	const fit = maxRecent / recentOverhead
	for n := range int64(2 * fit) {
		c.add(0, store.Head{SID: n}, fmt.Sprint(n))
	}
	if c.bytes > maxRecent || len(c.sessions) != fit || len(c.started) != fit {
		t.Errorf("%d sessions, %d starts, %d bytes", len(c.sessions), len(c.started), c.bytes)
	}
	for n := range int64(2 * fit) {
		c.forgetSession(n)
	}
	if c.bytes != 0 || len(c.sessions) != 0 || len(c.started) != 0 {
		t.Errorf("after all are gone: %d sessions, %d starts, %d bytes", len(c.sessions), len(c.started), c.bytes)
	}
}
