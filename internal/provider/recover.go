package provider

import (
	"bytes"
	"context"

	"loquat"
)

// phase is one call of Chat. Its counters live as long as it does.
type phase struct {
	exchange
	ctx        context.Context
	providerID string
	stream     bool
	yield      func(loquat.Chunk, error) bool

	attempts   int  // HTTP requests made
	retries    int  // pre-stream retries
	recoveries int  // streams started again
	visible    bool // some text has been shown
	restarted  bool // the next increment is the first of a recovered stream
}

// run makes streams until one comes to its end. Before streaming begins the inner
// ring decides; once it has begun, a connection error may start it again.
func (ph *phase) run() {
	for {
		r, f := ph.once()
		if f == nil {
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

// once opens an answer and reads it.
func (ph *phase) once() (*reading, *failure) {
	a, f := ph.open()
	if f != nil {
		return nil, f
	}
	defer a.close()
	r := ph.reading(ph.ctx, a, ph.providerID)
	f = ph.consume(a, r)
	if f != nil && f.requestID == "" {
		f.requestID = a.requestID()
	}
	return r, f
}

// consume reads a body of either kind, whatever was asked for.
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
		f = r.completion(data, emit)
	} else {
		f = r.stream(a, emit)
	}
	if f == nil && ph.ctx.Err() != nil && !r.collector.done {
		return cancelled(ph.ctx) // the cancel ended the stream
	}
	if f == nil || f.kind != failStream {
		return f
	}
	if ph.stream {
		return a.failed(ph.ctx, f.err, failStream)
	}
	return a.failed(ph.ctx, f.err, failConnect)
}

// readWhole reads the body of an answer that is not streamed, so that all that can
// happen to it happens before it counts as an answer.
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

// emit hands on an increment.
func (ph *phase) emit(c loquat.Chunk) bool {
	c.Restarted, ph.restarted = ph.restarted, false
	redactChunk(&c, ph.settings.secrets)
	ph.visible = ph.visible || c.Text != ""
	return ph.yield(c, nil)
}

// mayRecover tells whether a failure starts the stream again. Failing to connect
// counts as such only while recovering.
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

// raise ends the phase with an error and what is known of the usage.
func (ph *phase) raise(r *reading, f *failure) {
	var c loquat.Chunk
	if r != nil {
		c.Reply = r.collector.remains()
		redactChunk(&c, ph.settings.secrets)
	}
	ph.yield(c, f.asError(ph.settings.secrets, ph.attempts))
}
