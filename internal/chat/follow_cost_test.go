package chat_test

import (
	"fmt"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
)

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
