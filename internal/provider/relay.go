package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"loquat"
)

// relay passes one request to the backend as it is, and the answer back byte for byte. Retries,
// pacing and timeouts are those of a phase. A stream is decoded only to know when it is complete.
//
// A broken stream can be recovered only while the caller has got nothing but comments: the chunks of
// a new stream do not continue those of the old one. If recovery is on, chunks that hold no more
// than a role are therefore held back until the first chunk with content.
type relay struct {
	phase
	req     loquat.RelayRequest
	begun   bool // the head of an answer was passed on
	carried bool // more than comments was passed on
}

// Relay runs a request whose body is already encoded and passes the answer to req.Answer. If it
// returns an error before the answer has begun, nothing was passed on. An error status of the
// backend that is not retried is a *loquat.BackendRefusal.
func (p *Provider) Relay(ctx context.Context, req loquat.RelayRequest) error {
	s, err := p.settingsOf(req.Config)
	if err != nil {
		return err
	}
	b := &body{}
	for _, part := range req.Body {
		b.add(part)
	}
	r := &relay{req: req}
	r.phase = phase{
		exchange:   exchange{Provider: p, settings: &s, method: http.MethodPost, path: chatPath, body: b, paced: true},
		ctx:        ctx,
		providerID: req.ProviderID,
		stream:     req.Stream,
		yield:      r.note,
		attempted:  req.Attempted,
	}
	if r.attempted == nil {
		r.attempted = func(loquat.Attempt) {}
	}
	return r.run()
}

// note logs a retry or a recovery: a relayed request has no events.
func (r *relay) note(c loquat.Chunk, _ error) bool {
	if c.Retry != nil {
		r.log.InfoContext(r.ctx, "a relayed request is repeated", "provider", r.providerID, "cause", c.Retry.Cause, "status", c.Retry.Status,
			"attempt", c.Retry.Attempt, "delay", c.Retry.Delay)
	}
	return r.ctx.Err() == nil
}

func (r *relay) run() error {
	for {
		f := r.openAndPass()
		if f == nil {
			return nil
		}
		if !r.mayRestart() || !r.mayRecover(f) {
			return r.errorOf(f)
		}
		r.recoveries++
		r.announce(loquat.CauseStream, 0, r.recoveries, 0)
	}
}

// mayRestart reports whether a new stream may take the place of this one.
func (r *relay) mayRestart() bool {
	return !r.carried && r.settings.recovery != recoverDisabled && r.recoveries < r.settings.maxRecoveries
}

// errorOf returns the error of a failure that ends the call.
func (r *relay) errorOf(f *failure) error {
	switch {
	case f.kind == failStopped && f.err == nil:
		return context.Cause(r.ctx)
	case f.kind == failStopped || f.kind == failCancelled:
		return f.err
	}
	err := f.asError(r.settings.secrets, r.attempts)
	if f.kind != failStatus || f.status < http.StatusBadRequest {
		return err
	}
	refusal := &loquat.BackendRefusal{Status: f.status, Header: r.shown(f.header), Body: f.body, Err: err}
	if shown := redactText(string(f.body), r.settings.secrets); shown != strings.TrimSpace(string(f.body)) {
		refusal.Body = []byte(shown)
	}
	return refusal
}

// shown returns headers of the backend without secrets, which it may repeat.
func (r *relay) shown(header http.Header) http.Header {
	out := make(http.Header, len(header))
	for name, values := range header {
		for _, value := range values {
			out[name] = append(out[name], r.settings.secrets.Redact(value))
		}
	}
	return out
}

func (r *relay) openAndPass() *failure {
	a, f := r.open()
	if f != nil {
		return f
	}
	defer a.close()
	if !r.stream || a.json {
		f = r.passWhole(a)
	} else {
		f = r.passStream(a)
	}
	if f == nil {
		return nil
	}
	f.note(a.span)
	if f.requestID == "" {
		f.requestID = a.requestID()
	}
	return f
}

// passWhole passes on an answer that is not a stream, once it is complete.
func (r *relay) passWhole(a *answer) *failure {
	data, err := a.readAll()
	if err != nil {
		r.attempted(loquat.Attempt{})
		return a.failed(r.ctx, err, failStream)
	}
	if debug := r.reading(r.ctx, a, r.providerID).debug; debug != nil {
		debug(data)
	}
	var c collector
	members(data, func(key []byte, v json.RawMessage) {
		if string(key) == "usage" {
			c.usage = v
		}
	})
	r.attempted(loquat.Attempt{Reported: c.reported(), Received: len(data)})
	r.carried = true
	return r.pass(a, data, len(data))
}

// pass passes bytes on, after the head of the answer.
func (r *relay) pass(a *answer, b []byte, length int) *failure {
	if !r.begun {
		r.begun = true
		r.req.Answer.Begin(a.resp.StatusCode, r.shown(a.resp.Header), length)
	}
	if _, err := r.req.Answer.Write(b); err != nil {
		return &failure{kind: failStopped, err: err}
	}
	return nil
}

