package phx

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"
)

// The codes with which the server closes sockets. It never uses 1000, because Phoenix
// clients do not reconnect after it.
const (
	CloseGoingAway = websocket.StatusGoingAway               // the socket was idle
	CloseUnclear   = websocket.StatusInvalidFramePayloadData // the client sent a message that is not a frame
	ClosePolicy    = websocket.StatusPolicyViolation         // the client is not allowed to continue
	CloseTooBig    = websocket.StatusMessageTooBig
	CloseRestart   = websocket.StatusServiceRestart
)

// socket is the server's side of a connection.
type socket struct {
	e       *Endpoint
	ws      *websocket.Conn
	conn    *corkedConn // the connection of ws
	version Version
	address netip.Addr

	ctx   context.Context // ends with the socket
	stop  context.CancelFunc
	queue *queue

	closing sync.Once
	closed  sync.WaitGroup // the closing handshake

	frames, joins *rate.Limiter
	idle          *time.Timer
	joined        map[string]*Member // by topic; used only by the goroutine that reads
}

func newSocket(ctx context.Context, e *Endpoint, ws *websocket.Conn, conn *corkedConn, version Version, address netip.Addr) *socket {
	l := e.limits
	s := &socket{
		e: e, ws: ws, conn: conn, version: version, address: address, queue: newQueue(l.QueueFrames, l.QueueBytes), joined: map[string]*Member{},
		frames: rate.NewLimiter(rate.Limit(l.Frames), int(4*l.Frames)), joins: rate.NewLimiter(rate.Limit(l.Joins), int(4*l.Joins)),
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	ws.SetReadLimit(l.FrameBytes)
	return s
}

// run serves the socket until it ends.
func (s *socket) run() {
	s.idle = time.AfterFunc(s.e.limits.Idle, func() { s.Close(CloseGoingAway, "the client was silent for too long") })
	var writer sync.WaitGroup
	writer.Go(s.write)
	err := s.read()
	s.idle.Stop()
	s.stop()
	s.queue.close()
	for _, m := range s.joined {
		m.leave()
	}
	s.closing.Do(func() {}) // prevents Close from starting a handshake
	s.closed.Wait()
	_ = s.ws.CloseNow()
	writer.Wait()
	if quiet := websocket.CloseStatus(err) != -1 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed); !quiet {
		s.e.log.Debug("a socket ended", "client", s.address, "error", err)
	}
}

// closingWithin is the time that a client has for the closing handshake.
const closingWithin = time.Second

// Close starts a closing handshake and does not wait for it.
func (s *socket) Close(code websocket.StatusCode, why string) {
	s.closing.Do(func() {
		s.queue.close()
		s.stop()
		_ = s.conn.SetDeadline(time.Now().Add(closingWithin))
		s.closed.Go(func() { _ = s.ws.Close(code, why) })
	})
}

// read reads and handles the frames of the client. If the client sends too quickly, read
// slows down.
func (s *socket) read() error {
	for {
		kind, data, err := s.ws.Read(context.Background())
		if err != nil {
			if errors.Is(err, websocket.ErrMessageTooBig) {
				s.e.ended.Log(slog.LevelInfo, "a socket was closed", "client", s.address, "problem", "a frame over the limit")
			}
			return err
		}
		if err := s.frames.Wait(s.ctx); err != nil {
			return err
		}
		var f Frame
		if kind != websocket.MessageText {
			err = errors.New("it is not text")
		} else {
			f, err = s.version.decode(data)
		}
		if err != nil {
			s.e.ended.Log(slog.LevelInfo, "a socket was closed", "client", s.address, "problem", "not a frame: "+err.Error())
			s.Close(CloseUnclear, "not a frame of this vsn: "+err.Error())
			return err
		}
		if err := s.handle(f); err != nil {
			return err
		}
		if len(s.joined) > 0 { // heartbeats do not keep a socket without joins open
			s.idle.Reset(s.e.limits.Idle)
		}
	}
}

// handle handles a frame of the client. An error ends the socket.
func (s *socket) handle(f Frame) error {
	m := s.joined[f.Topic]
	stale := m != nil && f.JoinRef != "" && f.JoinRef != m.joinRef
	switch {
	case f.Topic == topicPhoenix:
		if f.Event == eventHeartbeat {
			return s.reply(f, StatusOK, nil)
		}
		return s.reply(f, StatusError, reason{"unmatched topic"})
	case f.Event == eventJoin:
		return s.join(f, m)
	case m == nil && f.Event == eventLeave:
		return s.reply(f, StatusOK, nil)
	case m == nil:
		return s.reply(f, StatusError, reason{"unmatched topic"})
	case stale:
		return nil
	case f.Event == eventLeave:
		s.endJoin(m)
		if err := s.reply(f, StatusOK, nil); err != nil {
			return err
		}
		return s.pushClose(m)
	}
	m.channel.Handle(s.ctx, Incoming{Event: f.Event, Payload: f.Payload, member: m, ref: f.Ref})
	return nil
}

// join joins the client to a topic. It first ends an earlier join of the same topic.
func (s *socket) join(f Frame, former *Member) error {
	if err := s.joins.Wait(s.ctx); err != nil {
		return err
	}
	if former != nil {
		s.endJoin(former)
		if err := s.pushClose(former); err != nil {
			return err
		}
	}
	topic := s.e.find(f.Topic)
	switch {
	case topic == nil:
		return s.reply(f, StatusError, reason{"unmatched topic"})
	case len(s.joined) >= s.e.limits.Topics:
		return s.reply(f, StatusError, reason{"too many topics"})
	}
	m := &Member{socket: s, topic: f.Topic, joinRef: f.JoinRef}
	channel, response, err := topic.Join(s.ctx, m, f.Payload)
	if err != nil {
		m.left.Store(true)
		refusal, ok := errors.AsType[*Refusal](err)
		if !ok {
			if s.ctx.Err() == nil {
				s.e.log.Error("a join failed", "topic", f.Topic, "error", err)
			}
			refusal = &Refusal{"internal"}
		}
		return s.reply(f, StatusError, reason{refusal.Reason})
	}
	m.channel = channel
	s.joined[f.Topic] = m
	if err := s.reply(f, StatusOK, response); err != nil {
		return err
	}
	channel.Joined()
	return nil
}

