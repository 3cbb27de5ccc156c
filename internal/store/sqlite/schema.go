package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// steps are the migration steps, one file per schema version. A released step must never
// change, because existing databases have run it.
//
//go:embed schema/*.sql
var steps embed.FS

// schemaVersion returns the schema version of a file and the newest version. It returns an
// error if the file is not a store's or is newer than this program.
func schemaVersion(ctx context.Context, conn *sql.Conn, path string) (version, newest int, err error) {
	files, err := steps.ReadDir("schema")
	if err != nil {
		return 0, 0, err
	}
	newest = len(files)
	rows, err := conn.QueryContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version), coalesce(name, '') FROM
		(SELECT 1) LEFT JOIN (SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%')`)
	if err != nil {
		return 0, 0, fmt.Errorf("open %s: %w", path, err)
	}
	defer rows.Close()
	tables := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&version, &name); err != nil {
			return 0, 0, fmt.Errorf("open %s: %w", path, err)
		}
		if name != "" {
			tables[name] = true
		}
	}
	if err := rows.Err(); err != nil {
		return 0, 0, fmt.Errorf("open %s: %w", path, err)
	}
	if version > newest {
		return 0, 0, fmt.Errorf("%s has schema %d and this program knows %d; use the program that made it, or a newer one", path, version, newest)
	}
	if wrong := schemaMismatch(version, tables, files); wrong != "" {
		return 0, 0, fmt.Errorf("%s was not made by Loquat, or was changed by another program: %s; %s", path, wrong, remedyUnusable)
	}
	return version, newest, nil
}

// remedyUnusable is what to do about a file that is not a store's database.
const remedyUnusable = "put a backup in its place, or choose another directory with --data"

// createTable matches the tables that a step creates.
var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)

// schemaMismatch returns why the tables of a file do not fit its version, or an empty string.
func schemaMismatch(version int, tables map[string]bool, files []fs.DirEntry) string {
	switch {
	case version < 0:
		return fmt.Sprintf("its schema is %d", version)
	case version == 0 && len(tables) > 0:
		return fmt.Sprintf("it holds the table %s", slices.Min(slices.Collect(maps.Keys(tables))))
	}
	for _, file := range files[:version] {
		step, err := steps.ReadFile("schema/" + file.Name())
		if err != nil {
			return err.Error()
		}
		for _, made := range createTable.FindAllSubmatch(step, -1) {
			if !tables[string(made[1])] {
				return fmt.Sprintf("it lacks the table %s", made[1])
			}
		}
	}
	return ""
}

// requireStore returns an error if a file is not a store's database. It runs before the file
// is opened for writing, because the pragmas of the writing connection change the file. Only a
// transaction that a crash cut off while the file was made is rolled back.
func requireStore(ctx context.Context, path string) error {
	mode := "ro"
	if cutOff, err := hasJournal(path); err != nil {
		return err
	} else if cutOff {
		mode = "rw"
	}
	db, err := sql.Open("sqlite", dsnOf(path, mode, busyTimeout(lockTimeout)))
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	_, _, err = schemaVersion(ctx, conn, path)
	return errors.Join(err, conn.Close(), db.Close())
}

// hasJournal reports whether there is a rollback journal: the file was not in write-ahead mode yet when
// its process died. Only a connection that may write can read such a file.
func hasJournal(path string) (bool, error) {
	info, err := os.Stat(path + "-journal")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// requireFile returns an error if the path is not a regular file. Opening something else, such
// as a named pipe, might block forever.
func requireFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if link, err := os.Readlink(path); err == nil {
			return fmt.Errorf("%s is a link to %s, which is missing; %s", path, link, remedyUnusable)
		}
		return nil
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory, not a database; %s", path, remedyUnusable)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s); %s", path, info.Mode().Type(), remedyUnusable)
	}
	return nil
}

// migrate upgrades a file to the newest schema in one transaction.
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
		if db.created != nil {
			if err := db.created(plainTx{ctx, tx}); err != nil {
				return fmt.Errorf("prepare %s: %w", db.path, err)
			}
		}
	}
	if _, err := tx.ExecContext(ctx, `PRAGMA user_version = `+strconv.Itoa(len(files))); err != nil {
		return fmt.Errorf("prepare %s: %w", db.path, err)
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if version > 0 {
		db.log.Info("the data were upgraded", "schema", newest, "before", version)
	}
	return nil
}
