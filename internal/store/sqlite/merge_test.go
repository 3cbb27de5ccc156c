package sqlite_test

import (
	"fmt"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// The index is merged until a search has few segments to look into, and finds the same as before.
func TestIndexIsMerged(t *testing.T) {
	db := open(t, t.TempDir())
	s, err := store.Open(t.Context(), db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	number := func(query string) (n int) {
		err := db.Read(t.Context(), func(q store.SQL) error {
			rows, err := q.Query(query)
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
			return rows.Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const batches = 30
	for i := range batches {
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.CreateSession(fmt.Sprint("s", i), loquat.DefaultAgent, nil)
			if err != nil {
				return err
			}
			for j := range 20 {
				m := loquat.Message{ID: fmt.Sprint(i, "-", j), Role: loquat.RoleUser, Content: fmt.Sprintf("common word%d", 20*i+j), CreatedAt: tx.Now}
				if _, err := tx.AppendMessage(&h, m); err != nil {
					return err
				}
			}
			return tx.Checkpoint(&h, nil, false)
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.IndexSome(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const segments, found = `SELECT count(DISTINCT segid) FROM search_index_idx`, `SELECT count(*) FROM search_index WHERE search_index MATCH '"0·common"'`
	before := number(segments)
	if before < 5 {
		t.Fatalf("%d segments leave nothing to merge", before)
	}
	steps := 0
	for more := true; more; steps++ {
		if more, err = s.MergeIndex(t.Context()); err != nil || steps > 1000 {
			t.Fatalf("step %d: %v", steps, err)
		}
	}
	if after := number(segments); after > 3 || number(found) != 20*batches {
		t.Errorf("after %d steps %d of %d segments are left, and the index finds %d of %d messages", steps, after, before, number(found), 20*batches)
	}
}
