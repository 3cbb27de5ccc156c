package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"loquat/internal/backoff"
	"loquat/internal/heap"
	"loquat/internal/trace"
)

// exchange describes an HTTP request that can be sent several times.
type exchange struct {
	*Provider
	settings *settings
	method   string
	path     string
	body     *body // nil for a request without a body
	paced    bool  // the start waits for its slot among the requests to the same base URL
}

// answer holds a successful response whose body has begun. The owner must close it.
type answer struct {
	io.Reader
	resp  *http.Response
	watch *idleWatch
	ctx   context.Context // of this attempt
	json  bool            // the body is one JSON value, regardless of its content type
	whole []byte          // the complete body, once it has been read
	span  trace.Span
}

func (a *answer) close() {
	a.watch.stop()
	a.resp.Body.Close()
	a.span.End()
}

// requestIDHeader is the response header in which backends return their own request id.
const requestIDHeader = "X-Request-Id"

func (a *answer) requestID() string { return a.resp.Header.Get(requestIDHeader) }

var errTooMuch = errors.New("the answer is over the limit")

// attempt makes one HTTP call, up to the first byte of the body. If the backend answers
// with an error status, attempt reads what the backend says.
func (x *exchange) attempt(ctx context.Context) (*answer, *failure) {
	a, f := x.send(ctx)
	if f != nil {
		f = f.explain(ctx)
	}
	return a, f
}

// send makes one HTTP call, up to the first byte of the body. It does not read the body of
// an error status: a retry must not wait for it. The caller passes such a failure to
// explain or dismiss.
func (x *exchange) send(ctx context.Context) (*answer, *failure) {
	var start *pacedStart
	if x.paced {
		var err error
		if start, err = x.pace.wait(ctx, x.settings.paceScope, x.settings.interval); err != nil {
			f := cancelled(ctx)
			f.unsent = true
			return nil, f
		}
		defer start.end() // unless it was written before
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	w := newIdleWatch(x.settings.timeout, cancel)
	a := &answer{watch: w, ctx: callCtx}
	req, err := x.request(callCtx, w, start)
	if err != nil {
		w.stop()
		return nil, &failure{kind: failConnect, err: err}
	}
	if a.resp, err = x.client.Do(req); err != nil {
		f := a.failed(ctx, err, failConnect)
		w.stop()
		return nil, f
	}
	w.noteActivity()
	// The limit holds for the bytes on the wire and for what they decompress to.
	wire := &liveBody{body: x.bounded(a.resp.Body), watch: w}
	a.Reader = x.bounded(decompress(a.resp.Header, wire))
	if a.resp.StatusCode/100 != 2 {
		return nil, a.statusFailure()
	}
	if f := a.begin(ctx); f != nil {
		a.close()
		return nil, f
	}
	return a, nil
}

func (x *exchange) request(ctx context.Context, w *idleWatch, start *pacedStart) (*http.Request, error) {
	ctx = context.WithValue(ctx, watchKey{}, w)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		w.stopWaiting()
		_ = start.connected(ctx) // an error means that ctx has ended, which ends the request
		w.startWaiting()
		onWrite(info.Conn, start.end)
	}})
	req, err := http.NewRequestWithContext(ctx, x.method, x.settings.baseURL.JoinPath(x.path).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if x.body != nil {
		req.GetBody = func() (io.ReadCloser, error) { return x.body.reader(w.noteActivity), nil }
		req.Body, req.ContentLength = x.body.reader(w.noteActivity), x.body.size
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "text/event-stream, application/json")
	req.Header.Set("Accept-Encoding", "identity") // servers that compress a stream delay and batch its events
	req.Header.Set("User-Agent", x.agent)
	trace.Inject(ctx, req.Header)
	if x.settings.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+x.settings.apiKey)
	}
	return req, nil
}

// failed converts a transport error into a failure. The kind is otherwise, unless the
// caller cancelled or a timeout expired.
func (a *answer) failed(ctx context.Context, err error, otherwise failKind) *failure {
	timeout := failTimeout
	if otherwise == failStream {
		timeout = failStream
	}
	var netErr net.Error
	switch cause := context.Cause(a.ctx); {
	case ctx.Err() != nil:
		return cancelled(ctx)
	case isUnusable(err):
		return &failure{kind: failBackend, err: err}
	case errors.Is(cause, errSilence):
		return &failure{kind: timeout, err: fmt.Errorf("%w (timeout %v)", errSilence, a.watch.timeout)}
	case errors.Is(cause, errComments):
		return &failure{kind: timeout, err: errComments}
	case errors.As(err, &netErr) && netErr.Timeout():
		return &failure{kind: timeout, err: err}
	}
	return &failure{kind: otherwise, err: err, unreached: isDialError(err)}
}

// isUnusable reports whether err concerns the content of the answer and not the connection.
func isUnusable(err error) bool { return errors.Is(err, errTooMuch) || errors.Is(err, errCoding) }

