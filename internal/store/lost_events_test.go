package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// openIn opens the store of a directory. Its log is written to logged.
func openIn(t testing.TB, dir string, logged *bytes.Buffer) *store.Store {
	t.Helper()
	log := slog.New(slog.NewTextHandler(logged, nil))
	driver, err := sqlite.Open(t.Context(), dir, log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), driver, store.Options{Logger: log})
	if err != nil {
		t.Fatal(errors.Join(err, driver.Close()))
	}
	return s
}

func createIn(t testing.TB, s *store.Store, id string) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", nil)
		if err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated}, &h, nil); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// crashed returns a directory as a killed process leaves it: the write-ahead log was not
// copied back to the database.
func crashed(t *testing.T, commits int) (dir string, last loquat.EventID) {
	t.Helper()
	running, dir := t.TempDir(), t.TempDir()
	var logged bytes.Buffer
	s := openIn(t, running, &logged)
	defer s.Close()
	for i := range commits {
		createIn(t, s, fmt.Sprint("session-", i))
	}
	if err := os.CopyFS(dir, os.DirFS(running)); err != nil {
		t.Fatal(err)
	}
	return dir, s.Last()
}

// A database that ends before the mark reports the loss and does not use the lost ids again.
func TestLostChanges(t *testing.T) {
	const commits = 40
	wal := func(dir string) string { return filepath.Join(dir, "loquat.db-wal") }
	flip := func(at float64) func(string) error {
		return func(dir string) error {
			b, err := os.ReadFile(wal(dir))
			if err != nil {
				return err
			}
			b[int(at*float64(len(b)))] ^= 1
			return os.WriteFile(wal(dir), b, 0o600)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		lost   bool
	}{
		{"nothing", func(string) error { return nil }, false},
		{"a bit of the write-ahead log is changed", flip(0.6), true},
		{"a bit of its last commit is changed", flip(0.999), true},
		{"the write-ahead log is cut", func(dir string) error { return os.Truncate(wal(dir), 100_000) }, true},
		{"the write-ahead log is missing", func(dir string) error { return os.Remove(wal(dir)) }, true},
		{"the database is missing", func(dir string) error {
			return errors.Join(os.Remove(wal(dir)), os.Remove(filepath.Join(dir, "loquat.db")))
		}, true},
		{"the database is empty", func(dir string) error {
			return errors.Join(os.Remove(wal(dir)), os.Truncate(filepath.Join(dir, "loquat.db"), 0))
		}, true},
		{"the mark is missing", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "loquat.mark")), flip(0.6)(dir))
		}, false},
		{"the mark is damaged", func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "loquat.mark"), []byte("x 1 2\n"), 0o600), flip(0.6)(dir))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, given := crashed(t, commits)
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			var logged bytes.Buffer
			s := openIn(t, dir, &logged)
			loss := s.Loss()
			if (loss != nil) != c.lost {
				t.Fatalf("the loss is %v; the log says\n%s", loss, logged.String())
			}
			if loss == nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if loss.Given != given || loss.Found >= given {
				t.Errorf("%+v, the newest id given was %s", loss, given)
			}
			if n := strings.Count(logged.String(), "level=ERROR"); n != 1 || !strings.Contains(logged.String(), given.String()) {
				t.Errorf("the log has %d errors:\n%s", n, logged.String())
			}
			if !s.Foreign(given) || s.Foreign(loss.Found) {
				t.Error("clients that have seen the lost events need not load again")
			}
			createIn(t, s, "after")
			records, err := s.Events(t.Context(), loss.Found, store.Filter{}, store.Bounds{Events: 10})
			if err != nil || len(records) == 0 || records[0].ID <= given {
				t.Errorf("the log continues with %v, %v", records, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s = openIn(t, dir, &logged); s.Loss() != nil {
				t.Errorf("the next start finds %v again", s.Loss())
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A command that opens the store only briefly leaves the loss for the next server start.
func TestSkippedLossCheckLeavesTheLoss(t *testing.T) {
	dir, given := crashed(t, 40)
	if err := os.Truncate(filepath.Join(dir, "loquat.db-wal"), 100_000); err != nil {
		t.Fatal(err)
	}
	driver, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	briefly, err := store.Open(t.Context(), driver, store.Options{SkipLossCheck: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := briefly.Close(); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	s := openIn(t, dir, &logged)
	defer s.Close()
	if loss := s.Loss(); loss == nil || loss.Given != given {
		t.Errorf("the server finds %v", loss)
	}
}

// damaged returns a directory whose database has overwritten pages: those with sessions and
// events.
func damaged(t *testing.T, sessions int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var logged bytes.Buffer
	s := openIn(t, dir, &logged)
	for i := range sessions {
		createIn(t, s, fmt.Sprint("session-", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "loquat.db")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for at := 0; at+page <= len(b); at += page {
		if bytes.Contains(b[at:at+page], []byte("session-")) {
			copy(b[at:], bytes.Repeat([]byte{0xA5}, page))
		}
	}
	if err := os.WriteFile(path, b, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A damaged database is logged once, regardless of how many calls fail, and makes the store
// unhealthy.
func TestDamageIsReportedOnce(t *testing.T) {
	const sessions = 400
	dir := damaged(t, sessions)
	var logged bytes.Buffer
	s := openIn(t, dir, &logged)
	defer s.Close()
	failed := 0
	for i := range sessions {
		err := s.View(t.Context(), func(r *store.Reader) error {
			h, err := r.Head(fmt.Sprint("session-", i))
			if err == nil {
				_, err = r.History(h, h.Rev, false)
			}
			return err
		})
		if err == nil {
			continue
		}
		failed++
		if loquat.CodeOf(err) != loquat.CodeUnavailable && loquat.CodeOf(err) != loquat.CodeNotFound {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	if failed < 10 {
		t.Fatalf("%d sessions cannot be read: the test damages too little", failed)
	}
	if n := strings.Count(logged.String(), "level=ERROR"); n != 1 || !strings.Contains(logged.String(), "the database is damaged") || !strings.Contains(logged.String(), "loquat check") {
		t.Errorf("%d reads have failed, the log has %d errors:\n%.2000s", failed, n, logged.String())
	}
	fault, ok := errors.AsType[store.Fault](s.Healthy())
	if !ok || fault != store.Damaged {
		t.Errorf("the store is %v", s.Healthy())
	}
}
