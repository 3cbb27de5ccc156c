package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"loquat/internal/backoff"
	"loquat/internal/store"
)

// giveUpAfter is how long the server keeps the connection of a node that takes nothing, for example
// because it is stopped. The server's queue of notifications grows for that time.
var giveUpAfter = 30 * time.Second

// silence is after how long without a notification the connection is tested.
const silence = 5 * time.Second

// reconnecting is the delay between two attempts to listen.
var reconnecting = backoff.Backoff{First: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: true}

// Listen makes the driver call l until Close. It must be called once, before the first Write.
func (db *DB) Listen(l store.Listener) {
	db.listener.Store(&l)
	if db.listen == nil {
		db.log.Warn("there is a pooler in front of the database, so this node looks for the events of other nodes only once a second; name the database itself in store.listen_url")
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ending := db.stop
	db.stop = func() { stop(); ending() }
	db.running.Go(func() { db.receive(ctx, l) })
}

// receive receives notifications. It connects again after every failure.
func (db *DB) receive(ctx context.Context, l store.Listener) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := db.receiveOnce(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > reconnecting.Max {
			failures = 0
		}
		if failures == 0 { // it is said once, until a connection lasts
			db.log.Warn("the connection for notifications ended; until the next one this node looks for events once a second", "error", readable(err, db.listen.ConnString()))
		}
		_ = reconnecting.Wait(ctx, failures)
	}
}

func (db *DB) receiveOnce(ctx context.Context, l store.Listener) error {
	connecting, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connecting, db.listen)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := simple(connecting, conn, fmt.Sprintf("SET tcp_user_timeout = %d", giveUpAfter.Milliseconds())); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := simple(connecting, conn, "LISTEN "+db.channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if db.listened {
		db.metrics.listener.Inc()
	}
	db.listened = true
	l.Look() // at what was sent before
	// pgx would start a goroutine for each wait whose context can end. So a deadline ends the wait.
	raw := conn.PgConn().Conn()
	defer context.AfterFunc(ctx, func() { _ = raw.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		if err := raw.SetReadDeadline(time.Now().Add(silence)); err != nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		n, err := conn.WaitForNotification(context.Background())
		switch {
		case err == nil:
			db.metrics.received(n.Payload)
			if n.Payload == joined {
				db.hold.Load().alone.Store(false)
			} else {
				l.Notified(n.Payload)
			}
			continue
		case ctx.Err() != nil || !pgconn.Timeout(err) || conn.IsClosed():
			return err
		}
		_ = raw.SetReadDeadline(time.Time{})
		testing, cancel := context.WithTimeout(ctx, connectTimeout)
		err = conn.Ping(testing)
		cancel()
		if err != nil {
			return err
		}
	}
}
