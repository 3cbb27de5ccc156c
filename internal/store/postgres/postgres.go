// Package postgres is the driver of the store for PostgreSQL 14 or newer.
//
// Any number of nodes use the database. Each has a row in the table nodes, with a lease. A
// transaction that writes first locks the row of the log, which excludes all other writers, and
// then updates the row of its node. If others have ended the node's hold meanwhile, it writes
// nothing. The rules of the log are in package store.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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
	defaultPoolSize         = 10
	defaultStatementTimeout = 30 * time.Second
	defaultLease            = 10 * time.Second
)

// connectTimeout is how long one attempt to connect may take, for each host of the URL.
const connectTimeout = 5 * time.Second

// Options configure a DB.
type Options struct {
	URL string
	// ListenURL is where notifications are received; "" means URL. Behind a pooler in
	// transaction mode it must lead to the server itself.
	ListenURL string
	// Node identifies this node. A former process with the same Node, which ended without
	// Close, is replaced at once. So no two running processes should have the same Node.
	Node    string
	Version string // of this program, for other nodes
	// Alone refuses a database that other nodes use. Open then waits for the leases of nodes
	// that died.
	Alone bool

	PoolSize         int           // most connections; 0 means 10
	StatementTimeout time.Duration // 0 means 30 s
	Lease            time.Duration // after which others take over from a node that died; 0 means 10 s
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
	opts     Options
	log      *slog.Logger
	started  time.Time
	config   *pgx.ConnConfig
	listen   *pgx.ConnConfig // nil if notifications cannot be received
	channel  string          // of the notifications of this log
	timeline string          // SQL expression of the server's timeline
	pooled   bool            // there is a pooler between this program and the server
	pool     *sql.DB
	lease    *sql.DB // one connection for the lease, which must not wait for others
	used     inUse
	newest   atomic.Int64 // newest timeline that a connection had

	schema    int  // that this program knows
	timelines bool // timeline is an expression of the server, not of the log

	debts sweeper

	holding   sync.Mutex // held by Write, and while another hold begins
	node      string     // the node id, usually Options.Node; guarded by holding
	hold      atomic.Pointer[hold]
	writer    *sql.Conn   // nil while there is no connection; guarded by holding
	connected bool        // there was a writer before; guarded by holding
	locked    atomic.Bool // a Write has locked the row of its node
	health    atomic.Pointer[error]

	listener atomic.Pointer[store.Listener]
	listened bool // there was a connection for notifications before; owned by receive
	metrics  *metrics
	stop     context.CancelFunc
	running  sync.WaitGroup
}

var _ store.Driver = (*DB)(nil)

// Open connects to a database, migrates its schema and registers this node.
func Open(ctx context.Context, opts Options) (*DB, error) {
	if opts.PoolSize == 0 {
		opts.PoolSize = defaultPoolSize
	}
	if opts.StatementTimeout == 0 {
		opts.StatementTimeout = defaultStatementTimeout
	}
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	config, err := parse("store.url", opts.URL)
	if err != nil {
		return nil, err
	}
	db := &DB{opts: opts, log: opts.Logger, started: time.Now(), config: config, node: opts.Node, metrics: newMetrics()}
	if opts.ListenURL != "" {
		if db.listen, err = parse("store.listen_url", opts.ListenURL); err != nil {
			return nil, err
		}
	}
	if err := db.open(ctx); err != nil {
		return nil, errors.Join(db.startError(err), db.closePools())
	}
	life, stop := context.WithCancel(context.Background())
	db.stop = stop
	db.running.Go(func() { db.keepLease(life) })
	return db, nil
}

func (db *DB) open(ctx context.Context) error {
	if err := db.inspect(ctx); err != nil {
		return err
	}
	if db.listen == nil && !db.pooled {
		db.listen = db.config.Copy()
	}
	if !db.pooled { // a pooler may refuse such parameters
		for name, value := range db.parameters(false) {
			db.config.RuntimeParams[name] = value
		}
	}
	connector := newHosts(db.config, stdlib.OptionAfterConnect(db.checkTimeline), stdlib.OptionShouldPing(db.testIdle))
	db.pool, db.lease = newPool(connector, db.opts.PoolSize), newPool(connector, 1)
	if err := db.migrate(ctx); err != nil {
		return err
	}
	if err := db.noticeCopy(ctx); err != nil {
		return err
	}
	if err := db.identify(ctx); err != nil {
		return err
	}
	if db.opts.Alone {
		if err := db.requireAlone(ctx); err != nil {
			return err
		}
	}
	db.holding.Lock()
	defer db.holding.Unlock()
	return db.register(ctx)
}

