package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
)

// fullDiskDB is a database that was opened while the disk was full. It serves reads until
// there is space, and then becomes a DB.
//
// SQLite needs 32 KiB for the index of the write-ahead log before it can read. Only an
// exclusive connection keeps the index in memory, so reads share one exclusive connection
// until then.
type fullDiskDB struct {
	dir    string
	log    *slog.Logger
	lock   *datadir.Lock
	mark   store.Mark
	marked bool // mark was found

	db atomic.Pointer[DB] // nil while the disk is full

	mu      sync.RWMutex // held shared while a read uses reading
	reading *sql.DB      // nil if it could not be opened
}

var _ store.Driver = (*fullDiskDB)(nil)

// errNoSpace is the error of a change while the disk has been full since the start.
var errNoSpace = fmt.Errorf("the disk has been full since the start: %w", syscall.ENOSPC)

// OpenForServer is Open for a server. On a full disk it returns a fullDiskDB, so that the
// server can start and serve reads.
func OpenForServer(ctx context.Context, dir string, log *slog.Logger) (store.Driver, error) {
	lock, err := datadir.Make(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	db, err := openLocked(ctx, dir, lock, log)
	if err == nil {
		return db, nil
	}
	if explain(err).Kind != faultFull.Kind {
		return nil, errors.Join(err, lock.Release())
	}
	p := &fullDiskDB{dir: dir, log: log, lock: lock}
	if opening := p.openToRead(ctx); opening != nil { // err names the cause
		return nil, errors.Join(err, lock.Release())
	}
	if p.mark, p.marked, err = datadir.ReadMark(filepath.Join(dir, datadir.MarkName)); err != nil {
		log.Warn("the mark of the last run cannot be read; lost events would go unnoticed", "error", err)
	}
	log.Error("the disk is full: the server starts, serves reads and refuses changes", "remedy", faultFull.Remedy, "dir", dir)
	return p, nil
}

// openToRead opens the exclusive connection. It requires the newest schema.
func (p *fullDiskDB) openToRead(ctx context.Context) error {
	path := filePath(p.dir)
	// No cache_size: the driver runs pragmas in alphabetical order, and cache_size reads the
	// file before the locking mode is set.
	db, err := sql.Open("sqlite", dsn(path, "locking_mode(EXCLUSIVE)", "query_only(1)", busyTimeout(lockTimeout)))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	version, newest, err := schemaVersion(ctx, conn, path)
	if err == nil && version != newest {
		err = fmt.Errorf("%s has schema %d and must be migrated to %d", path, version, newest)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return errors.Join(err, db.Close())
	}
	p.reading = db
	return nil
}

// Write opens the database for writing if there is space by now, and runs fn.
func (p *fullDiskDB) Write(ctx context.Context, fn func(store.SQL) error) error {
	db := p.db.Load()
	if db == nil {
		var err error
		if db, err = p.recover(ctx); err != nil {
			return err
		}
	}
	return db.Write(ctx, fn)
}

// recover opens the database for writing. Only the committer calls it.
func (p *fullDiskDB) recover(ctx context.Context) (*DB, error) {
	if !p.hasSpace() {
		return nil, errNoSpace
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading != nil {
		if err := p.reading.Close(); err != nil {
			p.log.Warn("the write-ahead log cannot be copied back to the database", "error", err)
		}
		p.reading = nil
	}
	db, err := openLocked(ctx, p.dir, p.lock, p.log)
	if err == nil {
		p.db.Store(db)
		return db, nil
	}
	if opening := p.openToRead(ctx); opening != nil {
		err = errors.Join(err, opening)
	}
	return nil, err
}

// minSpace is what SQLite needs to open a database, with a margin.
const minSpace = 256 << 10

// hasSpace writes a test file, so that reads are interrupted only if the database can be
// opened.
func (p *fullDiskDB) hasSpace() bool {
	f, err := os.OpenFile(filepath.Join(p.dir, dbName+"-room"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false
	}
	_, err = f.Write(make([]byte, minSpace))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())) == nil
}

// Read runs fn. While the disk is full, reads run one at a time.
func (p *fullDiskDB) Read(ctx context.Context, fn func(store.SQL) error) error {
	if db := p.db.Load(); db != nil {
		return db.Read(ctx, fn)
	}
	return p.readAlone(ctx, fn)
}

func (p *fullDiskDB) readAlone(ctx context.Context, fn func(store.SQL) error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if db := p.db.Load(); db != nil {
		return db.Read(ctx, fn)
	}
	if p.reading == nil {
		return errNoSpace
	}
	tx, err := p.reading.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer tx.Rollback()
	return fn(plainTx{ctx, tx})
}

// Check returns an error while the disk is full.
func (p *fullDiskDB) Check() error {
	if db := p.db.Load(); db != nil {
		return db.Check()
	}
	return errNoSpace
}

// Explain returns the Fault that describes an error.
func (p *fullDiskDB) Explain(err error) store.Fault { return explain(err) }

// Marked returns the mark of the last process.
func (p *fullDiskDB) Marked() (store.Mark, bool) { return p.mark, p.marked }

// Mark writes the newest event id. It does nothing while the disk is full.
func (p *fullDiskDB) Mark(m store.Mark) {
	if db := p.db.Load(); db != nil {
		db.Mark(m)
	}
}

// Close closes all connections and unlocks the directory.
func (p *fullDiskDB) Close() (err error) {
	if db := p.db.Load(); db != nil {
		return db.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading != nil {
		err = p.reading.Close()
	}
	return errors.Join(err, p.lock.Release())
}
