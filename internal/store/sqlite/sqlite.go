// Package sqlite is the embedded driver of the store: one SQLite file in the data
// directory, in write-ahead mode, with every commit synced to disk.
//
// It promises that one process at a time uses a data directory. It holds no rules:
// those are package store's.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"
	_ "modernc.org/sqlite" // registers the database/sql driver "sqlite"

	"loquat/internal/store"
)

// steps are the schema, one file for each version of it. A step that was released is
// never changed: a file is brought from the version that it has to the newest.
//
//go:embed schema/*.sql
var steps embed.FS

// The write-ahead log is copied back beside the writer. Only when readers have kept
// that from catching up does the writer wait for it. While nothing is written the log
// is cut, so that what a busy time has left does not stay.
const (
	checkpointEvery = 200 * time.Millisecond
	walSoftLimit    = 4 << 20
	walHardLimit    = 64 << 20
	cutPatience     = 50 * time.Millisecond // a writer that comes back waits no longer for the cut
)

// readers is how many reads run side by side.
const readers = 8

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
	lock  *flock.Flock
	write *sql.Conn // the only writer; used by the committer alone
	pool  *sql.DB   // what write belongs to
	read  *sql.DB

	checkpointer *sql.Conn // belongs to checkpointLoop, as does stuck
	stuck        bool      // it could not copy back
	writerStuck  bool      // the same of the committer
	writes       atomic.Int64

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
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	db := &DB{
		path: filePath(dir), log: log, lock: lock,
		statements: map[string]*sql.Stmt{}, readStmts: map[string]*sql.Stmt{}, reading: make(chan struct{}, readers),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := db.open(ctx); err != nil {
		db.release()
		return nil, err
	}
	go db.checkpointLoop()
	return db, nil
}

// ErrInUse is the failure of opening a directory that another process uses.
var ErrInUse = errors.New("another process uses the data directory")

// inUseError is ErrInUse with the names that help.
type inUseError struct{ dir, holder string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("the data directory %s is in use by process %s; stop it first, or choose another directory with --data", e.dir, e.holder)
}

func (e *inUseError) Unwrap() error { return ErrInUse }

// filePath is the store file of a directory.
func filePath(dir string) string { return filepath.Join(dir, "loquat.db") }

// Exists reports whether there is a store file in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filePath(dir))
	return err == nil
}

