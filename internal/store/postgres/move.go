package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"loquat/internal/store"
)

// Peek returns what the log of a database says about a move, and the ID of its store. It takes and
// creates nothing, so a server may use the database. The ID is "" if the database has no store, or
// one of an older version.
func Peek(ctx context.Context, opts Options) (m store.Move, id string, err error) {
	var text string
	if known, err := look(ctx, opts, `SELECT store_id, moving FROM log`, &id, &text); !known || err != nil {
		return store.Move{}, "", err
	}
	m, err = store.ParseMove(text)
	return m, id, err
}

// HasTokens reports whether a database has access tokens. Like Peek it takes and creates nothing.
func HasTokens(ctx context.Context, opts Options) (found bool, err error) {
	_, err = look(ctx, opts, store.HasTokensQuery, &found)
	return found, err
}

// look reads a row over a connection of its own. known is false if the database does not have the table or a column.
func look(ctx context.Context, opts Options, query string, dest ...any) (known bool, err error) {
	config, err := parse("store.url", opts.URL)
	if err != nil {
		return false, err
	}
	db := &DB{opts: opts, config: config}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, db.startError(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(dest...)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == codeNoTable || e.Code == codeNoColumn) {
		return false, nil
	}
	if err != nil {
		return false, db.startError(err)
	}
	return true, nil
}

// requireStore returns an error if a database has no tables of a store.
func (db *DB) requireStore(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, db.config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var found bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('loquat_schema') IS NOT NULL`, pgx.QueryExecModeSimpleProtocol).Scan(&found); err != nil {
		return err
	}
	if !found {
		return db.unusable("it has no sessions of Loquat; name the database that the server uses")
	}
	return nil
}

// OpenExisting is Open for a database that has a store.
func OpenExisting(ctx context.Context, opts Options) (*DB, error) {
	config, err := parse("store.url", opts.URL)
	if err != nil {
		return nil, err
	}
	db := &DB{opts: opts, config: config}
	if err := db.requireStore(ctx); err != nil {
		return nil, db.startError(err)
	}
	return Open(ctx, opts)
}

// requireInPlace returns an error if the log says that it is a side of a move, unless this is the
// move.
func (db *DB) requireInPlace(moving string) error {
	if db.opts.Alone {
		return nil
	}
	m, err := store.ParseMove(moving)
	if err != nil {
		return err
	}
	return m.Usable()
}

// unlimited are the statements that remove the limits of a transaction that moves a store, or upgrades it. Only a
// lock that another process holds is not waited for.
var unlimited = []string{"SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0", "SET LOCAL lock_timeout = '10s'"}

// Snapshot is Read without a limit of time.
func (db *DB) Snapshot(ctx context.Context, fn func(store.SQL) error) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	begin := append([]string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}, unlimited...)
	if err := simple(ctx, raw, strings.Join(begin, "; ")); err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer func() { usable = rollback(raw) }()
	return fn(statements{ctx: ctx, conn: conn, readOnly: true})
}

// Epoch returns the number of the last hold of the log of q. It grows whenever a node begins to
// use the database.
func Epoch(q store.SQL) (epoch int64, err error) {
	rows, err := q.Query(`SELECT epoch FROM log`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		return 0, errors.Join(errors.New("the log has no row"), rows.Err())
	}
	return epoch, errors.Join(rows.Scan(&epoch), rows.Close())
}

// Loader fills a database with the rows of a store that is moved there, in one transaction. Until
// its commit the database has no rows and says that it is incoming, so no server uses it.
type Loader struct {
	db      *DB
	mark    store.Move
	epoch   int64 // after which another node has used the database
	conn    *sql.Conn
	raw     *pgx.Conn
	indexes []string // statements that create the indexes; they are missing until Index
	done    bool
	last    bool // Commit was called
}

// NewLoader opens the database of opts for a move. The database must have no rows.
func NewLoader(ctx context.Context, opts Options, mark store.Move) (*Loader, error) {
	opts.created = func(q store.SQL) error { return store.SetMove(q, mark) }
	db, err := Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	l := &Loader{db: db, mark: mark}
	if err := l.announce(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := l.begin(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// announce makes the database say that it is incoming.
func (l *Loader) announce(ctx context.Context) error {
	return l.db.Write(ctx, func(q store.SQL) error {
		found, _, err := store.ReadMove(q)
		if err != nil {
			return err
		}
		if l.epoch, err = Epoch(q); err != nil {
			return err
		}
		table, err := store.NotEmpty(q)
		if err != nil {
			return err
		}
		switch {
		case found.Kind == store.Incoming && found.Store != l.mark.Store:
			return fmt.Errorf("%w; or name an empty database", found.Usable())
		case found.Kind == store.Moved:
			return fmt.Errorf("%w; or name an empty database", found.Usable())
		case table != "":
			return fmt.Errorf("the database is not empty: its table %s has rows; name an empty database", table)
		}
		return store.SetMove(q, l.mark)
	})
}

// begin begins the transaction that loads the rows. It empties the tables, which gives the space
// of an interrupted move back, and removes the indexes, because it is faster to build them when
// all rows are there.
func (l *Loader) begin(ctx context.Context) (err error) {
	if l.conn, l.raw, err = l.db.connect(ctx); err != nil {
		return err
	}
	names := []string{"image_pieces", "image_objects"}
	for _, t := range store.Tables {
		names = append(names, t.Name)
	}
	statements := slices.Concat([]string{"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}, unlimited, []string{"TRUNCATE " + strings.Join(names, ", ")})
	if err := simple(ctx, l.raw, strings.Join(statements, "; ")); err != nil {
		return fmt.Errorf("empty the tables: %w", err)
	}
	rows, err := l.raw.Query(ctx, `SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) name)
		AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)`, names)
	if err != nil {
		return fmt.Errorf("find the indexes: %w", err)
	}
	var drop []string
	var name, definition string
	_, err = pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
		drop, l.indexes = append(drop, pgx.Identifier{name}.Sanitize()), append(l.indexes, definition)
		return nil
	})
	if err == nil && len(drop) > 0 {
		err = simple(ctx, l.raw, "DROP INDEX "+strings.Join(drop, ", "))
	}
	if err != nil {
		return fmt.Errorf("remove the indexes: %w", err)
	}
	return nil
}

// Columns returns the columns of a table and their types.
func Columns(q store.SQL, table string) ([]store.Column, error) {
	return store.Columns(q, `SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = to_regclass(convert_from(?, 'UTF8')) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, table,
		map[string]store.ColumnType{"bigint": store.Integer, "text": store.Text, "bytea": store.Bytes})
}

