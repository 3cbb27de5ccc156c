// Package sqlite is the embedded driver of the store: one SQLite file in the data
// directory, in write-ahead mode, with every commit synced to disk.
//
// It promises that only one process at a time uses a data directory. The rules are in
// package store.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite" // also registers the database/sql driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
)

// lockTimeout is how long a connection waits for a lock held by another.
const lockTimeout = 5 * time.Second

// Page cache per connection, in KiB. A cached page of 4 KiB takes 8 KiB here, so all
// connections together use at most about 100 MiB. The operating system caches the rest.
const (
	writerCache = 16 << 10
	readerCache = 4 << 10
)

// DB is the database file of a store.
type DB struct {
	path  string
	log   *slog.Logger
	lock  *datadir.Lock
	write *sql.Conn // the only writing connection; owned by the committer
	pool  *sql.DB   // pool of write and checkpointer
	read  *readPool

	checkpointer      *sql.Conn // owned by checkpointLoop, like checkpointFailing
	checkpointFailing bool      // the last WAL checkpoint failed
	writerFailing     bool      // like checkpointFailing, for the committer
	nextWaitSize      int64     // size of the write-ahead log at which the committer waits again
	writes            atomic.Int64
	wrote             chan struct{} // has a value if there was a write since checkpointLoop last took it
	turn              atomic.Bool   // nearly all of the write-ahead log is copied; see limitWAL

	mark   *datadir.MarkFile
	pinned []pinnedFile // open files that must stay in place

	created func(store.SQL) error // runs in the transaction that creates the tables; may be nil

	statements statements // of write; owned by the committer

	stop chan struct{}
	done chan struct{}
}

var _ store.Driver = (*DB)(nil)

