package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"loquat/internal/store"
)

// inUseError is a store.ErrInUse with details. holder is the process id, or empty if unknown.
type inUseError struct{ dir, holder string }

func (e *inUseError) Error() string {
	by := "process " + e.holder
	if e.holder == "" {
		by = "another process, whose " + lockName + " was removed"
	}
	return fmt.Sprintf("the data directory %s is in use by %s; stop it first, or choose another directory with --data", e.dir, by)
}

func (e *inUseError) Unwrap() error { return store.ErrInUse }

// The names of the store's files.
const (
	dbName   = "loquat.db" // SQLite appends -wal and -shm
	lockName = "loquat.lock"
)

// filePath returns the path of the database file in a directory.
func filePath(dir string) string { return filepath.Join(dir, dbName) }

// Exists reports whether dir has a database file.
func Exists(dir string) bool {
	_, err := os.Stat(filePath(dir))
	return err == nil
}

// Remove removes the database file of an unused directory, if there is one.
func Remove(dir string) error {
	err := os.Remove(filePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lock excludes other processes from a data directory. The lock file contains the process id;
// older versions check only this file. The directory itself is locked too: if somebody removes
// the lock file, a second server still cannot start.
type lock struct {
	file *flock.Flock
	dir  *flock.Flock // nil if the file system cannot lock directories
}

// dirLockWait is how long to wait for the lock of the directory while the lock file is free.
// Cleanup programs of the system take the same lock briefly.
const dirLockWait = time.Second

// lockDir takes both locks of a directory.
func lockDir(ctx context.Context, dir string, log *slog.Logger) (*lock, error) {
	path := filepath.Join(dir, lockName)
	l := &lock{file: flock.New(path)}
	ok, err := l.file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if !ok {
		holder, _ := os.ReadFile(path)
		return nil, &inUseError{dir: dir, holder: strings.TrimSpace(string(holder))}
	}
	if err := l.lockInode(ctx, dir, log); err != nil {
		return nil, errors.Join(err, l.file.Unlock())
	}
	err = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // a full disk does not affect the lock
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), l.unlock())
	}
	return l, nil
}

// lockInode locks the directory itself, with flock(2) on Linux, macOS and the BSDs. Windows
// needs no such lock, because it does not allow an open lock file to be removed.
func (l *lock) lockInode(ctx context.Context, dir string, log *slog.Logger) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dirLockWait)
	defer cancel()
	l.dir = flock.New(dir, flock.SetFlag(os.O_RDONLY))
	ok, err := l.dir.TryLockContext(ctx, dirLockWait/20)
	switch {
	case ok:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &inUseError{dir: dir}
	case ctx.Err() != nil:
		return err
	}
	log.Warn("the directory cannot be locked here, as on a network file system; "+lockName+" alone keeps a second server out, do not remove it", "dir", dir, "error", err)
	l.dir = nil
	return nil
}

func (l *lock) unlock() error {
	err := l.file.Unlock()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Unlock())
	}
	return err
}
