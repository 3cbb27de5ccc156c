package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// Bounds of a WebSocket.
const (
	socketLife    = time.Hour        // as Open Responses has it
	socketIdle    = 10 * time.Minute // without a message while no response runs
	socketRead    = time.Minute      // for a message, from its first byte
	socketWrite   = 30 * time.Second // for an event
	socketPong    = 10 * time.Second
	socketMessage = "response.create"
)

// The codes of errors that only WebSockets have.
const (
	codeNoPrevious = "previous_response_not_found"
	codeSocketLife = "websocket_connection_limit_reached"
)

// socket is a WebSocket on which a program asks for responses, one after the other. Its messages are the
// bodies of new responses, and it answers with the events that a stream would have.
type socket struct {
	api     *API
	x       *route.Exchange
	ws      *websocket.Conn
	next    chan socketBody
	maxBody int64
	arrives atomic.Bool // a message has begun and was not taken, so no pong can be read
	kept    string      // session of the newest response that is not stored; "" for none
}

// socketBody is a message of the program.
type socketBody struct {
	body    []byte
	release func()
}

// connect serves a WebSocket.
func (a *API) connect(x *route.Exchange) error {
	if !strings.EqualFold(x.R.Header.Get("Upgrade"), "websocket") {
		return loquat.Errorf(loquat.CodeInvalid, "GET %sresponses is for WebSockets alone; use POST, or GET with the id of a response", prefix)
	}
	ctx, done, err := a.begin(x.R.Context())
	if err != nil {
		return err
	}
	defer done()
	ws, err := websocket.Accept(x.W, x.R, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled}) // Host and Origin were checked
	if err != nil {
		return nil // Accept has answered
	}
	s := &socket{api: a, x: x, ws: ws, next: make(chan socketBody), maxBody: a.maxBody()}
	ws.SetReadLimit(s.maxBody)
	ctx, gone := context.WithCancel(ctx)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer gone()
		s.readAll(ctx)
	}()
	status, reason := s.serve(ctx)
	_ = ws.Close(status, reason) // an error means that the client disconnected
	gone()
	<-reading
	s.discardKept(ctx)
	return nil
}

// serve answers messages until the connection has to end.
func (s *socket) serve(ctx context.Context) (websocket.StatusCode, string) {
	life, quiet := time.Now().Add(socketLife), time.Now().Add(socketIdle)
	for {
		ping := time.NewTimer(keepAlive)
		select {
		case <-ctx.Done():
			ping.Stop()
			return websocket.StatusGoingAway, "the connection has ended"
		case <-s.api.stopped:
			ping.Stop()
			return websocket.StatusGoingAway, errStopping.Error()
		case m := <-s.next:
			ping.Stop()
			if err := s.answer(ctx, m); err != nil {
				s.fail(err)
			}
			quiet = time.Now().Add(socketIdle)
		case <-ping.C:
			if s.ping(ctx) != nil && !s.arrives.Load() {
				return websocket.StatusGoingAway, "the program does not answer"
			}
		}
		if now := time.Now(); now.After(life) {
			s.failAs(http.StatusBadRequest, openAIError{Message: "the connection has been open for an hour; open another one", Type: typeRequest, Code: new(codeSocketLife)})
			return websocket.StatusNormalClosure, "the connection is too old"
		} else if now.After(quiet) {
			return websocket.StatusNormalClosure, "no message has come for too long"
		}
	}
}

// readAll reads messages and hands them over, until the connection ends.
func (s *socket) readAll(ctx context.Context) {
	for {
		m, err := s.read(ctx)
		if err != nil {
			if loquat.CodeOf(err) != loquat.CodeInternal {
				s.fail(err)
				_ = s.ws.Close(websocket.StatusTryAgainLater, "a message could not be read")
			}
			return
		}
		select {
		case s.next <- m:
			s.arrives.Store(false)
		case <-ctx.Done():
			m.release()
			return
		}
	}
}

