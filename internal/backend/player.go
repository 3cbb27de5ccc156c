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

// batch is how many bytes may wait for a flush when no rate is asked for.
const batch = 16 << 10

// player writes one response as its script wants it timed, framed and broken.
type player struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context // ends when the client closes its connection
	script Script
	timer  *time.Timer // the only one of this response
	queue  []byte      // written, not flushed
	zip    compressor  // nil: the body is sent as it is
	stream bool
	played int // frames written
}

func newPlayer(w http.ResponseWriter, r *http.Request, script Script) *player {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &player{w: w, rc: http.NewResponseController(w), ctx: r.Context(), script: script, timer: timer}
}

func (p *player) close() { p.timer.Stop() }

// play writes b and says how that ended.
func (p *player) play(b *body) End {
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
		f = p.split(b.whole)
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
	return p.frames(f, rate)
}

// split makes frames of a body that is no stream: halves, when it is to break.
func (p *player) split(whole []byte) frames {
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

func (p *player) writeHeader(b *body, f frames) {
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

// frames writes one frame after another, each at its time, and what goes wrong
// between them.
func (p *player) frames(f frames, rate float64) End {
	start := time.Now()
	for i := range f.len() {
		if rate > 0 && i > 0 && p.stream {
			// Against the start, not the frame before: late timers do not add up.
			due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if !p.sleep(time.Until(due)) {
				return EndClientClosed
			}
		}
		if end, over := p.interrupt(i); over {
			return end
		}
		if !p.write(f.at(i), i == f.len()-1) {
			return EndClientClosed
		}
		p.played++
		if (rate > 0 || len(p.queue) >= batch) && !p.flush() {
			return EndClientClosed
		}
	}
	if !p.flush() || p.zip != nil && p.zip.Close() != nil {
		return EndClientClosed
	}
	return EndCompleted
}

// interrupt does what the script wants before frame i. It says whether the response
// is over by that, and how it ended.
func (p *player) interrupt(i int) (End, bool) {
	s := p.script
	at := func(position *int) bool { return position != nil && *position == i }
	if p.stream && s.CommentEvery > 0 && i > 0 && i%s.CommentEvery == 0 {
		p.write([]byte(": keep-alive\n\n"), false)
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
		p.write([]byte(`data: {"error":{"message":"The scripted backend fails here, as its script says.",`+
			`"type":"server_error","code":500}}`+"\n\n"), true)
		p.flush()
		return EndCompleted, true
	case at(s.MalformedAfter):
		if !p.stream {
			p.flush()
			return EndCompleted, true // with half of the JSON
		}
		p.write([]byte(`data: {"choices":[{"index":0,"delta":{"content":"brok`+"\n\n"), false)
	}
	return "", false
}

// drop closes the connection at once.
func (p *player) drop(how string) End {
	if how == dropClean {
		return EndDropped // the server ends the body as if it were complete
	}
	conn, _, err := p.rc.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not over HTTP/1: the server has means of its own
	}
	if tcp, ok := conn.(*net.TCPConn); ok && how != dropShort {
		tcp.SetLinger(0) // makes Close send a reset
	}
	conn.Close()
	return EndDropped
}

// write puts a frame into the queue; with reframing by bytes it goes out at once.
func (p *player) write(frame []byte, last bool) bool {
	r := p.script.Reframe
	if len(r) == 0 {
		p.queue = append(p.queue, frame...)
		return true
	}
	frame = r.frame(frame, p.stream, last)
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

// flush sends the queue. It is false when the client has gone.
func (p *player) flush() bool {
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
func (p *player) send() bool {
	defer func() { p.queue = p.queue[:0] }()
	if p.zip == nil {
		_, err := p.w.Write(p.queue)
		return err == nil
	}
	_, err := p.zip.Write(p.queue)
	return err == nil && p.zip.Flush() == nil
}

// sleep is false when the client went away meanwhile.
func (p *player) sleep(d time.Duration) bool {
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
