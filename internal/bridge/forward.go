package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/phx"
)

// ForwarderOptions are what a Forwarder is made of.
type ForwarderOptions struct {
	URL      string // of the bridge, like wss://host/bridge
	ServerID string
	Token    string
	StoreID  string
	Log      Log
	Relay    *Relay
	// Access tells who may come, and of the next change of that.
	Access func() (now Access, changed <-chan struct{})
	Logger *slog.Logger
	HTTP   *http.Client // nil: one without proxy or cookies of its own
}

// Forwarder pushes the events of this server to a bridge elsewhere, from the last one
// that the bridge has acknowledged, and answers what the bridge asks for. It holds
// nothing that is not in the log, so it can begin anew at any time.
type Forwarder struct {
	opts ForwarderOptions
	log  *slog.Logger
	stop context.CancelFunc
	all  sync.WaitGroup

	connected atomic.Bool
	acked     atomic.Int64 // the last event that the bridge acknowledged
	stuck     stuck        // run's
}

// stuck counts the connections in a row that ended at the same event.
type stuck struct {
	after   loquat.EventID // the last event that the bridge had
	refused int            // the bridge refused the next event, or it could not be encoded
	broken  int            // why the connection ended is not known
}

// note counts a connection that began after an event and ended for a reason. It ended at
// that event when the bridge acknowledged nothing of what it was sent.
func (s *stuck) note(after loquat.EventID, sent bool, acked loquat.EventID, why error) {
	if s.after != after || acked > after {
		*s = stuck{after: acked} // acked is after itself, where nothing was acknowledged
	}
	switch {
	case acked > after:
	case errors.Is(why, errEventRefused) || phx.IsRefusedFrame(why):
		s.refused++
	case sent:
		s.broken++
	}
}

// gaveUp reports whether the event that follows after is not tried again.
func (s *stuck) gaveUp(after loquat.EventID) bool {
	return s.after == after && (s.refused >= maxRefused || s.refused+s.broken >= maxBroken)
}

// errEventRefused reports that an event cannot be forwarded, however often it is tried.
var errEventRefused = errors.New("an event cannot be forwarded")

// How a forwarder behaves.
const (
	maxUnacked = 256
	ackWithin  = 30 * time.Second
	dialWithin = 20 * time.Second
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	afterJoin  = time.Second      // the longest pause after a connection that was of use
	goodFor    = 10 * time.Second // a connection after which the pauses begin anew
	maxAnswers = maxAsking        // that are given at a time
	maxRefused = 3                // times that an event is refused before it becomes a gap
	maxBroken  = 12               // connections that end at an event before it becomes a gap
)

// maxEvent is the largest event that can be forwarded; a larger one becomes a gap.
const maxEvent = maxServerFrame - 1<<20

// StartForwarder starts a forwarder that runs until Close.
func StartForwarder(opts ForwarderOptions) *Forwarder {
	f := &Forwarder{opts: opts, log: opts.Logger}
	if f.log == nil {
		f.log = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.all.Go(func() { f.run(ctx) })
	return f
}

// Close returns when nothing of the forwarder runs. What it has not forwarded it will
// forward when it starts again.
func (f *Forwarder) Close() {
	f.stop()
	f.all.Wait()
}

// Connected reports whether the bridge takes events.
func (f *Forwarder) Connected() bool { return f.connected.Load() }

// Acknowledged is the last event that the bridge is known to have.
func (f *Forwarder) Acknowledged() loquat.EventID { return loquat.EventID(f.acked.Load()) }

// run connects again and again, with growing pauses.
func (f *Forwarder) run(ctx context.Context) {
	wait, told := firstPause, ""
	for ctx.Err() == nil {
		began, before := time.Now(), f.Acknowledged()
		joined, err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case time.Since(began) > goodFor, joined && f.Acknowledged() > before:
			wait, told = firstPause, ""
		case joined:
			wait, told = min(wait, afterJoin), ""
		}
		if why := err.Error(); why != told { // once, not at every attempt
			f.log.Warn("the bridge is out of reach; trying again", "bridge", f.opts.URL, "error", why)
			told = why
		}
		pause(ctx, wait/2+rand.N(wait))
		wait = min(2*wait, lastPause)
	}
}

// link is one connection to the bridge.
type link struct {
	*Forwarder
	client *phx.Client
	topic  string

	sent    bool          // an event was pushed; follow's
	unacked chan struct{} // a token for each event without a reply
	answers chan struct{} // a token for each answer that is given
	running sync.WaitGroup

	mu        sync.Mutex
	cancelled map[string]context.CancelFunc // by the id of an answer
}

