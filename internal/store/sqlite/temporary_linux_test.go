package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/store"
)

// A statement that changes many rows under a UNIQUE index has a journal, which becomes a file. The file
// is in the data directory, or in the directory that SQLITE_TMPDIR names.
func TestTemporaryFiles(t *testing.T) {
	for name, other := range map[string]string{"of the store": "", "of the operator": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SQLITE_TMPDIR", other)
			dir := filepath.Join(t.TempDir(), "a user's data")
			db := open(t, dir)
			err := db.Write(t.Context(), func(q store.SQL) error {
				for _, statement := range []string{
					`CREATE TABLE numbers (n INTEGER UNIQUE, t TEXT)`,
					`WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 200) INSERT INTO numbers SELECT n, hex(zeroblob(1000)) FROM r`,
					`UPDATE numbers SET n = n + 1000, t = t || '.'`,
				} {
					if _, err := q.Exec(statement); err != nil {
						return err
					}
				}
				if in := temporaryFiles(t, dir); (in > 0) != (other == "") {
					t.Errorf("%d temporary files are open in the data directory", in)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// temporaryFiles counts the temporary files of SQLite that are open in a directory. SQLite removes the name
// of such a file at once.
func temporaryFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, dir) && strings.HasSuffix(target, " (deleted)") {
			n++
		}
	}
	return n
}
