//go:build unix

package data_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"

	"loquat/internal/e2e/binary"
)

// Whatever is in the place of the database, each command says what it is and what to do,
// and ends; none writes into what is not a store.
func TestDatabaseThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	p := binary.Start(t, nil, "serve", "--demo", "--data", made, "--listen", "127.0.0.1:0")
	p.End(t)
	sound, err := os.ReadFile(filepath.Join(made, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(statement string) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, sound, 0o600); err != nil {
				return err
			}
			return execute(path, statement)
		}
	}
	const backup, newer = "put a backup in its place, or choose another directory with --data", "use the program that made it, or a newer one"
	for _, c := range []struct {
		name  string
		place func(path string) error
		says  string
		todo  string
		ours  bool // its tables are ours, so that it is opened before it is refused
	}{
		{"a version below zero", change(`PRAGMA user_version = -1`), "its schema is -1", backup, false},
		{"the lowest version", change(`PRAGMA user_version = -2147483648`), "its schema is -2147483648", backup, false},
		{"a newer version", change(`PRAGMA user_version = 999`), "has schema 999", newer, false},
		{"a table is missing", change(`DROP TABLE events`), "it lacks the table events", backup, false},
		{"the log is empty", change(`DELETE FROM log`), "log", backup, true},
		{"two logs", change(`INSERT INTO log (store_id) VALUES ('another')`), "log", backup, true},
		{"an id that is not a number", change(`UPDATE log SET last_event_id = 'abc'`), "", backup, true},
		{"of another program", func(path string) error { return execute(path, `CREATE TABLE users (name TEXT)`) }, "it holds the table users", backup, false},
		{"no database", func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600) }, "file is not a database", backup, false},
		{"a database that is cut", func(path string) error { return os.WriteFile(path, sound[:5000], 0o600) }, "malformed", backup, false},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory, not a database", backup, false},
		{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is not a regular file", backup, false},
		{"a device", func(path string) error { return os.Symlink("/dev/null", path) }, "is not a regular file", backup, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "loquat.db")
			if err := c.place(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(regular(path))
			for _, args := range [][]string{{"serve", "--demo", "--listen", "127.0.0.1:0"}, {"token", "list"}} {
				code, said := binary.Exit(t, append(args, "--data", dir)...)
				if code != binary.ExitFailure || !strings.Contains(said, c.says) || !strings.Contains(said, c.todo) || strings.Contains(said, "goroutine") {
					t.Errorf("%s: exit code %d, said\n%s", args[0], code, said)
				}
			}
			if code, out, said := checkData(t, dir); code != binary.ExitFailure || !strings.Contains(out+said, c.says) || !strings.Contains(said, "backup") && !strings.Contains(said, c.todo) {
				t.Errorf("check: exit code %d\n%s%s", code, out, said)
			}
			if after, _ := os.ReadFile(regular(path)); !bytes.Equal(before, after) && !c.ours {
				t.Error("the file was changed")
			}
		})
	}
	t.Run("a link to nothing", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(dir, "missing"), filepath.Join(dir, "loquat.db")); err != nil {
			t.Fatal(err)
		}
		code, said := binary.Exit(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", dir)
		if code != binary.ExitFailure || !strings.Contains(said, "which is missing; "+backup) {
			t.Errorf("exit code %d, said\n%s", code, said)
		}
	})
}

// regular is the path of a file that can be read without waiting, else of none.
func regular(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// execute runs a statement on a database file.
func execute(path, statement string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	_, err = db.Exec(statement)
	// So that all of it is in the file.
	_, cut := db.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
	if err = errors.Join(err, cut, db.Close()); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