// newPool returns a pool of at most size connections.
func newPool(connector driver.Connector, size int) *sql.DB {
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}

func (db *DB) closePools() error {
	if db.pool == nil {
		return nil
	}
	return errors.Join(db.lease.Close(), db.pool.Close())
}

// parse returns the configuration of a URL, which has a key in the server's configuration. The error does not show the password.
func parse(key, url string) (*pgx.ConnConfig, error) {
	if dburl.Redact(url).Unescaped { // the errors of pgx would show a part of the password as a host or port
		return nil, fmt.Errorf("%s: %s cannot be used: its password has characters that mean something else in a URL; write @ as %%40, / as %%2F and ? as %%3F", key, Masked(url))
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot be used: %w; write it as postgres://USER:PASSWORD@HOST:5432/DATABASE", key, Masked(url), readable(withoutURL(err), url))
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
	db.used.add(raw)
	timer := time.AfterFunc(db.opts.StatementTimeout+connectTimeout, func() { raw.Close() })
	return func() bool {
		db.used.remove(raw)
		return timer.Stop()
	}
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

// connect returns a connection of the pool.
func (db *DB) connect(ctx context.Context) (*sql.Conn, *pgx.Conn, error) {
	return connectBy(ctx, db.pool)
}

// connectBy returns a connection. Cancelling ctx ends the wait for it, and not the connection.
func connectBy(ctx context.Context, pool *sql.DB) (*sql.Conn, *pgx.Conn, error) {
	conn, err := pool.Conn(ctx)
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

// parameters returns the settings of a transaction. The idle limit ends the transactions
// of a node that was stopped in the middle of one. A transaction that writes locks out all other
// nodes, so it may be idle only briefly. Statements are not compiled: that takes longer than any of them.
func (db *DB) parameters(write bool) map[string]string {
	ms := db.opts.StatementTimeout.Milliseconds()
	idle := max(ms, db.opts.Lease.Milliseconds())
	if write {
		idle = db.opts.Lease.Milliseconds() / 2
	}
	return map[string]string{
		"statement_timeout":                   strconv.FormatInt(ms, 10),
		"lock_timeout":                        strconv.FormatInt(ms, 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(idle, 10),
		"jit":                                 "off",
	}
}

const (
	toRead  = "REPEATABLE READ READ ONLY"
	toWrite = "READ COMMITTED READ WRITE"
)

// begin queues the statements that begin a transaction. A pooler may give every transaction
// another connection, so behind one each transaction sets its parameters.
func (db *DB) begin(b *pgx.Batch, how string) {
	b.Queue("BEGIN ISOLATION LEVEL " + how)
	if db.pooled {
		for name, value := range db.parameters(how == toWrite) {
			b.Queue("SET LOCAL " + name + " = " + value)
		}
	}
}

// send runs queued statements, the last of which returns a row.
func send(ctx context.Context, conn *pgx.Conn, b *pgx.Batch, dest ...any) error {
	results := conn.SendBatch(ctx, b)
	defer results.Close()
	for range b.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if err := results.QueryRow().Scan(dest...); err != nil {
		return err
	}
	return results.Close()
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

// stateColumns are the columns of a store.LogState in the row of the log.
const stateColumns = `last_event_id, gone_event_id, sorted_event_id, cuts, timeline, unsorted_entries, unsorted_bytes`

func stateInto(st *store.LogState) []any {
	return []any{&st.Last, &st.Gone, &st.Sorted, &st.Cuts, &st.Timeline, &st.UnsortedEntries, &st.UnsortedBytes}
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
	var b pgx.Batch
	db.begin(&b, toRead)
	b.Queue(`SELECT ` + stateColumns + ` FROM log`)
	s := statements{ctx: ctx, conn: conn, readOnly: true}
	err = send(ctx, raw, &b, stateInto(&s.state)...)
	defer func() { usable = rollback(raw) }()
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // the store reports a log without its row
		return fmt.Errorf("begin reading: %w", err)
	}
	return fn(s)
}

// Write runs fn in a transaction of isolation level READ COMMITTED, which first locks the row
// of the log. If others have ended the hold of this node, a new hold begins before.
func (db *DB) Write(ctx context.Context, fn func(store.SQL) error) error {
	db.holding.Lock()
	defer db.holding.Unlock()
	raw, err := db.writerConn(ctx)
	if err != nil {
		return db.failed(err)
	}
	usable := false
	defer func() {
		if !usable { // also when fn panics
			_ = rollback(raw)
			release(db.writer, false)
			db.writer = nil
		}
		db.locked.Store(false)
	}()
	defer db.watch(raw)()
	began := time.Now()
	s := statements{ctx: ctx, conn: db.writer, last: &pgx.Batch{}, db: db}
	h, batch, err := db.lockLog(ctx, raw, &s.state)
	if err != nil {
		return db.failed(err)
	}
	if err := fn(s); err != nil {
		usable = !broken(raw, err) && rollback(raw)
		return err
	}
	if err := commit(ctx, raw, s.last); err != nil {
		if rejected(err) {
			return db.failed(fmt.Errorf("commit: %w", err))
		}
		return &doubt{db: db, hold: h, batch: batch, err: fmt.Errorf("commit: %w", db.failed(err))}
	}
	usable = true
	h.batch.Store(batch)
	db.renewed(h, began)
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
	if !db.pooled {
		const name = "idle_in_transaction_session_timeout"
		if err := simple(ctx, raw, "SET "+name+" = "+db.parameters(true)[name]); err != nil {
			release(conn, false)
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	if db.connected {
		db.metrics.writer.Inc()
	}
	db.writer, db.connected = conn, true
	return raw, nil
}

// lockLog begins a transaction, locks the log and renews the lease. It returns the hold and the
// number of the transaction, and sets st to the row of the log. If the hold has ended, it
// registers this node again.
func (db *DB) lockLog(ctx context.Context, conn *pgx.Conn, st *store.LogState) (h *hold, batch int64, err error) {
	for range 2 {
		if h = db.hold.Load(); h.lost.Load() {
			if err := db.registerOn(ctx, conn); err != nil {
				return nil, 0, err
			}
			h = db.hold.Load()
		}
		batch, err = db.tryLockLog(ctx, conn, h, st)
		if !errors.Is(err, errFenced) {
			break
		}
		if !rollback(conn) {
			return nil, 0, fmt.Errorf("lock the log: %w", err)
		}
		db.metrics.fenced.Inc()
		db.leave(h, "other nodes have taken over")
	}
	return h, batch, err
}

// errFenced reports that the hold of this node has ended.
var errFenced = errors.New("other nodes have taken over from this node")

const renewStatement = `UPDATE nodes SET seen_at = clock_timestamp(), lease_until = clock_timestamp() + $2 * interval '1 millisecond'`

func (db *DB) tryLockLog(ctx context.Context, conn *pgx.Conn, h *hold, st *store.LogState) (batch int64, err error) {
	var b pgx.Batch
	db.begin(&b, toWrite)
	b.Queue(`SELECT ` + stateColumns + `, ` + db.timeline + ` FROM log FOR UPDATE`)
	b.Queue(renewStatement+`, batch = batch + 1 WHERE owner = $1 AND ended_at IS NULL RETURNING batch`, h.owner, db.opts.Lease.Milliseconds())
	results := conn.SendBatch(ctx, &b)
	defer results.Close()
	for range b.Len() - 2 {
		if _, err := results.Exec(); err != nil {
			return 0, fmt.Errorf("begin: %w", err)
		}
	}
	var timeline string
	if err := results.QueryRow().Scan(append(stateInto(st), &timeline)...); err != nil {
		return 0, fmt.Errorf("lock the log: %w", err)
	}
	err = results.QueryRow().Scan(&batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errFenced
	}
	if err != nil {
		return 0, fmt.Errorf("lock the log: %w", err)
	}
	db.locked.Store(true)
	st.Lost = timeline != st.Timeline || batch != h.batch.Load()+1
	st.Timeline = timeline
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

// Check returns an error if the log cannot be written: the lease could not be renewed.
func (db *DB) Check() error {
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

// Close ends the hold of this node and closes all connections.
func (db *DB) Close() error {
	db.stop()
	db.running.Wait()
	db.holding.Lock()
	defer db.holding.Unlock()
	if db.writer != nil {
		release(db.writer, true)
		db.writer = nil
	}
	return errors.Join(db.endHold(), db.closePools())
}