// connect forwards until the connection fails, and tells whether it had joined.
func (f *Forwarder) connect(ctx context.Context) (joined bool, err error) {
	l := &link{
		Forwarder: f, topic: serverTopic + f.opts.ServerID, unacked: make(chan struct{}, maxUnacked),
		answers: make(chan struct{}, maxAnswers), cancelled: map[string]context.CancelFunc{},
	}
	start, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	ready := make(chan struct{}) // until l.client is set
	client, err := phx.Dial(start, f.opts.URL, phx.ClientOptions{HTTPClient: f.opts.HTTP, OnPush: func(_, event string, payload json.RawMessage) {
		<-ready
		l.serve(event, payload)
	}})
	if err != nil {
		return false, err
	}
	l.client = client
	close(ready)
	defer l.running.Wait()
	defer client.Close()
	defer context.AfterFunc(ctx, client.Close)()
	last, err := l.join(start)
	if err != nil {
		return false, err
	}
	f.log.Info("connected to the bridge", "bridge", f.opts.URL, "from", last.String())
	f.connected.Store(true)
	defer f.connected.Store(false)
	l.running.Go(l.tellAccess)
	err = l.follow(last)
	f.stuck.note(last, l.sent, f.Acknowledged(), err)
	return true, err
}

// join joins, and returns the last event that the bridge has.
func (l *link) join(ctx context.Context) (loquat.EventID, error) {
	response, err := l.client.Join(ctx, l.topic, serverParams{l.opts.Token, l.opts.StoreID, l.opts.Log.Latest()})
	if err != nil {
		if refusal, ok := errors.AsType[*phx.Refusal](err); ok {
			return 0, fmt.Errorf("the bridge refuses server %q: %s (bridge.server_id and bridge.token have to be among its bridge.servers)", l.opts.ServerID, refusal.Reason)
		}
		return 0, fmt.Errorf("join the bridge: %w", err)
	}
	var joined serverJoined
	if err := json.Unmarshal(response, &joined); err != nil {
		return 0, errors.New("the bridge does not say where to go on; is it a Loquat bridge?")
	}
	l.acked.Store(int64(joined.LastEventID))
	return joined.LastEventID, nil
}

// follow pushes what comes after an event, in order.
func (l *link) follow(since loquat.EventID) error {
	ctx := l.client.Context()
	for {
		window, err := l.opts.Log.Window(ctx, since, 0, pumpWait)
		switch {
		case isGone(err):
			if since, err = l.gap(l.opts.Log.Latest()); err != nil {
				return err
			}
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("read the events: %w", err)
		}
		for _, rec := range window {
			if err := l.push(ctx, since, rec); err != nil {
				return err
			}
			since = rec.ID
		}
	}
}

// push pushes the event that follows since.
func (l *link) push(ctx context.Context, since loquat.EventID, rec loquat.Record) error {
	if l.stuck.gaveUp(since) {
		l.log.Error("the bridge cannot take an event; its apps have to load their sessions again", "event", rec.ID.String(), "type", rec.Type, "session_id", rec.SessionID)
		_, err := l.gap(rec.ID)
		return err
	}
	payload, err := l.opts.Log.AppendEvent(ctx, []byte(`{"event":`), rec, false)
	if loquat.CodeOf(err) == loquat.CodeInternal {
		return fmt.Errorf("%w: encode event %s: %w", errEventRefused, rec.ID, err)
	}
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	l.sent = true
	if len(payload) > maxEvent || !loquat.NestsWithin(payload, maxEventDepth) {
		l.log.Warn("an event is too large for the bridge, or nests too deep; its apps have to load their sessions again", "event", rec.ID.String(), "bytes", len(payload))
		_, err := l.gap(rec.ID)
		return err
	}
	return l.pushAcked(eventSession, append(payload, '}'), rec.ID)
}

// gap tells the bridge that it cannot have what came before.
func (l *link) gap(at loquat.EventID) (loquat.EventID, error) {
	payload, err := json.Marshal(latest{at})
	if err != nil {
		return at, err
	}
	return at, l.pushAcked(eventGap, payload, at)
}

// pushAcked pushes something that the bridge has to acknowledge, when not too much is
// waiting for that.
func (l *link) pushAcked(event string, payload []byte, id loquat.EventID) error {
	select {
	case l.unacked <- struct{}{}:
	default:
		slow := time.NewTimer(ackWithin)
		defer slow.Stop()
		select {
		case l.unacked <- struct{}{}:
		case <-slow.C:
			return errors.New("the bridge acknowledges nothing")
		case <-l.client.Context().Done():
			return context.Cause(l.client.Context())
		}
	}
	return l.client.Push(l.topic, event, payload, func(r phx.Reply) {
		<-l.unacked
		if r.Status != phx.StatusOK {
			l.client.Fail(fmt.Errorf("%w: the bridge refuses a %s: %s", errEventRefused, event, r.Reason()))
			return
		}
		l.acked.Store(int64(id))
	})
}

