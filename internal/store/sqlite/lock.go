package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// ErrInUse is the failure of opening a directory that another process uses.
var ErrInUse = errors.New("another process uses the data directory")

// inUseError is ErrInUse with the names that help.
type inUseError struct{ dir, holder string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("the data directory %s is in use by process %s; stop it first, or choose another directory with --data", e.dir, e.holder)
}

func (e *inUseError) Unwrap() error { return ErrInUse }

// The names of the store's files.
const (
	dbName   = "loquat.db" // SQLite appends -wal and -shm
	lockName = "loquat.lock"
)

// filePath is the store file of a directory.
func filePath(dir string) string { return filepath.Join(dir, dbName) }

// Exists reports whether there is a store file in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filePath(dir))
	return err == nil
}

// Remove removes the store file of a directory that nobody uses, if there is one.
func Remove(dir string) error {
	err := os.Remove(filePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lockDir takes the directory's lock and writes the number of this process into it.
func lockDir(dir string) (*flock.Flock, error) {
	path := filepath.Join(dir, lockName)
	lock := flock.New(path)
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if !ok {
		holder, _ := os.ReadFile(path)
		return nil, &inUseError{dir: dir, holder: strings.TrimSpace(string(holder))}
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), lock.Unlock())
	}
	return lock, nil
}