// Load adds rows to a table. next returns the next row, or nil at the end.
func (l *Loader) Load(ctx context.Context, table string, columns []store.Column, next func() ([]any, error)) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	if _, err := l.raw.CopyFrom(ctx, pgx.Identifier{table}, names, pgx.CopyFromFunc(next)); err != nil {
		return fmt.Errorf("write the table %s: %w", table, err)
	}
	return nil
}

// Index builds the indexes, lets new rows get ids above those that were loaded, and collects the
// statistics that the planner needs.
func (l *Loader) Index(ctx context.Context) error {
	for _, statement := range append(l.indexes, `SELECT setval(pg_get_serial_sequence('sessions', 'sid'), max(sid)) FROM sessions HAVING max(sid) > 0`,
		`SELECT setval(pg_get_serial_sequence('audit', 'audit_id'), max(audit_id)) FROM audit HAVING max(audit_id) > 0`,
		`SELECT setval(pg_get_serial_sequence('messages', 'id'), max(id)) FROM messages HAVING max(id) > 0`,
		`SELECT setval(pg_get_serial_sequence('requests', 'rid'), max(rid)) FROM requests HAVING max(rid) > 0`) {
		if _, err := l.raw.Exec(ctx, statement); err != nil {
			return fmt.Errorf("build the indexes: %w", err)
		}
	}
	for _, t := range store.Tables {
		if _, err := l.raw.Exec(ctx, "ANALYZE "+t.Name); err != nil {
			return fmt.Errorf("collect statistics: %w", err)
		}
	}
	return nil
}

// Read runs fn on the rows that were loaded.
func (l *Loader) Read(ctx context.Context, fn func(store.SQL) error) error {
	return fn(statements{ctx: ctx, conn: l.conn, readOnly: true})
}

// Commit runs fn, which writes the log so that the store is usable, and commits. If the connection breaks meanwhile, Commit
// finds out whether the database has the rows.
func (l *Loader) Commit(ctx context.Context, fn func(store.SQL) error) error {
	l.last = true
	q := statements{ctx: ctx, conn: l.conn, last: &pgx.Batch{}}
	n, err := q.Exec(`UPDATE log SET moving = moving WHERE epoch = ? AND moving = ?`, l.epoch, l.mark.String())
	if err == nil && n != 1 {
		err = errors.New("another program has taken over the database meanwhile, or it did not answer for long")
	}
	if err == nil {
		err = fn(q)
	}
	if err != nil {
		return err
	}
	if err := commit(ctx, l.raw, q.last); err != nil {
		if rejected(err) {
			return fmt.Errorf("commit: %w", err)
		}
		return l.resolve(ctx, err)
	}
	l.done = true
	return nil
}

// resolveWithin is how long Commit tries to find out whether it succeeded.
const resolveWithin = 30 * time.Second

// resolve finds out whether the transaction of a broken connection was committed. It returns nil
// if so.
func (l *Loader) resolve(ctx context.Context, cause error) error {
	deadline := time.Now().Add(resolveWithin)
	for {
		var found store.Move
		err := l.db.Write(ctx, func(q store.SQL) (err error) { // waits for a COMMIT that still runs
			found, _, err = store.ReadMove(q)
			return err
		})
		switch {
		case err == nil && found.Kind == store.InUse:
			l.done = true
			return nil
		case err == nil:
			return fmt.Errorf("commit: %w", cause)
		case ctx.Err() != nil || time.Now().After(deadline):
			return &unknownError{cause}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// unknownError reports that it is not known whether a move was committed.
type unknownError struct{ cause error }

func (e *unknownError) Error() string {
	return "the connection broke during the last step, so it is not known whether the database has the sessions; run the same command again, which finds out: " + e.cause.Error()
}

func (e *unknownError) Unwrap() error { return e.cause }

// Explain returns the Fault that describes an error.
func (l *Loader) Explain(err error) store.Fault { return l.db.Explain(err) }

// Close closes the database. Unless Commit succeeded, the database has no rows afterwards. It
// says that it is incoming if Commit was called, because the source then says that it was moved, and if this cannot
// be changed, because the connection broke.
func (l *Loader) Close() error {
	if l.conn != nil {
		release(l.conn, l.done || rollback(l.raw))
	}
	if !l.done && !l.last {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_ = l.db.Write(ctx, func(q store.SQL) error { // a repeated move starts either way
			found, _, err := store.ReadMove(q)
			if err == nil && found == l.mark {
				err = store.SetMove(q, store.Move{})
			}
			return err
		})
	}
	return l.db.Close()
}