// tellAccess tells the bridge who may come, now and at every change.
func (l *link) tellAccess() {
	for {
		now, changed := l.opts.Access()
		payload, err := json.Marshal(now)
		if err == nil {
			err = l.client.Push(l.topic, eventAccess, payload, nil)
		}
		if err != nil {
			l.client.Fail(fmt.Errorf("tell the bridge who may come: %w", err))
			return
		}
		select {
		case <-changed:
		case <-l.client.Context().Done():
			return
		}
	}
}

// serve gives answers to the bridge, on goroutines of their own.
func (l *link) serve(event string, payload json.RawMessage) {
	var params askParams
	if json.Unmarshal(payload, &params) != nil || params.ID == "" {
		return
	}
	if event == eventCancel {
		l.mu.Lock()
		defer l.mu.Unlock()
		if cancel := l.cancelled[params.ID]; cancel != nil {
			cancel()
		}
		return
	}
	select {
	case l.answers <- struct{}{}:
	default:
		l.done(doneParams{ID: params.ID, Error: loquat.CodeUnavailable})
		return
	}
	ctx, cancel := context.WithTimeout(l.client.Context(), getWithin)
	l.mu.Lock()
	l.cancelled[params.ID] = cancel
	l.mu.Unlock()
	l.running.Go(func() {
		l.answer(ctx, event, params)
		cancel()
		l.mu.Lock()
		delete(l.cancelled, params.ID)
		l.mu.Unlock()
		<-l.answers
	})
}

func (l *link) answer(ctx context.Context, event string, params askParams) {
	take := func(p Part) error { return l.part(ctx, params.ID, p) }
	end := doneParams{ID: params.ID}
	var err error
	switch event {
	case eventGet:
		end.Answer, err = l.opts.Relay.Get(ctx, params.Token, params.Path, params.Address, take)
	case eventClaim:
		end.Answer, err = l.opts.Relay.Claim(ctx, params.Body, params.Address, take)
	case eventEvents:
		end.Answer, err = l.events(ctx, params, take)
	default:
		err = loquat.Invalid("event", "is not known")
	}
	if err != nil {
		if ctx.Err() == nil && loquat.CodeOf(err) == loquat.CodeInternal {
			l.log.Error("could not answer the bridge", "event", event, "error", err)
		}
		end.Error = cmp.Or(loquat.CodeOf(err), loquat.CodeInternal)
	}
	l.done(end)
}

func (l *link) done(end doneParams) {
	if payload, err := json.Marshal(end); err == nil {
		_ = l.client.Push(l.topic, eventGetDone, payload, nil) // if it fails, so does the link
	}
}

// part sends a part of an answer and waits until it is taken.
func (l *link) part(ctx context.Context, id string, p Part) error {
	payload, err := json.Marshal(partParams{id, p})
	if err != nil {
		return err
	}
	taken := make(chan phx.Reply, 1)
	if err := l.client.Push(l.topic, eventGetChunk, payload, func(r phx.Reply) { taken <- r }); err != nil {
		return err
	}
	select {
	case r := <-taken:
		if r.Status != phx.StatusOK {
			return loquat.Errorf(loquat.CodeUnavailable, "nobody takes the answer any more")
		}
		return nil
	case <-l.client.Context().Done():
		return context.Cause(l.client.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unreadable returns what the bridge is answered that asks for an event which cannot be
// encoded: its apps must not ask for it again and again.
func (l *link) unreadable(rec loquat.Record, err error) error {
	if loquat.CodeOf(err) != loquat.CodeInternal {
		return err
	}
	l.log.Error("could not encode an event", "event", rec.ID.String(), "error", err)
	return loquat.Errorf(loquat.CodeGone, "event %s cannot be read", rec.ID)
}

// events answers with a window of events, one a line.
func (l *link) events(ctx context.Context, params askParams, take func(Part) error) (Answer, error) {
	if err := l.opts.Log.Check(ctx, params.SinceID); err != nil {
		return Answer{}, err
	}
	answer := Answer{http.StatusOK, "application/x-ndjson"}
	if params.UntilID <= params.SinceID {
		return answer, nil
	}
	window, err := l.opts.Log.Window(ctx, params.SinceID, params.UntilID, 0)
	if err != nil {
		return Answer{}, err
	}
	w := &partWriter{header: http.Header{"Content-Type": {answer.ContentType}}, take: take}
	var line []byte
	for size, i := 0, 0; i < len(window) && size < windowBytes; i++ {
		if line, err = l.opts.Log.AppendEvent(ctx, line[:0], window[i], false); err != nil {
			return Answer{}, l.unreadable(window[i], err)
		}
		size += len(line)
		if _, err := w.Write(append(line, '\n')); err != nil {
			return Answer{}, err
		}
	}
	return answer, w.end()
}
