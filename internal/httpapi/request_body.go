package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"loquat"
	"loquat/internal/connlimit"
	"loquat/internal/httpapi/route"
)

const (
	// How long a body may take to arrive: as a whole, without a token, and between two
	// reads.
	bodyTimeout     = 2 * time.Minute
	openBodyTimeout = 10 * time.Second
	bodySilence     = 30 * time.Second

	// settleTime and settleBytes limit how much of an unread body is read before the
	// answer. Most of these bodies are small and have arrived, so that the connection can
	// be used again.
	settleTime  = 50 * time.Millisecond
	settleBytes = 64 << 10

	// After the answer to an incomplete body the server continues to read for a while. If it
	// closed the connection at once, a client that writes its whole body before it reads would
	// never see the answer.
	lingerTime        = 10 * time.Second
	lingerSilence     = 2 * time.Second
	lingerBytes       = 64 << 20
	lingerBytesOpen   = 16 << 20 // without a token
	lingerOpenEvery   = time.Second
	lingerOpenAtFirst = 30
)

// bodyLimit is the largest size of a body, and the configuration key of the limit, "" if
// there is none.
type bodyLimit struct {
	bytes int64
	key   string
}

func (a *api) bodyLimit(t *route.Route, r *http.Request) bodyLimit {
	limits := a.now().limits
	switch {
	case t.Open, t.Tag == pushTag:
		return bodyLimit{bytes: min(maxOpenBody, limits.MaxBodyBytes)}
	case t.Upload == nil:
		return bodyLimit{limits.MaxBodyBytes, "limits.max_body_bytes"}
	case t.ID == importRoute:
		return bodyLimit{limits.MaxImportBytes, "limits.max_import_bytes"}
	case isMultipart(r):
		return bodyLimit{limits.MaxAssetBytes + maxFormBytes, "limits.max_asset_bytes"}
	}
	return bodyLimit{limits.MaxAssetBytes, "limits.max_asset_bytes"}
}

func (l bodyLimit) exceeded() error {
	if l.key == "" {
		return loquat.Errorf(loquat.CodeTooLarge, "the body is larger than %d bytes, the limit of this route", l.bytes)
	}
	return loquat.Errorf(loquat.CodeTooLarge, "the body is larger than %d bytes; send less, or raise %s", l.bytes, l.key)
}

// requestBody is the body of a request while it is received. It sets the deadlines of all reads,
// including those after the answer.
type requestBody struct {
	raw     io.Reader // as net/http reads it
	rc      *http.ResponseController
	http1   bool
	expects bool // the client waits for 100 Continue before it sends the body

	limit   bodyLimit
	bounded io.Reader // raw up to the limit
	until   time.Time // the deadline of the whole body

	begun, whole bool
	onWhole      func()
}

// newRequestBody returns nil when a request has no body.
func newRequestBody(w http.ResponseWriter, r *http.Request) *requestBody {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	return &requestBody{
		raw: r.Body, rc: http.NewResponseController(w), http1: r.ProtoMajor == 1,
		expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue"),
	}
}

// open lets a route read the body, up to a limit and within a time.
func (b *requestBody) open(limit bodyLimit, within time.Duration) {
	b.limit, b.until = limit, time.Now().Add(within)
	b.bounded = http.MaxBytesReader(nil, io.NopCloser(b.raw), limit.bytes)
}

// Read reads within the limits of open. Its errors can be sent as answers.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.read(b.bounded, p, bodySilence, b.until)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, route.Malformed("body", "did not arrive in time")
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return n, b.limit.exceeded()
	}
	return n, route.Malformed("body", "did not arrive whole")
}

// Close does nothing: net/http closes the body after the answer.
func (b *requestBody) Close() error { return nil }

// read reads with a deadline. It removes the deadline once the body is complete: the server
// then reads the connection only to notice that the client disconnected.
func (b *requestBody) read(from io.Reader, p []byte, silence time.Duration, until time.Time) (int, error) {
	b.begun = true
	deadline := time.Now().Add(silence)
	if until.Before(deadline) {
		deadline = until
	}
	_ = b.rc.SetReadDeadline(deadline)
	n, err := from.Read(p)
	if err == io.EOF && !b.whole {
		b.whole = true
		_ = b.rc.SetReadDeadline(time.Time{})
		if b.onWhole != nil {
			b.onWhole()
		}
	}
	return n, err
}

// discard reads until the body is complete or a limit is reached.
func (b *requestBody) discard(maxBytes int, silence, within time.Duration) {
	until := time.Now().Add(within)
	buf := make([]byte, 512) // many clients send nothing at all
	for maxBytes > 0 && !b.whole {
		n, err := b.read(b.raw, buf[:min(len(buf), maxBytes)], silence, until)
		maxBytes -= n
		if err != nil {
			return
		}
		if n == len(buf) && n < 32<<10 {
			buf = make([]byte, 8*n)
		}
	}
}

// settle decides, before the answer, whether the connection can be used again after it.
func (b *requestBody) settle(h http.Header) {
	if b == nil || b.whole || !b.http1 {
		return
	}
	if b.begun || !b.expects {
		b.discard(settleBytes, settleTime, settleTime)
	}
	if !b.whole {
		h.Set("Connection", "close") // without it net/http waits for the body before it answers
	}
}

// linger continues to read the body after the answer, so that the client can read the answer.
// Then the connection is closed, even if the body is not complete.
func (b *requestBody) linger(maxBytes int) {
	if b == nil || b.whole || !b.http1 {
		return
	}
	_ = b.rc.Flush()
	if b.begun || !b.expects {
		b.discard(maxBytes, lingerSilence, lingerTime)
	}
	if !b.whole {
		_ = b.rc.SetReadDeadline(time.Now()) // net/http would read on, too
	}
}

// hold marks the connection as active once the body is complete, so that it is not closed to
// make room for others. Until then a client that sends nothing counts as idle.
func (b *requestBody) hold(ctx context.Context) (release func()) {
	if b == nil || b.whole {
		return connlimit.Hold(ctx)
	}
	held := func() {}
	b.onWhole = func() { held = connlimit.Hold(ctx) }
	return func() {
		b.onWhole = nil
		held()
	}
}

// arrive gives a request a body whose reads have deadlines. The caller calls ended after the
// answer.
func (t *throttle) arrive(w *responseWriter, r *http.Request, from caller) (out *http.Request, ended func()) {
	if w.body = newRequestBody(w.ResponseWriter, r); w.body == nil {
		return r, func() {}
	}
	out = r.WithContext(r.Context()) // net/http goes on with its own body in r
	out.Body = w.body
	w.body.open(bodyLimit{bytes: maxOpenBody}, openBodyTimeout)
	return out, func() {
		switch {
		case w.status == http.StatusSwitchingProtocols:
		case w.admitted:
			w.body.linger(lingerBytes)
		case t.within(t.lingers, from):
			w.body.linger(lingerBytesOpen)
		default:
			w.body.linger(0)
		}
	}
}
