package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"loquat/internal/store"
)

// readers is how many reads run concurrently.
const readers = 8

// readPool is the reading connections. Each keeps its own prepared statements: with those of
// sql.DB, a read looks for the statement of its connection under locks that all reads share.
type readPool struct {
	db    *sql.DB
	slots chan struct{} // semaphore of the running reads

	mu     sync.Mutex
	idle   []*readConn // the one used last at the end
	closed bool
}

// readConn is a connection that one read at a time owns.
type readConn struct {
	*sql.Conn
	statements statements
}

func newReadPool(connector driver.Connector) *readPool {
	p := &readPool{db: sql.OpenDB(connector), slots: make(chan struct{}, readers)}
	p.db.SetMaxOpenConns(readers)
	return p
}

// read runs fn in a transaction of a connection.
func (p *readPool) read(ctx context.Context, fn func(store.SQL) error) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c, err := p.take(ctx)
	if err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	usable := false
	defer func() { p.put(c, usable) }() // also when fn panics
	if err := c.run(ctx, `BEGIN`); err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer func() { usable = c.run(context.WithoutCancel(ctx), `ROLLBACK`) == nil }()
	return fn(reader{ctx, c})
}

// take returns an idle connection or opens one.
func (p *readPool) take(ctx context.Context) (*readConn, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &readConn{conn, statements{}}, nil
}

// put returns a connection. One that is not usable, because its transaction may not have
// ended, is closed.
func (p *readPool) put(c *readConn, usable bool) {
	c.statements.bound()
	p.mu.Lock()
	keep := usable && !p.closed
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.close() // nobody can act on it, and the read has its result
	}
}

// close closes the idle connections. Others are closed when their reads end.
func (p *readPool) close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, c := range idle {
		errs = append(errs, c.close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}

// close closes the connection itself; sql.Conn's Close would keep it for the next.
func (c *readConn) close() error {
	errs := []error{c.statements.close()}
	if err := c.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *readConn) run(ctx context.Context, query string) error {
	st, err := c.statement(ctx, query)
	if err == nil {
		_, err = st.ExecContext(ctx)
	}
	return err
}

func (c *readConn) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := c.statements[query]; ok {
		return st, nil
	}
	st, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.statements[query] = st
	return st, nil
}

var errReadOnly = errors.New("a read transaction cannot write")

// reader is the transaction of Read.
type reader struct {
	ctx  context.Context
	conn *readConn
}

func (r reader) Exec(string, ...any) (int64, error) {
	return 0, errReadOnly
}

func (r reader) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := r.conn.statement(r.ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(r.ctx, args...)
}
