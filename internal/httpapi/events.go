package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/feed"
	"loquat/internal/httpapi/route"
	"loquat/internal/sse"
	"loquat/internal/store"
)

// The bounds of a window.
const (
	defaultEvents = 1000
	maxEvents     = 5000
	maxWait       = 60  // seconds
	maxFollowed   = 100 // sessions that one call follows
)

const streamMedia = "text/event-stream"

// heartbeat is the time between two heartbeats of a stream.
const heartbeat = 15 * time.Second

// getEventsRoute is the route that also says where the log ends.
const getEventsRoute = "getEvents"

func (a *api) eventRoutes() []route.Route {
	filters := []route.Param{
		{Name: "since_id", Kind: route.SinceID, Doc: "Only events after this one; 0 is the beginning."},
		{Name: "session_id", Kind: route.ID, Doc: "Only events of this session, or of up to 100 sessions whose ids are separated by commas. Without since_id they start at the session's cursor; of several sessions, at the lowest cursor that has events after it."},
		{Name: "list", Kind: route.Flag, Doc: "Also the events of all other sessions that change the list of sessions: session_created, session_deleted, checkpoint, request_started and request_completed. Without session_id only these."},
		{Name: "user", Kind: route.ID, Doc: "Without session_id and request_id: only events of this user's sessions. With list, only the list of this user's sessions. A token of scope user does not need it, and sees no others."},
		{Name: "request_id", Kind: route.ID, Doc: "Only events of this request. Without since_id they start at its first event."},
		{Name: "session", OneOf: []string{"omit"}, Doc: "Leaves the session out of events that carry one."},
	}
	paging := []route.Param{
		{Name: "limit", Kind: route.Integer, Min: 1, Max: maxEvents, Default: defaultEvents, Doc: "How many events that match, before compaction."},
		{Name: "wait", Kind: route.Seconds, Max: maxWait, Default: 0, Doc: "How many seconds to wait for the first event."},
	}
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/events", ID: getEventsRoute, Tag: "events", Summary: "Read a window of the log",
			Users: true, Serve: a.getEvents, Follows: true, Query: append(paging, filters...), Responses: []route.Response{{Status: http.StatusOK, Body: loquat.EventList{}}},
		},
		{
			Method: http.MethodGet, Path: "/events/stream", ID: "streamEvents", Tag: "events", Summary: "Follow the log as Server-Sent Events",
			Users: true, Serve: a.streamEvents, Follows: true, Query: filters, Responses: []route.Response{{Status: http.StatusOK, Body: "", Media: streamMedia,
				Doc: "Server-Sent Events. The data of an event without a name is an Event; heartbeat shows that the connection works, and gone ends the stream."}},
		},
	}
}

func eventQuery(x *route.Exchange) (feed.Query, error) {
	q := x.Query
	out := feed.Query{
		Since: q.EventID("since_id"), SessionID: q.Text("session_id"), RequestID: q.Text("request_id"),
		OmitSession: q.Text("session") != "", Limit: defaultEvents, Wait: q.Seconds("wait"),
	}
	if n := q.Integer("limit"); n != nil {
		out.Limit = *n
	}
	ids, err := sessionsIn(out.SessionID)
	if err != nil {
		return out, err
	}
	list := q.Flag("list")
	if out.RequestID != "" && (list || len(ids) > 1) {
		return out, loquat.Invalid("query.request_id", "cannot be given together with several sessions or list; a request has one session")
	}
	if callerOf(x).Scope == auth.Session {
		list = false // no other session may be seen
	}
	named := len(ids) > 0 || out.RequestID != ""
	if named && !list && q.Text("user") != "" {
		return out, loquat.Invalid("query.user", "cannot be given together with session_id or request_id unless list is; a session has one user")
	}
	user, err := userOf(x, "query.user", q.Text("user"))
	if err != nil {
		return out, err
	}
	switch {
	case list || len(ids) > 1:
		out.SessionID, out.Among = "", store.NewSelection(ids, list)
		out.Among.User = user
	case len(ids) == 1:
		out.SessionID = ids[0]
	case !named:
		out.User = user
	}
	return out, nil
}