// lockDir takes the directory's lock and writes the number of this process into it.
func lockDir(dir string) (*flock.Flock, error) {
	path := filepath.Join(dir, "loquat.lock")
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

func (db *DB) open(ctx context.Context) error {
	// auto_vacuum stands first: it holds only if it is said before anything is written,
	// and changing the journal writes.
	pool, err := sql.Open("sqlite", dsn(db.path, "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)",
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
	if _, err := db.checkpointer.ExecContext(ctx, `PRAGMA busy_timeout = `+strconv.FormatInt(cutPatience.Milliseconds(), 10)); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	db.read, err = sql.Open("sqlite", dsn(db.path, "query_only(1)", "busy_timeout(5000)", cacheSize(readerCache)))
	if err != nil {
		return err
	}
	// One more than reads run: a statement is prepared on a connection besides theirs, and
	// who prepares it would wait for ever for those who wait for the statement.
	db.read.SetMaxOpenConns(readers + 1)
	db.read.SetMaxIdleConns(readers + 1)
	return nil
}

func cacheSize(kib int) string { return "cache_size(-" + strconv.Itoa(kib) + ")" }

func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// migrate brings a file to the newest schema, in one transaction, and refuses one that
// is newer.
func (db *DB) migrate(ctx context.Context) error {
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	defer conn.Close()
	var version int
	if err := conn.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	files, err := steps.ReadDir("schema") // sorted by name
	if err != nil {
		return err
	}
	switch {
	case version == len(files):
		return nil
	case version > len(files):
		return fmt.Errorf("%s has schema %d and this program knows %d; use the program that made it, or a newer one", db.path, version, len(files))
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", db.path, err)
	}
	defer tx.Rollback()
	for _, file := range files[version:] {
		step, err := steps.ReadFile("schema/" + file.Name())
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(step)); err != nil {
			return fmt.Errorf("prepare %s: %s: %w", db.path, file.Name(), err)
		}
	}
	if version == 0 {
		id, err := uuid.NewRandom()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO log (store_id) VALUES (?)`, id.String()); err != nil {
			return fmt.Errorf("prepare %s: %w", db.path, err)
		}
	}
	if _, err := tx.ExecContext(ctx, `PRAGMA user_version = `+strconv.Itoa(len(files))); err != nil {
		return fmt.Errorf("prepare %s: %w", db.path, err)
	}
	return tx.Commit()
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
	if _, err := db.write.ExecContext(ctx, `COMMIT`); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	committed = true
	return nil
}

// relieve makes the writer wait for the write-ahead log to be copied back, when it
// outgrew its hard limit.
func (db *DB) relieve(ctx context.Context) {
	if db.walSize() < walHardLimit {
		return
	}
	_, err := db.write.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	db.tell(err, &db.writerStuck)
}

func (db *DB) walSize() int64 {
	info, err := os.Stat(db.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// writer is the transaction of Write.
type writer struct {
	ctx context.Context
	db  *DB
}

func (w writer) statement(query string) (*sql.Stmt, error) {
	if st, ok := w.db.statements[query]; ok {
		return st, nil
	}
	st, err := w.db.write.PrepareContext(w.ctx, query)
	if err != nil {
		return nil, err
	}
	w.db.statements[query] = st
	return st, nil
}

func (w writer) Exec(query string, args ...any) (int64, error) {
	st, err := w.statement(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(w.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (w writer) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := w.statement(query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(w.ctx, args...)
}

// reclaimPages is how many free pages one call of Reclaim gives back at the most.
const reclaimPages = 500

// Reclaim gives free pages at the end of the file back to the file system. A file that
// cannot shrink uses them again.
func (w writer) Reclaim() (more bool, err error) {
	before, err := w.freePages()
	if err != nil || before == 0 {
		return false, err
	}
	if _, err := w.db.write.ExecContext(w.ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(reclaimPages)+`)`); err != nil {
		return false, err
	}
	after, err := w.freePages()
	return after > 0 && after < before, err
}

func (w writer) freePages() (n int64, err error) {
	err = w.db.write.QueryRowContext(w.ctx, `PRAGMA freelist_count`).Scan(&n)
	return n, err
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

// reader is the transaction of Read.
type reader struct {
	ctx context.Context
	db  *DB
	tx  *sql.Tx
}

func (r reader) Exec(string, ...any) (int64, error) {
	return 0, errors.New("a reading transaction cannot write")
}

func (r reader) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := r.db.readStatement(r.ctx, query)
	if err != nil {
		return nil, err
	}
	return r.tx.StmtContext(r.ctx, st).QueryContext(r.ctx, args...)
}

func (db *DB) readStatement(ctx context.Context, query string) (*sql.Stmt, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if st, ok := db.readStmts[query]; ok {
		return st, nil
	}
	st, err := db.read.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	db.readStmts[query] = st
	return st, nil
}

// checkpointLoop copies the write-ahead log back into the file, beside the writer.
func (db *DB) checkpointLoop() {
	defer close(db.done)
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	for seen := int64(0); ; {
		select {
		case <-db.stop:
			return
		case <-tick.C:
		}
		if db.walSize() <= walSoftLimit {
			continue
		}
		writes := db.writes.Load()
		rest := db.checkpoint("PASSIVE")
		if idle := writes == seen; idle && rest == 0 {
			db.checkpoint("TRUNCATE")
		}
		seen = writes
	}
}

// checkpoint copies the write-ahead log back and returns how many pages of it are
// left, which those who read it still need.
func (db *DB) checkpoint(mode string) (rest int) {
	var busy, logged, copied int
	err := db.checkpointer.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&busy, &logged, &copied)
	db.tell(err, &db.stuck)
	if err != nil {
		return -1
	}
	return logged - copied
}

// tell logs that copying back fails, or works again, once for each change: a full disk
// may stay so for long.
func (db *DB) tell(err error, stuck *bool) {
	switch {
	case err != nil && !*stuck:
		db.log.Warn("the write-ahead log cannot be copied back", "error", err)
	case err == nil && *stuck:
		db.log.Info("the write-ahead log can be copied back again")
	}
	*stuck = err != nil
}

// Close ends the checkpoints, copies the rest of the write-ahead log back and lets
// go of the directory.
func (db *DB) Close() error {
	close(db.stop)
	<-db.done
	return db.release()
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
	return errors.Join(append(errs, db.lock.Unlock())...)
}
