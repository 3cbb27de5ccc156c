package sqlite_test

import (
	"fmt"
	"log/slog"
	"testing"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// BenchmarkListOfSessions reads a page of ten sessions in the middle of lists of different lengths.
// Every tenth session has the tag and every hundredth is pinned.
func BenchmarkListOfSessions(b *testing.B) {
	for _, sessions := range []int{100, 100_000} {
		db, err := sqlite.Open(b.Context(), b.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		s, err := store.Open(b.Context(), db, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; i < sessions; i += 500 {
			err := s.Update(b.Context(), func(tx *store.Tx) error {
				for n := i; n < min(i+500, sessions); n++ {
					metadata := loquat.Object{}.Set(loquat.MetaTitle, "a title")
					if n%10 == 0 {
						metadata.Set(loquat.MetaTags, []string{"tag"})
					}
					if n%100 == 0 {
						metadata.Set(loquat.MetaPinned, true)
					}
					h, err := tx.CreateSession(fmt.Sprint("s", n), loquat.DefaultAgent, metadata)
					if err != nil {
						return err
					}
					if err := tx.Checkpoint(&h, nil, false); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		no := false
		middle := store.Place{At: s.Last(), Checkpoint: s.Last() / 2}
		for _, c := range []struct {
			name   string
			filter store.SessionFilter
			after  store.Place
		}{
			{"first page", store.SessionFilter{Archived: &no}, store.Place{}},
			{"middle", store.SessionFilter{Archived: &no}, middle},
			{"first page of a tag", store.SessionFilter{Archived: &no, Tags: []string{"tag"}}, store.Place{}},
			{"middle of a tag", store.SessionFilter{Archived: &no, Tags: []string{"tag"}}, middle},
		} {
			b.Run(fmt.Sprintf("%d sessions/%s", sessions, c.name), func(b *testing.B) {
				for b.Loop() {
					err := s.View(b.Context(), func(r *store.Reader) error {
						_, _, err := r.Heads(c.filter, c.after, 10)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
