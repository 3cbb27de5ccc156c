package sqlite_test

import (
	"fmt"
	"log/slog"
	"testing"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// Clients choose the texts of some queries, by limits and by how many tags they name. However many
// texts there are, a connection keeps a bounded number of statements.
func TestPreparedStatementsAreBounded(t *testing.T) {
	db := open(t, t.TempDir())
	s, err := store.Open(t.Context(), db, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var tags []string
	for i := range 2000 {
		if tags = append(tags, fmt.Sprint("tag ", i)); len(tags) > 20 {
			tags = nil
		}
		list := func(r *store.Reader) error {
			_, _, err := r.Heads(store.SessionFilter{Tags: tags}, store.Place{}, i+1)
			return err
		}
		if err := s.View(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context(), func(tx *store.Tx) error { return list(&tx.Reader) }); err != nil {
			t.Fatal(err)
		}
	}
	if reading, writing := sqlite.Prepared(db); reading == 0 || reading > 500 || writing == 0 || writing > 500 {
		t.Errorf("a reading connection keeps %d statements, the writing one %d", reading, writing)
	}
}
