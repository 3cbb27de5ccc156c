package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
	"loquat/internal/httpapi/route"
)

// anyMedia describes answers whose type is the backend's choice.
const anyMedia = "*/*"

const (
	freeBody = 64 << 10        // bodies up to this size are not counted
	bodyWait = 5 * time.Second // how long a large body waits for others
)

// complete relays a chat completion.
func (a *API) complete(x *route.Exchange) error {
	req, err := readChat(x.Body)
	if err != nil {
		return err
	}
	ctx, done, err := a.beginWithBody(x)
	if err != nil {
		return err
	}
	defer done()
	resolved, params, err := a.catalog.Named(ctx, req.name)
	if err != nil {
		return err
	}
	relayer, err := resolved.Relayer()
	if err != nil {
		return err
	}
	attempted, ended, err := a.chat.Requests.Relayed(ctx, x.Call.By, req.name, resolved, len(req.body))
	if err != nil {
		return err
	}
	defer ended()
	ctx, span := a.chat.Requests.TraceRelay(ctx, x.Call, resolved, req.stream)
	defer span.End()
	out := &answer{w: x.W, flush: http.NewResponseController(x.W).Flush, stream: req.stream}
	err = relayer.Relay(ctx, loquat.RelayRequest{
		ProviderID: resolved.ProviderID, Config: resolved.Config,
		Body: req.forBackend(resolved.Config.String("model"), params), Stream: req.stream, Choices: req.choices,
		Answer: out, Attempted: func(at loquat.Attempt) {
			attempted(at)
			if at.Reported != nil {
				span.Used(at.Reported.Input, at.Reported.Output)
			}
		},
	})
	if err != nil {
		span.Failed(err)
	}
	if err != nil && x.R.Context().Err() == nil && ctx.Err() != nil {
		err = loquat.Errorf(loquat.CodeUnavailable, "%v", context.Cause(ctx))
	}
	if err == nil || !out.begun {
		return err
	}
	out.fail(err)
	return nil
}

// heldBody is the room of a large body among those in memory. The zero value is that of a small body.
type heldBody struct {
	bodies *semaphore.Weighted
	size   int64
}

// shrink gives up the room that a body of size bytes does not need.
func (h *heldBody) shrink(size int64) {
	if size < h.size {
		h.bodies.Release(h.size - size)
		h.size = size
	}
}

// release gives up the room.
func (h *heldBody) release() {
	if h.size > 0 {
		h.bodies.Release(h.size)
		h.size = 0
	}
}

// holdBody waits for the room of a large body, which its caller has to release.
func (a *API) holdBody(ctx context.Context, size int64) (held *heldBody, err error) {
	if size <= freeBody {
		return &heldBody{}, nil
	}
	size = min(size, a.maxBodies)
	waiting, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	if err := a.bodies.Acquire(waiting, size); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, loquat.Errorf(loquat.CodeUnavailable,
			"requests of %d bytes are being relayed; try again later, or raise limits.max_inflight_bytes", a.maxBodies)
	}
	return &heldBody{a.bodies, size}, nil
}

// answer passes a backend's answer on.
type answer struct {
	w      http.ResponseWriter
	flush  func() error
	stream bool // the caller asked for a stream
	begun  bool
	events bool // the answer is a stream
	last   []byte
}

// Begin implements loquat.RelayAnswer.
func (a *answer) Begin(status int, header http.Header, length int) {
	a.begun = true
	h := a.w.Header()
	passHeaders(h, header)
	a.events = length < 0
	switch media := header.Get("Content-Type"); {
	case media != "":
		h.Set("Content-Type", media)
	case a.events:
		h.Set("Content-Type", "text/event-stream")
	default:
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
	if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	} else {
		h.Set("X-Accel-Buffering", "no") // proxies must not gather the events
	}
	a.w.WriteHeader(status)
}

// Write implements loquat.RelayAnswer.
func (a *answer) Write(b []byte) (int, error) {
	n, err := a.w.Write(b)
	if err == nil {
		err = a.flush()
	}
	const enough = 4 // to recognise the end of an event
	a.last = append(a.last, b[max(0, len(b)-enough):]...)
	a.last = append(a.last[:0], a.last[max(0, len(a.last)-enough):]...)
	return n, err
}

// fail ends an answer that has begun. A stream gets one more event, which SDKs raise as an error. If
// that cannot be, the connection is cut, so that nobody takes the answer for a whole one.
func (a *answer) fail(err error) {
	if !a.events || len(a.last) > 0 && !bytes.ContainsAny(a.last[len(a.last)-1:], "\r\n") {
		panic(http.ErrAbortHandler)
	}
	p := route.ProblemOf(err)
	body, encodeErr := json.Marshal(openAIFailure{Error: errorOf(p)})
	if encodeErr != nil {
		panic(http.ErrAbortHandler)
	}
	event := []byte("data: ")
	if !endsEvent(a.last) {
		event = []byte("\ndata: ")
	}
	_, _ = a.Write(append(append(event, body...), "\n\n"...)) // an error means that the client disconnected
}

func endsEvent(last []byte) bool {
	for _, end := range []string{"\n\n", "\n\r\n", "\r\r"} {
		if len(last) == 0 || bytes.HasSuffix(last, []byte(end)) {
			return true
		}
	}
	return false
}

// passed are the headers of a backend's answer that callers get. SDKs read them: the first to repeat a
// call, the others to report them.
var passed = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry", "X-Request-Id", "Openai-Model", "Openai-Processing-Ms", "Openai-Version"}

const passedLimits = "X-Ratelimit-"

func passHeaders(to, from http.Header) {
	for _, name := range passed {
		if values := from.Values(name); len(values) > 0 {
			to[name] = values
		}
	}
	for name, values := range from {
		if strings.HasPrefix(name, passedLimits) {
			to[name] = values
		}
	}
}
