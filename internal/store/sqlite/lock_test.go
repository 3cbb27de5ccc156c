package sqlite_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

func skipOnWindows(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be removed")
	}
}

// If the lock file is removed or replaced, a second server still cannot start, under any path
// of the directory.
func TestLockFileThatWasRemoved(t *testing.T) {
	t.Parallel()
	skipOnWindows(t)
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	db := open(t, dir)
	lock := filepath.Join(dir, "loquat.lock")
	for name, spoil := range map[string]func() error{
		"removed":  func() error { return os.Remove(lock) },
		"replaced": func() error { return errors.Join(os.Remove(lock), os.WriteFile(lock, []byte("1\n"), 0o600)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, link} {
			second, err := sqlite.Open(t.Context(), path, slog.New(slog.DiscardHandler))
			if !errors.Is(err, store.ErrInUse) {
				t.Fatalf("%s: opening %s gives %v, %v", name, path, second, err)
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another process") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	write(t, db, `UPDATE log SET last_event_id = 1`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Errorf("opening after closing: %v", err)
	}
}

// A cleanup program that locks the directory briefly does not prevent a start.
func TestDirectoryThatIsLockedForAMoment(t *testing.T) {
	skipOnWindows(t)
	dir := t.TempDir()
	other := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	if ok, err := other.TryLock(); !ok || err != nil {
		t.Skipf("directories cannot be locked here: %v", err)
	}
	released := make(chan error)
	time.AfterFunc(100*time.Millisecond, func() { released <- other.Unlock() })
	db, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-released, db.Close()); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, db *sqlite.DB, statement string) {
	t.Helper()
	if err := tryWrite(t, db, statement); err != nil {
		t.Fatal(err)
	}
}

func tryWrite(t *testing.T, db *sqlite.DB, statement string) error {
	return db.Write(t.Context(), func(q store.SQL) error {
		_, err := q.Exec(statement)
		return err
	})
}

// If an open file is moved or removed, writes fail, because nobody could read them later. If
// the file comes back, writes succeed again. On close the server writes back what it has.
func TestFilesThatAreTakenAway(t *testing.T) {
	skipOnWindows(t)
	const file = "loquat.db"
	replace := func(path string) error {
		return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, []byte("another"), 0o600))
	}
	for _, c := range []struct {
		name       string
		spoil      func(dir string) error
		says       string
		back       func(dir string) error // nil if the file cannot be restored
		keptAtStop bool
	}{
		{"the directory is removed", os.RemoveAll, file, nil, false},
		{
			"the directory is moved", func(dir string) error { return os.Rename(dir, dir+".old") }, file,
			func(dir string) error { return os.Rename(dir+".old", dir) }, true,
		},
		{
			"another directory is in its place", func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)) }, file,
			func(dir string) error { return errors.Join(os.Remove(dir), os.Rename(dir+".old", dir)) }, true,
		},
		{"the database is removed", func(dir string) error { return os.Remove(filepath.Join(dir, file)) }, file, nil, false},
		{
			"the database is replaced", func(dir string) error { return replace(filepath.Join(dir, file)) }, file,
			func(dir string) error { return os.Rename(filepath.Join(dir, file+".old"), filepath.Join(dir, file)) }, true,
		},
		{"the write-ahead log is removed", func(dir string) error { return os.Remove(filepath.Join(dir, file+"-wal")) }, file + "-wal", nil, true},
		{"its index is removed", func(dir string) error { return os.Remove(filepath.Join(dir, file+"-shm")) }, file + "-shm", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			db := open(t, dir)
			write(t, db, `UPDATE log SET last_event_id = 7`)
			if err := db.Check(); err != nil || number(t, db, `SELECT last_event_id FROM log`) != 7 {
				t.Fatal(err)
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			err := tryWrite(t, db, `UPDATE log SET last_event_id = 8`)
			if err == nil || !strings.HasPrefix(err.Error(), c.says+" was removed or replaced") {
				t.Fatalf("writing: %v", err)
			}
			if fault := db.Explain(db.Check()); fault.Kind != "moved" || fault.Remedy == "" {
				t.Errorf("the fault is %+v", fault)
			}
			if got := number(t, db, `SELECT last_event_id FROM log`); got != 7 {
				t.Errorf("readers see %d", got)
			}
			want := 7
			if c.back != nil {
				if err := c.back(dir); err != nil {
					t.Fatal(err)
				}
				write(t, db, `UPDATE log SET last_event_id = 9`)
				want = 9
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if !c.keptAtStop {
				return
			}
			again := open(t, dir)
			if got := number(t, again, `SELECT last_event_id FROM log`); got != want {
				t.Errorf("the next start finds %d, want %d", got, want)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
