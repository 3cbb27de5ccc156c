package phx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// The intervals of a client, equal to those of the Phoenix JavaScript client.
const (
	heartbeatEvery = 30 * time.Second
	replyWithin    = 30 * time.Second
	writeWithin    = 30 * time.Second
)

// Reply is the answer to a push.
type Reply struct {
	Status   string          `json:"status"`
	Response json.RawMessage `json:"response"`
}

// Reason returns the reason of a reply that is not StatusOK.
func (r Reply) Reason() string {
	var body reason
	if json.Unmarshal(r.Response, &body) != nil || body.Reason == "" {
		return r.Status
	}
	return body.Reason
}

// ClientOptions configure a client.
type ClientOptions struct {
	HTTPClient *http.Client
	FrameBytes int64 // largest frame from the server; default 1 MiB
	// OnPush is called for each push of the server, on the goroutine that reads the
	// socket. The client reads nothing while OnPush runs.
	OnPush func(topic, event string, payload json.RawMessage)
}

// Client is the client's side of a connection, with serializer 2.0.0. It does not
// reconnect. If several goroutines push at the same time, the order of their pushes is
// undefined.
type Client struct {
	ws     *websocket.Conn
	onPush func(topic, event string, payload json.RawMessage)
	ctx    context.Context // ends with the connection; the cause is the reason
	fail   context.CancelCauseFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	lastRef int
	joins   map[string]string      // join_ref by topic
	waiting map[string]func(Reply) // by ref
}

// Dial connects to an endpoint. The URL of the endpoint does not include /websocket.
func Dial(ctx context.Context, endpoint string, opts ClientOptions) (*Client, error) {
	ws, resp, err := websocket.Dial(ctx, endpoint+"/websocket?vsn=2.0.0", &websocket.DialOptions{HTTPClient: opts.HTTPClient, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("open a socket: the server answered %s", resp.Status)
		}
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	limit := opts.FrameBytes
	if limit == 0 {
		limit = 1 << 20
	}
	ws.SetReadLimit(limit)
	c := &Client{ws: ws, onPush: opts.OnPush, joins: map[string]string{}, waiting: map[string]func(Reply){}}
	c.ctx, c.fail = context.WithCancelCause(context.Background())
	c.all.Go(c.read)
	c.all.Go(c.beat)
	return c, nil
}

// IsRefusedFrame reports whether a connection ended because the server could not read a
// frame that the client sent.
func IsRefusedFrame(err error) bool {
	code := websocket.CloseStatus(err)
	return code == CloseUnclear || code == CloseTooBig
}

// Context returns a context that ends with the connection. Its cause is the reason.
func (c *Client) Context() context.Context { return c.ctx }

// Fail ends the connection with a reason. It does not wait for goroutines.
func (c *Client) Fail(why error) {
	c.fail(why)
	_ = c.ws.CloseNow()
}

// Close ends the connection and waits until its goroutines have ended.
func (c *Client) Close() {
	c.fail(ErrClosed)
	_ = c.ws.CloseNow()
	c.all.Wait()
}

// Join joins a topic and returns the response. If the server refuses the join, the error is
// a *Refusal.
func (c *Client) Join(ctx context.Context, topic string, params any) (json.RawMessage, error) {
	payload, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode the parameters of a join: %w", err)
	}
	answer := make(chan Reply, 1)
	if err := c.Push(topic, eventJoin, payload, func(r Reply) { answer <- r }); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		if r.Status != StatusOK {
			return nil, &Refusal{r.Reason()}
		}
		return r.Response, nil
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Push pushes to a topic that was joined, and returns when the frame is written. If onReply
// is not nil, it is called with the reply, on the goroutine that reads the socket.
func (c *Client) Push(topic, event string, payload []byte, onReply func(Reply)) error {
	c.mu.Lock()
	c.lastRef++
	ref := strconv.Itoa(c.lastRef)
	if event == eventJoin {
		c.joins[topic] = ref
	}
	if onReply != nil {
		c.waiting[ref] = onReply
	}
	f := Frame{JoinRef: c.joins[topic], Ref: ref, Topic: topic, Event: event, Payload: payload}
	c.mu.Unlock()
	return c.send(f)
}

func (c *Client) send(f Frame) error {
	ctx, cancel := context.WithTimeout(c.ctx, writeWithin)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, V2.Append(nil, f)); err != nil {
		c.fail(fmt.Errorf("write to the socket: %w", err))
		return context.Cause(c.ctx)
	}
	return nil
}

// read reads and handles frames until the connection ends.
func (c *Client) read() {
	for {
		_, data, err := c.ws.Read(c.ctx)
		if err != nil {
			c.fail(fmt.Errorf("read from the socket: %w", err))
			return
		}
		f, err := V2.decode(data)
		if err != nil {
			c.fail(fmt.Errorf("the server sent an invalid frame: %w", err))
			return
		}
		if err := c.handle(f); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) handle(f Frame) error {
	c.mu.Lock()
	current := c.joins[f.Topic]
	onReply := c.waiting[f.Ref]
	if f.Event == eventReply {
		delete(c.waiting, f.Ref)
	}
	c.mu.Unlock()
	stale := f.JoinRef != "" && f.JoinRef != current
	switch {
	case f.Event == eventReply:
		var r Reply
		if err := json.Unmarshal(f.Payload, &r); err != nil {
			return errors.New("the server sent a reply without status and response")
		}
		if onReply != nil {
			onReply(r)
		}
	case stale:
	case f.Event == eventClose, f.Event == "phx_error":
		return fmt.Errorf("the server ended the join of %s", f.Topic)
	case c.onPush != nil:
		c.onPush(f.Topic, f.Event, f.Payload)
	}
	return nil
}

// beat sends heartbeats, so that the server keeps the socket open. It ends the connection
// if the server does not reply.
func (c *Client) beat() {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		answered := make(chan struct{})
		if c.Push(topicPhoenix, eventHeartbeat, []byte("{}"), func(Reply) { close(answered) }) != nil {
			return
		}
		select {
		case <-answered:
		case <-time.After(replyWithin):
			c.fail(errors.New("the server does not reply to heartbeats"))
			_ = c.ws.CloseNow()
		case <-c.ctx.Done():
			return
		}
	}
}
