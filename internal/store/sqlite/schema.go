package sqlite

import (
	"context"
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
