package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"loquat/internal/store"
)

// Copy copies the database file of a directory, which may be in use, into another directory
// without one. The copy is consistent. finish runs on the copy. When Copy returns, the copy is
// verified and on disk.
func Copy(ctx context.Context, from, to string, finish func(store.SQL) error) error {
	if !Exists(from) {
		return fmt.Errorf("there is no %s", filePath(from))
	}
	if err := requireFile(filePath(from)); err != nil {
		return err
	}
	// SQLite writes into an existing empty file and keeps its permissions.
	f, err := Create(to)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := vacuumInto(ctx, filePath(from), filePath(to)); err != nil {
		return fmt.Errorf("copy %s: %w", filePath(from), unopened(filePath(from), err))
	}
	if err := Finish(ctx, to, finish); err != nil {
		return fmt.Errorf("finish the copy of %s: %w", filePath(from), err)
	}
	return nil
}

// Create makes the file for a copy in a directory without a database.
func Create(dir string) (*os.File, error) {
	return os.OpenFile(filePath(dir), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Finish runs finish on the copy in a directory. When Finish returns, the copy is verified and on
// disk.
func Finish(ctx context.Context, dir string, finish func(store.SQL) error) error {
	if err := finishCopy(ctx, filePath(dir), finish); err != nil {
		return err
	}
	f, err := os.OpenFile(filePath(dir), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close()) // SQLite does not sync what VACUUM writes
}

// vacuumInto copies one database file into another. It returns an error for another schema
// version, whose tables this program does not know.
func vacuumInto(ctx context.Context, from, to string) error {
	db, err := sql.Open("sqlite", dsn(from, busyTimeout(lockTimeout)))
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
		return fmt.Errorf("it has schema %d and this program knows %d; use the version that made it", version, newest)
	}
	_, err = conn.ExecContext(ctx, `VACUUM INTO ?`, to)
	return err
}

// finishCopy runs finish in a transaction and verifies the file.
func finishCopy(ctx context.Context, path string, finish func(store.SQL) error) (err error) {
	db, err := sql.Open("sqlite", dsn(path, "synchronous(FULL)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // ends the write-ahead log of a restored file
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := finish(plainTx{ctx, tx}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	var result string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&result); err != nil {
		return err
	}
	if result != "ok" {
		return fmt.Errorf("it is damaged: %s", result)
	}
	return nil
}

// plainTx is a transaction without prepared statements.
type plainTx struct {
	ctx context.Context
	tx  *sql.Tx
}

func (c plainTx) Exec(query string, args ...any) (int64, error) {
	res, err := c.tx.ExecContext(c.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c plainTx) Query(query string, args ...any) (*sql.Rows, error) {
	return c.tx.QueryContext(c.ctx, query, args...)
}
