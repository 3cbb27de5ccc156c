package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"loquat/internal/backup"
)

// A backup removes the incomplete copies of killed backups next to it, and nothing else.
func TestLeftovers(t *testing.T) {
	from, hashes := dataWith(t, []string{"one"}, nil, nil)
	hash := hashes["one"]
	image := filepath.Join("assets", hash[:2], hash)
	for _, c := range []struct {
		name    string
		dir     string
		files   []string
		old     bool // untouched for more than a day
		live    bool // another process makes it
		removed bool
	}{
		{name: "killed", dir: ".loquat-backup-1", files: []string{"backup.lock", "loquat.db", "loquat.db-journal", image}, removed: true},
		{name: "killed at its begin", dir: ".loquat-backup-2", files: []string{"backup.lock"}, removed: true},
		{name: "being made", dir: ".loquat-backup-3", files: []string{"backup.lock", "loquat.db"}, live: true},
		{name: "being made since long", dir: ".loquat-backup-4", files: []string{"backup.lock", "loquat.db"}, live: true, old: true},
		{name: "of an older version", dir: ".loquat-backup-5", files: []string{"loquat.db", image}, old: true, removed: true},
		{name: "perhaps being made by an older version", dir: ".loquat-backup-6", files: []string{"loquat.db"}},
		{name: "with somebody's file", dir: ".loquat-backup-7", files: []string{"backup.lock", "loquat.db", "notes.txt"}, old: true},
		{name: "with somebody's file among images", dir: ".loquat-backup-8", files: []string{"backup.lock", "assets/ab/notes.txt"}, old: true},
		{name: "with a deeper folder", dir: ".loquat-backup-9", files: []string{"backup.lock", "assets/ab/cd/ef"}, old: true},
		{name: "of another name", dir: ".loquat-backup-monday", files: []string{"backup.lock", "loquat.db"}, old: true},
		{name: "a backup", dir: "monday", files: []string{"loquat.db", image}, old: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, c.dir)
			for _, name := range c.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.live {
				lock := flock.New(filepath.Join(dir, "backup.lock"))
				if ok, err := lock.TryLock(); !ok || err != nil {
					t.Fatal(ok, err)
				}
				defer lock.Unlock()
			}
			if c.old {
				age(t, dir)
			}
			r, err := backup.Make(t.Context(), from, filepath.Join(parent, "copy"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = os.Stat(dir)
			if os.IsNotExist(err) != c.removed {
				t.Errorf("it is there: %v", err)
			}
			if said := strings.Join(r.Notes, "\n"); strings.Contains(said, "removed "+dir) != c.removed {
				t.Errorf("the backup says %q", said)
			}
			if _, err := os.Stat(filepath.Join(parent, "copy", "backup.lock")); !os.IsNotExist(err) {
				t.Errorf("the copy holds its lock: %v", err)
			}
		})
	}
}

// age makes everything in a directory look untouched for two days.
func age(t *testing.T, dir string) {
	t.Helper()
	then := time.Now().Add(-48 * time.Hour)
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, then, then)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A symbolic link that looks like a copy is kept.
func TestLinksAreNoLeftovers(t *testing.T) {
	from, _ := dataWith(t, []string{"one"}, nil, nil)
	parent, elsewhere := t.TempDir(), t.TempDir()
	for _, name := range []string{"backup.lock", "loquat.db"} {
		if err := os.WriteFile(filepath.Join(elsewhere, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inside := filepath.Join(parent, ".loquat-backup-2")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(parent, ".loquat-backup-1")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(inside, "assets")); err != nil {
		t.Fatal(err)
	}
	age(t, inside)
	if _, err := backup.Make(t.Context(), from, filepath.Join(parent, "copy")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(parent, ".loquat-backup-1"), inside, filepath.Join(elsewhere, "loquat.db")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}
