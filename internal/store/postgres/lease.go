package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat/internal/store"
)

// inUseError is a store.ErrInUse that names the node that has the log.
type inUseError struct {
	url, holder string
	left        time.Duration // of its lease
}

func (e *inUseError) Error() string {
	return fmt.Sprintf("the database %s is in use by %s, whose lease has %s left; stop that server first, or name another database in store.url",
		e.url, e.holder, max(0, e.left).Round(100*time.Millisecond))
}

func (e *inUseError) Unwrap() error { return store.ErrInUse }

// SupersededError reports that this node no longer owns the log. It is permanent, because the
// node's memory may differ from the database.
type SupersededError struct{ reason string }

func (e *SupersededError) Error() string {
	return e.reason + "; this server stops, and can be started again when no other uses the database"
}

// Superseded returns a channel that is closed when this node has lost the log for good.
func (db *DB) Superseded() <-chan struct{} { return db.superseded }

func (db *DB) supersede(reason string) error {
	db.once.Do(func() {
		db.cause.Store(&SupersededError{reason})
		close(db.superseded)
	})
	return db.cause.Load()
}

// waitMore is how much longer than a lease Open waits for the lease of a dead node to end.
const waitMore = 2 * time.Second

// takeLog makes this node the owner of the log. If Wait is set, it waits for a lease that
// nobody renews.
func (db *DB) takeLog(ctx context.Context) error {
	began := time.Now()
	var first time.Time
	for said := false; ; {
		until, err := db.tryTakeLog(ctx)
		used, ok := errors.AsType[*inUseError](err)
		if !ok {
			return err
		}
		if first.IsZero() {
			first = until
		}
		if !db.opts.Wait || !until.Equal(first) || time.Since(began) > db.opts.Lease+waitMore {
			return err
		}
		if !said {
			db.log.Info("the log belongs to a server that may have died; waiting for the end of its lease", "holder", used.holder, "seconds", used.left.Seconds())
			said = true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryTakeLog makes this node the owner of the log if the log is free, if its lease ended, or
// if a former process of this node has it. Otherwise it returns an inUseError and the end of
// the lease. The new epoch fences the former owner.
func (db *DB) tryTakeLog(ctx context.Context) (until time.Time, err error) {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return time.Time{}, err
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer db.watch(raw)()
	var batch int64
	err = raw.QueryRow(ctx, `UPDATE log SET owner = $1, owner_name = $2, epoch = epoch + 1, lease_until = clock_timestamp() + $3 * interval '1 millisecond'
		WHERE owner = '' OR owner = $1 OR lease_until < clock_timestamp() RETURNING epoch, batch`,
		db.opts.Node, db.name, db.opts.Lease.Milliseconds()).Scan(&db.epoch, &batch)
	if err == nil {
		usable = true
		db.batch.Store(batch)
		db.succeeded()
		return time.Time{}, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, fmt.Errorf("take the log: %w", err)
	}
	used := &inUseError{url: Masked(db.opts.URL)}
	var left float64
	err = raw.QueryRow(ctx, `SELECT owner_name, lease_until, extract(epoch FROM lease_until - clock_timestamp())::float8 FROM log`).Scan(&used.holder, &until, &left)
	if err != nil {
		return time.Time{}, fmt.Errorf("take the log: %w", err)
	}
	usable = true
	used.left = time.Duration(left * float64(time.Second))
	return until, used
}

// keepLease renews the lease while no transaction does.
func (db *DB) keepLease() {
	defer close(db.done)
	every := db.opts.Lease / 5
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-db.stop:
			return
		case <-ticker.C:
		}
		if db.opts.Mark != nil {
			db.opts.Mark.Sync()
		}
		if db.cause.Load() != nil || db.writing.Load() || time.Since(time.Unix(0, db.renewed.Load())) < every {
			continue
		}
		if err := db.renew(every); err != nil {
			_ = db.failed(err) // Check reports it
		}
	}
}

func (db *DB) renew(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(timeout, connectTimeout))
	defer cancel()
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	tag, err := raw.Exec(ctx, `UPDATE log SET lease_until = clock_timestamp() + $2 * interval '1 millisecond' WHERE epoch = $1`,
		db.epoch, db.opts.Lease.Milliseconds())
	release(conn, err == nil)
	switch {
	case err != nil:
		return fmt.Errorf("renew the lease: %w", err)
	case tag.RowsAffected() == 0:
		return db.supersede("another server has taken over the database")
	}
	db.succeeded()
	return nil
}

// succeeded records that the lease was renewed.
func (db *DB) succeeded() {
	db.renewed.Store(time.Now().UnixNano())
	db.health.Store(nil)
}

// failed records an error of the connection to the database, which Check returns until a
// renewal succeeds. It returns err.
func (db *DB) failed(err error) error {
	db.health.Store(&err)
	return err
}

// releaseLog gives the log up, so that another node can take it at once.
func (db *DB) releaseLog() error {
	if db.cause.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	_, err := db.pool.ExecContext(ctx, `UPDATE log SET owner = '', lease_until = '-infinity' WHERE epoch = $1`, db.epoch)
	if err != nil {
		return fmt.Errorf("release the log: %w", err)
	}
	return nil
}

// doubt is the error of a COMMIT whose answer did not arrive. It implements store.Doubt.
type doubt struct {
	db    *DB
	batch int64
	err   error
}

func (d *doubt) Error() string { return d.err.Error() }
func (d *doubt) Unwrap() error { return d.err }

// Resolve finds out whether the transaction committed. It locks the log, which waits for a
// COMMIT that still runs, and then compares the number of the newest transaction.
func (d *doubt) Resolve(ctx context.Context) (committed bool, err error) {
	conn, raw, err := d.db.connect(ctx)
	if err != nil {
		return false, d.db.failed(err)
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer d.db.watch(raw)()
	if err := simple(ctx, raw, strings.Join(d.db.begin("READ COMMITTED READ WRITE"), "; ")); err != nil {
		return false, d.db.failed(err)
	}
	defer func() { usable = rollback(raw) }()
	var epoch, batch int64
	if err := raw.QueryRow(ctx, `SELECT epoch, batch FROM log FOR UPDATE`).Scan(&epoch, &batch); err != nil {
		return false, d.db.failed(err)
	}
	switch {
	case epoch != d.db.epoch:
		return false, d.db.supersede("another server has taken over the database")
	case batch == d.batch:
		d.db.batch.Store(batch)
		return true, nil
	case batch == d.batch-1:
		return false, nil
	}
	return false, d.db.supersede(fmt.Sprintf("the database continues with transaction %d, and %d was expected", batch, d.batch))
}
