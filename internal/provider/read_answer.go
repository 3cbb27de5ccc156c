package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"loquat"
	"loquat/internal/sse"
)

// reading reads one answer: a stream of chunks, or one completion.
type reading struct {
	decoder   chunkDecoder
	collector collector

	onData         func()       // called when data arrives, not for comments; may be nil
	onFinishReason func()       // called when finish_reason arrives; may be nil
	onDone         func()       // called when [DONE] arrives; may be nil
	debug          func([]byte) // called with each chunk as it was received; may be nil
	observe        func(*chunk) // called with each chunk, which is then not collected; may be nil
}

// stream reads a stream to its end and emits increments. A stream is complete once the
// backend has sent [DONE] or a finish_reason, even if the connection breaks after that.
func (a *reading) stream(r io.Reader, emit func(loquat.Chunk) bool) *failure {
	for ev, err := range sse.Events(r, 0) {
		if err != nil {
			if a.collector.ended() {
				return nil
			}
			return streamFailure(err)
		}
		if f := a.event(ev, emit); f != nil {
			return f
		}
	}
	if !a.collector.ended() {
		return &failure{kind: failStream, err: errTruncated}
	}
	return nil
}

var errTruncated = errors.New("the stream ended early, with neither finish_reason nor [DONE]")

func streamFailure(err error) *failure {
	if errors.Is(err, sse.ErrTooLarge) || isUnusable(err) {
		return &failure{kind: failBackend, err: err}
	}
	return &failure{kind: failStream, err: err}
}

func (a *reading) event(ev sse.Event, emit func(loquat.Chunk) bool) *failure {
	switch ev.Kind {
	case sse.Message:
	case sse.UnknownField:
		return a.strayField(ev)
	default:
		return nil
	}
	data := bytes.TrimSpace(ev.Data)
	if len(data) == 0 || data[0] == ':' {
		return nil // some backends send comments as data
	}
	if a.onData != nil {
		a.onData()
	}
	if a.debug != nil {
		a.debug(data)
	}
	if string(data) == "[DONE]" {
		a.end()
		return nil
	}
	ch, err := a.decoder.decode(data)
	switch {
	case a.collector.done:
		a.lateUsage(ch, err)
		return nil
	case isBound(err):
		return &failure{kind: failBackend, err: err}
	case err != nil && a.collector.ended():
		return nil // the reply is complete, as it is for a connection that breaks here
	case err != nil && ev.Unterminated:
		return nil // cut in the middle: the end of the stream decides
	case err != nil:
		return &failure{kind: failBackend, message: string(data), err: fmt.Errorf("a chunk of the stream is not valid JSON: %w", err)}
	}
	return a.chunk(ch, string(ev.Name) == "error", data, emit)
}

func (a *reading) chunk(ch *chunk, isError bool, data []byte, emit func(loquat.Chunk) bool) *failure {
	if isError && ch.failure == nil {
		ch.failure = data
	}
	if ch.failure != nil {
		a.lateUsage(ch, nil)
		return &failure{kind: failBackend, message: backendMessage(ch.failure)}
	}
	if a.observe != nil {
		a.observe(ch)
		a.collector.addFinish(ch)
		a.noteFinish()
		return nil
	}
	inc, show, err := a.collector.add(ch)
	if err != nil {
		return &failure{kind: failBackend, err: err}
	}
	if len(data) >= sse.LargeEvent {
		*ch = chunk{} // frees data while its increment is published
	}
	if show && !emit(inc) {
		return &failure{kind: failStopped}
	}
	a.noteFinish()
	return nil
}

func (a *reading) noteFinish() {
	if a.onFinishReason != nil && a.collector.finish != "" {
		a.onFinishReason()
	}
}

// end records [DONE]. Of later events only their usage counts.
func (a *reading) end() {
	a.collector.done = true
	if a.onDone != nil {
		a.onDone()
	}
}

func (a *reading) lateUsage(ch *chunk, err error) {
	if err == nil && ch.usage != nil {
		a.collector.usage = append(a.collector.usage[:0], ch.usage...)
	}
}

// strayField reads a field that event streams do not have: some backends put their
// error there.
func (a *reading) strayField(ev sse.Event) *failure {
	if a.collector.done || len(ev.Data) == 0 || ev.Data[0] != '{' {
		return nil
	}
	var ch chunk
	if err := decodeGeneral(ev.Data, &ch); err != nil || ch.failure == nil {
		return nil
	}
	return &failure{kind: failBackend, message: backendMessage(ch.failure)}
}

// completion reads an answer that is one JSON value.
func (a *reading) completion(data []byte, emit func(loquat.Chunk) bool) *failure {
	if a.debug != nil {
		a.debug(data)
	}
	ch, err := a.decoder.decodeWhole(data)
	switch {
	case isBound(err):
		return &failure{kind: failBackend, err: err}
	case err != nil:
		return &failure{kind: failBackend, message: string(data), err: errors.New("the answer is not a completion")}
	case ch.choice:
		ch.failure = nil
		return a.chunk(ch, false, data, emit)
	case ch.failure != nil:
		a.lateUsage(ch, nil)
		return &failure{kind: failBackend, message: backendMessage(ch.failure)}
	}
	return &failure{kind: failBackend, message: string(data), err: errors.New("the answer has no choices")}
}
