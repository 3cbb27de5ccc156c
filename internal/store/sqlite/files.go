package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// dbName is the name of the database file. SQLite appends -wal and -shm to it.
const dbName = "loquat.db"

// filePath returns the path of the database file in a directory.
func filePath(dir string) string { return filepath.Join(dir, dbName) }

// Exists reports whether dir has a database file.
func Exists(dir string) bool {
	_, err := os.Stat(filePath(dir))
	return err == nil
}

// Require returns an error that says what to do if dir has no database file, or if this user may not look into dir.
func Require(dir string) error {
	_, err := os.Stat(filePath(dir))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return fmt.Errorf("there is no data in %s; choose the data directory of the server", dir)
	}
	return nil
}

// Remove removes the database file of an unused directory, if there is one.
func Remove(dir string) error {
	err := os.Remove(filePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