// sessionsIn returns the session ids in a text that separates them by commas, each once. An empty
// text has none.
func sessionsIn(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	ids := strings.Split(text, ",")
	if i := slices.Index(ids, ""); i >= 0 {
		return nil, loquat.Invalid("query.session_id", "has no id at place %d of its list", i)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > maxFollowed {
		return nil, loquat.Invalid("query.session_id", "names %d sessions; at most %d can be followed by one call", len(ids), maxFollowed)
	}
	return ids, nil
}

func (a *api) getEvents(x *route.Exchange) error {
	ctx := x.R.Context()
	q, err := eventQuery(x)
	if err != nil {
		return err
	}
	held := heldBy(x.W)
	q.Reserve = held.reserveRead
	window, err := held.window(ctx, func(ctx context.Context) (feed.Window, error) { return a.feed.Events(ctx, q) })
	if err != nil {
		return err
	}
	h := x.W.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	if window.Bootstrap {
		return x.Reply(http.StatusOK, loquat.EventList{Events: []loquat.Event{}, LatestEventID: &window.Cursor})
	}
	return a.writeEvents(ctx, x.W, window.Events)
}

// windowWriters are the buffers for windows. A call holds one only while it writes, so streams
// that wait have none.
var windowWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

// takeBuffer returns a buffer in front of w. giveBack must be called.
func takeBuffer(w io.Writer) *bufio.Writer {
	out := windowWriters.Get().(*bufio.Writer)
	out.Reset(w)
	return out
}

func giveBack(out *bufio.Writer) {
	out.Reset(nil)
	windowWriters.Put(out)
}

// writeEvents reads and writes events one by one, because a window with its sessions may be
// too large for memory. A failure after the first event aborts the connection, because the
// status was already sent.
func (a *api) writeEvents(ctx context.Context, w http.ResponseWriter, events []loquat.Record) error {
	out := takeBuffer(w)
	defer giveBack(out)
	_, _ = out.WriteString(openEvents) // out keeps an error until Flush
	failing := &errorKeeper{Writer: out}
	for i, rec := range events {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := a.feed.WriteEvent(ctx, failing, rec); err != nil && failing.err == nil {
			if i == 0 {
				return err // nothing was sent yet
			}
			a.log.Log(ctx, levelOfCut(err), "an answer of events was cut", "event", rec.ID.String(), "error", err)
			panic(http.ErrAbortHandler)
		}
		if failing.err != nil {
			return nil // a client that disconnected asks again
		}
		events[i] = loquat.Record{} // its memory is free as soon as it is written
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
	return nil
}

// levelOfCut returns the level at which an error is logged that cut an answer. The store itself
// reports that the database cannot be read, and the client asks again.
func levelOfCut(err error) slog.Level {
	if loquat.CodeOf(err) == loquat.CodeUnavailable {
		return slog.LevelDebug
	}
	return slog.LevelError
}

// errorKeeper keeps the error of its Writer, to distinguish it from an error of the event.
type errorKeeper struct {
	io.Writer
	err error
}

func (k *errorKeeper) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
	if err != nil {
		k.err = err
	}
	return n, err
}

const openEvents = `{"events":[`

func (a *api) streamEvents(x *route.Exchange) error {
	q, err := eventQuery(x)
	if err != nil {
		return err
	}
	q.Push, q.Bytes = true, streamWindow
	if last := x.R.Header.Get("Last-Event-ID"); last != "" {
		id, err := loquat.ParseSinceID(last)
		if err != nil {
			return route.Malformed("header.Last-Event-ID", "has to be an event_id, which has only decimal digits, not %q", loquat.Clip(last, loquat.Excerpt))
		}
		q.Since = &id
	}
	held := heldBy(x.W)
	q.Reserve = held.reserveRead
	follower, err := a.feed.Follow(x.R.Context(), q)
	if err != nil && !isGone(err) {
		return err
	}
	if err == nil {
		defer follower.Stop()
	}
	h := x.W.Header()
	h.Set("Content-Type", streamMedia)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // keeps nginx from buffering the stream
	x.W.WriteHeader(http.StatusOK)
	if x.R.Method == http.MethodHead {
		return nil
	}
	s := &stream{out: x.W, flush: http.NewResponseController(x.W).Flush, write: a.feed.WriteEvent}
	if err != nil {
		return s.gone(err)
	}
	s.cursor = follower.Start()
	read := func(ctx context.Context) (feed.Window, error) { return follower.Next(ctx, s.cursor, s.beat) }
	s.next = func(ctx context.Context) (feed.Window, error) {
		w, err := held.window(ctx, read)
		if err == nil {
			return w, nil
		}
		if _, ok := errors.AsType[noRoom](err); ok {
			return feed.Window{}, nil // the stream tries again later and holds nothing meanwhile
		}
		return w, err
	}
	a.metrics.streams.Inc()
	defer a.metrics.streams.Dec()
	if err := s.run(x.R.Context()); err != nil && x.R.Context().Err() == nil {
		a.log.Debug("a stream ended", "cursor", s.cursor.String(), "error", err)
	}
	return nil // the answer has begun; a client that was disconnected resumes from its last id
}

// isGone reports whether the events or the session of a stream no longer exist, or never did.
func isGone(err error) bool {
	code := loquat.CodeOf(err)
	return code == loquat.CodeGone || code == loquat.CodeNotFound
}

// stream follows the log for one client. It belongs to one goroutine.
type stream struct {
	cursor loquat.EventID // of the last event that was sent
	beat   time.Time      // of the next heartbeat
	out    io.Writer
	flush  func() error
	next   func(context.Context) (feed.Window, error) // the window after cursor; waits until beat
	write  func(context.Context, io.Writer, loquat.Record) error
}

// keepsOpen is how long a stream stays open while the log cannot be read, for example during a
// failover of the database. readAgain is the pause between two attempts.
const (
	keepsOpen = time.Minute
	readAgain = 250 * time.Millisecond
)

// run sends the id at which the stream starts, then events, until the client disconnects or
// the service stops.
func (s *stream) run(ctx context.Context) error {
	if err := s.send(sse.Frame{ID: s.cursor.String()}); err != nil {
		return err
	}
	s.beat = time.Now().Add(heartbeat)
	var failing time.Time // since when the log cannot be read; zero while it can
	for {
		window, err := s.next(ctx)
		if err == nil {
			err = s.sendEvents(ctx, window.Events)
		}
		switch {
		case err == nil:
			failing = time.Time{}
		case isGone(err):
			return s.gone(err)
		case loquat.CodeOf(err) != loquat.CodeUnavailable || errors.Is(err, feed.ErrClosed):
			return err
		default:
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) > keepsOpen {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(readAgain):
			}
		}
		if !time.Now().Before(s.beat) {
			if err := s.send(sse.Frame{Name: "heartbeat", Data: []byte("{}")}); err != nil {
				return err
			}
			s.beat = time.Now().Add(heartbeat)
		}
	}
}

