package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
)

// Loader fills the database file of a directory that has none, with the rows of a store that is
// moved there. Until Commit the file says that it is incoming, so no server uses it.
type Loader struct {
	db      *DB
	mark    store.Move
	indexes []string // statements that create the indexes; they are missing until Index
	done    bool
	last    bool // Commit was called
}

// loadBytes is the size of the rows that one transaction of a Loader writes, and insertBytes that
// of the rows that one statement writes.
const (
	loadBytes   = 32 << 20
	insertBytes = 1 << 20
	insertRows  = 64
)

// NewLoader creates the database file. It replaces one that says that it is incoming from the
// same store.
func NewLoader(ctx context.Context, dir string, mark store.Move, log *slog.Logger) (*Loader, error) {
	if err := removeUnfinished(ctx, dir, mark, log); err != nil {
		return nil, err
	}
	lock, err := datadir.Make(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	l := &Loader{mark: mark}
	l.db = newDB(dir, lock, log)
	created := false
	l.db.created = func(q store.SQL) error {
		created = true
		return store.SetMove(q, mark)
	}
	if err := l.db.start(ctx, dir); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	if !created {
		return nil, errors.Join(occupied(dir), l.db.Close())
	}
	if err := l.dropIndexes(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func occupied(dir string) error {
	return fmt.Errorf("%s exists; name a directory without a database, or put the file elsewhere", filePath(dir))
}

// removeUnfinished removes the database file that an interrupted move from the same store has
// left, or one that was never used. A file without tables remains, because the move was
// interrupted before it made any. It returns an error if there is another file.
func removeUnfinished(ctx context.Context, dir string, mark store.Move, log *slog.Logger) error {
	if !Exists(dir) {
		return nil
	}
	in, version, err := inspect(ctx, dir, log)
	if err != nil {
		return fmt.Errorf("%w (%w)", occupied(dir), err)
	}
	var found store.Move
	var used string // a table with rows
	if version > 0 {
		err = in.Read(ctx, func(q store.SQL) error {
			if found, _, err = store.ReadMove(q); err != nil {
				return err
			}
			used, err = store.NotEmpty(q)
			return err
		})
	}
	inUse := in.InUse
	err = errors.Join(err, in.Close())
	switch {
	case err != nil:
		return fmt.Errorf("%w (%w)", occupied(dir), err)
	case inUse:
		return occupied(dir)
	case version == 0:
		return nil
	case found.Kind == store.Incoming && found.Store == mark.Store, found.Kind == store.InUse && used == "":
		return removeFiles(dir)
	}
	return occupied(dir)
}

// removeFiles removes the database file, and then the files next to it: without the first, SQLite
// ignores the others.
func removeFiles(dir string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filePath(dir) + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// dropIndexes removes the indexes, because it is faster to build them when all rows are there.
func (l *Loader) dropIndexes(ctx context.Context) error {
	return l.db.Write(ctx, func(q store.SQL) error {
		rows, err := q.Query(`SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL`)
		if err != nil {
			return err
		}
		defer rows.Close()
		var names []string
		for rows.Next() {
			var name, statement string
			if err := rows.Scan(&name, &statement); err != nil {
				return err
			}
			names, l.indexes = append(names, name), append(l.indexes, statement)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, name := range names {
			if _, err := q.Exec(`DROP INDEX ` + name); err != nil {
				return err
			}
		}
		return nil
	})
}

// Columns returns the columns of a table and their types.
func Columns(q store.SQL, table string) ([]store.Column, error) {
	return store.Columns(q, `SELECT name, type FROM pragma_table_info(?) ORDER BY cid`, table,
		map[string]store.ColumnType{"INTEGER": store.Integer, "TEXT": store.Text, "BLOB": store.Bytes})
}

// Load adds rows to a table. next returns the next row, or nil at the end.
func (l *Loader) Load(ctx context.Context, table string, columns []store.Column, next func() ([]any, error)) error {
	for more := true; more; {
		err := l.db.Write(ctx, func(q store.SQL) (err error) {
			more, err = insertSome(q, table, columns, next)
			return err
		})
		if err != nil {
			return fmt.Errorf("write the table %s: %w", table, err)
		}
	}
	return nil
}

// insertSome inserts rows until they have loadBytes. It reports whether there may be more.
func insertSome(q store.SQL, table string, columns []store.Column, next func() ([]any, error)) (more bool, err error) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	one := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")"
	into := "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES "
	single, many := into+one, into+strings.TrimSuffix(strings.Repeat(one+", ", insertRows), ", ")
	var waiting []any
	size := 0
	flush := func() error {
		query, step := single, len(columns)
		if len(waiting) == insertRows*len(columns) {
			query, step = many, len(waiting)
		}
		for values := range slices.Chunk(waiting, step) {
			if _, err := q.Exec(query, values...); err != nil {
				return err
			}
		}
		waiting, size = waiting[:0], 0
		return nil
	}
	for written := 0; written < loadBytes; {
		row, err := next()
		if err != nil {
			return false, err
		}
		if row == nil {
			return false, flush()
		}
		n := store.RowSize(row)
		waiting, size, written = append(waiting, row...), size+n, written+n
		if len(waiting) == insertRows*len(columns) || size >= insertBytes {
			if err := flush(); err != nil {
				return false, err
			}
		}
	}
	return true, flush()
}

// Index builds the indexes.
func (l *Loader) Index(ctx context.Context) error {
	for _, statement := range l.indexes {
		err := l.db.Write(ctx, func(q store.SQL) error {
			_, err := q.Exec(statement)
			return err
		})
		if err != nil {
			return fmt.Errorf("build the indexes: %w", err)
		}
	}
	return nil
}

// Read runs fn on the rows that were loaded.
func (l *Loader) Read(ctx context.Context, fn func(store.SQL) error) error {
	return l.db.Read(ctx, fn)
}

// Commit runs fn, which writes the log, in the transaction that makes the store usable.
func (l *Loader) Commit(ctx context.Context, fn func(store.SQL) error) error {
	l.last = true
	err := l.db.Write(ctx, fn)
	l.done = err == nil
	return err
}

// Explain returns the Fault that describes an error.
func (l *Loader) Explain(err error) store.Fault { return l.db.Explain(err) }

// Close closes the database. Unless Commit was called, it removes the file: the source then does not say that it was
// moved.
func (l *Loader) Close() error {
	close(l.db.stop)
	<-l.db.done
	err := l.db.release()
	if !l.done && !l.last {
		err = removeFiles(filepath.Dir(l.db.path))
	}
	return errors.Join(err, l.db.lock.Release())
}
