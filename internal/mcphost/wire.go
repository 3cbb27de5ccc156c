package mcphost

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"loquat"
)

// Bounds of the messages of a process.
const (
	maxAsked = 64 // unanswered requests of the process

	// Messages that no call waits for: the sustained rate per second, and the burst.
	unwantedPerSecond, maxUnwanted = 500, 5_000
	wastePerSecond, maxWaste       = 16 << 20, 64 << 20 // in bytes
)

var errFlood = fmt.Errorf("it floods: more than %d messages a second, or %d MiB, that no call waits for", unwantedPerSecond, wastePerSecond>>20)

// probePatience is how long to wait for the answer to server/discover, which older servers
// do not know. Then the server counts as an older one.
const probePatience = 3 * time.Second

// The methods that the wire handles itself.
const (
	methodDiscover     = "server/discover"
	notifyProgress     = "notifications/progress"
	notifyToolsChanged = "notifications/tools/list_changed"
	notifyMessage      = "notifications/message"
)

// wire is the connection to a process, with one JSON-RPC message per line. The SDK
// implements the protocol. The wire enforces the bounds and delivers progress and results
// to their calls in the order of arrival.
type wire struct {
	out     io.WriteCloser
	in      io.ReadCloser
	timeout time.Duration // for the process to read a message
	say     func(level, text string)

	lines    chan []byte
	answers  chan jsonrpc.Message // made by the wire for a process that does not answer
	ended    chan struct{}        // closed when the connection ends
	end      sync.Once
	why      error        // set before ended is closed
	lastRead atomic.Int64 // time of the newest line, in Unix nanoseconds
	changing atomic.Bool  // the SDK is handling a change of the tools

	batch    [][]byte // owned by Read
	unwanted *rate.Limiter
	waste    *rate.Limiter

	writing sync.Mutex

	mu     sync.Mutex
	calls  map[jsonrpc.ID]*call
	tokens map[string]*call
	asked  int
	probe  *time.Timer
}

func newWire(in io.ReadCloser, out io.WriteCloser, timeout time.Duration, say func(level, text string)) *wire {
	w := &wire{
		in: in, out: out, timeout: timeout, say: say,
		lines: make(chan []byte), answers: make(chan jsonrpc.Message, 1), ended: make(chan struct{}),
		unwanted: rate.NewLimiter(unwantedPerSecond, maxUnwanted), waste: rate.NewLimiter(wastePerSecond, maxWaste),
		calls: map[jsonrpc.ID]*call{}, tokens: map[string]*call{},
	}
	go w.readLines()
	return w
}

// Connect implements mcp.Transport.
func (w *wire) Connect(context.Context) (mcp.Connection, error) { return w, nil }

// SessionID implements mcp.Connection; there is no session id on standard input.
func (w *wire) SessionID() string { return "" }

// Close ends the connection.
func (w *wire) Close() error {
	w.fail(io.EOF)
	return nil
}

// fail ends the connection. Only the first reason is kept.
func (w *wire) fail(why error) {
	w.end.Do(func() {
		w.why = why
		close(w.ended)
		_ = w.out.Close()
		_ = w.in.Close()
	})
}

// readLines reads lines until the process or the connection ends.
func (w *wire) readLines() {
	r := bufio.NewReaderSize(w.in, 64<<10)
	for {
		line, err := w.readFrame(r)
		if err != nil {
			w.fail(err)
			return
		}
		if len(line) == 0 {
			continue
		}
		select {
		case w.lines <- line:
		case <-w.ended:
			return
		}
	}
}

// Read returns the next message for the SDK.
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if len(w.batch) == 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-w.ended:
				return nil, w.why
			case m := <-w.answers:
				return m, nil
			case line := <-w.lines:
				w.lastRead.Store(time.Now().UnixNano())
				var err error
				if w.batch, err = messages(line); err != nil {
					w.fail(err)
					return nil, w.why
				}
			}
		}
		text := w.batch[0]
		w.batch = w.batch[1:]
		m, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			w.fail(fmt.Errorf("it printed %s to its standard output, which is only for the protocol; print to standard error", excerpt(text)))
			return nil, w.why
		}
		m, wanted, err := w.take(m)
		if now := time.Now(); !wanted && !(w.unwanted.AllowN(now, 1) && w.waste.AllowN(now, len(text))) {
			err = errFlood
		}
		if err != nil {
			w.fail(err)
			return nil, w.why
		}
		if m != nil {
			return m, nil
		}
	}
}