// read reads a message. A large one first waits for room among the bodies of all requests.
func (s *socket) read(ctx context.Context) (m socketBody, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, r, err := s.ws.Reader(ctx)
	if err != nil {
		return m, err
	}
	s.arrives.Store(true)
	defer time.AfterFunc(socketRead, cancel).Stop()
	m.release = func() {}
	if m.body, err = io.ReadAll(io.LimitReader(r, freeBody)); err != nil || len(m.body) < freeBody {
		return m, err
	}
	held, err := s.api.holdBody(ctx, s.maxBody)
	if err != nil {
		return m, err
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		held.release()
		return m, err
	}
	m.body = append(m.body, rest...)
	held.shrink(int64(len(m.body))) // it may wait as long as a response takes
	m.release = held.release
	return m, nil
}

// socketRequest has the fields of a message that a body over HTTP does not have.
type socketRequest struct {
	Type     string          `json:"type"`
	StreamID json.RawMessage `json:"stream_id"`
	Generate *bool           `json:"generate"`
}

// plan reads a message. What the caller may do is asked for each one: a socket may outlive a role.
func (s *socket) plan(ctx context.Context, body []byte) (p plan, err error) {
	if s.x.Call.By, err = s.x.Renew(); err != nil {
		return p, err
	}
	p, err = readPlan(&route.Exchange{R: s.x.R, Call: callOf(s.x), Schemas: s.x.Schemas, Body: body}, s.api.itemsByID(ctx, s.x.Call.By))
	var in socketRequest
	if json.Unmarshal(body, &in) == nil || err == nil {
		switch {
		case in.Type != socketMessage:
			return p, loquat.Invalid("body.type", "is %q; it has to be %s", loquat.Clip(in.Type, loquat.Excerpt), socketMessage)
		case len(in.StreamID) > 0 && string(in.StreamID) != "null":
			return p, loquat.Invalid("body.stream_id", "is not supported; open a WebSocket for each conversation")
		case in.Generate != nil && !*in.Generate:
			return p, loquat.Invalid("body.generate", "has to be true; leave it out")
		}
	}
	if err == nil && p.body.Background {
		err = loquat.Invalid("body.background", "is not supported on a WebSocket; use POST")
	}
	return p, err
}

// answer starts the response that a message asks for, and sends its events.
func (s *socket) answer(ctx context.Context, m socketBody) error {
	release := m.release
	p, err := s.plan(ctx, m.body)
	m = socketBody{}
	if err != nil {
		release()
		return err
	}
	id, stores := chat.NewRequestID(), p.body.stores()
	session, err := s.api.start(ctx, p, id)
	p = plan{} // it may be large, and the response may take long
	release()
	if err != nil {
		return err
	}
	if s.kept != session {
		s.discardKept(ctx)
	}
	s.kept = ""
	if !stores {
		s.kept = session // the next message may continue it
	}
	e, err := s.api.chat.Requests.Exchange(ctx, id)
	if err != nil {
		return err
	}
	s.api.streamTo(ctx, s, e, -1, func() {})
	return nil
}

// discardKept deletes the session of the newest response that is not stored.
func (s *socket) discardKept(ctx context.Context) {
	if s.kept != "" {
		s.api.discard(ctx, s.kept)
	}
}

// event sends an event.
func (s *socket) event(_ string, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), socketWrite)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, body)
}

// idle sends a ping, so that no proxy closes a quiet connection.
func (s *socket) idle() error {
	if !s.arrives.Load() {
		_ = s.ping(context.Background()) // the next event finds out whether the connection has ended
	}
	return nil
}

func (s *socket) end() {}

func (s *socket) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, socketPong)
	defer cancel()
	return s.ws.Ping(ctx)
}

// fail reports that a message was refused.
func (s *socket) fail(err error) {
	p := route.ProblemOf(err)
	if p.Status == http.StatusUnprocessableEntity {
		p.Status = http.StatusBadRequest
	}
	e := errorOf(p)
	if _, ok := errors.AsType[*noPrevious](err); ok {
		e.Code = new(codeNoPrevious)
	}
	s.failAs(p.Status, e)
}

func (s *socket) failAs(status int, e openAIError) {
	body, err := json.Marshal(map[string]any{
		"type": "error", "status": status, "error": e, "message": e.Message, "code": e.Code, "param": e.Param, "sequence_number": 0,
	})
	if err == nil {
		_ = s.event("error", body) // an error means that the client disconnected
	}
}
