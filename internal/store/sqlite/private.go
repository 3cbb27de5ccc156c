package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"loquat/internal/private"
	"loquat/internal/store/datadir"
)

// makePrivate creates the database file if it is missing, and removes other users' permissions
// from all files of the store. SQLite gives its other files the permissions of the database
// file.
//
// No connection may be open yet: closing a file that SQLite has locked releases SQLite's lock.
func (db *DB) makePrivate(dir string) error {
	f, err := os.OpenFile(db.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case err == nil:
		if err := f.Close(); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || !isOwn(entry.Name()) {
			continue
		}
		err := private.Restrict(filepath.Join(dir, entry.Name()))
		// A file of another owner must not prevent the start.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			db.log.Warn("other users of the machine may be able to read the data; make the user of the server the owner of the file", "error", err)
		}
	}
	return nil
}

// isOwn reports whether a file name in the data directory belongs to the store.
func isOwn(name string) bool {
	return name == dbName || strings.HasPrefix(name, dbName+"-") || name == datadir.LockName || name == datadir.MarkName
}
