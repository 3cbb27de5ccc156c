package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat/internal/store"
)

// The tables of this file are unlogged: what they hold costs no write to the disk of the
// database, and is empty after a crash or a failover.

var _ store.Coordinator = (*DB)(nil)

// sweepEvery is how often a node removes debts that are zero.
const sweepEvery = time.Minute

// sweeper remembers when this node last removed debts that are zero.
type sweeper struct{ last atomic.Int64 } // Unix nanoseconds

func (s *sweeper) isDue() bool {
	last, now := s.last.Load(), time.Now().UnixNano()
	return now-last > int64(sweepEvery) && s.last.CompareAndSwap(last, now)
}

// immediately runs statements on a connection of their own, each in its own transaction.
// Cancelling ctx ends them.
func (db *DB) immediately(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	defer db.watch(raw)()
	err = fn(raw)
	release(conn, err == nil)
	return err
}

const (
	// The rows are written in the order of their keys, so that nodes do not wait for each other
	// in a circle.
	addDebts = `INSERT INTO debts AS d (key, until)
		SELECT key, statement_timestamp() + add * interval '1 microsecond' FROM unnest($1::text[], $2::bigint[]) AS u (key, add) ORDER BY key
		ON CONFLICT (key) DO UPDATE SET until = GREATEST(d.until, statement_timestamp()) + (excluded.until - statement_timestamp())
		RETURNING key, (extract(epoch FROM until - statement_timestamp()) * 1000000)::bigint`

	sweepDebts = `DELETE FROM debts WHERE key IN (SELECT key FROM debts WHERE until < statement_timestamp() FOR UPDATE SKIP LOCKED)`
)

// AddDebts implements store.Coordinator.
func (db *DB) AddDebts(ctx context.Context, keys []string, add []time.Duration) ([]time.Duration, error) {
	sums := map[string]time.Duration{}
	err := db.immediately(ctx, func(conn *pgx.Conn) error {
		if db.debts.isDue() {
			if _, err := conn.Exec(ctx, sweepDebts); err != nil {
				return fmt.Errorf("remove debts: %w", err)
			}
		}
		micros := make([]int64, len(add))
		for i, d := range add {
			micros[i] = d.Microseconds()
		}
		rows, err := conn.Query(ctx, addDebts, keys, micros)
		if err != nil {
			return fmt.Errorf("add debts: %w", err)
		}
		var key string
		var sum int64
		_, err = pgx.ForEachRow(rows, []any{&key, &sum}, func() error {
			sums[key] = time.Duration(sum) * time.Microsecond
			return nil
		})
		return err
	})
	out := make([]time.Duration, len(keys))
	for i, key := range keys {
		out[i] = sums[key]
	}
	return out, err
}

// A time that is further ahead than it can be was written before the database's clock was set
// back, or for a longer interval, and does not count.
const (
	reserveSlot = `INSERT INTO slots AS s (scope, slot_at) VALUES ($1, clock_timestamp())
		ON CONFLICT (scope) DO UPDATE SET slot_at = GREATEST(clock_timestamp(),
			CASE WHEN s.slot_at <= clock_timestamp() + $3::interval THEN s.slot_at + $2::interval END,
			CASE WHEN s.started_at <= clock_timestamp() THEN s.started_at + $2::interval END,
			CASE WHEN s.paused_until <= clock_timestamp() + $4::interval THEN s.paused_until END)
		RETURNING slot_at - clock_timestamp()`

	takeSlot = `UPDATE slots SET started_at = clock_timestamp(),
			starting_until = CASE WHEN $2 > interval '0' THEN clock_timestamp() + $4::interval ELSE '-infinity' END WHERE scope = $1
		AND (started_at + $2::interval <= clock_timestamp() OR started_at > clock_timestamp())
		AND (starting_until <= clock_timestamp() OR starting_until > clock_timestamp() + $4::interval)
		AND (paused_until <= clock_timestamp() OR paused_until > clock_timestamp() + $3::interval)`

	// A start that has not ended will end now at the earliest.
	waitForSlot = `SELECT GREATEST(clock_timestamp(), CASE WHEN started_at <= clock_timestamp() THEN started_at + $2::interval END,
		CASE WHEN starting_until BETWEEN clock_timestamp() AND clock_timestamp() + $4::interval THEN clock_timestamp() + LEAST($2::interval, starting_until - clock_timestamp()) END,
		CASE WHEN paused_until <= clock_timestamp() + $3::interval THEN paused_until END) - clock_timestamp() FROM slots WHERE scope = $1`

	endStart = `INSERT INTO slots AS s (scope, slot_at, started_at) VALUES ($1, '-infinity', clock_timestamp())
		ON CONFLICT (scope) DO UPDATE SET started_at = clock_timestamp(), starting_until = '-infinity'`

	pauseSlots = `INSERT INTO slots AS s (scope, slot_at, paused_until) VALUES ($1, '-infinity', clock_timestamp() + $2::interval)
		ON CONFLICT (scope) DO UPDATE SET paused_until = CASE
			WHEN s.paused_until BETWEEN clock_timestamp() + $2::interval AND clock_timestamp() + $3::interval THEN s.paused_until
			ELSE clock_timestamp() + $2::interval END`
)

// maxAhead is how many slots of a scope may be reserved. Each node reserves one.
const maxAhead = 1000

// scopeKey returns the key of a scope. The text of the scope may hold a password.
func scopeKey(scope string) []byte {
	key := sha256.Sum256([]byte(scope))
	return key[:]
}

// ReserveSlot implements store.Coordinator.
func (db *DB) ReserveSlot(ctx context.Context, scope string, interval time.Duration) (wait time.Duration, err error) {
	err = db.immediately(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, reserveSlot, scopeKey(scope), interval, maxAhead*interval+store.MaxPause, store.MaxPause).Scan(&wait)
	})
	if err != nil {
		return 0, fmt.Errorf("reserve a slot: %w", err)
	}
	return max(0, wait), nil
}

// TakeSlot implements store.Coordinator.
func (db *DB) TakeSlot(ctx context.Context, scope string, interval time.Duration) (wait time.Duration, err error) {
	key := scopeKey(scope)
	err = db.immediately(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, takeSlot, key, interval, store.MaxPause, store.MaxStart)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		err = conn.QueryRow(ctx, waitForSlot, key, interval, store.MaxPause, store.MaxStart).Scan(&wait)
		if errors.Is(err, pgx.ErrNoRows) { // the table was emptied since the slot was reserved
			_, err = conn.Exec(ctx, reserveSlot, key, interval, interval, store.MaxPause)
		}
		wait = max(wait, time.Millisecond) // the slot was not taken
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("take a slot: %w", err)
	}
	return wait, nil
}

// EndStart implements store.Coordinator.
func (db *DB) EndStart(ctx context.Context, scope string) error {
	err := db.immediately(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, endStart, scopeKey(scope))
		return err
	})
	if err != nil {
		return fmt.Errorf("end a start: %w", err)
	}
	return nil
}

// Pause implements store.Coordinator.
func (db *DB) Pause(ctx context.Context, scope string, pause time.Duration) error {
	err := db.immediately(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, pauseSlots, scopeKey(scope), pause, store.MaxPause)
		return err
	})
	if err != nil {
		return fmt.Errorf("pause a scope: %w", err)
	}
	return nil
}
