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

// Topic is a topic that clients may join.
type Topic interface {
	// Join returns the channel of a new join, or a *Refusal. It runs on the goroutine
	// that reads the socket. The response is sent in the reply. After that,
	// Channel.Joined is called.
	Join(ctx context.Context, m *Member, payload json.RawMessage) (c Channel, response any, err error)
}

// Channel handles the pushes of one join. Its methods run on the goroutine that reads the
// socket, so the socket is not read while they wait.
type Channel interface {
	// Joined is called when the reply to the join is queued. Frames that are pushed
	// from now on arrive after the reply.
	Joined()
	// Handle is called for each push of the client.
	Handle(ctx context.Context, in Incoming)
	// Left is called when the join has ended. It is the last call.
	Left()
}

// Refusal reports that a join was refused. The client receives the reason.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return "refused: " + r.Reason }

// reason is the response of a reply with StatusError.
type reason struct {
	Reason string `json:"reason"`
}

// Limits bound the resources that sockets use. A zero value means the default.
type Limits struct {
	Sockets      int           // open sockets; default 10,000
	Topics       int           // joined topics of one socket; default 32
	FrameBytes   int64         // largest frame from a client; default 64 KiB
	QueueFrames  int           // frames that wait to be sent to a client; default 512
	QueueBytes   int           // bytes of these frames; default 1 MiB
	Idle         time.Duration // a socket is closed after this time without a frame or without a join; default 60 s
	Progress     time.Duration // time for a client to read a batch of frames, plus one second for each 16 KiB; default 30 s
	Frames       float64       // frames per second from a client, with a burst of 4 seconds' worth; default 100
	Joins        float64       // joins per second from a client, with a burst of 4 seconds' worth; default 5
	Upgrades     float64       // upgrades per second from an address, with a burst of 20 seconds' worth; default 50
	AddressCount int           // addresses whose upgrades are counted; default 10,000
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

// Endpoint accepts sockets and keeps track of them.
type Endpoint struct {
	find   func(topic string) Topic
	limits Limits
	log    *slog.Logger
	ended  *loglimit.Logger // logs sockets that ended because of their clients

	upgrades *ratelimit.Limiter
	sockets  sync.WaitGroup

	mu   sync.Mutex
	open map[*socket]struct{}
	down bool
}

// NewEndpoint returns an endpoint. find returns the topic with a name, or nil if there is
// none.
func NewEndpoint(find func(topic string) Topic, limits Limits, log *slog.Logger) *Endpoint {
	limits = limits.withDefaults()
	return &Endpoint{
		find: find, limits: limits, log: log, ended: loglimit.New(log), open: map[*socket]struct{}{},
		upgrades: ratelimit.New(ratelimit.Options{Rate: rate.Limit(limits.Upgrades), Burst: int(20 * limits.Upgrades), Known: limits.AddressCount}),
	}
}

// The details of the answers to refused upgrades.
const (
	// tooMany means that the number of sockets has reached its limit.
	tooMany = "there are as many sockets as this server allows, try again later"
	// tooFast means that an address opens sockets too quickly.
	tooFast = "this address opens sockets too quickly, try again later"
)

// Admit checks a request before its upgrade. It returns the status and the detail of the
// answer that refuses the upgrade, or status 0 if the upgrade is allowed.
func (e *Endpoint) Admit(r *http.Request, from netip.Addr) (status int, detail string) {
	if _, err := parseVersion(r.URL.Query().Get("vsn")); err != nil {
		return http.StatusForbidden, err.Error()
	}
	if !e.upgrades.Allow(from) {
		return http.StatusTooManyRequests, tooFast
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || len(e.open) >= e.limits.Sockets {
		return http.StatusServiceUnavailable, tooMany
	}
	return 0, ""
}

// Serve upgrades a request that Admit allowed, and serves its socket until the socket ends.
// from is the address of the client. The caller has done the origin check.
func (e *Endpoint) Serve(w http.ResponseWriter, r *http.Request, from netip.Addr) {
	version, err := parseVersion(r.URL.Query().Get("vsn"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	hijacker := &corkingHijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hijacker, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered the request
	}
	s := newSocket(context.WithoutCancel(r.Context()), e, ws, hijacker.conn, version, from)
	if !e.enter(s) {
		_ = ws.Close(websocket.StatusTryAgainLater, tooMany)
		return
	}
	defer e.leave(s)
	s.run()
}

// corkingHijacker wraps the hijacked connection in a corkedConn, and keeps it in conn.
type corkingHijacker struct {
	http.ResponseWriter
	conn *corkedConn
}

// Hijack implements http.Hijacker.
func (h *corkingHijacker) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	conn, rw, err = http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = &corkedConn{Conn: conn}
	rw.Writer.Reset(h.conn) // nothing was written to it yet
	return h.conn, rw, nil
}

func (e *Endpoint) enter(s *socket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || len(e.open) >= e.limits.Sockets {
		return false
	}
	e.open[s] = struct{}{}
	e.sockets.Add(1)
	return true
}

func (e *Endpoint) leave(s *socket) {
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

// Hangup closes all sockets with a code after which clients reconnect.
func (e *Endpoint) Hangup() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.open {
		s.Close(CloseRestart, "the server is restarting")
	}
}

// Close stops accepting sockets, closes all sockets as Hangup does, and waits until they
// have ended.
func (e *Endpoint) Close() {
	e.mu.Lock()
	e.down = true
	e.mu.Unlock()
	e.Hangup()
	e.sockets.Wait()
	e.ended.Flush()
}
