package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// BenchmarkCatchUp measures what a follower of one session reads and takes to catch up, while
// 1 or 300 sessions stream in turn, 30 increments to a commit. The time is that of one of its
// own increments.
func BenchmarkCatchUp(b *testing.B) {
	for _, sessions := range []int{1, 300} {
		b.Run(fmt.Sprint("sessions=", sessions), func(b *testing.B) {
			const own = 1000
			s, q := streamed(b, sessions, own)
			b.ResetTimer()
			for range b.N {
				n := 0
				for since := loquat.EventID(0); ; {
					var page []loquat.Record
					err := s.View(b.Context(), func(r *store.Reader) (err error) {
						page, err = r.DatabaseEvents(since, store.Filter{SessionID: q.SessionID}, 500)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
					if len(page) == 0 {
						break
					}
					n += len(page)
					since = page[len(page)-1].ID
				}
				if n < own {
					b.Fatalf("read %d events", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*own), "ns/increment")
		})
	}
}

// BenchmarkStream measures one increment of 300 sessions, 30 to a commit, with the sorting.
func BenchmarkStream(b *testing.B) {
	began := time.Now()
	const sessions, own = 300, 100
	for range b.N {
		s, _ := streamed(b, sessions, own)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(b.N*sessions*own), "ns/increment")
}

func streamed(b *testing.B, sessions, own int) (s *store.Store, first store.Request) {
	b.Helper()
	var logged bytes.Buffer
	s = openIn(b, b.TempDir(), &logged)
	var running []*store.Request
	for i := range sessions {
		q := runIn(b, s, fmt.Sprint("s", i))
		running = append(running, &q)
	}
	text := strings.Repeat("x", 20)
	const perCommit = 30
	for at := 0; at < sessions*own; at += perCommit {
		err := s.Update(b.Context(), func(tx *store.Tx) error {
			for i := at; i < min(at+perCommit, sessions*own); i++ {
				q := running[i%sessions]
				e := loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: text}}
				if _, err := tx.Publish(e, &store.Head{SID: q.SID, SessionID: q.SessionID}, q); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return s, *running[0]
}
