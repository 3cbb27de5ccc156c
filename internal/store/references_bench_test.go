package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// BenchmarkCatchUpMessages measures what a follower takes to read 1,000 events with one message
// each from the database. The time is that of one event.
func BenchmarkCatchUpMessages(b *testing.B) {
	for _, size := range []int{250, 1 << 10, 4 << 10, 20 << 10} {
		b.Run(fmt.Sprint("bytes=", size), func(b *testing.B) {
			const events, sessions = 1000, 20
			var logged bytes.Buffer
			s := openIn(b, b.TempDir(), &logged)
			for i := range sessions {
				runIn(b, s, fmt.Sprint("s", i))
			}
			text := strings.Repeat("Some words, and \"quotes\".\n", size/26)
			for i := range events {
				err := s.Update(b.Context(), func(tx *store.Tx) error {
					h, err := tx.Head(fmt.Sprint("s", i%sessions))
					if err != nil {
						return err
					}
					m := loquat.Message{ID: fmt.Sprint(i), Role: loquat.RoleAssistant, Content: text, CreatedAt: tx.Now}
					m.Metadata = loquat.Object{}.Set(loquat.MetaModel, "lorem").Set(loquat.MetaUsage, map[string]int{"prompt_tokens": 1, "completion_tokens": 1000})
					if _, err := tx.AppendMessage(&h, m); err != nil {
						return err
					}
					if _, err := tx.Publish(loquat.Event{Type: loquat.Final, Messages: []loquat.Message{m}}, &h, nil); err != nil {
						return err
					}
					return tx.Checkpoint(&h, nil, false)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for range b.N {
				for since := loquat.EventID(0); since < s.Last(); {
					var page []loquat.Record
					err := s.View(b.Context(), func(r *store.Reader) (err error) {
						page, err = r.DatabaseEvents(since, store.Filter{}, 500)
						return err
					})
					if err != nil || len(page) == 0 {
						b.Fatal(len(page), err)
					}
					since = page[len(page)-1].ID
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
		})
	}
}
