package sqlite_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
	"loquat/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := filepath.Join(t.TempDir(), "with a space & 50%?")
		return func(t *testing.T) store.Driver { return open(t, dir) }
	})
}

func TestOneProcessADirectory(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	_, err := sqlite.Open(t.Context(), dir, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a second opening: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Errorf("opening after closing: %v", err)
	}
}

func TestNewerFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	if err := db.Write(t.Context(), func(q store.SQL) error {
		_, err := q.Exec(`PRAGMA user_version = 999`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), dir, slog.Default()); err == nil || !strings.Contains(err.Error(), "schema 999") {
		t.Errorf("opening a newer file: %v", err)
	}
	// The refusal lets go of the directory.
	if _, err := sqlite.Open(t.Context(), dir, slog.Default()); err == nil || strings.Contains(err.Error(), "in use") {
		t.Errorf("opening it again: %v", err)
	}
}

func TestDirectoryThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(file, "data"), slog.Default()); err == nil {
		t.Error("opened a directory below a file")
	}
}
