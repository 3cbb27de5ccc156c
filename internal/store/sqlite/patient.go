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
)

// Patient is a store file that was opened while the disk was full. It serves reads until
// there is room, and from then on it is a DB.
//
// SQLite needs 32 KiB for the index of its write-ahead log before it can read. Only a
// connection that excludes all others keeps the index in memory, so there is one until
// then.
type Patient struct {
	dir  string
	log  *slog.Logger
	lock *lock
	mark store.Mark
	had  bool // there was a mark

	db atomic.Pointer[DB] // nil while the disk is full

	mu      sync.RWMutex // held shared while a read runs on reading
	reading *sql.DB      // nil: it cannot be opened
}

var _ store.Driver = (*Patient)(nil)

// errNoRoom is the failure of a change while the disk is full since the start.
var errNoRoom = fmt.Errorf("the disk is full since the start: %w", syscall.ENOSPC)

// OpenPatient is Open for a server: on a full disk it opens a store that is there for
// reads alone, and for writes as soon as there is room.
func OpenForServer(ctx context.Context, dir string, log *slog.Logger) (store.Driver, error) {
	lock, err := makeAndLock(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	db, err := openLocked(ctx, dir, lock, log)
	if err == nil {
		return db, nil
	}
	if explain(err).Kind != faultFull.Kind {
		return nil, errors.Join(err, lock.unlock())
	}
	p := &Patient{dir: dir, log: log, lock: lock}
	if opening := p.openToRead(ctx); opening != nil { // what the disk lacks is the cause
		return nil, errors.Join(err, lock.unlock())
	}
	if p.mark, p.had, err = readMark(filepath.Join(dir, markName)); err != nil {
		log.Warn("the newest event of the last run is not known, so that its loss would not show", "error", err)
	}
	log.Error("the disk is full: the server starts, serves reads and refuses changes", "remedy", faultFull.Remedy, "dir", dir)
	return p, nil
}

// openToRead opens the connection that excludes all others. It needs a file of the
// newest schema.
func (p *Patient) openToRead(ctx context.Context) error {
	path := filePath(p.dir)
	// No cache_size: the driver runs pragmas in alphabetical order, and cache_size reads the
	// file before the locking mode is set.
	db, err := sql.Open("sqlite", dsn(path, "locking_mode(EXCLUSIVE)", "query_only(1)", busyTimeout(patience)))
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
		err = fmt.Errorf("%s has schema %d and has to be brought to %d", path, version, newest)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return errors.Join(err, db.Close())
	}
	p.reading = db
	return nil
}

// Write looks whether there is room by now.
func (p *Patient) Write(ctx context.Context, fn func(store.SQL) error) error {
	db := p.db.Load()
	if db == nil {
		var err error
		if db, err = p.recover(ctx); err != nil {
			return err
		}
	}
	return db.Write(ctx, fn)
}

// recover opens the store as usual. Its caller is the only writer.
func (p *Patient) recover(ctx context.Context) (*DB, error) {
	if !p.hasRoom() {
		return nil, errNoRoom
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading != nil {
		if err := p.reading.Close(); err != nil {
			p.log.Warn("the write-ahead log cannot be copied back", "error", err)
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

// room is what SQLite needs to open a store, and a little more.
const room = 256 << 10

// hasRoom tries to write a file, so that reads are not interrupted in vain.
func (p *Patient) hasRoom() bool {
	f, err := os.OpenFile(filepath.Join(p.dir, dbName+"-room"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false
	}
	_, err = f.Write(make([]byte, room))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())) == nil
}

// Read runs fn, one call at a time while the disk is full.
func (p *Patient) Read(ctx context.Context, fn func(store.SQL) error) error {
	if db := p.db.Load(); db != nil {
		return db.Read(ctx, fn)
	}
	return p.readAlone(ctx, fn)
}

func (p *Patient) readAlone(ctx context.Context, fn func(store.SQL) error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if db := p.db.Load(); db != nil {
		return db.Read(ctx, fn)
	}
	if p.reading == nil {
		return errNoRoom
	}
	tx, err := p.reading.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer tx.Rollback()
	return fn(copied{ctx, tx})
}

// Check fails while the disk is full.
func (p *Patient) Check() error {
	if db := p.db.Load(); db != nil {
		return db.Check()
	}
	return errNoRoom
}

// Explain says what a failure means.
func (p *Patient) Explain(err error) store.Fault { return explain(err) }

// Marked returns the mark that the last process left.
func (p *Patient) Marked() (store.Mark, bool) { return p.mark, p.had }

// Mark notes the newest id that was given. While the disk is full none is.
func (p *Patient) Mark(m store.Mark) {
	if db := p.db.Load(); db != nil {
		db.Mark(m)
	}
}

// Close closes whatever is open.
func (p *Patient) Close() (err error) {
	if db := p.db.Load(); db != nil {
		return db.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading != nil {
		err = p.reading.Close()
	}
	return errors.Join(err, p.lock.unlock())
}
