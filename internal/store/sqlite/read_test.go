package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"loquat/internal/store"
)

// Reads that all begin before any of them knows its statement do not wait for each
// other, however many there are.
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
			begun.Wait() // all of these have their connection, and the others come on top
		}
	}
	reads.Wait()
}