// sendEvents writes the events of a window and flushes them. A frame that all followers of the
// event share is written as it is.
func (s *stream) sendEvents(ctx context.Context, events []loquat.Record) error {
	switch len(events) {
	case 0:
		return nil
	case 1: // the only event of most windows needs no buffer
		if frame := events[0].Frame(); frame != nil && events[0].Rev == 0 {
			if _, err := s.out.Write(frame); err != nil {
				return err
			}
			s.cursor, events[0] = events[0].ID, loquat.Record{}
			return s.flush()
		}
	}
	out := takeBuffer(s.out)
	defer giveBack(out)
	for i := range events {
		if err := s.writeEvent(ctx, out, &events[i]); err != nil {
			if out.Flush() == nil { // the events before it; a later window begins with this one
				_ = s.flush()
			}
			return err
		}
		s.cursor = events[i].ID
		events[i] = loquat.Record{} // its memory is free as soon as it is written
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return s.flush()
}

func (s *stream) writeEvent(ctx context.Context, out *bufio.Writer, rec *loquat.Record) error {
	if rec.Rev == 0 {
		if frame := rec.Frame(); frame != nil {
			_, err := out.Write(frame)
			return err
		}
	}
	// An event is one line of JSON, so it can be written without a copy in sse.Frame.
	if err := s.write(ctx, &begunBy{out, "id: " + rec.ID.String() + "\ndata: "}, *rec); err != nil {
		return err
	}
	_, err := out.WriteString("\n\n")
	return err
}

// begunBy writes a text before the first bytes. If an event cannot be read, nothing of it is
// written.
type begunBy struct {
	out  *bufio.Writer
	text string
}

func (b *begunBy) Write(p []byte) (int, error) {
	if b.text != "" {
		_, _ = b.out.WriteString(b.text) // out keeps an error
		b.text = ""
	}
	return b.out.Write(p)
}

func (s *stream) send(f sse.Frame) error {
	if _, err := s.out.Write(f.Append(nil)); err != nil {
		return err
	}
	return s.flush()
}

// gone sends the event after which the client loads its snapshot again. It is not a status,
// because browsers hide the status of a refused stream.
func (s *stream) gone(cause error) error {
	p := route.ProblemOf(cause)
	data, err := json.Marshal(loquat.Gone{Code: p.Code, Detail: p.Detail})
	if err != nil {
		return err
	}
	return s.send(sse.Frame{Name: "gone", Data: data})
}
