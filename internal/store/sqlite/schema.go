package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// steps are the schema, one file for each version of it. A step that was released is
// never changed: a file is brought from the version that it has to the newest.
//
//go:embed schema/*.sql
var steps embed.FS

// schemaVersion returns the version that a file has and the newest one. It refuses a file
// that is no store's, and one that is newer.
func schemaVersion(ctx context.Context, conn *sql.Conn, path string) (version, newest int, err error) {
	files, err := steps.ReadDir("schema")
	if err != nil {
		return 0, 0, err
	}
	newest = len(files)
	var tables, logs int
	err = conn.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version), count(*), coalesce(sum(type = 'table' AND name = 'log'), 0) FROM sqlite_schema`).
		Scan(&version, &tables, &logs)
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("open %s: %w", path, err)
	case version > newest:
		return 0, 0, fmt.Errorf("%s has schema %d and this program knows %d; use the program that made it, or a newer one", path, version, newest)
	case version < 0, version == 0 && tables > 0, version > 0 && logs != 1:
		return 0, 0, fmt.Errorf("%s was not made by Loquat, or was changed by another program (schema %d, %d tables and indexes); put a backup in its place, or choose another directory with --data", path, version, tables)
	}
	return version, newest, nil
}

// migrate brings a file to the newest schema, in one transaction, and refuses one that
// is newer.
func (db *DB) migrate(ctx context.Context) error {
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", db.path, err)
	}
	defer conn.Close()
	version, newest, err := schemaVersion(ctx, conn, db.path)
	if err != nil || version == newest {
		return err
	}
	files, err := steps.ReadDir("schema") // sorted by name
	if err != nil {
		return err
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
