//go:build unix

package postgres_test

import (
	"log/slog"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// identity opens a store, adds a session, and returns the ids of the log.
func identity(t *testing.T, url, session string) (id, server string, before, after loquat.EventID) {
	t.Helper()
	s, err := store.Open(t.Context(), open(t, postgres.Options{URL: url}), store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before = s.Last()
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.CreateSession(session, "default", nil)
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID(), s.ServerID(), before, s.Last()
}

// A copy of a database gets a log of its own, and the original keeps its log. A user without
// special rights can open both.
func TestCopyOfADatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	for _, statement := range []string{"CREATE ROLE keeper LOGIN", "CREATE DATABASE original OWNER keeper"} {
		if err := server.Exec("postgres", statement); err != nil {
			t.Fatal(err)
		}
	}
	url := func(name string) string {
		return strings.Replace(server.URL(name), "postgres@", "keeper@", 1)
	}
	id, _, _, last := identity(t, url("original"), "one")
	if again, _, before, _ := identity(t, url("original"), "two"); again != id || before != last {
		t.Errorf("the log %s at %s is %s at %s after a restart", id, last, again, before)
	}
	if err := server.Exec("postgres", "CREATE DATABASE copy TEMPLATE original OWNER keeper"); err != nil {
		t.Fatal(err)
	}
	_, _, last, _ = identity(t, url("original"), "three")
	other, of, before, _ := identity(t, url("copy"), "three")
	if other == id || of != id || before <= last+1000 {
		t.Errorf("the copy of the log %s at %s is %s of %s at %s", id, last, other, of, before)
	}
	if again, _, _, _ := identity(t, url("copy"), "four"); again != other {
		t.Errorf("the log of the copy is %s and then %s", other, again)
	}
	if again, _, _, _ := identity(t, url("original"), "four"); again != id {
		t.Errorf("the log of the original was %s and is %s", id, again)
	}
	if err := server.Exec("postgres", "ALTER DATABASE copy RENAME TO renamed"); err != nil {
		t.Fatal(err)
	}
	if again, _, _, _ := identity(t, url("renamed"), "five"); again != other {
		t.Errorf("the log of the copy is %s, and %s under another name", other, again)
	}
}
