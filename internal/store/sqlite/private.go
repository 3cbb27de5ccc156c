package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"loquat/internal/private"
)

// makePrivate makes the store file, when it is missing, and takes the store's files from
// other users, also those that an older version made. SQLite gives the files beside the
// database the permissions that the database has.
//
// Nothing has the database open yet: to close a file that SQLite has locked would end the
// lock.
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
		// A file of another owner is no reason to refuse the whole directory.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			db.log.Warn("other users of the machine may read the data; make the user of the server the owner of the file", "error", err)
		}
	}
	return nil
}

// isOwn reports whether a file of the data directory is the store's, by its name.
func isOwn(name string) bool {
	return name == dbName || strings.HasPrefix(name, dbName+"-") || name == lockName || name == markName
}
