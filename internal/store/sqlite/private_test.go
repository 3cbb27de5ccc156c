package sqlite_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// requirePrivate fails for every file in a directory that other users may read.
func requirePrivate(t *testing.T, dir string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has permissions %04o", path, info.Mode().Perm())
		}
		files++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// openDirectory returns a data directory that every user may list, which is common.
func openDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNewFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	dir := openDirectory(t)
	db := open(t, dir)
	fill(t, db, 1)
	if n := requirePrivate(t, dir); n < 4 { // database, -wal, -shm, lock
		t.Errorf("there are %d files", n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	requirePrivate(t, dir)
}

func TestFilesOfOlderVersionsBecomePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	// The first directory is left as after a crash, with its write-ahead log.
	running := openDirectory(t)
	db := open(t, running)
	defer db.Close()
	fill(t, db, 1)
	dir := openDirectory(t)
	for _, name := range []string{"loquat.db", "loquat.db-wal", "loquat.db-shm", "loquat.lock"} {
		b, err := os.ReadFile(filepath.Join(running, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "loquat.json") // files of other programs stay unchanged
	if err := os.WriteFile(other, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	opened := open(t, dir)
	defer opened.Close()
	if info, err := os.Stat(other); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	requirePrivate(t, dir)
}

// Other users cannot read a copy while it is written.
func TestCopiesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	from, to := t.TempDir(), openDirectory(t)
	db := open(t, from)
	defer db.Close()
	err := sqlite.Copy(t.Context(), from, to, func(store.SQL) error {
		requirePrivate(t, to)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	requirePrivate(t, to)
}
