package sqlite

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
)

// movedError reports that an open file was moved or removed. SQLite would keep writing to it,
// and the data would be lost.
type movedError struct{ name string }

func (e *movedError) Error() string {
	return e.name + " was removed or replaced while the server uses it"
}

// deniedError reports that the user of the server may not look at an open file, so that it may have been moved.
type deniedError struct{ name string }

func (e *deniedError) Error() string { return "the user of the server may not use " + e.name }

// unopened returns why the database file could not be opened, if SQLite does not say it.
func unopened(path string, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code()&0xff != sqlite3.SQLITE_CANTOPEN {
		return err
	}
	return cmp.Or(datadir.Denied(path), err)
}

// pinnedFile is a file that must stay in its place while it is open.
type pinnedFile struct {
	path string
	info os.FileInfo
}

// pin remembers the open files. The write-ahead log and its index exist as long as a
// connection does.
func (db *DB) pin() error {
	paths := []string{db.path, db.path + "-wal", db.path + "-shm"}
	if !db.lock.OnDirectory() { // only the lock file keeps a second server out
		paths = append(paths, filepath.Join(filepath.Dir(db.path), datadir.LockName))
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		db.pinned = append(db.pinned, pinnedFile{path, info})
	}
	return nil
}

// Check returns an error if an open file was moved, removed or replaced.
func (db *DB) Check() error {
	for _, p := range db.pinned {
		info, err := os.Stat(p.path)
		if errors.Is(err, fs.ErrPermission) {
			return &deniedError{filepath.Base(p.path)}
		}
		if err != nil || !os.SameFile(info, p.info) {
			return &movedError{filepath.Base(p.path)}
		}
	}
	return nil
}

// Faults whose cause is outside the database.
var (
	faultFull = store.Fault{Kind: "full", Text: "the disk is full", Remedy: "make room: the server continues by itself"}
	faultLock = store.Fault{Kind: "locked", Text: "another program keeps the database locked", Remedy: "end that program"}
)

// Explain returns the Fault that describes an error.
func (db *DB) Explain(err error) store.Fault { return explain(err) }

func explain(err error) store.Fault {
	if moved, ok := errors.AsType[*movedError](err); ok {
		return store.Fault{Kind: "moved", Text: moved.Error(), Remedy: "move it back; or restart the server, on a backup when the data are gone"}
	}
	if denied, ok := errors.AsType[*deniedError](err); ok {
		return store.Fault{Kind: "denied", Text: denied.Error(), Remedy: "give the data directory back to that user: chown -R"}
	}
	if errors.Is(err, syscall.ENOSPC) {
		return faultFull
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return store.Fault{Kind: "failing", Text: "the database failed", Remedy: "the log of the server says more"}
	}
	if e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE { // no space for the index of the write-ahead log
		return faultFull
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return store.Damaged
	case sqlite3.SQLITE_INTERRUPT:
		return store.Fault{}
	case sqlite3.SQLITE_FULL:
		return faultFull
	case sqlite3.SQLITE_READONLY:
		return store.Fault{Kind: "read-only", Text: "the database cannot be written", Remedy: "make the data directory writable for the user of the server"}
	case sqlite3.SQLITE_IOERR:
		return store.Fault{Kind: "disk", Text: "the disk fails", Remedy: "the log of the operating system says more"}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return faultLock
	}
	return store.Fault{Kind: "failing", Text: "the database failed", Remedy: "the log of the server says more"}
}
