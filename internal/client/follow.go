package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/sse"
)

const (
	// silence is the time without any data after which a stream counts as broken. The
	// server sends a heartbeat every 15 seconds.
	silence = 45 * time.Second
	// pollWait is the wait of one long poll. It is below the usual timeouts of proxies.
	pollWait = 25 * time.Second
	// maxEvent is the largest size of an event in a stream, in bytes.
	maxEvent = 512 << 20
)

// errStopped reports that the caller stopped reading events.
var errStopped = errors.New("the reader stopped")

// Entry is an event as the server sent it.
type Entry struct {
	ID   loquat.EventID
	JSON json.RawMessage
}

// Follow yields the events that q selects, without an end. It uses Server-Sent Events, or
// long polls if the server or a proxy does not support streams. When a connection breaks, it
// resumes after the last event, so that no event is lost or repeated. It ends only with an
// error: the error of ctx; CodeGone if the log no longer reaches back to the cursor (load a
// snapshot and start again); an error that the server answers; or CodeUnavailable after
// Options.Patience.
func (c *Client) Follow(ctx context.Context, q Query) iter.Seq2[loquat.Event, error] {
	return func(yield func(loquat.Event, error) bool) {
		for entry, err := range c.FollowJSON(ctx, q) {
			var e loquat.Event
			if err == nil {
				if err = json.Unmarshal(entry.JSON, &e); err != nil {
					err = undecodable(entry.JSON, err)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// FollowJSON is Follow for callers that need the events as the server sent them.
func (c *Client) FollowJSON(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		q.Limit, q.Wait = 0, 0
		f := &follower{client: c, query: q, heard: time.Now()}
		err := f.run(ctx, func(e Entry) bool { return yield(e, nil) })
		if err != errStopped {
			yield(Entry{}, err)
		}
	}
}

// follower is the state of one call of Follow. Only the goroutine that reads uses it.
type follower struct {
	client   *Client
	query    Query     // Since is the cursor, once it is known
	polling  bool      // streams are not supported
	failures int       // connections in a row that received nothing
	heard    time.Time // when the server last sent something

	connected bool // as it was last reported
}

// run makes one connection after another. It never returns nil.
func (f *follower) run(ctx context.Context, yield func(Entry) bool) error {
	for {
		err := f.connect(ctx, yield)
		switch {
		case err == errStopped:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.isTemporary(err):
			return err
		}
		delay := reconnect.Next(f.failures)
		f.report(LineState{Err: err, Retry: time.Now().Add(delay)})
		if err := backoff.Sleep(ctx, delay); err != nil {
			return err
		}
		f.failures++
	}
}

// report says that the state of the connection has changed, to whoever asked.
func (f *follower) report(s LineState) {
	if f.query.Line != nil && (!s.Connected || !f.connected) {
		f.query.Line(s)
	}
	f.connected = s.Connected
}

// isTemporary reports whether another connection may succeed. A stream that ended without an
// error was cut by a server that restarts or by a proxy.
func (f *follower) isTemporary(err error) bool {
	switch loquat.CodeOf(err) {
	case "", loquat.CodeUnavailable, loquat.CodeRateLimited:
		return f.client.patience == 0 || time.Since(f.heard) < f.client.patience
	}
	return false
}

func (f *follower) connect(ctx context.Context, yield func(Entry) bool) error {
	if f.polling {
		return f.poll(ctx, yield)
	}
	return f.stream(ctx, yield)
}

// alive records that the server has sent something.
func (f *follower) alive() {
	f.failures, f.heard = 0, time.Now()
	f.report(LineState{Connected: true})
}

// yieldNew yields an event, unless it was yielded before.
func (f *follower) yieldNew(e Entry, yield func(Entry) bool) bool {
	f.alive()
	if f.query.Since != nil && e.ID <= *f.query.Since {
		return true
	}
	f.query.Since = &e.ID
	return yield(e)
}

// stream follows one connection of Server-Sent Events to its end.
func (f *follower) stream(ctx context.Context, yield func(Entry) bool) error {
	timer := newSilenceTimer(ctx)
	defer timer.stop()
	call := get(f.query.values(), "events", "stream")
	call.header.Set("Accept", "text/event-stream")
	resp, err := f.client.send(timer.ctx, call, nil)
	if err != nil {
		return timer.explain(err)
	}
	defer resp.Body.Close()
	if !isEventStream(resp) {
		f.polling = isNoStream(resp.StatusCode)
		if f.polling {
			return nil
		}
		return f.client.problem(ctx, resp)
	}
	f.report(LineState{Connected: true})
	body := &timedBody{r: resp.Body, timer: timer}
	for ev, err := range sse.Events(body, maxEvent) {
		if err != nil {
			f.polling = timer.expired() && !body.receivedData // a proxy buffers the stream
			return timer.explain(f.streamError(ctx, err))
		}
		if err := f.handleEvent(ev, yield); err != nil {
			return err
		}
	}
	return nil
}

// streamError returns the error of a stream that broke.
func (f *follower) streamError(ctx context.Context, err error) error {
	if errors.Is(err, sse.ErrTooLarge) {
		return &loquat.Error{Code: loquat.CodeTooLarge, Detail: "an event of the stream is larger than this client accepts", Err: err}
	}
	return f.client.unreachable(ctx, err)
}

// handleEvent handles one event of a stream.
func (f *follower) handleEvent(ev sse.Event, yield func(Entry) bool) error {
	if ev.Unterminated {
		return nil // the event may be incomplete; it is received again after the reconnect
	}
	switch {
	case ev.Kind == sse.NoData && f.query.Since == nil && len(ev.ID) > 0:
		start, err := loquat.ParseEventID(string(ev.ID))
		if err != nil {
			return undecodable(ev.ID, err)
		}
		f.query.Since = &start
	case ev.Kind == sse.Message && string(ev.Name) == "gone":
		return goneError(ev.Data)
	case ev.Kind == sse.Message && len(ev.Name) > 0:
		f.alive() // a heartbeat, or an event that only later versions define
	case ev.Kind == sse.Message:
		id, err := loquat.ParseEventID(string(ev.ID))
		if err != nil {
			return undecodable(ev.Data, err)
		}
		if !f.yieldNew(Entry{ID: id, JSON: append(json.RawMessage(nil), ev.Data...)}, yield) {
			return errStopped
		}
	}
	return nil
}

// goneError returns the error of a stream whose cursor is too old.
func goneError(data []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		problem.Detail = "the log no longer contains the next events; load a snapshot and follow from its cursor"
	}
	return &loquat.Error{Code: loquat.CodeGone, Detail: problem.Detail}
}

func isEventStream(resp *http.Response) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusOK && media == "text/event-stream"
}

// isNoStream reports whether a status means that the route for streams does not exist, or
// that something other than the server answered.
func isNoStream(status int) bool {
	switch status {
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented:
		return true
	}
	return false
}

// poll makes long polls until one fails.
func (f *follower) poll(ctx context.Context, yield func(Entry) bool) error {
	for {
		if err := f.initCursor(ctx); err != nil {
			return err
		}
		q := f.query
		q.Wait = pollWait
		asked := time.Now()
		w, err := f.client.Events(ctx, q)
		if err != nil {
			return err
		}
		f.alive()
		for i, body := range w.JSON {
			if !f.yieldNew(Entry{ID: w.Events[i].EventID, JSON: body}, yield) {
				return errStopped
			}
		}
		if len(w.Events) == 0 && time.Since(asked) < time.Second {
			if err := backoff.Sleep(ctx, time.Second); err != nil { // something between client and server does not wait
				return err
			}
		}
	}
}

// initCursor determines the cursor before the first poll. Otherwise each poll would start at
// the session's cursor, or at the newest event, of that moment.
func (f *follower) initCursor(ctx context.Context) error {
	if f.query.Since != nil || f.query.SessionID == "" && f.query.RequestID != "" {
		return nil
	}
	if f.query.SessionID != "" {
		page, err := f.client.Messages(ctx, f.query.SessionID, Page{Limit: 1})
		f.query.Since = &page.CursorEventID
		if err != nil {
			f.query.Since = nil
		}
		return err
	}
	w, err := f.client.Events(ctx, Query{})
	if err != nil {
		return err
	}
	f.query.Since = &w.LatestEventID
	return nil
}

// silenceTimer cancels its ctx if no data arrives for too long. It runs only while the body
// is read.
type silenceTimer struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

var errSilence = errors.New("silent for too long")

func newSilenceTimer(parent context.Context) *silenceTimer {
	ctx, end := context.WithCancelCause(parent)
	return &silenceTimer{ctx: ctx, end: end, timer: time.AfterFunc(silence, func() { end(errSilence) })}
}

func (d *silenceTimer) stop() {
	d.timer.Stop()
	d.end(nil)
}

func (d *silenceTimer) expired() bool { return context.Cause(d.ctx) == errSilence }

// explain replaces an error that the timer itself has caused.
func (d *silenceTimer) explain(err error) error {
	if !d.expired() {
		return err
	}
	return &loquat.Error{Code: loquat.CodeUnavailable, Err: err, Detail: "the event stream was silent for " + silence.String()}
}

// timedBody restarts the silenceTimer for each read.
type timedBody struct {
	r            io.Reader
	timer        *silenceTimer
	receivedData bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.timer.Reset(silence)
	n, err := b.r.Read(p)
	b.timer.timer.Stop()
	b.receivedData = b.receivedData || n > 0
	return n, err
}
