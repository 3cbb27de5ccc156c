package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"loquat/internal/store"
)

// Tracker knows which pages of a database file have changed, while a server in another process
// uses the file. It writes nothing to the database.
//
// A Tracker reads the page numbers in the write-ahead log. It always has a read transaction open:
// SQLite starts the log again only over frames that no reader needs, so none is missed. Each
// Advance begins a newer transaction before it ends the last one. A log whose writer never pauses
// would not start again under such readers, so Turn makes it ready for that.
//
// One goroutine at a time may use a Tracker.
type Tracker struct {
	path   string
	db     *sql.DB
	files  *logFiles
	pinned []pinnedFile

	conns   [2]*sql.Conn // take turns with the transaction
	current int          // the one of conns that has it
	open    bool         // conns[current] has a transaction
	control *sql.Conn    // for Turn

	pageSize uint32
	known    Position // changes up to here are in dirty, or were taken; at or before the transaction
	commit   uint32   // pages of the database in the transaction
	dirty    map[uint32]struct{}
}

// Limits of a Tracker.
const (
	turnSize    = 8 << 20 // of the log, less than that at which the committer acts itself
	turnTimeout = time.Second
	advanceTry  = 100
	copyBackTry = 20
)

// Track begins to track the database of a directory. At first, no page counts as changed.
func Track(ctx context.Context, dir string) (*Tracker, error) {
	t := &Tracker{path: filePath(dir), dirty: map[uint32]struct{}{}}
	if !Exists(dir) {
		return nil, fmt.Errorf("there is no %s", t.path)
	}
	if err := requireFile(t.path); err != nil {
		return nil, err
	}
	if err := t.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", t.path, err), t.Close())
	}
	return t, nil
}

func (t *Tracker) start(ctx context.Context) (err error) {
	t.db, err = sql.Open("sqlite", dsn(t.path, busyTimeout(lockTimeout), "wal_autocheckpoint(0)", cacheSize(readerCache)))
	if err != nil {
		return err
	}
	for _, conn := range []**sql.Conn{&t.conns[0], &t.conns[1], &t.control} {
		if *conn, err = t.db.Conn(ctx); err != nil {
			return err
		}
	}
	version, newest, err := schemaVersion(ctx, t.control, t.path)
	if err != nil {
		return err
	}
	if version != newest {
		return fmt.Errorf("it has schema %d and this program knows %d; use the version that made it, or let a server of this version upgrade it first", version, newest)
	}
	if _, err := t.control.ExecContext(ctx, `PRAGMA `+busyTimeout(turnTimeout)); err != nil {
		return err
	}
	if err := t.begin(ctx, 0); err != nil { // makes the index of the log
		return err
	}
	t.open = true
	if t.files, err = openLog(t.path); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // Copy makes a database without a log
			return errors.New("it is a backup that no server has used; start the server first")
		}
		return err
	}
	for _, path := range []string{t.path, t.path + "-wal", t.path + "-shm"} {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		t.pinned = append(t.pinned, pinnedFile{path, info})
	}
	// The index has the size of a page only once the log has a frame.
	if err := t.control.QueryRowContext(ctx, `PRAGMA page_size`).Scan(&t.pageSize); err != nil {
		return err
	}
	if t.known, err = t.end(ctx); err != nil {
		return err
	}
	return t.Advance(ctx)
}

// begin starts a read transaction on a connection.
func (t *Tracker) begin(ctx context.Context, conn int) error {
	if _, err := t.conns[conn].ExecContext(ctx, `BEGIN`); err != nil {
		return err
	}
	var n int
	err := t.conns[conn].QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n)
	if err != nil {
		err = errors.Join(err, t.rollback(ctx, conn))
	}
	return err
}

func (t *Tracker) rollback(ctx context.Context, conn int) error {
	_, err := t.conns[conn].ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
	return err
}

// end returns the end of the newest commit. A writer changes the place where it is read in less
// than a microsecond.
func (t *Tracker) end(ctx context.Context) (p Position, err error) {
	for range advanceTry {
		if p, err = t.files.end(); !errors.Is(err, errTorn) || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return p, err
}

// Advance begins a newer transaction and notes which pages changed in between.
func (t *Tracker) Advance(ctx context.Context) error {
	for _, p := range t.pinned {
		if info, err := os.Stat(p.path); err != nil || !os.SameFile(info, p.info) {
			return &movedError{p.path}
		}
	}
	next := 1 - t.current
	for range advanceTry {
		before, err := t.end(ctx)
		if err != nil {
			return err
		}
		if err := t.begin(ctx, next); err != nil {
			return err
		}
		after, err := t.end(ctx)
		if err == nil && before.Salts == after.Salts {
			if err = t.note(ctx, next, before, after); err == nil {
				return t.swap(ctx, next)
			}
		}
		if err := errors.Join(err, t.rollback(ctx, next)); err != nil {
			return err
		}
	}
	return errors.New("the write-ahead log starts again all the time")
}

// note adds the pages of new frames to dirty. The new transaction is between before and after. Pages
// of frames after the transaction are added too, and again by the next call.
func (t *Tracker) note(ctx context.Context, conn int, before, after Position) error {
	var commit uint32
	if err := t.conns[conn].QueryRowContext(ctx, `PRAGMA page_count`).Scan(&commit); err != nil {
		return err
	}
	from := uint32(0) // of a log that was started again, all frames are new; see Tracker
	if t.known.Salts == after.Salts {
		if held, err := t.files.holds(t.known, after, t.pageSize); err != nil || !held {
			return errors.Join(err, errors.New("the write-ahead log was changed by something else than SQLite; restart this command"))
		}
		from = t.known.Frames
	}
	if err := t.files.pages(from, after.Frames, t.pageSize, func(page uint32) { t.dirty[page] = struct{}{} }); err != nil {
		return err
	}
	if t.commit > 0 {
		t.grown(t.commit, commit)
	}
	t.known, t.commit = before, commit
	return nil
}

// swap ends the older transaction.
func (t *Tracker) swap(ctx context.Context, next int) error {
	old := t.current
	t.current = next
	if !t.open {
		t.open = true
		return nil
	}
	return t.rollback(ctx, old)
}

// Turn makes a long log ready to be started again. The writers of other processes wait meanwhile, for
// the time of a WAL checkpoint of what little is left. It does nothing if the log is short, or if
// others read it or write it for long.
func (t *Tracker) Turn(ctx context.Context) error {
	if int64(t.known.Frames)*int64(t.pageSize) < turnSize {
		return nil
	}
	if ready, err := t.copyBack(ctx, turnSize/4); err != nil || !ready {
		return err
	}
	if _, err := t.control.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		if explain(err) == faultLock {
			return nil // the next Turn tries again
		}
		return err
	}
	err := t.Advance(ctx) // to the end of the log, so that all of it can be copied back
	if err == nil {
		_, err = t.copyBack(ctx, 0)
	}
	if err == nil {
		err = t.Advance(ctx) // needs nothing of the log, so the next writer starts it again
	}
	_, ended := t.control.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
	return errors.Join(err, ended)
}

