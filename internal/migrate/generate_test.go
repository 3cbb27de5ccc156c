//go:build unix

package migrate_test

import (
	"context"
	"testing"

	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
)

// add adds a session of one turn, with 12 events.
func add(t testing.TB, s *store.Store, id string) {
	t.Helper()
	err := s.Update(context.Background(), func(tx *store.Tx) error { return migratetest.AddSession(tx, id, 1, s.Owner()) })
	if err != nil {
		t.Fatal(err)
	}
}