// Open opens the database file in dir and creates both if they are missing. If another process
// uses the directory, the error names that process.
func Open(ctx context.Context, dir string, log *slog.Logger) (*DB, error) {
	lock, err := datadir.Make(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	db, err := openLocked(ctx, dir, lock, log)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return db, nil
}

// openLocked opens the database file of a locked directory. On success the DB owns the lock,
// otherwise the caller does.
func openLocked(ctx context.Context, dir string, lock *datadir.Lock, log *slog.Logger) (*DB, error) {
	db := newDB(dir, lock, log)
	if err := db.start(ctx, dir); err != nil {
		return nil, err
	}
	return db, nil
}

func newDB(dir string, lock *datadir.Lock, log *slog.Logger) *DB {
	return &DB{
		path: filePath(dir), log: log, lock: lock,
		statements: statements{},
		stop:       make(chan struct{}), done: make(chan struct{}), wrote: make(chan struct{}, 1),
	}
}

// start opens the file and begins the WAL checkpoints.
func (db *DB) start(ctx context.Context, dir string) error {
	if err := db.open(ctx, dir); err != nil {
		_ = db.release() // report the first error
		err = unopened(db.path, err)
		if isDamaged(err) {
			err = fmt.Errorf("%w; %s", err, remedyUnusable)
		}
		return err
	}
	go db.checkpointLoop()
	return nil
}

// isDamaged reports whether SQLite found that the file is damaged or not a database.
func isDamaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

func (db *DB) open(ctx context.Context, dir string) error {
	for _, path := range []string{db.path, db.path + "-wal", db.path + "-shm", db.path + "-journal"} {
		if err := requireFile(path); err != nil {
			return err
		}
	}
	if err := db.makePrivate(dir); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	if err := requireStore(ctx, db.path); err != nil {
		return err
	}
	db.mark = datadir.OpenMark(dir, db.log)
	// auto_vacuum must come first: it takes effect only before the first write, and changing
	// the journal mode writes.
	pragmas := append([]string{"auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)", busyTimeout(lockTimeout),
		"wal_autocheckpoint(0)", "journal_size_limit(" + strconv.Itoa(walSoftLimit) + ")", cacheSize(writerCache)}, temporaryFiles(dir)...)
	pool, err := sql.Open("sqlite", dsn(db.path, pragmas...))
	if err != nil {
		return err
	}
	db.pool = pool
	if err := db.migrate(ctx); err != nil {
		return err
	}
	if db.write, err = pool.Conn(ctx); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	if db.checkpointer, err = pool.Conn(ctx); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	if _, err := db.checkpointer.ExecContext(ctx, `PRAGMA `+busyTimeout(truncateTimeout)); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	toRead, err := sqlite.NewConnector(dsn(db.path, "query_only(1)", busyTimeout(lockTimeout), cacheSize(readerCache)))
	if err != nil {
		return err
	}
	db.read = newReadPool(connector{toRead, db})
	if err := db.pin(); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	return nil
}

// connector opens further connections only while the files are the ones that were opened
// first.
type connector struct {
	driver.Connector
	db *DB
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.db.Check(); err != nil {
		return nil, err
	}
	return c.Connector.Connect(ctx)
}

func busyTimeout(d time.Duration) string {
	return "busy_timeout(" + strconv.FormatInt(d.Milliseconds(), 10) + ")"
}

// temporaryFiles returns the pragma that makes SQLite write its temporary files into the data directory.
// A container with a read-only root may have no other writable directory, and a statement that changes
// many rows fails without one. The operator may name another directory in SQLITE_TMPDIR.
//
// The setting is one for the process, and SQLite guards it with a mutex. Only the pool of a store has the
// pragma: the directories of copies do not last.
func temporaryFiles(dir string) []string {
	if os.Getenv("SQLITE_TMPDIR") != "" {
		return nil
	}
	return []string{"temp_store_directory('" + strings.ReplaceAll(dir, "'", "''") + "')"}
}

func cacheSize(kib int) string { return "cache_size(-" + strconv.Itoa(kib) + ")" }

func dsn(path string, pragmas ...string) string { return dsnOf(path, "rw", pragmas...) }

// dsnOf returns the data source name of an existing file, for reading (ro) or writing (rw).
func dsnOf(path, mode string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas, "mode": {mode}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// noteWrite wakes checkpointLoop. It is called when a write begins and when it has ended.
func (db *DB) noteWrite() {
	db.writes.Add(1)
	select {
	case db.wrote <- struct{}{}:
	default:
	}
}

// Write runs fn in a transaction on the writing connection.
func (db *DB) Write(ctx context.Context, fn func(store.SQL) error) error {
	db.limitWAL(ctx)
	db.noteWrite()
	defer db.noteWrite() // the write-ahead log may have grown only at the end
	defer db.statements.bound()
	tx := writer{ctx, db}
	if err := tx.control(`BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed { // also when fn panics
			// After a failed commit SQLite may have rolled back already; then this fails harmlessly.
			_, _ = db.write.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	// Check as late as possible: a commit to a removed file would be lost.
	if err := db.Check(); err != nil {
		return err
	}
	if err := tx.control(`COMMIT`); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// Read runs fn in a transaction on a reading connection.
func (db *DB) Read(ctx context.Context, fn func(store.SQL) error) error {
	return db.read.read(ctx, fn)
}

// Marked returns the mark of the last process.
func (db *DB) Marked() (store.Mark, bool) { return db.mark.Marked() }

// Mark writes the newest event id outside of the database. It does not wait for the disk.
func (db *DB) Mark(m store.Mark) {
	db.mark.Mark(m)
	db.noteWrite() // checkpointLoop syncs the mark
}

// Close stops checkpointLoop, copies the write-ahead log back to the database and unlocks the
// directory.
func (db *DB) Close() error {
	close(db.stop)
	<-db.done
	return errors.Join(db.release(), db.lock.Release())
}

func (db *DB) release() error {
	var errs []error
	if db.read != nil {
		errs = append(errs, db.read.close())
	}
	errs = append(errs, db.statements.close())
	if db.checkpointer != nil {
		errs = append(errs, db.checkpointer.Close())
	}
	if db.write != nil {
		// Closing the last connection would do the same, but would hide a failure.
		_, err := db.write.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`)
		errs = append(errs, err, db.write.Close())
	}
	if db.pool != nil {
		errs = append(errs, db.pool.Close())
	}
	if db.mark != nil {
		errs = append(errs, db.mark.Close())
	}
	return errors.Join(errs...)
}
