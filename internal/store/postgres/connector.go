package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"loquat/internal/store"
)

// askAgain is how long after a refusal a host is asked again, while another has not answered.
const askAgain = 500 * time.Millisecond

// hosts connects to the host of a URL that accepts writes. It asks all hosts at the same time:
// a host that is paused or cut off does not answer, and must not delay the use of another.
type hosts []driver.Connector

// newHosts returns a connector for a configuration.
func newHosts(config *pgx.ConnConfig, opts ...stdlib.OptionOpenDB) hosts {
	var out hosts
	fallbacks := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for len(fallbacks) > 0 {
		first := fallbacks[0]
		one := config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = first.Host, first.Port, first.TLSConfig, nil
		var others []*pgconn.FallbackConfig
		for _, f := range fallbacks[1:] { // the same host without TLS is a fallback of it
			if f.Host == first.Host && f.Port == first.Port {
				one.Fallbacks = append(one.Fallbacks, f)
			} else {
				others = append(others, f)
			}
		}
		out = append(out, stdlib.GetConnector(*one, opts...))
		fallbacks = others
	}
	return out
}

// Driver returns the driver of pgx.
func (h hosts) Driver() driver.Driver { return h[0].Driver() }

// Connect returns the first connection that succeeds. It fails once every host has refused.
// Until then it asks a host that refused again, because it may be promoted.
func (h hosts) Connect(ctx context.Context) (driver.Conn, error) {
	if len(h) == 1 {
		return h[0].Connect(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		host int
		conn driver.Conn
		err  error
	}
	results := make(chan result)
	ask := func(i int, after time.Duration) {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return
		}
		conn, err := h[i].Connect(ctx)
		select {
		case results <- result{i, conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}
	for i := range h {
		go ask(i, 0)
	}
	refused := map[int]error{}
	for {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			if refused[r.host] = r.err; len(refused) == len(h) {
				var errs []error
				for i := range h {
					errs = append(errs, refused[i])
				}
				return nil, errors.Join(errs...)
			}
			go ask(r.host, askAgain)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errFormerPrimary reports that a server is on an older timeline than one that this node has
// used: another server was promoted. A former primary that was paused accepts connections and
// answers with an old state, until it is stopped.
var errFormerPrimary = errors.New("the server is on an older timeline: another was promoted since")

var faultFormerPrimary = store.Fault{Kind: "former primary", Text: "the database is a former primary", Remedy: "wait until the URL leads to the new one; if you put another database there, restart the server"}

// checkTimeline refuses a connection to a former primary.
func (db *DB) checkTimeline(ctx context.Context, conn *pgx.Conn) error {
	if !db.timelines {
		return nil
	}
	var text string
	if err := conn.QueryRow(ctx, `SELECT `+db.timeline).Scan(&text); err != nil {
		return err
	}
	timeline, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		return fmt.Errorf("the server's timeline: %w", err)
	}
	for {
		newest := db.newest.Load()
		if timeline < newest {
			return errFormerPrimary
		}
		if db.newest.CompareAndSwap(newest, timeline) {
			return nil
		}
	}
}

// testIdle pings a connection that was idle, before it is used again. It reports whether the
// connection is broken, so that pgx must ping it and drop it. A ping of pgx has no time limit.
func (db *DB) testIdle(ctx context.Context, p stdlib.ShouldPingParams) (broken bool) {
	if p.IdleDuration <= time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer db.watch(p.Conn)()
	return p.Conn.Ping(ctx) != nil
}

// inUse has the connections that statements run on.
type inUse struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (u *inUse) add(conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns == nil {
		u.conns = map[net.Conn]struct{}{}
	}
	u.conns[conn] = struct{}{}
}

func (u *inUse) remove(conn net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, conn)
}

// closeConnections closes all connections, because the database does not answer: a paused or
// unreachable server keeps them open and silent.
func (db *DB) closeConnections() {
	db.used.mu.Lock()
	for conn := range db.used.conns {
		_ = conn.Close()
	}
	db.used.mu.Unlock()
	for pool, size := range map[*sql.DB]int{db.pool: db.opts.PoolSize, db.lease: 1} {
		pool.SetMaxIdleConns(0) // closes those of the pool
		pool.SetMaxIdleConns(size)
	}
}
