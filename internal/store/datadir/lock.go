// Package datadir keeps the small files of a data directory, apart from the database and the
// images: the lock, the mark and the id of the node.
package datadir

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
		by = "another process, whose " + LockName + " was removed"
	}
	return fmt.Sprintf("the data directory %s is in use by %s; stop it first, or choose another directory with --data", e.dir, by)
}

func (e *inUseError) Unwrap() error { return store.ErrInUse }

// LockName is the file that holds the id of the process that uses a directory.
const LockName = "loquat.lock"

// Lock excludes other processes from a data directory. The lock file contains the process id;
// older versions check only this file. The directory itself is locked too: if somebody removes
// the lock file, a second server still cannot start.
type Lock struct {
	file *flock.Flock
	dir  *flock.Flock // nil if the file system cannot lock directories
}

// dirLockWait is how long to wait for the lock of the directory while the lock file is free.
// Cleanup programs of the system take the same lock briefly.
const dirLockWait = time.Second

// Make creates a directory if it is missing and locks it. If another process uses it, the
// error is a store.ErrInUse that names this process.
func Make(ctx context.Context, dir string, log *slog.Logger) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("make the data directory: %w; make it as a user who may, give it to the user of this command with chown, or choose another with --data", err)
		}
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	return Take(ctx, dir, log)
}

// Take locks a directory that exists.
func Take(ctx context.Context, dir string, log *slog.Logger) (*Lock, error) {
	path := filepath.Join(dir, LockName)
	l := &Lock{file: flock.New(path)}
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
	err = errors.Join(giveToOwner(path, dir), os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600))
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // a full disk does not affect the lock
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), l.Release())
	}
	return l, nil
}

// lockInode locks the directory itself, with flock(2) on Linux, macOS and the BSDs. Windows
// needs no such lock, because it does not allow an open lock file to be removed.
func (l *Lock) lockInode(ctx context.Context, dir string, log *slog.Logger) error {
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
	log.Warn("the directory cannot be locked here, as on a network file system; "+LockName+" alone keeps a second server out, do not remove it", "dir", dir, "error", err)
	l.dir = nil
	return nil
}

// OnDirectory reports whether the directory itself is locked. Otherwise only the lock file
// keeps other processes out.
func (l *Lock) OnDirectory() bool { return l.dir != nil }

// Release unlocks the directory.
func (l *Lock) Release() error {
	err := l.file.Unlock()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Unlock())
	}
	return err
}
