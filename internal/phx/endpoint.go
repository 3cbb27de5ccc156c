package phx

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"loquat/internal/loglimit"
	"loquat/internal/ratelimit"
)

// Topic is what clients may join.
type Topic interface {
	// Join lets a client in, or fails with a *Refusal. It runs on the goroutine that
	// reads the socket. The response goes into the reply; Channel.Joined follows it.
	Join(ctx context.Context, m *Member, payload json.RawMessage) (c Channel, response any, err error)
}

// Channel is what stands behind a join. Its methods run on the goroutine that reads
// the socket, so while they wait the client is not listened to.
type Channel interface {
	// Joined comes once the reply is on its way. What is pushed from here on comes
	// after it.
	Joined()
	// Handle gets what the client pushes.
	Handle(ctx context.Context, in Incoming)
	// Left is the last call.
	Left()
}

// Refusal is the reason for which a join was refused, as the client is told it.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return "refused: " + r.Reason }

// reason is the response of a reply that tells of a failure.
type reason struct {
	Reason string `json:"reason"`
}

// Limits bound what sockets may cost. Zero values mean the defaults.
type Limits struct {
	Sockets      int           // open at once; default 10,000
	Topics       int           // joined on one socket; default 32
	FrameBytes   int64         // of what a client sends; default 64 KiB
	QueueFrames  int           // that wait to be sent to a client; default 512
	QueueBytes   int           // default 1 MiB
	Idle         time.Duration // silence, or life without a join, that ends a socket; default 60 s
	Progress     time.Duration // how long a client may take for a frame, beside a second for each 16 KiB; default 30 s
	Frames       float64       // per second from a client, after a first burst of four times as many; default 100
	Joins        float64       // per second from a client, after a first burst of four times as many; default 5
	Upgrades     float64       // per second from an address, after a first burst of twenty times as many; default 50
	AddressCount int           // addresses that are remembered; default 10,000
}

func (l Limits) withDefaults() Limits {
	l.Sockets = cmp.Or(l.Sockets, 10_000)
	l.Topics = cmp.Or(l.Topics, 32)
	l.FrameBytes = cmp.Or(l.FrameBytes, 64<<10)
	l.QueueFrames = cmp.Or(l.QueueFrames, 512)
	l.QueueBytes = cmp.Or(l.QueueBytes, 1<<20)
	l.Idle = cmp.Or(l.Idle, time.Minute)
	l.Progress = cmp.Or(l.Progress, 30*time.Second)
	l.Frames = cmp.Or(l.Frames, 100)
	l.Joins = cmp.Or(l.Joins, 5)
	l.Upgrades = cmp.Or(l.Upgrades, 50)
	l.AddressCount = cmp.Or(l.AddressCount, 10_000)
	return l
}

// Endpoint is where sockets are opened.
type Endpoint struct {
	find   func(topic string) Topic
	limits Limits
	log    *slog.Logger
	ended  *loglimit.Logger // sockets that clients brought to their end

	upgrades *ratelimit.Limiter
	sockets  sync.WaitGroup

	mu   sync.Mutex
	open map[*Socket]struct{}
	down bool
}

// NewEndpoint makes an endpoint; find returns the topic of a name, nil when there is
// none.
func NewEndpoint(find func(topic string) Topic, limits Limits, log *slog.Logger) *Endpoint {
	limits = limits.withDefaults()
	return &Endpoint{
		find: find, limits: limits, log: log, ended: loglimit.New(log), open: map[*Socket]struct{}{},
		upgrades: ratelimit.New(ratelimit.Options{Rate: rate.Limit(limits.Upgrades), Burst: int(20 * limits.Upgrades), Known: limits.AddressCount}),
	}
}

// The answers to upgrades that are refused.
const (
	// TooMany says that there are as many sockets as there may be.
	TooMany = "there are as many sockets as this server allows, try again later"
	// TooFast says that an address opens sockets too quickly.
	TooFast = "this address opens sockets too quickly, try again later"
)

// Admit checks what can be told before the upgrade: the status of the answer that
// refuses it, 0 when there is nothing to refuse.
func (e *Endpoint) Admit(r *http.Request, from netip.Addr) (status int, detail string) {
	if _, err := ParseVersion(r.URL.Query().Get("vsn")); err != nil {
		return http.StatusForbidden, err.Error()
	}
	if !e.upgrades.Allow(from) {
		return http.StatusTooManyRequests, TooFast
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || len(e.open) >= e.limits.Sockets {
		return http.StatusServiceUnavailable, TooMany
	}
	return 0, ""
}

// Serve upgrades a request that was admitted and serves its socket until it ends.
// Whether the page that opened it may is for the caller to have checked, and from where
// it comes for the caller to know.
func (e *Endpoint) Serve(w http.ResponseWriter, r *http.Request, from netip.Addr) {
	version, err := ParseVersion(r.URL.Query().Get("vsn"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	spy := &hijacked{ResponseWriter: w}
	ws, err := websocket.Accept(spy, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // the client has its answer
	}
	s := newSocket(context.WithoutCancel(r.Context()), e, ws, spy.conn, version, from)
	if !e.enter(s) {
		_ = ws.Close(websocket.StatusTryAgainLater, TooMany)
		return
	}
	defer e.leave(s)
	s.run()
}

// hijacked puts a cork on the connection that is taken over, and remembers it.
type hijacked struct {
	http.ResponseWriter
	conn *corked
}

// Hijack is of http.Hijacker.
func (h *hijacked) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	conn, rw, err = http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &corked{Conn: conn}
	rw.Writer.Reset(h.conn) // nothing was written to it yet
	return h.conn, rw, nil
}

func (e *Endpoint) enter(s *Socket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || len(e.open) >= e.limits.Sockets {
		return false
	}
	e.open[s] = struct{}{}
	e.sockets.Add(1)
	return true
}

func (e *Endpoint) leave(s *Socket) {
	e.mu.Lock()
	delete(e.open, s)
	e.mu.Unlock()
	e.sockets.Done()
}

// Sockets returns how many sockets are open.
func (e *Endpoint) Sockets() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open)
}

// Hangup ends all sockets in a way that brings their clients back.
func (e *Endpoint) Hangup() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.open {
		s.Close(CloseRestart, "the server is restarting")
	}
}

// Close ends all sockets, as Hangup does, admits no more, and returns when all have
// ended.
func (e *Endpoint) Close() {
	e.mu.Lock()
	e.down = true
	e.mu.Unlock()
	e.Hangup()
	e.sockets.Wait()
	e.ended.Flush()
}
