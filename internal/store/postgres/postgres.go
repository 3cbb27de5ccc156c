// Package postgres is the driver of the store for PostgreSQL 14 or newer.
//
// One node at a time has the log. It holds a lease, a row that only its own epoch may write:
// every transaction that writes first updates this row, so a node that lost the log writes
// nothing, whatever it believes. The rules are in package store.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"loquat/internal/dburl"
	"loquat/internal/store"
)

// Defaults of Options.
const (
	DefaultPoolSize         = 10
	DefaultStatementTimeout = 30 * time.Second
	defaultLease            = 10 * time.Second
)

// connectTimeout is how long one attempt to connect may take, for each host of the URL.
const connectTimeout = 5 * time.Second

// Options configure a DB.
type Options struct {
	URL string
	// Node identifies this node. A node whose last process ended without releasing the log
	// takes the log again at once, so no two running processes may have the same Node.
	Node string
	// Wait lets Open wait for the lease of a node that died.
	Wait bool

	PoolSize         int           // most connections; 0 means DefaultPoolSize
	StatementTimeout time.Duration // 0 means DefaultStatementTimeout
	Lease            time.Duration // how long the log stays with a node that died; 0 means 10 s
	Mark             MarkFile      // nil keeps no mark
	Logger           *slog.Logger  // nil means slog.Default()

	created func(store.SQL) error // runs in the transaction that creates the tables; may be nil
}

// MarkFile keeps the newest event id outside the database, for the detection of lost events.
type MarkFile interface {
	Marked() (store.Mark, bool)
	Mark(store.Mark)
	Sync()
}

// DB is the database of a store.
type DB struct {
	opts   Options
	log    *slog.Logger
	name   string // of this process, for the errors of other nodes
	config *pgx.ConnConfig
	pooled bool // there is a pooler between this program and the server
	pool   *sql.DB
	epoch  int64 // of this node's hold of the log

	writer *sql.Conn    // nil while there is no connection; owned by Write, like batch
	batch  atomic.Int64 // number of the newest transaction that is known to have committed

	writing atomic.Bool  // a Write runs; it renews the lease itself
	renewed atomic.Int64 // Unix nanoseconds of the last renewal of the lease
	health  atomic.Pointer[error]

	superseded chan struct{} // closed by supersede
	cause      atomic.Pointer[SupersededError]
	once       sync.Once

	stop chan struct{}
	done chan struct{}
}

var _ store.Driver = (*DB)(nil)

