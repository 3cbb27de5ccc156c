package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
)

// Inspection reads the database of a data directory, which may be in use, without changing it.
type Inspection struct {
	InUse bool // a server uses the directory and may change it

	path string
	lock *datadir.Lock
	db   *sql.DB

	mark    store.Mark
	marked  bool
	markErr error
}

// Inspect opens the database of a directory for reading. If no server uses the directory, none
// can start until Close.
func Inspect(ctx context.Context, dir string, log *slog.Logger) (*Inspection, error) {
	in, version, err := inspect(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	if files, err := steps.ReadDir("schema"); err != nil || version != len(files) {
		if err == nil {
			err = fmt.Errorf("%s has schema %d and this program knows %d; use the version that made it, or let a server of this version upgrade it first", in.path, version, len(files))
		}
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// inspect is Inspect for any schema version, which it returns.
func inspect(ctx context.Context, dir string, log *slog.Logger) (_ *Inspection, version int, err error) {
	in := &Inspection{path: filePath(dir)}
	if !Exists(dir) {
		return nil, 0, fmt.Errorf("there is no %s", in.path)
	}
	if err := requireFile(in.path); err != nil {
		return nil, 0, err
	}
	in.lock, err = datadir.Take(ctx, dir, log)
	in.InUse = errors.Is(err, store.ErrInUse)
	if err != nil && !in.InUse && !errors.Is(err, syscall.EROFS) {
		return nil, 0, err
	}
	if cutOff, err := hasJournal(in.path); cutOff && !in.InUse || err != nil {
		err = cmp.Or(err, fmt.Errorf("%s is not finished, because the server that made it was killed; start the server once", in.path))
		return nil, 0, errors.Join(err, in.Close())
	}
	// Read the mark before the database: a later mark could name events that are read too early.
	in.mark, in.marked, in.markErr = datadir.ReadMark(filepath.Join(dir, datadir.MarkName))
	source := dsnOf(in.path, "ro", "query_only(1)", busyTimeout(lockTimeout))
	if wal, err := os.Stat(in.path + "-wal"); !in.InUse && (err != nil || wal.Size() == 0) {
		source += "&immutable=1" // creates no files, and works on read-only file systems
	}
	if in.db, err = sql.Open("sqlite", source); err == nil {
		in.db.SetMaxOpenConns(1)
		version, err = in.version(ctx)
	}
	if err != nil {
		err = unopened(in.path, err)
		if isDamaged(err) {
			err = fmt.Errorf("%w; %s", err, remedyUnusable)
		}
		return nil, 0, errors.Join(err, in.Close())
	}
	return in, version, nil
}

func (in *Inspection) version(ctx context.Context) (int, error) {
	conn, err := in.db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", in.path, err)
	}
	defer conn.Close()
	version, _, err := schemaVersion(ctx, conn, in.path)
	return version, err
}

// Integrity returns the problems that SQLite finds in the file. A full check also compares
// every index with its table.
func (in *Inspection) Integrity(ctx context.Context, full bool) (wrong []string, err error) {
	query := `PRAGMA quick_check`
	if full {
		query = `PRAGMA integrity_check`
	}
	rows, err := in.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if text != "ok" {
			wrong = append(wrong, text)
		}
	}
	return wrong, rows.Err()
}

// Marked returns the mark: the newest event id that the server wrote to a separate file.
func (in *Inspection) Marked() (m store.Mark, ok bool, err error) {
	return in.mark, in.marked, in.markErr
}

// Read runs fn on one state of the store.
func (in *Inspection) Read(ctx context.Context, fn func(store.SQL) error) error {
	tx, err := in.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(plainTx{ctx, tx})
}

// HasTokens reports whether the database of a directory has access tokens. It changes nothing, and a server may
// use the directory.
func HasTokens(ctx context.Context, dir string, log *slog.Logger) (found bool, err error) {
	in, _, err := inspect(ctx, dir, log)
	if err != nil {
		return false, err
	}
	err = in.db.QueryRowContext(ctx, store.HasTokensQuery).Scan(&found)
	return found, errors.Join(err, in.Close())
}

// Close closes the database and unlocks the directory.
func (in *Inspection) Close() (err error) {
	if in.db != nil {
		err = in.db.Close()
	}
	if in.lock != nil {
		err = errors.Join(err, in.lock.Release())
	}
	return err
}