// copyBack runs a WAL checkpoint and reports whether at most so many bytes are left. If another process
// runs one at the moment, copyBack waits a little for it.
func (t *Tracker) copyBack(ctx context.Context, most int64) (ready bool, err error) {
	for range copyBackTry {
		var busy, logged, copied int64
		// The connection that has no transaction; control may have one.
		err := t.conns[1-t.current].QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &logged, &copied)
		if err != nil {
			return false, err
		}
		if busy == 0 {
			return (logged-copied)*int64(t.pageSize) <= most, nil
		}
		time.Sleep(time.Millisecond)
	}
	return false, nil
}

// Position returns the place up to which the changes are noted. A later Tracker can resume there.
func (t *Tracker) Position() Position { return t.known }

// Resume notes all changes since a position of an earlier Tracker, at which the database had so many
// pages. It reports whether they are known at all: otherwise every page may have changed.
func (t *Tracker) Resume(ctx context.Context, p Position, commit uint32) (known bool, err error) {
	defer func() {
		if errors.Is(err, io.EOF) { // the log was truncated meanwhile
			known, err = false, nil
		}
	}()
	if p.Salts == 0 { // of a log without frames, as it is each time when SQLite makes it again
		return false, nil
	}
	end, err := t.end(ctx)
	if err != nil {
		return false, err
	}
	if known, err = t.files.holds(p, end, t.pageSize); err != nil || !known {
		return false, err
	}
	if err := t.files.pages(p.Frames, end.Frames, t.pageSize, func(page uint32) { t.dirty[page] = struct{}{} }); err != nil {
		return false, err
	}
	t.grown(commit, t.commit)
	again, err := t.end(ctx)
	return again.Salts == p.Salts, err // otherwise the frames may have been written over meanwhile
}

// grown notes the pages by which the database grew: SQLite does not write all of them.
func (t *Tracker) grown(from, to uint32) {
	for page := from + 1; page <= to; page++ {
		t.dirty[page] = struct{}{}
	}
}

// Size returns the number of pages of the database in the transaction, and the size of a page.
func (t *Tracker) Size() (pages, pageSize uint32) { return t.commit, t.pageSize }

// Take returns the pages that changed since the last Take, in order, and forgets them.
func (t *Tracker) Take() []uint32 {
	pages := slices.Sorted(maps.Keys(t.dirty))
	clear(t.dirty)
	return pages
}

// Return notes pages again whose copy failed.
func (t *Tracker) Return(pages []uint32) {
	for _, page := range pages {
		t.dirty[page] = struct{}{}
	}
}

// Changed reports whether any page changed since the last Take.
func (t *Tracker) Changed() bool { return len(t.dirty) > 0 }

// Page returns the bytes of a page in the transaction.
func (t *Tracker) Page(ctx context.Context, page uint32) (data []byte, err error) {
	err = t.conns[t.current].QueryRowContext(ctx, `SELECT data FROM sqlite_dbpage WHERE pgno = ?`, page).Scan(&data)
	if err == nil && len(data) != int(t.pageSize) {
		err = fmt.Errorf("it has %d bytes and not %d", len(data), t.pageSize)
	}
	if err != nil {
		return nil, fmt.Errorf("read page %d of %s: %w", page, t.path, err)
	}
	return data, nil
}

// Read runs fn in the transaction.
func (t *Tracker) Read(ctx context.Context, fn func(store.SQL) error) error {
	return fn(plainConn{ctx, t.conns[t.current]})
}

// Close ends the transaction and closes the database.
func (t *Tracker) Close() error {
	var errs []error
	if t.open {
		errs = append(errs, t.rollback(context.Background(), t.current))
	}
	for _, conn := range []*sql.Conn{t.conns[0], t.conns[1], t.control} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	if t.db != nil {
		errs = append(errs, t.db.Close())
	}
	if t.files != nil {
		errs = append(errs, t.files.close())
	}
	return errors.Join(errs...)
}

// plainConn is the transaction of a Tracker.
type plainConn struct {
	ctx  context.Context
	conn *sql.Conn
}

func (c plainConn) Exec(string, ...any) (int64, error) { return 0, errReadOnly }

func (c plainConn) Query(query string, args ...any) (*sql.Rows, error) {
	return c.conn.QueryContext(c.ctx, query, args...)
}
