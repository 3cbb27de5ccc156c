// Package connlimit bounds the connections of a listener, for each client address and in
// all.
//
// Idle or stalled connections never keep a new client out: when a bound is reached, the
// connection that has been idle longest is closed. A connection that serves a call is never
// closed for this. A new connection is refused only if all others serve calls.
package connlimit

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"loquat/internal/ratelimit"
)

// Options are the bounds of a Listener.
type Options struct {
	Total      int // in all
	PerAddress int // of one address, or of one /64 of IPv6

	// Shared reports whether an address is shared by many clients, such as a proxy's.
	// PerAddress does not apply to it. Nil means that no address is shared.
	Shared func(netip.Addr) bool

	// Refusal is written to a refused connection. It must be empty with TLS.
	Refusal []byte

	Logger *slog.Logger // nil: the default one
}

// Listener is a net.Listener whose connections are bounded.
type Listener struct {
	net.Listener
	opts     Options
	log      *slog.Logger
	warn     rate.Sometimes
	refusing chan struct{} // holds a value for each refusal that is being written
	evicting *ratelimit.Limiter

	mu      sync.Mutex
	all     map[*conn]struct{}
	from    map[netip.Prefix]map[*conn]struct{}
	waiting map[net.Conn]*time.Timer // for their refusal
	closed  bool
}

const (
	// maxRefusing bounds how many refusals are written at the same time. Further connections
	// are closed without one.
	maxRefusing = 16

	// How many connections an address may have closed to make room for it: so many at first,
	// then so many a second.
	evictionBurst, evictionRate = 256, 20

	// An address that opens connections faster waits for its refusal, so that it does not
	// open the next one at once.
	penalty    = 10 * time.Second
	maxWaiting = 4096 // connections that wait; further ones are refused at once
)

// New bounds the connections of a listener.
func New(ln net.Listener, opts Options) *Listener {
	l := &Listener{
		Listener: ln, opts: opts, log: opts.Logger, warn: rate.Sometimes{Interval: time.Minute},
		refusing: make(chan struct{}, maxRefusing),
		evicting: ratelimit.New(ratelimit.Options{Rate: evictionRate, Burst: evictionBurst}),
		all:      map[*conn]struct{}{}, from: map[netip.Prefix]map[*conn]struct{}{}, waiting: map[net.Conn]*time.Timer{},
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	return l
}

// Accept returns the next connection that is within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

// Close closes the listener, and the connections that wait for their refusal.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c, timer := range l.waiting {
		timer.Stop()
		_ = c.Close()
	}
	clear(l.waiting)
	return l.Listener.Close()
}

// postpone refuses a connection after a while.
func (l *Listener) postpone(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) >= maxWaiting {
		_ = c.Close()
		return
	}
	l.waiting[c] = time.AfterFunc(penalty, func() {
		l.mu.Lock()
		_, ok := l.waiting[c]
		delete(l.waiting, c)
		l.mu.Unlock()
		if ok {
			l.refuse(c)
		}
	})
}

// Len returns how many connections there are.
func (l *Listener) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// admit counts a connection and makes room for it. It returns nil, and refuses the
// connection, when there is none.
func (l *Listener) admit(c net.Conn) *conn {
	address := addressOf(c)
	n := &conn{Conn: c, listener: l, network: ratelimit.Network(address)}
	n.touch()
	l.mu.Lock()
	var closed *conn
	var tooFast bool
	shared := l.opts.Shared != nil && l.opts.Shared(address)
	ok, bound, among := true, "", l.from[n.network]
	switch {
	case len(among) >= l.opts.PerAddress && !shared:
		bound = "limits.max_connections_per_address"
	case len(l.all) >= l.opts.Total:
		bound, among = "limits.max_connections", l.all
	}
	if bound != "" {
		if tooFast = !shared && !l.evicting.Allow(address); tooFast {
			ok = false
		} else {
			closed, ok = l.remove(among)
		}
	}
	if ok {
		l.all[n] = struct{}{}
		if l.from[n.network] == nil {
			l.from[n.network] = map[*conn]struct{}{}
		}
		l.from[n.network][n] = struct{}{}
	}
	l.mu.Unlock()
	if bound != "" {
		l.warn.Do(func() {
			l.log.Warn("there are as many connections as there may be; idle ones are closed to make room", "bound", bound, "address", address)
		})
	}
	if closed != nil {
		_ = closed.Conn.Close()
	}
	switch {
	case ok:
		return n
	case tooFast:
		l.postpone(c)
	default:
		l.refuse(c)
	}
	return nil
}

// remove stops counting the least useful of some connections and returns it, so that the
// caller can close it. It returns false if all of them serve
// calls. The caller holds the lock.
func (l *Listener) remove(among map[*conn]struct{}) (*conn, bool) {
	var spare *conn
	for c := range among {
		if c.calls.Load() == 0 && (spare == nil || c.before(spare)) {
			spare = c
		}
	}
	if spare == nil {
		return nil, false
	}
	l.forget(spare)
	return spare, true
}

// forget stops counting a connection. The caller holds the lock.
func (l *Listener) forget(c *conn) {
	delete(l.all, c)
	same := l.from[c.network]
	delete(same, c)
	if len(same) == 0 {
		delete(l.from, c.network)
	}
}

// refuse writes the refusal and closes the connection. It briefly reads the client's request
// first, because closing a connection with unread data can lose the answer.
func (l *Listener) refuse(c net.Conn) {
	select {
	case l.refusing <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer c.Close()
		if len(l.opts.Refusal) == 0 {
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(l.opts.Refusal); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		var buf [4096]byte
		for range 16 {
			if _, err := c.Read(buf[:]); err != nil {
				return
			}
		}
	}()
}

func addressOf(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	listener *Listener
	network  netip.Prefix
	once     sync.Once

	calls  atomic.Int32 // that it serves
	served atomic.Bool  // whether it ever served one
	heard  atomic.Int64 // when the client last sent something, in Unix nanoseconds
}

func (c *conn) touch() { c.heard.Store(time.Now().UnixNano()) }

// before reports whether c can be spared rather than other: one that never served a call
// first, then the one that was silent for longer.
func (c *conn) before(other *conn) bool {
	if a, b := c.served.Load(), other.served.Load(); a != b {
		return !a
	}
	return c.heard.Load() < other.heard.Load()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// CloseWrite ends the half that the client reads, as net/http does before it closes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.forget(c)
	})
	return c.Conn.Close()
}

type contextKey struct{}

// Context is a http.Server's ConnContext: it lets Hold find the connection of a call.
func Context(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = over.NetConn()
	}
	if counted, ok := c.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, counted)
	}
	return ctx
}

// Hold marks the connection of a call as in use until release is called, so that it is not
// closed to make room for others.
func Hold(ctx context.Context) (release func()) {
	c, ok := ctx.Value(contextKey{}).(*conn)
	if !ok {
		return func() {}
	}
	c.calls.Add(1)
	c.served.Store(true)
	return func() {
		c.touch()
		c.calls.Add(-1)
	}
}
