package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// steps are the migration steps, one file per schema version. A released step must never
// change, because existing databases have run it.
//
// A text that may have U+0000 or invalid UTF-8, such as one that users write, is BYTEA, because
// PostgreSQL refuses both in TEXT. Words that the program writes or has checked are TEXT COLLATE "C".
// Both are compared byte by byte, as SQLite compares its TEXT.
//
//go:embed schema/*.sql
var steps embed.FS

// oldestVersion is the oldest supported version of PostgreSQL.
const oldestVersion = 14

// migrationLock is the key of the advisory lock of migrations.
const migrationLock = 0x6c6f71756174

// unusableError reports a database that this program cannot use at all.
type unusableError struct{ url, problem string }

func (e *unusableError) Error() string { return "store.url: " + e.url + ": " + e.problem }

func (db *DB) unusable(format string, args ...any) error {
	return &unusableError{Masked(db.opts.URL), fmt.Sprintf(format, args...)}
}

// inspect checks the server and finds out whether a pooler is between it and this program.
// Behind a pooler each transaction may use another connection, so prepared statements with
// names are not used.
func (db *DB) inspect(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, db.config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version, encoding, readOnly, pid string
	results, err := conn.PgConn().Exec(ctx, `SELECT current_setting('server_version_num'), current_setting('server_encoding'), current_setting('transaction_read_only'), pg_backend_pid()`).ReadAll()
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	version, encoding, readOnly, pid = string(row[0]), string(row[1]), string(row[2]), string(row[3])
	if problem := unfit(version, encoding, readOnly); problem != "" {
		return db.unusable("%s", problem)
	}
	db.pooled = pid != strconv.FormatUint(uint64(conn.PgConn().PID()), 10) || strings.Contains(db.opts.URL, "default_query_exec_mode")
	if db.pooled && !strings.Contains(db.opts.URL, "default_query_exec_mode") {
		db.config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

// unfit returns why a server with these settings cannot be used, or an empty string.
func unfit(version, encoding, readOnly string) string {
	number, err := strconv.Atoi(version)
	switch {
	case err != nil || number/10000 < oldestVersion:
		return fmt.Sprintf("the server is PostgreSQL %d; use version %d or newer", number/10000, oldestVersion)
	case encoding != "UTF8":
		return fmt.Sprintf("the database has the encoding %s; create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", encoding)
	case readOnly != "off":
		return "the server accepts no writes; " + faults[codeReadOnly].Remedy
	}
	return ""
}

// identify finds out what the notifications of this log are named, and whether the server says
// on which timeline it is. Some services that speak PostgreSQL's protocol do not.
func (db *DB) identify(ctx context.Context) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	defer release(conn, true)
	if err := raw.QueryRow(ctx, `SELECT 'loquat_' || 'log'::regclass::oid`).Scan(&db.channel); err != nil {
		return err
	}
	db.timeline = `substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)`
	var timeline string
	err = raw.QueryRow(ctx, `SELECT `+db.timeline).Scan(&timeline)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused {
		db.log.Warn("the database does not name its timeline, so a failover that loses changes is noticed only by the ids of events", "error", err)
		db.timeline = `timeline`
		return nil
	}
	if err != nil {
		return err
	}
	db.timelines = true
	return db.checkTimeline(ctx, raw)
}

// migrate upgrades the database to the newest schema in one transaction.
func (db *DB) migrate(ctx context.Context) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	unwatch := db.watch(raw)
	defer unwatch()
	tx, err := raw.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = tx.Rollback(context.WithoutCancel(ctx))
		usable = !raw.IsClosed()
	}()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	version, least, err := db.version(ctx, tx)
	if err != nil {
		return err
	}
	files, err := steps.ReadDir("schema")
	if err != nil {
		return err
	}
	db.schema = len(files)
	switch {
	case least > len(files):
		return db.tooNew(version, least)
	case version > len(files):
		db.log.Warn("the database has a newer schema, which this program can use until the next upgrade; use the newer program soon", "schema", version, "known", len(files))
		return nil
	case version == len(files):
		return nil
	}
	unwatch() // large tables take their time
	for _, statement := range unlimited {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("prepare the tables: %w", err)
		}
	}
	if err := db.upgrade(ctx, conn, raw, tx, files, version, least); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if version > 0 {
		db.log.Info("the data were upgraded", "schema", len(files), "before", version)
	}
	return nil
}

