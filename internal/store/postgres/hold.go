package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"loquat"
	"loquat/internal/store"
)

// hold is a row of nodes: the right of this node to write, until others end it. A node that
// lost its hold begins another one, with another owner.
type hold struct {
	owner   string
	epoch   int64
	node    string
	batch   atomic.Int64 // number of the newest transaction that is known to have committed
	lost    atomic.Bool
	alone   atomic.Bool  // there are no other nodes
	waiting atomic.Int64 // how full the server's queue of notifications was at the last look, in thousandths
	leads   atomic.Bool  // it was the oldest live node at the last look
	renewed atomic.Int64 // when the last successful renewal began, in nanoseconds since DB.started
	expiry  *time.Timer  // runs out when the hold must be given up
}

// keepsFor is how long a node keeps a hold that it cannot renew. Others wait for the lease, so
// the node stops before they begin.
func (db *DB) keepsFor() time.Duration { return db.opts.Lease * 8 / 10 }

// renewEvery is the time between two renewals of a node that does not write.
func (db *DB) renewEvery() time.Duration { return db.opts.Lease / 5 }

// endedFor is how long the rows of ended holds are kept.
const endedFor = "30 days"

// How full the queue of notifications may be, in thousandths, until notifications are short, and until
// they are not sent. The queue has 8 GB by default.
const (
	manyWaiting = 50
	mostWaiting = 500
)

// joined is the notification of a node that begins a hold. A node that was alone then sends
// notifications, too, before it looks for other nodes.
const joined = "{}"

// name is the name of this process for people.
func name() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// inUseError is a store.ErrInUse that names a node.
type inUseError struct{ url, holder string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("the database %s is in use by %s; stop all servers that use it first", e.url, e.holder)
}

func (e *inUseError) Unwrap() error { return store.ErrInUse }

// waitMore is how much longer than a lease requireAlone waits for the leases of dead nodes.
const waitMore = 2 * time.Second