// take handles a message or returns it for the SDK. wanted reports whether a call waits
// for it.
func (w *wire) take(m jsonrpc.Message) (rest jsonrpc.Message, wanted bool, err error) {
	switch m := m.(type) {
	case *jsonrpc.Response:
		rest, wanted = w.response(m)
		return rest, wanted, nil
	case *jsonrpc.Request:
		if m.IsCall() {
			return m, false, w.admit()
		}
		switch m.Method {
		case notifyProgress:
			return nil, w.progress(m.Params), nil
		case notifyToolsChanged:
			if w.changing.CompareAndSwap(false, true) {
				return m, true, nil
			}
		case notifyMessage:
			w.message(m.Params)
		}
	}
	return nil, false, nil
}

// response stores a raw result in its call and returns an empty result for the SDK.
func (w *wire) response(m *jsonrpc.Response) (rest jsonrpc.Message, wanted bool) {
	w.mu.Lock()
	c, ok := w.calls[m.ID]
	delete(w.calls, m.ID)
	if ok {
		delete(w.tokens, c.token)
	}
	if w.probe != nil {
		w.probe.Stop()
		w.probe = nil
	}
	w.mu.Unlock()
	if ok && m.Error == nil {
		c.raw = m.Result
		return &jsonrpc.Response{ID: m.ID, Result: json.RawMessage(`{"content":[],"tools":[]}`)}, true
	}
	return m, ok
}

// admit counts a request of the process, and fails if too many are unanswered.
func (w *wire) admit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked++; w.asked > maxAsked {
		return fmt.Errorf("it sent more than %d requests without waiting for the answers", maxAsked)
	}
	return nil
}

// progress adds progress to its call. Progress after the result, or of a call that was
// given up, is dropped.
func (w *wire) progress(params json.RawMessage) (wanted bool) {
	var p struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress *float64        `json:"progress"`
		Total    *float64        `json:"total"`
		Message  string          `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return false
	}
	w.mu.Lock()
	c := w.tokens[decodeString(p.Token)]
	w.mu.Unlock()
	if c != nil {
		c.add(part{text: p.Message, progress: p.Progress, total: p.Total}, w.ended)
	}
	return c != nil
}

// message passes on a log message of the process.
func (w *wire) message(params json.RawMessage) {
	var p struct {
		Level string          `json:"level"`
		Data  json.RawMessage `json:"data"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	said := string(p.Data)
	if s := decodeString(p.Data); s != "" {
		said = s
	}
	w.say(p.Level, said)
}

// Write sends a message. If the process does not read the message in time, the connection
// ends.
func (w *wire) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	w.sending(ctx, m)
	w.writing.Lock()
	defer w.writing.Unlock()
	stuck := time.AfterFunc(w.timeout, func() {
		w.fail(fmt.Errorf("it did not read its standard input for %v", w.timeout))
	})
	defer stuck.Stop()
	if _, err := w.out.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write to the process: %w", err)
	}
	return nil
}

// sending registers a request before it is sent, so that its answer finds its call.
func (w *wire) sending(ctx context.Context, m jsonrpc.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req, ok := m.(*jsonrpc.Request)
	switch {
	case !ok:
		w.asked--
	case !req.IsCall():
	case req.Method == methodDiscover:
		w.probe = time.AfterFunc(probePatience, func() {
			select {
			case w.answers <- &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no answer"}}:
			case <-w.ended:
			}
		})
	default:
		if c, ok := ctx.Value(callKey{}).(*call); ok && !c.isLeft() {
			c.id = req.ID
			w.calls[req.ID] = c
			if c.token != "" {
				w.tokens[c.token] = c
			}
		}
	}
}

// probePending reports whether server/discover is unanswered.
func (w *wire) probePending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.probe != nil
}

// forget gives up a call: later messages for it are dropped.
func (w *wire) forget(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c.id)
	delete(w.tokens, c.token)
	c.leave()
}

const maxExcerpt = 200

// excerpt quotes the beginning of a process's output.
func excerpt(b []byte) string {
	return fmt.Sprintf("%q", loquat.Clip(string(b), maxExcerpt))
}
