package backend

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// compressor compresses a body.
type compressor interface {
	io.WriteCloser
	Flush() error
}

// flushBytes is the number of bytes after which an unpaced response is flushed.
const flushBytes = 16 << 10

// bodyWriter writes one response with the timing, the framing and the faults of its script.
type bodyWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	ctx     context.Context // ends when the client closes its connection
	script  Script
	timer   *time.Timer // used by sleep
	queue   []byte      // bytes that are not flushed yet
	zip     compressor  // nil: the body is not compressed
	stream  bool
	written int // number of frames written
}

func newBodyWriter(w http.ResponseWriter, r *http.Request, script Script) *bodyWriter {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &bodyWriter{w: w, rc: http.NewResponseController(w), ctx: r.Context(), script: script, timer: timer}
}

func (p *bodyWriter) close() { p.timer.Stop() }

// write writes the body and returns how the response ended.
func (p *bodyWriter) write(b *body) End {
	s := p.script
	if !p.sleep(time.Duration(s.DelayMS) * time.Millisecond) {
		return EndClientClosed
	}
	if s.DropAfter != nil && *s.DropAfter < 0 {
		return p.drop(dropReset)
	}
	f := b.frames
	p.stream = b.whole == nil
	if !p.stream {
		f = p.splitWhole(b.whole)
	}
	p.writeHeader(b, f)
	if s.FirstByteDelayMS > 0 {
		if p.rc.Flush() != nil || !p.sleep(time.Duration(s.FirstByteDelayMS)*time.Millisecond) {
			return EndClientClosed
		}
	}
	rate := b.rate
	if s.Rate != nil {
		rate = *s.Rate
	}
	return p.writeFrames(f, rate)
}

// splitWhole returns the frames of a body that is not a stream: one frame, or two halves if
// the script asks for a fault between them.
func (p *bodyWriter) splitWhole(whole []byte) frames {
	s := p.script
	if s.DropAfter == nil && s.StallAfter == nil && s.MalformedAfter == nil {
		return frames{first: [][]byte{whole}}
	}
	half := len(whole) / 2
	for _, at := range []**int{&p.script.DropAfter, &p.script.StallAfter, &p.script.MalformedAfter} {
		if *at != nil {
			position := min(**at, 1)
			*at = &position
		}
	}
	return frames{first: [][]byte{whole[:half], whole[half:]}}
}

func (p *bodyWriter) writeHeader(b *body, f frames) {
	h := p.w.Header()
	h.Set("Content-Type", b.contentType)
	if p.script.ContentType != "" {
		h.Set("Content-Type", p.script.ContentType)
	}
	if b.retryAfter != "" {
		h.Set("Retry-After", b.retryAfter)
	}
	if coding := p.script.ContentEncoding; coding != "" {
		h.Set("Content-Encoding", coding)
		switch coding {
		case "gzip":
			p.zip = gzip.NewWriter(p.w)
		case "deflate":
			p.zip = zlib.NewWriter(p.w)
		}
	}
	if p.stream {
		h.Set("Cache-Control", "no-cache")
	} else if p.zip == nil && f.len() == 1 && len(p.script.Reframe) == 0 {
		h.Set("Content-Length", strconv.Itoa(len(b.whole)))
	}
	p.w.WriteHeader(b.status)
}

// writeFrames writes the frames, each at its time, with the script's faults between them.
func (p *bodyWriter) writeFrames(f frames, rate float64) End {
	start := time.Now()
	for i := range f.len() {
		if rate > 0 && i > 0 && p.stream {
			// Compute the time from the start, so that delays of timers do not add up.
			due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if !p.sleep(time.Until(due)) {
				return EndClientClosed
			}
		}
		if end, over := p.injectFault(i); over {
			return end
		}
		if !p.writeFrame(f.at(i), i == f.len()-1) {
			return EndClientClosed
		}
		p.written++
		if (rate > 0 || len(p.queue) >= flushBytes) && !p.flush() {
			return EndClientClosed
		}
	}
	if !p.flush() || p.zip != nil && p.zip.Close() != nil {
		return EndClientClosed
	}
	return EndCompleted
}

// injectFault does what the script asks for before frame i. If that ends the response, over
// is true and the result says how the response ended.
func (p *bodyWriter) injectFault(i int) (end End, over bool) {
	s := p.script
	at := func(position *int) bool { return position != nil && *position == i }
	if p.stream && s.CommentEvery > 0 && i > 0 && i%s.CommentEvery == 0 {
		p.writeFrame([]byte(": keep-alive\n\n"), false)
	}
	switch {
	case at(s.StallAfter):
		if !p.flush() || !p.sleep(maxStall) {
			return EndClientClosed, true
		}
		return EndStalled, true
	case at(s.DropAfter):
		if !p.flush() {
			return EndClientClosed, true
		}
		return p.drop(s.Drop), true
	case at(s.ErrorAfter) && p.stream:
		p.writeFrame([]byte(`data: {"error":{"message":"The scripted backend fails here, as its script says.",`+
			`"type":"server_error","code":500}}`+"\n\n"), true)
		p.flush()
		return EndCompleted, true
	case at(s.MalformedAfter):
		if !p.stream {
			p.flush()
			return EndCompleted, true // after half of the JSON
		}
		p.writeFrame([]byte(`data: {"choices":[{"index":0,"delta":{"content":"brok`+"\n\n"), false)
	}
	return "", false
}

// drop closes the connection at once.
func (p *bodyWriter) drop(how string) End {
	if how == dropClean {
		return EndDropped // net/http ends the body as if it were complete
	}
	conn, _, err := p.rc.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not an HTTP/1 connection; net/http closes it
	}
	if tcp, ok := conn.(*net.TCPConn); ok && how != dropShort {
		tcp.SetLinger(0) // makes Close send a reset
	}
	conn.Close()
	return EndDropped
}

// writeFrame queues a frame. If the script asks for writes of single bytes, it flushes each
// byte. It returns false if the client has disconnected.
func (p *bodyWriter) writeFrame(frame []byte, last bool) bool {
	r := p.script.Reframe
	if len(r) == 0 {
		p.queue = append(p.queue, frame...)
		return true
	}
	frame = r.apply(frame, p.stream, last)
	if !r.bytewise() {
		p.queue = append(p.queue, frame...)
		return true
	}
	for i := range frame {
		p.queue = append(p.queue, frame[i])
		if !p.flush() {
			return false
		}
	}
	return true
}

// flush sends the queue. It returns false if the client has disconnected.
func (p *bodyWriter) flush() bool {
	if p.ctx.Err() != nil {
		return false
	}
	if len(p.queue) > 0 {
		if !p.send() {
			return false
		}
	}
	return p.rc.Flush() == nil
}

// send writes the queue into the response.
func (p *bodyWriter) send() bool {
	defer func() { p.queue = p.queue[:0] }()
	if p.zip == nil {
		_, err := p.w.Write(p.queue)
		return err == nil
	}
	_, err := p.zip.Write(p.queue)
	return err == nil && p.zip.Flush() == nil
}

// sleep waits for d. It returns false if the client disconnects meanwhile.
func (p *bodyWriter) sleep(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	p.timer.Reset(d)
	select {
	case <-p.timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}
