package provider

import (
	"bytes"
	"context"

	"loquat"
)

// phase holds the state of one call of Chat.
type phase struct {
	exchange
	ctx        context.Context
	providerID string
	stream     bool
	yield      func(loquat.Chunk, error) bool
	attempted  func(loquat.Attempt) // called after each attempt

	attempts   int  // HTTP requests made
	retries    int  // pre-stream retries
	recoveries int  // restarts of the stream
	visible    bool // some text has been shown
	restarted  bool // the next increment is the first of a recovered stream
}

// run opens and reads answers until one is complete or fails for good. open retries
// failures before streaming; after streaming began, run may recover a connection error.
func (ph *phase) run() {
	for {
		r, f := ph.openAndRead()
		if f == nil {
			r.decoder = chunkDecoder{} // its memory is free while a large reply is stored
			ph.emit(loquat.Chunk{Reply: r.collector.reply(ph.providerID, ph.settings.model)})
			return
		}
		if f.kind == failStopped {
			return
		}
		if !ph.mayRecover(f) {
			ph.raise(r, f)
			return
		}
		ph.recoveries++
		ph.restarted = true
		if !ph.announce(loquat.CauseStream, 0, ph.recoveries, 0) {
			return
		}
	}
}

// openAndRead opens an answer and reads it.
func (ph *phase) openAndRead() (*reading, *failure) {
	a, f := ph.open()
	if f != nil {
		return nil, f
	}
	defer a.close()
	r := ph.reading(ph.ctx, a, ph.providerID)
	defer func() {
		ph.attempted(loquat.Attempt{Reported: r.collector.reported(), Received: r.collector.received()})
	}()
	if f = ph.consume(a, r); f == nil {
		return r, nil
	}
	f.note(a.span)
	if f.requestID == "" {
		f.requestID = a.requestID()
	}
	return r, f
}

// failed notes an attempt without an answer. An error status and a connection that was not made cost
// nothing; after a timeout the backend may have worked.
func (ph *phase) failed(f *failure) {
	if !f.unsent {
		ph.attempted(loquat.Attempt{Refused: f.kind == failStatus || f.unreached})
	}
}

// consume reads a body, which may be a stream or JSON regardless of what was requested.
func (ph *phase) consume(a *answer, r *reading) *failure {
	emit := ph.emit
	if !ph.stream {
		emit = func(loquat.Chunk) bool { return true }
	}
	var f *failure
	if a.json {
		data, err := a.readAll()
		if err != nil {
			return a.failed(ph.ctx, err, failStream)
		}
		f = r.completion(bytes.TrimPrefix(data, byteOrderMark), emit)
	} else {
		f = r.stream(a, emit)
	}
	if f == nil && ph.ctx.Err() != nil && !r.collector.done {
		return cancelled(ph.ctx) // the caller's cancel ended the stream
	}
	if f == nil || f.kind != failStream {
		return f
	}
	if ph.stream {
		return a.failed(ph.ctx, f.err, failStream)
	}
	return a.failed(ph.ctx, f.err, failConnect)
}

// readWhole reads the complete body of an answer that is not streamed. A body that breaks
// off is then a failure before streaming, which may be retried.
func (ph *phase) readWhole(a *answer) *failure {
	data, err := a.readAll()
	if err != nil && (a.json || ph.ctx.Err() != nil || !isCompleteStream(data)) {
		defer a.close()
		return a.failed(ph.ctx, err, failConnect)
	}
	a.Reader, a.whole = bytes.NewReader(data), data
	return nil
}

// isCompleteStream reports whether data is a stream that holds a whole reply.
func isCompleteStream(data []byte) bool {
	var r reading
	return r.stream(bytes.NewReader(data), func(loquat.Chunk) bool { return true }) == nil
}

// emit passes an increment to the caller and reports whether the caller wants more.
func (ph *phase) emit(c loquat.Chunk) bool {
	c.Restarted, ph.restarted = ph.restarted, false
	redactChunk(&c, ph.settings.secrets)
	ph.visible = ph.visible || c.Text != ""
	return ph.yield(c, nil)
}

// mayRecover reports whether the stream is restarted after a failure. A failure to
// connect counts only during a recovery.
func (ph *phase) mayRecover(f *failure) bool {
	if !ph.stream || ph.recoveries >= ph.settings.maxRecoveries {
		return false
	}
	if f.kind != failStream && (f.kind != failConnect || ph.recoveries == 0) {
		return false
	}
	switch ph.settings.recovery {
	case recoverEarlyOnly:
		return !ph.visible
	case recoverAggressive:
		return true
	}
	return false
}

// raise ends the phase with an error and with the usage, as far as it is known.
func (ph *phase) raise(r *reading, f *failure) {
	var c loquat.Chunk
	if r != nil {
		c.Reply = r.collector.remains()
		redactChunk(&c, ph.settings.secrets)
	}
	ph.yield(c, f.asError(ph.settings.secrets, ph.attempts))
}
