// Package sqlite is the embedded driver of the store: one SQLite file in the data
// directory, in write-ahead mode, with every commit synced to disk.
//
// It promises that one process at a time uses a data directory. It holds no rules:
// those are package store's.
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
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite" // also registers the database/sql driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"loquat/internal/store"
)

// readers is how many reads run side by side.
const readers = 8

// patience is how long a connection waits for a lock that another one has.
const patience = 5 * time.Second

// What connections keep of the file in memory, in KiB. Each page of 4 KiB takes 8 of
// them here, so that all connections together take some 100 MiB at the most; what is
// read often and found in no cache is still in that of the operating system.
const (
	writerCache = 16 << 10
	readerCache = 4 << 10
)

// DB is a store's database file.
type DB struct {
	path  string
	log   *slog.Logger
	lock  *lock
	write *sql.Conn // the only writer; used by the committer alone
	pool  *sql.DB   // what write belongs to
	read  *sql.DB

	checkpointer *sql.Conn // belongs to checkpointLoop, as does stuck
	stuck        bool      // it could not copy back
	writerStuck  bool      // the same of the committer
	waitAt       int64     // size of the log at which the committer waits again
	writes       atomic.Int64

	mark   *markFile
	pinned []inPlace // files that have to stay where they are

	statements map[string]*sql.Stmt // of write; the committer's

	reading   chan struct{} // holds one for each read that runs
	mu        sync.Mutex
	readStmts map[string]*sql.Stmt // of read

	stop chan struct{}
	done chan struct{}
}

var _ store.Driver = (*DB)(nil)

// Open opens the store file in dir, making both when they are missing. A directory
// that another process uses is refused with that process's number.
func Open(ctx context.Context, dir string, log *slog.Logger) (*DB, error) {
	lock, err := makeAndLock(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	db, err := openLocked(ctx, dir, lock, log)
	if err != nil {
		return nil, errors.Join(err, lock.unlock())
	}
	return db, nil
}

func makeAndLock(ctx context.Context, dir string, log *slog.Logger) (*lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	return lockDir(ctx, dir, log)
}

// openLocked opens the store file of a directory that is locked. The lock belongs to the
// DB, or to the caller when it fails.
func openLocked(ctx context.Context, dir string, lock *lock, log *slog.Logger) (*DB, error) {
	db := &DB{
		path: filePath(dir), log: log, lock: lock,
		statements: map[string]*sql.Stmt{}, readStmts: map[string]*sql.Stmt{}, reading: make(chan struct{}, readers),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := db.open(ctx, dir); err != nil {
		_ = db.release() // err says what failed first
		if isDamaged(err) {
			err = fmt.Errorf("%w; %s", err, remedyUnusable)
		}
		return nil, err
	}
	go db.checkpointLoop()
	return db, nil
}

// isDamaged reports whether the file is no database, or not a sound one.
func isDamaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_NOTADB || e.Code()&0xff == sqlite3.SQLITE_CORRUPT)
}

func (db *DB) open(ctx context.Context, dir string) error {
	for _, path := range []string{db.path, db.path + "-wal", db.path + "-shm"} {
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
	db.mark = openMark(dir, db.log)
	// auto_vacuum stands first: it holds only if it is said before anything is written,
	// and changing the journal writes.
	pool, err := sql.Open("sqlite", dsn(db.path, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)", busyTimeout(patience),
		"wal_autocheckpoint(0)", "journal_size_limit("+strconv.Itoa(walSoftLimit)+")", cacheSize(writerCache)))
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
	if _, err := db.checkpointer.ExecContext(ctx, `PRAGMA `+busyTimeout(cutPatience)); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	toRead, err := sqlite.NewConnector(dsn(db.path, "query_only(1)", busyTimeout(patience), cacheSize(readerCache)))
	if err != nil {
		return err
	}
	db.read = sql.OpenDB(connector{toRead, db})
	// One more than reads run: a statement is prepared on a connection besides theirs, and
	// who prepares it would wait for ever for those who wait for the statement.
	db.read.SetMaxOpenConns(readers + 1)
	db.read.SetMaxIdleConns(readers + 1)
	if err := db.pin(); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	return nil
}

// connector opens connections to the files that were opened first, and to no others that
// may have taken their places.
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

func cacheSize(kib int) string { return "cache_size(-" + strconv.Itoa(kib) + ")" }

func dsn(path string, pragmas ...string) string { return dsnOf(path, "rw", pragmas...) }

// dsnOf names a file that is there, to be read (ro) or written (rw).
func dsnOf(path, mode string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas, "mode": {mode}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Write runs fn on the writing connection.
func (db *DB) Write(ctx context.Context, fn func(store.SQL) error) error {
	db.relieve(ctx)
	db.writes.Add(1)
	if _, err := db.write.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	committed := false
	defer func() {
		if !committed { // also when fn panics
			// A failed commit may have rolled back by itself, then this says so.
			_, _ = db.write.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		}
	}()
	if err := fn(writer{ctx, db}); err != nil {
		return err
	}
	// As late as can be: what is committed to a file that is gone is lost.
	if err := db.Check(); err != nil {
		return err
	}
	if _, err := db.write.ExecContext(ctx, `COMMIT`); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// Read runs fn on a reading connection.
func (db *DB) Read(ctx context.Context, fn func(store.SQL) error) error {
	select {
	case db.reading <- struct{}{}:
		defer func() { <-db.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	tx, err := db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer tx.Rollback()
	return fn(reader{ctx, db, tx})
}

// Close ends the checkpoints, copies the rest of the write-ahead log back and lets
// go of the directory.
func (db *DB) Close() error {
	close(db.stop)
	<-db.done
	return errors.Join(db.release(), db.lock.unlock())
}

func (db *DB) release() error {
	var errs []error
	db.mu.Lock() // who still reads may be about to prepare
	for _, st := range db.readStmts {
		errs = append(errs, st.Close())
	}
	db.mu.Unlock()
	if db.read != nil {
		errs = append(errs, db.read.Close())
	}
	for _, st := range db.statements {
		errs = append(errs, st.Close())
	}
	if db.checkpointer != nil {
		errs = append(errs, db.checkpointer.Close())
	}
	if db.write != nil {
		// The last connection would do the same, but silently not when it fails.
		_, err := db.write.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`)
		errs = append(errs, err, db.write.Close())
	}
	if db.pool != nil {
		errs = append(errs, db.pool.Close())
	}
	if db.mark != nil {
		errs = append(errs, db.mark.close())
	}
	return errors.Join(errs...)
}