// requireAlone waits until no node has a lease. It returns an inUseError if one is renewed.
func (db *DB) requireAlone(ctx context.Context) error {
	var first string
	for began := time.Now(); ; {
		var holder, until string
		var name []byte
		err := db.pool.QueryRowContext(ctx, `SELECT name, (max(seen_at) OVER ())::text FROM nodes
			WHERE ended_at IS NULL AND lease_until > clock_timestamp() ORDER BY epoch LIMIT 1`).Scan(&name, &until)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		holder = string(name)
		if first == "" {
			first = until
			db.log.Info("a server that may have died has used the database; waiting for the end of its lease", "holder", holder)
		}
		if until != first || time.Since(began) > db.opts.Lease+waitMore {
			return &inUseError{Masked(db.opts.URL), holder}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// register begins a hold. The caller has locked db.holding.
func (db *DB) register(ctx context.Context) error {
	conn, raw, err := connectBy(ctx, db.lease)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer db.watch(raw)()
	err = db.registerOn(ctx, raw)
	usable = err == nil
	return err
}

// registerOn begins a hold. A hold of a former process of this node ends at once. If a running
// process has the same node id, this one gets another.
func (db *DB) registerOn(ctx context.Context, conn *pgx.Conn) error {
	began := time.Now()
	last := db.hold.Load()
	h := &hold{owner: uuid.NewString()}
	var b pgx.Batch
	db.begin(&b, toWrite)
	b.Queue(`SELECT 1 FROM log FOR UPDATE`) // an upgrade of the schema has ended when the next statement begins
	b.Queue(`UPDATE log SET epoch = epoch + 1, timeline = CASE timeline WHEN '' THEN ` + db.timeline + ` ELSE timeline END,
		last_event_id = greatest(last_event_id, (SELECT max(last_event_id) FROM increments)),
		unsorted_entries = (SELECT coalesce(sum(entries), 0) FROM increments WHERE last_event_id > sorted_event_id),
		unsorted_bytes = (SELECT coalesce(sum(octet_length(body)), 0) FROM increments WHERE last_event_id > sorted_event_id)
		RETURNING epoch, moving, (SELECT version FROM loquat_schema), (SELECT coalesce((to_jsonb(s) ->> 'least')::integer, version) FROM loquat_schema s)`)
	var moving string
	var version, least int
	err := send(ctx, conn, &b, &h.epoch, &moving, &version, &least)
	defer func() { _ = rollback(conn) }()
	if err != nil {
		return fmt.Errorf("register this node: %w", err)
	}
	if err := db.requireInPlace(moving); err != nil {
		return err
	}
	if least > db.schema { // newer programs have upgraded it while this node was away
		return db.tooNew(version, least)
	}
	if last != nil {
		var taken bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM nodes WHERE node_id = $1 AND owner <> $2 AND ended_at IS NULL AND lease_until > clock_timestamp())`, db.node, last.owner).Scan(&taken); err != nil {
			return fmt.Errorf("register this node: %w", err)
		}
		if taken {
			db.log.Warn("another server uses the node id of this one; give each server a data directory of its own, which is not a copy", "node_id", db.node)
			db.node = uuid.NewString()
		}
	}
	h.node = db.node
	var end pgx.Batch
	end.Queue(`UPDATE nodes SET ended_at = clock_timestamp() WHERE node_id = $1 AND ended_at IS NULL`, h.node)
	end.Queue(`DELETE FROM nodes WHERE ended_at < clock_timestamp() - interval '` + endedFor + `'`)
	end.Queue(`INSERT INTO nodes (owner, epoch, node_id, name, version, started_at, known_schema, seen_at, lease_until)
		VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp(), clock_timestamp() + $8 * interval '1 millisecond')`,
		h.owner, h.epoch, h.node, []byte(name()), db.opts.Version, db.started, db.schema, db.opts.Lease.Milliseconds())
	end.Queue(`SELECT pg_notify($1, $2)`, db.channel, joined)
	if err := commit(ctx, conn, &end); err != nil {
		return fmt.Errorf("register this node: %w", err)
	}
	h.expiry = time.AfterFunc(db.keepsFor(), func() {
		db.leave(h, "the lease could not be renewed")
		db.closeConnections()
	})
	db.hold.Store(h)
	db.renewed(h, began)
	return db.look(ctx, conn, h)
}

// renewed records that the lease was renewed by a statement that was sent at a time.
func (db *DB) renewed(h *hold, sent time.Time) {
	db.health.Store(nil)
	at := sent.Sub(db.started).Nanoseconds()
	if at <= h.renewed.Load() {
		return
	}
	h.renewed.Store(at)
	if !h.lost.Load() {
		h.expiry.Reset(db.keepsFor() - time.Since(sent))
	}
}

// leave gives a hold up, once. The node writes only after it has begun another one.
func (db *DB) leave(h *hold, reason string) {
	if !h.lost.CompareAndSwap(false, true) {
		return
	}
	h.expiry.Stop()
	db.log.Warn("this node stops its requests: "+reason, "node_id", h.node)
	if l := db.listener.Load(); l != nil {
		(*l).Left()
	}
}

// keepLease renews the lease while no transaction does, ends the holds of nodes that died, and
// begins a new hold after the last one was lost.
func (db *DB) keepLease(ctx context.Context) {
	ticker := time.NewTicker(db.opts.Lease / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if db.opts.Mark != nil {
			db.opts.Mark.Sync()
		}
		if err := db.beat(ctx); err != nil && ctx.Err() == nil {
			_ = db.failed(err) // Check reports it
		}
		if db.hold.Load().lost.Load() && !db.answers(ctx) && ctx.Err() == nil {
			db.closeConnections() // the end of the hold closed those of its time
		}
	}
}

// answers reports whether the database answers anything at all.
func (db *DB) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := db.lease.PingContext(ctx)
	var refusal *pgconn.PgError
	return err == nil || errors.As(err, &refusal)
}

func (db *DB) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(db.renewEvery(), connectTimeout))
	defer cancel()
	h := db.hold.Load()
	if h.lost.Load() {
		if !db.holding.TryLock() { // a Write is doing it
			return nil
		}
		defer db.holding.Unlock()
		return db.register(ctx)
	}
	conn, raw, err := connectBy(ctx, db.lease)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	if !db.locked.Load() && time.Since(db.started)-time.Duration(h.renewed.Load()) >= db.renewEvery() {
		err := db.renew(ctx, raw, h)
		if errors.Is(err, errFenced) { // the database works; the next beat begins another hold
			usable = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	err = db.look(ctx, raw, h)
	usable = err == nil
	return err
}

func (db *DB) renew(ctx context.Context, conn *pgx.Conn, h *hold) error {
	began := time.Now()
	tag, err := conn.Exec(ctx, renewStatement+` WHERE owner = $1 AND ended_at IS NULL`, h.owner, db.opts.Lease.Milliseconds())
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	if tag.RowsAffected() == 0 {
		db.leave(h, errFenced.Error())
		return errFenced
	}
	db.renewed(h, began)
	return nil
}

// look finds out which nodes there are, and ends the holds of those that died.
func (db *DB) look(ctx context.Context, conn *pgx.Conn, h *hold) error {
	var oldest, others, expired, waiting int64
	err := conn.QueryRow(ctx, `SELECT coalesce(min(epoch) FILTER (WHERE lease_until > clock_timestamp()), 0),
		count(*) FILTER (WHERE owner <> $1), count(*) FILTER (WHERE owner <> $1 AND lease_until <= clock_timestamp()),
		(1000 * pg_notification_queue_usage())::bigint FROM nodes WHERE ended_at IS NULL`, h.owner).Scan(&oldest, &others, &expired, &waiting)
	if err != nil {
		return fmt.Errorf("look for other nodes: %w", err)
	}
	h.alone.Store(others == 0)
	h.leads.Store(oldest == h.epoch)
	h.waiting.Store(waiting)
	if expired == 0 {
		return nil
	}
	return db.endExpired(ctx, conn, h)
}

// endExpired ends the holds of nodes whose lease ran out. The lock of the log excludes that such
// a node is writing.
func (db *DB) endExpired(ctx context.Context, conn *pgx.Conn, h *hold) error {
	var b pgx.Batch
	db.begin(&b, toWrite)
	b.Queue(`SELECT 1 FROM log FOR UPDATE`)
	var one int
	err := send(ctx, conn, &b, &one)
	defer func() { _ = rollback(conn) }()
	if err != nil {
		return fmt.Errorf("take over from a node: %w", err)
	}
	rows, _ := conn.Query(ctx, `UPDATE nodes SET ended_at = clock_timestamp() WHERE ended_at IS NULL AND lease_until <= clock_timestamp() AND owner <> $1 RETURNING node_id, name`, h.owner)
	type node struct {
		ID   string
		Name []byte
	}
	ended, err := pgx.CollectRows(rows, pgx.RowToStructByPos[node])
	if err == nil {
		err = commit(ctx, conn, &pgx.Batch{})
	}
	if err != nil {
		return fmt.Errorf("take over from a node: %w", err)
	}
	db.metrics.takeovers.Add(float64(len(ended)))
	for _, n := range ended {
		db.log.Warn("a node did not renew its lease; others take over its requests", "node_id", n.ID, "name", string(n.Name))
	}
	return nil
}

// endHold ends the hold of this node.
func (db *DB) endHold() error {
	h := db.hold.Load()
	h.expiry.Stop()
	if h.lost.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if _, err := db.lease.ExecContext(ctx, `UPDATE nodes SET ended_at = clock_timestamp() WHERE owner = $1 AND ended_at IS NULL`, h.owner); err != nil {
		return fmt.Errorf("end the hold of this node: %w", err)
	}
	return nil
}

// Hold returns the present hold of this node.
func (db *DB) Hold() store.Hold {
	h := db.hold.Load()
	valid := !h.lost.Load() && time.Since(db.started)-time.Duration(h.renewed.Load()) < db.keepsFor()
	return store.Hold{Owner: h.owner, NodeID: h.node, Leads: valid && h.leads.Load()}
}

// Nodes returns the live nodes, the oldest hold first.
func (db *DB) Nodes(ctx context.Context) ([]loquat.Node, error) {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return nil, err
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer db.watch(raw)()
	rows, _ := raw.Query(context.WithoutCancel(ctx), `SELECT owner, node_id, name, version, started_at, seen_at FROM nodes
		WHERE ended_at IS NULL AND lease_until > clock_timestamp() ORDER BY epoch`)
	self := db.hold.Load().owner
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n loquat.Node, err error) {
		var owner string
		var name []byte
		err = row.Scan(&owner, &n.NodeID, &name, &n.Version, &n.StartedAt, &n.SeenAt)
		n.Name, n.Self = strings.ToValidUTF8(string(name), "\uFFFD"), owner == self
		n.StartedAt, n.SeenAt = n.StartedAt.UTC().Truncate(time.Millisecond), n.SeenAt.UTC().Truncate(time.Millisecond)
		return n, err
	})
	if len(out) > 0 {
		out[0].Leads = true
	}
	usable = err == nil
	return out, err
}

// failed records an error of the connection to the database, which Check returns until a
// renewal succeeds. It returns err.
func (db *DB) failed(err error) error {
	db.health.Store(&err)
	return err
}

// doubt is the error of a COMMIT whose answer did not arrive. It implements store.Doubt.
type doubt struct {
	db    *DB
	hold  *hold
	batch int64
	err   error
}

func (d *doubt) Error() string { return d.err.Error() }
func (d *doubt) Unwrap() error { return d.err }

// Resolve finds out whether the transaction committed. It locks the log, which waits for a
// COMMIT that still runs, and then reads the number of the hold's newest transaction. A database
// without the hold has nothing that this hold wrote.
func (d *doubt) Resolve(ctx context.Context) (committed bool, err error) {
	conn, raw, err := d.db.connect(ctx)
	if err != nil {
		return false, d.db.failed(err)
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer d.db.watch(raw)()
	var b pgx.Batch
	d.db.begin(&b, toWrite)
	b.Queue(`SELECT 1 FROM log FOR UPDATE`)
	b.Queue(`SELECT coalesce((SELECT batch FROM nodes WHERE owner = $1), 0)`, d.hold.owner) // sees what committed before the lock
	var batch int64
	err = send(ctx, raw, &b, &batch)
	if err == nil {
		// The COMMIT waits for a synchronous standby. A server that crashed during the commit in
		// doubt has it, and may show it before the standby has it.
		err = commit(ctx, raw, &pgx.Batch{})
	}
	if err != nil {
		usable = rollback(raw)
		return false, d.db.failed(err)
	}
	usable = true
	committed = batch == d.batch
	if committed {
		d.hold.batch.Store(batch)
	}
	return committed, nil
}