// isDialError reports whether no connection was made.
func isDialError(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// statusFailure returns the failure for an error status. The failure owns the answer.
func (a *answer) statusFailure() *failure {
	return &failure{
		kind: failStatus, status: a.resp.StatusCode, requestID: a.requestID(),
		retryAfter: backoff.ParseRetryAfter(a.resp.Header.Get("Retry-After")),
		unread:     a,
	}
}

// maxErrorBody limits the bytes of an error's body that are read to find its message.
const maxErrorBody = 64 << 10

// errorBodyTime limits how long explain waits for the rest of an error's body.
const errorBodyTime = time.Second

var errErrorBodyTime = errors.New("the body of the error took too long")

// explain adds the message from the body of an error status, or the part that arrives
// within errorBodyTime. It closes the answer.
func (f *failure) explain(ctx context.Context) *failure {
	a := f.unread
	if a == nil {
		return f
	}
	defer f.dismiss()
	timer := time.AfterFunc(errorBodyTime, func() { a.watch.cancel(errErrorBodyTime) })
	defer timer.Stop()
	// The error is ignored: the bytes before it are enough for a message.
	text, err := io.ReadAll(io.LimitReader(a, maxErrorBody))
	if errors.Is(err, errCoding) {
		f.err = err
	}
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	f.message, f.header, f.body = errorBody(text), a.resp.Header, text
	if location := a.resp.Header.Get("Location"); location != "" && f.status/100 == 3 {
		f.message += " redirects are not followed; set base_url to where it is: " + location
	}
	return f
}

// dismiss closes the answer of an error status without reading its body.
func (f *failure) dismiss() {
	if f.unread != nil {
		f.unread.close()
		f.unread = nil
	}
}

// byteOrderMark is U+FEFF, with which some texts begin.
var byteOrderMark = []byte("\xef\xbb\xbf")

// begin reads until it is clear whether the body is JSON or a stream.
func (a *answer) begin(ctx context.Context) *failure {
	var head [512]byte
	n, blank := 0, false
	for {
		if n == len(head) { // of white space alone, which means nothing here
			n, blank = 0, true
		}
		m, err := a.Read(head[n:])
		n += m
		rest := bytes.TrimLeft(bytes.TrimPrefix(head[:n], byteOrderMark), " \t\r\n")
		if err != nil {
			if n == 0 && !blank {
				return a.emptyBodyFailure(ctx, err)
			}
			a.Reader = io.MultiReader(bytes.NewReader(head[:n]), failing{err})
		} else if len(rest) == 0 || bytes.HasPrefix(byteOrderMark, head[:n]) {
			continue
		} else {
			a.Reader = io.MultiReader(bytes.NewReader(head[:n]), a.Reader)
		}
		a.json = len(rest) > 0 && (rest[0] == '{' || rest[0] == '[' || rest[0] == '<')
		return nil
	}
}

// emptyBodyFailure returns the failure for a body without a first byte. A timeout counts as
// one before streaming. Other errors are left to the reader of the body.
func (a *answer) emptyBodyFailure(ctx context.Context, err error) *failure {
	if f := a.failed(ctx, err, failConnect); f.kind != failConnect {
		return f
	}
	a.Reader = failing{err}
	return nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// liveBody reports each read to the watch as activity. The time between two reads is
// the reader's and does not count as silence of the backend.
type liveBody struct {
	body  io.Reader
	watch *idleWatch
}

func (b *liveBody) Read(p []byte) (int, error) {
	b.watch.startWaiting()
	n, err := b.body.Read(p)
	b.watch.stopWaiting()
	return n, err
}

// boundedBody limits the total number of bytes that are read.
type boundedBody struct {
	body        io.Reader
	left, limit int64
}

func (x *exchange) bounded(body io.Reader) io.Reader {
	return &boundedBody{body: body, left: x.maxBytes, limit: x.maxBytes}
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w of %d bytes (limits.max_response_bytes)", errTooMuch, b.limit)
	}
	return n, err
}

// reading returns a reading of this answer.
func (x *exchange) reading(ctx context.Context, a *answer, providerID string) *reading {
	r := &reading{onData: a.watch.noteData, onFinishReason: a.watch.noteFinishReason, onDone: a.watch.finish}
	if x.settings.debugStream {
		r.debug = func(data []byte) {
			x.log.InfoContext(ctx, "stream chunk", "provider", providerID, "data", redactText(string(data), x.settings.secrets))
		}
	}
	return r
}

// readAll reads the rest of an answer that is not a stream. Every byte counts as data.
func (a *answer) readAll() ([]byte, error) {
	if a.whole != nil {
		return a.whole, nil
	}
	return readPieces(speaking{a})
}

// The buffer sizes in which an answer is read, in bytes.
const (
	firstPiece = 16 << 10
	lastPiece  = 1 << 20
)

// readPieces reads all of a body that may be large. Unlike io.ReadAll it never copies
// bytes in order to grow a buffer: it copies once, at the end.
func readPieces(r io.Reader) ([]byte, error) {
	var pieces [][]byte
	size := 0
	piece := make([]byte, 0, firstPiece)
	for {
		n, err := r.Read(piece[len(piece):cap(piece)])
		piece, size = piece[:len(piece)+n], size+n
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return joinPieces(append(pieces, piece), size), err
		}
		if len(piece) == cap(piece) {
			pieces = append(pieces, piece)
			piece = make([]byte, 0, min(2*cap(piece), lastPiece))
		}
	}
}

func joinPieces(pieces [][]byte, size int) []byte {
	if len(pieces) == 1 {
		return pieces[0]
	}
	whole := make([]byte, 0, size)
	var memory heap.Freer
	for i, piece := range pieces {
		whole = append(whole, piece...)
		n := len(piece)
		pieces[i], piece = nil, nil
		memory.Drop(n)
	}
	return whole
}

type speaking struct{ *answer }

func (s speaking) Read(p []byte) (int, error) {
	n, err := s.answer.Read(p)
	s.watch.noteData()
	return n, err
}
