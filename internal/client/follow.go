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
	"loquat/internal/sse"
)

const (
	// silence is how long a stream may say nothing. The server's heartbeats come
	// every 15 seconds, so by then the line is dead.
	silence = 45 * time.Second
	// pollWait is the wait of one long poll: short enough for impatient proxies.
	pollWait = 25 * time.Second
	// maxEvent bounds one event of a stream.
	maxEvent = 512 << 20
)

// errStopped says that whoever reads the events wants no more.
var errStopped = errors.New("the reader stopped")

// Entry is an event as it came.
type Entry struct {
	ID   loquat.EventID
	JSON json.RawMessage
}

// Follow yields the events that q chooses, for ever: over Server-Sent Events, over
// long polls where a server or proxy has none. It reconnects where it was, so no
// event is lost or repeated. It ends with an error: ctx's, CodeGone when the log no
// longer reaches back to its position (load a snapshot and start again), what the
// server refuses, or CodeUnavailable when Options.Patience is over.
func (c *Client) Follow(ctx context.Context, q Query) iter.Seq2[loquat.Event, error] {
	return func(yield func(loquat.Event, error) bool) {
		for entry, err := range c.FollowJSON(ctx, q) {
			var e loquat.Event
			if err == nil {
				if err = json.Unmarshal(entry.JSON, &e); err != nil {
					err = unreadable(entry.JSON, err)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// FollowJSON is Follow for those who want the events byte by byte.
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

// follower is one use of Follow. It belongs to the goroutine that reads.
type follower struct {
	client   *Client
	query    Query // Since is the position, once it is known
	polling  bool  // there is no stream to be had
	failures int   // rounds in a row that brought nothing
	heard    time.Time
}

// run makes one connection after the other. It never returns nil.
func (f *follower) run(ctx context.Context, yield func(Entry) bool) error {
	for {
		err := f.round(ctx, yield)
		switch {
		case err == errStopped:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.passing(err):
			return err
		}
		if err := pause(ctx, f.failures); err != nil {
			return err
		}
		f.failures++
	}
}

// passing reports whether another round may do better. A stream that ended without
// an error was cut by a server that restarts, or by a proxy.
func (f *follower) passing(err error) bool {
	switch loquat.CodeOf(err) {
	case "", loquat.CodeUnavailable, loquat.CodeRateLimited:
		return f.client.patience == 0 || time.Since(f.heard) < f.client.patience
	}
	return false
}

func (f *follower) round(ctx context.Context, yield func(Entry) bool) error {
	if f.polling {
		return f.poll(ctx, yield)
	}
	return f.stream(ctx, yield)
}

// alive notes a sign of life.
func (f *follower) alive() { f.failures, f.heard = 0, time.Now() }

// pass hands an event on, unless it was handed on before.
func (f *follower) pass(e Entry, yield func(Entry) bool) bool {
	f.alive()
	if f.query.Since != nil && e.ID <= *f.query.Since {
		return true
	}
	f.query.Since = &e.ID
	return yield(e)
}

// stream follows one connection of Server-Sent Events to its end.
func (f *follower) stream(ctx context.Context, yield func(Entry) bool) error {
	dog := newWatchdog(ctx)
	defer dog.stop()
	call := get(f.query.values(), "events", "stream")
	call.header.Set("Accept", "text/event-stream")
	resp, err := f.client.send(dog.ctx, call, nil)
	if err != nil {
		return dog.explain(err)
	}
	defer resp.Body.Close()
	if !streams(resp) {
		f.polling = noStream(resp.StatusCode)
		if f.polling {
			return nil
		}
		return f.client.problem(ctx, resp)
	}
	body := &guardedBody{r: resp.Body, dog: dog}
	for ev, err := range sse.Events(body, maxEvent) {
		if err != nil {
			f.polling = dog.barked() && !body.spoke // a proxy keeps the stream to itself
			return dog.explain(f.broken(ctx, err))
		}
		if err := f.frame(ev, yield); err != nil {
			return err
		}
	}
	return nil
}

// broken is the error of a stream that could not be read on.
func (f *follower) broken(ctx context.Context, err error) error {
	if errors.Is(err, sse.ErrTooLarge) {
		return &loquat.Error{Code: loquat.CodeTooLarge, Detail: "an event of the stream is larger than this client takes", Err: err}
	}
	return f.client.unreachable(ctx, err)
}

// frame takes in one thing that the stream told.
func (f *follower) frame(ev sse.Event, yield func(Entry) bool) error {
	if ev.Unterminated {
		return nil // perhaps cut: it comes again after the reconnect
	}
	switch {
	case ev.Kind == sse.NoData && f.query.Since == nil && len(ev.ID) > 0:
		start, err := loquat.ParseEventID(string(ev.ID))
		if err != nil {
			return unreadable(ev.ID, err)
		}
		f.query.Since = &start
	case ev.Kind == sse.Message && string(ev.Name) == "gone":
		return gone(ev.Data)
	case ev.Kind == sse.Message && len(ev.Name) > 0:
		f.alive() // a heartbeat, or what later servers may say
	case ev.Kind == sse.Message:
		id, err := loquat.ParseEventID(string(ev.ID))
		if err != nil {
			return unreadable(ev.Data, err)
		}
		if !f.pass(Entry{ID: id, JSON: append(json.RawMessage(nil), ev.Data...)}, yield) {
			return errStopped
		}
	}
	return nil
}

// gone is the end of a stream that asked for what is no longer kept.
func gone(data []byte) error {
	var said struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &said) != nil || said.Detail == "" {
		said.Detail = "what was asked for is no longer kept; load a snapshot and follow from its cursor"
	}
	return &loquat.Error{Code: loquat.CodeGone, Detail: said.Detail}
}

func streams(resp *http.Response) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusOK && media == "text/event-stream"
}

// noStream reports whether a status says that there is no such route here, or that
// something else answers in its place.
func noStream(status int) bool {
	switch status {
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented:
		return true
	}
	return false
}

// poll makes long polls until one fails.
func (f *follower) poll(ctx context.Context, yield func(Entry) bool) error {
	for {
		if err := f.place(ctx); err != nil {
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
			if !f.pass(Entry{ID: w.Events[i].EventID, JSON: body}, yield) {
				return errStopped
			}
		}
		if len(w.Events) == 0 && time.Since(asked) < time.Second {
			if err := sleep(ctx, time.Second); err != nil { // something in between does not wait
				return err
			}
		}
	}
}

// place makes the position known before the first poll. Without it, each poll would
// start at the session's cursor or the newest event of its own time.
func (f *follower) place(ctx context.Context) error {
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

// watchdog cancels its ctx when nothing was heard for too long. It does not count
// the time in which nobody listened.
type watchdog struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

var errSilence = errors.New("silent for too long")

func newWatchdog(parent context.Context) *watchdog {
	ctx, end := context.WithCancelCause(parent)
	return &watchdog{ctx: ctx, end: end, timer: time.AfterFunc(silence, func() { end(errSilence) })}
}

func (d *watchdog) stop() {
	d.timer.Stop()
	d.end(nil)
}

func (d *watchdog) barked() bool { return context.Cause(d.ctx) == errSilence }

// explain replaces the error that the watchdog itself has caused.
func (d *watchdog) explain(err error) error {
	if !d.barked() {
		return err
	}
	return &loquat.Error{Code: loquat.CodeUnavailable, Err: err, Detail: "the event stream was silent for " + silence.String()}
}

// guardedBody lets the watchdog bark at reads that take too long.
type guardedBody struct {
	r     io.Reader
	dog   *watchdog
	spoke bool
}

func (b *guardedBody) Read(p []byte) (int, error) {
	b.dog.timer.Reset(silence)
	n, err := b.r.Read(p)
	b.dog.timer.Stop()
	b.spoke = b.spoke || n > 0
	return n, err
}