// passStream passes on a stream. What the decoder cannot read is passed on, too.
func (r *relay) passStream(a *answer) *failure {
	p := &passing{relay: r, from: a}
	rd := r.reading(r.ctx, a, r.providerID)
	rd.observe = p.observe
	f := rd.stream(p, nil)
	r.attempted(loquat.Attempt{Reported: (&collector{usage: p.usage}).reported(), Received: p.received})
	switch {
	case p.failed != nil:
		return p.failed
	case r.ctx.Err() != nil && !rd.collector.done:
		return cancelled(r.ctx)
	case f != nil && f.kind == failStream:
		return a.failed(r.ctx, f.err, failStream)
	case f == nil && p.broken != nil && !rd.collector.done && r.req.Choices > 1: // finish_reason was that of one choice
		return a.failed(r.ctx, p.broken, failStream)
	case f != nil && f.err != nil && isUnusable(f.err):
		return f
	case f != nil:
		return p.rest()
	}
	return p.end()
}

// maxHeldEvent is the size in bytes from which an event is passed on before it is complete.
const maxHeldEvent = 256 << 10

// passing is the reader of a stream that passes on what was read. A block of bytes is passed on when
// the decoder asks for the next one, because it has then decoded all events in the block.
type passing struct {
	*relay
	from   *answer
	failed *failure // the caller stopped reading
	broken error    // how the stream ended, if not by its end

	usage    json.RawMessage // the last that the backend reported
	received int             // bytes of text and reasoning

	quiet   bool // a chunk without content was read
	content bool // anything else was read

	held   []byte // read, and not passed on
	cut    int    // held[:cut] is whole events and comments
	line   int    // where the current line begins
	seen   int    // held[line:seen] has no line end
	open   bool   // the current event has a line
	skipLF bool   // the last line ended in \r at the end of held; a \n belongs to it
}

func (p *passing) Read(b []byte) (int, error) {
	if p.pass(); p.failed != nil {
		return 0, p.failed.err
	}
	n, err := p.from.Read(b)
	p.held = append(p.held, b[:n]...)
	if err != nil && err != io.EOF {
		p.broken = err
	}
	return n, err
}

// observe is called with each chunk of the stream.
func (p *passing) observe(ch *chunk) {
	p.received += len(ch.text) + len(ch.reasoning) + len(ch.reasoningContent) + len(ch.refusal)
	if len(ch.usage) > 0 {
		p.usage = append(p.usage[:0], ch.usage...)
	}
	if ch.isQuiet() {
		p.quiet = true
	} else {
		p.content = true
	}
}

// isQuiet reports whether a chunk has no more than a role.
func (ch *chunk) isQuiet() bool {
	for _, f := range ch.fields {
		if !saysNothing(f.value) {
			return false
		}
	}
	return ch.choice && len(ch.text)+len(ch.reasoning)+len(ch.reasoningContent)+len(ch.refusal)+len(ch.finish)+
		len(ch.usage)+len(ch.parts)+len(ch.calls)+len(ch.notes) == 0 && ch.legacy == nil
}

// pass passes on the events that are complete.
func (p *passing) pass() {
	p.scan()
	n := p.cut
	if len(p.held)-n > maxHeldEvent {
		n = len(p.held)
	}
	if n == 0 || p.quiet && !p.content && p.mayRestart() {
		return
	}
	p.carried = p.carried || p.quiet || p.content || n > p.cut
	p.open = p.open || n > p.cut
	p.failed = p.relay.pass(p.from, p.held[:n], -1)
	p.held = p.held[:copy(p.held, p.held[n:])]
	p.cut, p.line, p.seen = max(0, p.cut-n), max(0, p.line-n), max(0, p.seen-n)
}

// rest passes on the rest of a stream that the decoder gave up.
func (p *passing) rest() *failure {
	p.content = true
	buf := make([]byte, firstPiece)
	for {
		_, err := p.Read(buf)
		p.from.watch.noteData()
		switch {
		case p.failed != nil:
			return p.failed
		case errors.Is(err, io.EOF):
			return p.end()
		case err != nil:
			return p.from.failed(p.ctx, err, failStream)
		}
	}
}

// end passes on what is left, also an event without its end.
func (p *passing) end() *failure {
	p.content = true
	if len(p.held) == 0 && p.begun {
		return nil
	}
	return p.relay.pass(p.from, p.held, -1)
}

// scan finds the ends of events in the bytes that were not searched yet.
func (p *passing) scan() {
	for p.seen < len(p.held) {
		if p.skipLF {
			p.skipLF = false
			if p.held[p.seen] == '\n' {
				if p.cut == p.seen {
					p.cut++
				}
				p.line, p.seen = p.line+1, p.seen+1
				continue
			}
		}
		end := lineEnd(p.held[p.seen:])
		if end < 0 {
			p.seen = len(p.held)
			return
		}
		end += p.seen
		next := end + 1
		if p.held[end] == '\r' {
			p.skipLF = next == len(p.held)
			if !p.skipLF && p.held[next] == '\n' {
				next++
			}
		}
		switch line := p.held[p.line:end]; {
		case len(line) == 0:
			p.cut, p.open = next, false
		case line[0] == ':' && !p.open:
			p.cut = next
		default:
			p.open = true
		}
		p.line, p.seen = next, next
	}
}

// lineEnd returns the index of the first \n or \r, -1 if there is none.
func lineEnd(b []byte) int {
	n := bytes.IndexByte(b, '\n')
	if n >= 0 {
		b = b[:n]
	}
	if r := bytes.IndexByte(b, '\r'); r >= 0 {
		return r
	}
	return n
}