// Open connects to a database, migrates its schema and takes the log. If another node has the
// log, the error is a store.ErrInUse that names this node.
func Open(ctx context.Context, opts Options) (*DB, error) {
	if opts.PoolSize == 0 {
		opts.PoolSize = DefaultPoolSize
	}
	if opts.StatementTimeout == 0 {
		opts.StatementTimeout = DefaultStatementTimeout
	}
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	config, err := parse(opts.URL)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	db := &DB{
		opts: opts, log: opts.Logger, config: config,
		name:       fmt.Sprintf("process %d on %s", os.Getpid(), host),
		superseded: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := db.open(ctx); err != nil {
		if db.pool != nil {
			err = errors.Join(err, db.pool.Close())
		}
		return nil, db.startError(err)
	}
	go db.keepLease()
	return db, nil
}

func (db *DB) open(ctx context.Context) error {
	if err := db.inspect(ctx); err != nil {
		return err
	}
	if !db.pooled { // a pooler may refuse such parameters
		for name, value := range db.limits() {
			db.config.RuntimeParams[name] = value
		}
	}
	db.pool = stdlib.OpenDB(*db.config)
	db.pool.SetMaxOpenConns(db.opts.PoolSize)
	db.pool.SetMaxIdleConns(db.opts.PoolSize)
	db.pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := db.migrate(ctx); err != nil {
		return err
	}
	return db.takeLog(ctx)
}

// parse returns the configuration of a URL. The error does not show the password.
func parse(url string) (*pgx.ConnConfig, error) {
	if dburl.Redact(url).Unescaped { // the errors of pgx would show a part of the password as a host or port
		return nil, fmt.Errorf("store.url: %s cannot be used: its password has characters that mean something else in a URL; write @ as %%40, / as %%2F and ? as %%3F", Masked(url))
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("store.url: %s cannot be used: %w; write it as postgres://USER:PASSWORD@HOST:5432/DATABASE", Masked(url), withoutPassword(withoutURL(err), url))
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.ValidateConnect == nil { // a standby accepts connections but no writes
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "loquat"
	}
	return config, nil
}

// withoutURL returns an error of pgx.ParseConfig without the URL that the error repeats.
func withoutURL(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return errors.New("it cannot be parsed")
}

// watch closes a connection that is used longer than any transaction may run, for example
// because the network swallows everything. The caller must call the result.
func (db *DB) watch(conn *pgx.Conn) (stop func() bool) {
	raw := conn.PgConn().Conn()
	return time.AfterFunc(db.opts.StatementTimeout+connectTimeout, func() { raw.Close() }).Stop
}

// unwrap returns the connection of pgx in a connection of the pool.
func unwrap(conn *sql.Conn) (out *pgx.Conn, err error) {
	err = conn.Raw(func(c any) error {
		out = c.(*stdlib.Conn).Conn()
		return nil
	})
	return out, err
}

// release returns a connection to the pool, or closes it if it cannot be used again.
func release(conn *sql.Conn, usable bool) {
	if !usable {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close()
}

// connect returns a connection. Cancelling ctx ends the wait for it, and not the connection.
func (db *DB) connect(ctx context.Context) (*sql.Conn, *pgx.Conn, error) {
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	raw, err := unwrap(conn)
	if err != nil {
		release(conn, false)
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return conn, raw, nil
}

// limits returns the settings that limit a transaction. The idle limit ends the transactions
// of a node that was stopped in the middle of one.
func (db *DB) limits() map[string]string {
	ms := db.opts.StatementTimeout.Milliseconds()
	return map[string]string{
		"statement_timeout":                   strconv.FormatInt(ms, 10),
		"lock_timeout":                        strconv.FormatInt(ms, 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(max(ms, db.opts.Lease.Milliseconds()), 10),
	}
}

// begin returns the statements that begin a transaction. A pooler may give every transaction
// another connection, so behind one each transaction sets its limits.
func (db *DB) begin(how string) []string {
	out := []string{"BEGIN ISOLATION LEVEL " + how}
	if db.pooled {
		for name, value := range db.limits() {
			out = append(out, "SET LOCAL "+name+" = "+value)
		}
	}
	return out
}

// simple runs statements without results, in one message.
func simple(ctx context.Context, conn *pgx.Conn, statements string) error {
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}

// rollback ends a transaction that did not commit, and reports whether the connection can be
// used again.
func rollback(conn *pgx.Conn) bool {
	if conn.IsClosed() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return simple(ctx, conn, "ROLLBACK") == nil
}

// Read runs fn in a transaction of isolation level REPEATABLE READ. Cancelling ctx ends the
// wait for a connection, and not the statements: their cancellation would close the connection,
// and so look like a fault of the database, whenever a client leaves.
func (db *DB) Read(ctx context.Context, fn func(store.SQL) error) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	usable := false
	defer func() { release(conn, usable) }()
	defer db.watch(raw)()
	if err := simple(ctx, raw, strings.Join(db.begin("REPEATABLE READ READ ONLY"), "; ")); err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer func() { usable = rollback(raw) }()
	return fn(statements{ctx: ctx, conn: conn, readOnly: true})
}

// Write runs fn in a transaction of isolation level READ COMMITTED, which first locks the row
// of the log. Only one goroutine may call Write.
func (db *DB) Write(ctx context.Context, fn func(store.SQL) error) error {
	if cause := db.cause.Load(); cause != nil {
		return cause
	}
	db.writing.Store(true)
	defer db.writing.Store(false)
	raw, err := db.writerConn(ctx)
	if err != nil {
		return db.failed(err)
	}
	usable := false
	defer func() {
		if !usable { // also when fn panics
			release(db.writer, rollback(raw))
			db.writer = nil
		}
	}()
	defer db.watch(raw)()
	batch, err := db.lockLog(ctx, raw)
	if err != nil {
		return db.failed(err)
	}
	var last pgx.Batch
	if err := fn(statements{ctx: ctx, conn: db.writer, last: &last}); err != nil {
		usable = !broken(raw, err) && rollback(raw)
		return err
	}
	if err := commit(ctx, raw, &last); err != nil {
		if rejected(err) {
			return db.failed(fmt.Errorf("commit: %w", err))
		}
		return &doubt{db: db, batch: batch, err: fmt.Errorf("commit: %w", db.failed(err))}
	}
	usable = true
	db.batch.Store(batch)
	db.succeeded()
	return nil
}

// writerConn returns the connection of Write.
func (db *DB) writerConn(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	if db.writer != nil {
		if raw, err := unwrap(db.writer); err == nil && !raw.IsClosed() {
			return raw, nil
		}
		release(db.writer, false)
		db.writer = nil
	}
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return nil, err
	}
	db.writer = conn
	return raw, nil
}

const lockStatement = `UPDATE log SET batch = batch + 1, lease_until = clock_timestamp() + $2 * interval '1 millisecond' WHERE epoch = $1 RETURNING batch`

// lockLog begins a transaction, locks the log and renews the lease. It returns the number of
// the transaction. If somebody else has written since this node's last transaction, or that
// transaction is missing, it returns a SupersededError.
func (db *DB) lockLog(ctx context.Context, conn *pgx.Conn) (batch int64, err error) {
	var b pgx.Batch
	for _, statement := range db.begin("READ COMMITTED READ WRITE") {
		b.Queue(statement)
	}
	b.Queue(lockStatement, db.epoch, db.opts.Lease.Milliseconds())
	results := conn.SendBatch(ctx, &b)
	defer results.Close()
	for range b.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			return 0, fmt.Errorf("begin: %w", err)
		}
	}
	err = results.QueryRow().Scan(&batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, db.supersede("another server has taken over the database")
	}
	if err != nil {
		return 0, fmt.Errorf("lock the log: %w", err)
	}
	if expected := db.batch.Load() + 1; batch != expected {
		return 0, db.supersede(fmt.Sprintf("the database continues with transaction %d, and %d was expected", batch, expected))
	}
	return batch, results.Close()
}

// commit runs the last statements of a transaction and commits, in one message. If one of them
// fails, the server skips the COMMIT. PostgreSQL answers COMMIT of a failed transaction with
// ROLLBACK, which pgx does not return as an error.
func commit(ctx context.Context, conn *pgx.Conn, last *pgx.Batch) error {
	last.Queue("COMMIT")
	results := conn.SendBatch(ctx, last)
	defer results.Close()
	for range last.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	tag, err := results.Exec()
	if err != nil {
		return err
	}
	if tag.String() != "COMMIT" {
		return errRolledBack
	}
	return results.Close()
}

var errRolledBack = errors.New("PostgreSQL rolled the transaction back")

// rejected reports whether the error of a COMMIT proves that the transaction did not commit.
func rejected(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, errRolledBack) || ok && e.SeverityUnlocalized == "ERROR"
}

// broken reports whether a connection must not be used again after an error: it is cut, or it
// leads to a server that no longer accepts writes.
func broken(conn *pgx.Conn, err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return conn.IsClosed() || ok && e.Code == codeReadOnly
}

// Check returns an error if the log cannot be written: the lease could not be renewed, or
// another node has taken the log.
func (db *DB) Check() error {
	if cause := db.cause.Load(); cause != nil {
		return cause
	}
	if err := db.health.Load(); err != nil {
		return *err
	}
	return nil
}

// Marked returns the mark of the last process.
func (db *DB) Marked() (store.Mark, bool) {
	if db.opts.Mark == nil {
		return store.Mark{}, false
	}
	return db.opts.Mark.Marked()
}

// Mark records the newest event id outside the database.
func (db *DB) Mark(m store.Mark) {
	if db.opts.Mark != nil {
		db.opts.Mark.Mark(m)
	}
}

// Close releases the log and closes all connections.
func (db *DB) Close() error {
	close(db.stop)
	<-db.done
	if db.writer != nil {
		release(db.writer, true)
		db.writer = nil
	}
	return errors.Join(db.releaseLog(), db.pool.Close())
}
