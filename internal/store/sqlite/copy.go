package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"loquat/internal/store"
)

// Copy copies the store file of a directory, which a process may be using, into another
// directory that has none. The copy is one state of it. finish runs on the copy, which
// is on disk and checked when Copy returns.
func Copy(ctx context.Context, from, to string, finish func(store.SQL) error) error {
	if !Exists(from) {
		return fmt.Errorf("there is no %s", filePath(from))
	}
	if err := requireFile(filePath(from)); err != nil {
		return err
	}
	// SQLite fills an empty file that is there, and leaves its permissions as they are.
	f, err := os.OpenFile(filePath(to), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := vacuumInto(ctx, filePath(from), filePath(to)); err != nil {
		return fmt.Errorf("copy %s: %w", filePath(from), err)
	}
	if err := finishCopy(ctx, filePath(to), finish); err != nil {
		return fmt.Errorf("finish the copy of %s: %w", filePath(from), err)
	}
	if f, err = os.OpenFile(filePath(to), os.O_RDWR, 0); err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close()) // SQLite does not sync what VACUUM writes
}

// vacuumInto writes what is in one file into another. It refuses a file of another
// schema: it could not say what is in there.
func vacuumInto(ctx context.Context, from, to string) error {
	db, err := sql.Open("sqlite", dsn(from, busyTimeout(patience)))
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	version, newest, err := schemaVersion(ctx, conn, from)
	if err != nil {
		return err
	}
	if version != newest {
		return fmt.Errorf("it has schema %d and this program knows %d; use the program that runs on it", version, newest)
	}
	_, err = conn.ExecContext(ctx, `VACUUM INTO ?`, to)
	return err
}

// finishCopy runs finish in a transaction and checks the file.
func finishCopy(ctx context.Context, path string, finish func(store.SQL) error) error {
	db, err := sql.Open("sqlite", dsn(path, "synchronous(FULL)"))
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := finish(copied{ctx, tx}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("it is damaged: %s", verdict)
	}
	return nil
}

// copied is a transaction on a copy.
type copied struct {
	ctx context.Context
	tx  *sql.Tx
}

func (c copied) Exec(query string, args ...any) (int64, error) {
	res, err := c.tx.ExecContext(c.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c copied) Query(query string, args ...any) (*sql.Rows, error) {
	return c.tx.QueryContext(c.ctx, query, args...)
}