func (s *socket) endJoin(m *Member) {
	delete(s.joined, m.topic)
	m.leave()
}

// pushClose notifies the client that a join has ended. It does nothing with serializer
// 1.0.0, because such clients would end their next join of the topic too.
func (s *socket) pushClose(m *Member) error {
	if s.version == V1 {
		return nil
	}
	return s.queue.put(s.ctx, item{push: NewPush(m.topic, eventClose, []byte("{}")), joinRef: m.joinRef, ref: m.joinRef})
}

func (s *socket) reply(f Frame, status string, response any) error {
	payload, err := encodeReply(status, response)
	if err != nil {
		return err
	}
	return s.queue.put(s.ctx, item{push: NewPush(f.Topic, eventReply, payload), joinRef: f.JoinRef, ref: f.Ref})
}

// minReadRate is the rate in bytes per second at which clients have to read large frames.
const minReadRate = 16 << 10

// write sends the queued frames. It closes the connection if the client does not read a
// batch in time.
func (s *socket) write() {
	stuck := time.AfterFunc(s.e.limits.Progress, func() {
		s.e.ended.Log(slog.LevelInfo, "a socket was closed", "client", s.address, "problem", "the client does not read its frames in time")
		_ = s.conn.Close()
	})
	defer stuck.Stop()
	stuck.Stop()
	var batch []item
	var buf []byte
	for {
		if batch = s.queue.takeBatch(batch[:0]); len(batch) == 0 {
			return
		}
		size := 0
		for _, it := range batch {
			size += it.size()
		}
		stuck.Reset(s.e.limits.Progress + time.Duration(size/minReadRate)*time.Second)
		var err error
		buf, err = s.send(batch, buf)
		stuck.Stop()
		clear(batch)
		if err != nil {
			_ = s.conn.Close() // ends the goroutine that reads
			return
		}
		if cap(buf) > maxKeptBuffer {
			buf = nil
		}
	}
}

// send writes a batch of frames. It returns buf, which may have grown, for the next call.
func (s *socket) send(batch []item, buf []byte) ([]byte, error) {
	if len(batch) > 1 {
		s.conn.cork()
	}
	for _, it := range batch {
		if it.member != nil && it.member.left.Load() {
			continue
		}
		buf = s.version.appendPush(buf[:0], it.joinRef, it.ref, it.push.names(s.version), it.push.payload)
		if err := s.ws.Write(context.Background(), websocket.MessageText, buf); err != nil {
			return buf, errors.Join(err, s.conn.uncork())
		}
	}
	return buf, s.conn.uncork()
}

// maxKeptBuffer is the largest buffer that a socket keeps for its next frame, in bytes.
const maxKeptBuffer = 16 << 10

// Member is one join of a topic.
type Member struct {
	socket  *socket
	topic   string
	joinRef string
	channel Channel
	left    atomic.Bool
}

func (m *Member) leave() {
	m.left.Store(true)
	m.channel.Left()
}

// Topic returns the name of the topic.
func (m *Member) Topic() string { return m.topic }

// Address returns the address of the client. It is the zero Addr if it is unknown.
func (m *Member) Address() netip.Addr { return m.socket.address }

// Context returns a context that ends with the socket.
func (m *Member) Context() context.Context { return m.socket.ctx }

// Offer queues a push if there is space, and reports whether it did. It never waits. If the
// join has ended, Offer drops the push and returns true.
func (m *Member) Offer(p *Push) bool {
	return m.left.Load() || m.socket.queue.offer(m.item(p))
}

// Send waits for space in the queue and queues a push. It returns ErrClosed if the join has
// ended.
func (m *Member) Send(ctx context.Context, p *Push) error {
	if m.left.Load() {
		return ErrClosed
	}
	return m.socket.queue.put(ctx, m.item(p))
}

func (m *Member) item(p *Push) item { return item{push: p, member: m, joinRef: m.joinRef} }

// Close ends the whole socket.
func (m *Member) Close(code websocket.StatusCode, why string) { m.socket.Close(code, why) }

// Trust removes the limit on the rate of the client's frames, and sets the limit on their
// size.
func (m *Member) Trust(frameBytes int64) {
	m.socket.ws.SetReadLimit(frameBytes)
	m.socket.frames.SetLimit(rate.Inf)
}

// Incoming is a push from a client.
type Incoming struct {
	Event   string
	Payload json.RawMessage

	member *Member
	ref    string
}

// Reply replies to the push. A nil response becomes an empty object. Reply may be called
// later and from any goroutine. It returns ErrClosed if the join has ended.
func (in Incoming) Reply(ctx context.Context, status string, response any) error {
	payload, err := encodeReply(status, response)
	if err != nil {
		return err
	}
	m := in.member
	if m.left.Load() {
		return ErrClosed
	}
	it := m.item(NewPush(m.topic, eventReply, payload))
	it.ref = in.ref
	return m.socket.queue.put(ctx, it)
}

// Refuse replies to the push with StatusError and a reason.
func (in Incoming) Refuse(ctx context.Context, why string) error {
	return in.Reply(ctx, StatusError, reason{why})
}
