package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"loquat/internal/store"
)

// Many reads that start together, before their statement is prepared, do not deadlock.
func TestReadsBeginTogether(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const together, all = 8, 40
	var begun sync.WaitGroup
	begun.Add(together)
	var reads sync.WaitGroup
	for i := range all {
		reads.Go(func() {
			err := db.Read(ctx, func(q store.SQL) error {
				if i < together {
					begun.Done()
				}
				begun.Wait()
				rows, err := q.Query(fmt.Sprintf(`SELECT %d FROM log`, i%16))
				if err != nil {
					return err
				}
				return rows.Close()
			})
			if err != nil {
				t.Errorf("read %d: %v", i, err)
			}
		})
		if i == together-1 {
			begun.Wait() // these reads have a connection each, and further reads follow
		}
	}
	reads.Wait()
}