// upgrade runs the steps above a version.
func (db *DB) upgrade(ctx context.Context, conn *sql.Conn, raw *pgx.Conn, tx pgx.Tx, files []fs.DirEntry, version, least int) error {
	least, err := leastAfter(files[version:], version, least)
	if err != nil {
		return err
	}
	if err := db.requireKnown(ctx, tx, version, least); err != nil {
		return err
	}
	if err := runSteps(ctx, raw, files[version:]); err != nil {
		return err
	}
	if version == 0 {
		if err := db.create(ctx, conn, tx); err != nil {
			return fmt.Errorf("prepare the tables: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `ALTER TABLE loquat_schema ADD COLUMN IF NOT EXISTS least INTEGER`); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE loquat_schema SET version = $1, least = $2`, len(files), least); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	return nil
}

// create makes the log of a new database.
func (db *DB) create(ctx context.Context, conn *sql.Conn, tx pgx.Tx) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO log (store_id) VALUES ($1)`, id.String()); err != nil {
		return err
	}
	if db.opts.created == nil {
		return nil
	}
	return db.opts.created(statements{ctx: ctx, conn: conn})
}

// tooNew returns the error of a database that is only for newer programs.
func (db *DB) tooNew(version, least int) error {
	return db.unusable("its schema is %d, for programs that know schema %d or newer, and this program knows %d; use the program that made it, or a newer one", version, least, db.schema)
}

// requireKnown returns an error that names the live nodes whose programs cannot use the database
// once it is only for programs that know a schema. No node registers until the transaction ends.
// A former process of this node has ended.
func (db *DB) requireKnown(ctx context.Context, tx pgx.Tx, version, least int) error {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('nodes') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return err
	}
	if _, err := tx.Exec(ctx, `SELECT 1 FROM log FOR UPDATE`); err != nil {
		return fmt.Errorf("look for older nodes: %w", err)
	}
	// Nodes registered with their schemas only since one of the steps.
	rows, _ := tx.Query(ctx, `SELECT name, version, node_id, known FROM nodes n, LATERAL (SELECT coalesce((to_jsonb(n) ->> 'known_schema')::bigint, $1) AS known) k
		WHERE ended_at IS NULL AND lease_until > clock_timestamp() AND node_id <> $2 AND known < $3 ORDER BY epoch`, version, db.opts.Node, least)
	type node struct {
		Name        []byte
		Version, ID string
		Known       int
	}
	older, err := pgx.CollectRows(rows, pgx.RowToStructByPos[node])
	if err != nil {
		return fmt.Errorf("look for older nodes: %w", err)
	}
	if len(older) == 0 {
		return nil
	}
	var names []string
	for _, n := range older {
		names = append(names, fmt.Sprintf("%s (node %s, version %s, knows schema %d)", n.Name, n.ID, n.Version, n.Known))
	}
	return db.unusable("this program would change its schema from %d to %d, which only programs can use that know schema %d or newer, and older servers use it: %s; stop them first, or upgrade all servers to the versions in between, one after the other",
		version, db.schema, least, strings.Join(names, ", "))
}

// leastAfter returns the oldest schema that a program may know to use the database after the steps
// above a version.
func leastAfter(files []fs.DirEntry, version, least int) (int, error) {
	for i, file := range files {
		step, err := steps.ReadFile("schema/" + file.Name())
		if err != nil {
			return 0, err
		}
		least = max(least, leastFor(step, version+i+1))
	}
	return least, nil
}

// runSteps runs steps.
func runSteps(ctx context.Context, conn *pgx.Conn, files []fs.DirEntry) error {
	for _, file := range files {
		step, err := steps.ReadFile("schema/" + file.Name())
		if err != nil {
			return err
		}
		if err := simple(ctx, conn, string(step)); err != nil {
			return fmt.Errorf("prepare the tables: %s: %w", file.Name(), err)
		}
	}
	return nil
}

// leastPattern matches the line of a step that says which programs can use the database after it.
var leastPattern = regexp.MustCompile(`(?m)^-- least: (\d+)$`)

// leastFor returns the oldest schema that a program may know to use a database with a step. A
// step that does not say so is only for programs that know it.
//
// Nodes are replaced one after the other, so programs of the version before must be able to use the
// database: a step only adds, with defaults, and says `-- least:` with the number that the step
// before says. What a program no longer uses is removed one version later.
func leastFor(step []byte, version int) int {
	m := leastPattern.FindSubmatch(step)
	if m == nil {
		return version
	}
	least, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return version
	}
	return least
}

// createTable matches the tables that a step creates.
var createTable = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE (\w+)`)

// version returns the schema version, and the oldest schema that a program may know to use the
// database. It creates the table of the version in a database that has none of the store's
// tables. Older programs have made that table without the second number, which is then the first.
func (db *DB) version(ctx context.Context, tx pgx.Tx) (version, least int, err error) {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('loquat_schema') IS NOT NULL`).Scan(&exists); err != nil {
		return 0, 0, fmt.Errorf("prepare the tables: %w", err)
	}
	if exists {
		err := tx.QueryRow(ctx, `SELECT version, coalesce((to_jsonb(s) ->> 'least')::integer, version) FROM loquat_schema s`).Scan(&version, &least)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, 0, db.unusable("its table loquat_schema is empty; restore a backup, or name another database")
		}
		return version, least, err
	}
	files, err := steps.ReadDir("schema")
	if err != nil {
		return 0, 0, err
	}
	for _, file := range files {
		step, err := steps.ReadFile("schema/" + file.Name())
		if err != nil {
			return 0, 0, err
		}
		for _, made := range createTable.FindAllSubmatch(step, -1) {
			var taken bool
			if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, string(made[1])).Scan(&taken); err != nil {
				return 0, 0, err
			}
			if taken {
				return 0, 0, db.unusable("it has a table %s that Loquat did not make; use a database of its own", made[1])
			}
		}
	}
	if _, err := tx.Exec(ctx, `CREATE TABLE loquat_schema (version INTEGER NOT NULL)`); err != nil {
		return 0, 0, fmt.Errorf("prepare the tables: %w", err)
	}
	if _, err := tx.Exec(ctx, `INSERT INTO loquat_schema (version) VALUES (0)`); err != nil {
		return 0, 0, fmt.Errorf("prepare the tables: %w", err)
	}
	return 0, 0, nil
}
