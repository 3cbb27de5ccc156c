package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/phx"
)

// ForwarderOptions configure a Forwarder.
type ForwarderOptions struct {
	URL      string // of the bridge, like wss://host/bridge
	ServerID string
	Token    string
	StoreID  string
	Log      Log
	Relay    *Relay
	// Leads reports whether this node forwards, of all nodes that have the log; nil means always.
	Leads func() bool
	// Access returns the tokens and pairing codes that apps may use, and a channel that
	// is closed at their next change. It leaves out tokens of users, of which there may be very many.
	Access func() (now Access, changed <-chan struct{})
	// Authenticate says what one of the other tokens may see.
	Authenticate Authenticate
	Logger       *slog.Logger
	HTTP         *http.Client // nil means the default of phx.Dial
}

// Forwarder pushes the events of this server to a remote bridge, starting after the last
// event that the bridge acknowledged, and answers the bridge's queries. All its state is
// in the log and at the bridge, so it can restart at any time, also on another node. While its
// node does not lead, it is not connected.
type Forwarder struct {
	opts ForwarderOptions
	log  *slog.Logger
	stop context.CancelFunc
	all  sync.WaitGroup

	leading   atomic.Bool
	connected atomic.Bool
	acked     atomic.Int64 // the last event that the bridge acknowledged
	stuck     stuck        // owned by the run goroutine
}

// stuck counts the connections in a row that ended at the same event.
type stuck struct {
	after   loquat.EventID // the last event that the bridge had
	refused int            // connections whose next event was refused or could not be encoded
	broken  int            // connections that ended for an unknown reason
}

// note counts a connection that began after an event. The connection counts as stuck at
// that event if the bridge acknowledged nothing more before it ended.
func (s *stuck) note(after loquat.EventID, sent bool, acked loquat.EventID, why error) {
	if s.after != after || acked > after {
		*s = stuck{after: acked} // acked equals after if nothing was acknowledged
	}
	switch {
	case acked > after:
	case errors.Is(why, errEventRefused) || phx.IsRefusedFrame(why):
		s.refused++
	case sent:
		s.broken++
	}
}

// givesUp reports whether the next event is replaced by a gap.
func (s *stuck) givesUp(after loquat.EventID) bool {
	return s.after == after && (s.refused >= maxRefused || s.refused+s.broken >= maxBroken)
}

// errEventRefused reports that an event can never be forwarded.
var errEventRefused = errors.New("an event cannot be forwarded")

// Bounds and times of a forwarder.
const (
	maxUnacked        = 256
	ackWithin         = 30 * time.Second
	dialWithin        = 20 * time.Second
	failuresAfterJoin = 3                // the most that count after a connection that had joined: a delay below 1 s
	stableAfter       = 10 * time.Second // a connection this long resets the delay
	maxAnswers        = maxAsking        // concurrent answers
	maxRefused        = 3                // times that an event is refused before it becomes a gap
	maxBroken         = 12               // connections that end at an event before it becomes a gap
	checkLeads        = 500 * time.Millisecond
	catchUpWithin     = 5 * time.Second // for events of which the bridge knows and this node does not yet
)

// reconnect is the delay between connections of a forwarder.
var reconnect = backoff.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: true}

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

// Close stops the forwarder and waits for its goroutines. The next forwarder continues
// after the last acknowledged event.
func (f *Forwarder) Close() {
	f.stop()
	f.all.Wait()
}

// Connected reports whether the forwarder has joined the bridge.
func (f *Forwarder) Connected() bool { return f.connected.Load() }

// acknowledged returns the last event that the bridge acknowledged.
func (f *Forwarder) acknowledged() loquat.EventID { return loquat.EventID(f.acked.Load()) }

// run connects while this node leads.
func (f *Forwarder) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !f.leads() {
			f.leading.Store(false)
			backoff.Sleep(ctx, checkLeads)
			continue
		}
		f.leading.Store(true)
		leading, stop := context.WithCancel(ctx)
		f.all.Go(func() {
			for f.leads() && backoff.Sleep(leading, checkLeads) == nil {
			}
			stop()
		})
		f.connectAgain(leading)
		stop()
	}
}

// leads reports whether this node forwards.
func (f *Forwarder) leads() bool { return f.opts.Leads == nil || f.opts.Leads() }

// connectAgain connects again after each failure, with growing delays, until ctx ends.
func (f *Forwarder) connectAgain(ctx context.Context) {
	failures, lastLogged := 0, ""
	for ctx.Err() == nil {
		began, before := time.Now(), f.acknowledged()
		joined, err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case time.Since(began) > stableAfter, joined && f.acknowledged() > before:
			failures, lastLogged = 0, ""
		case joined:
			failures, lastLogged = min(failures, failuresAfterJoin), ""
		}
		if why := err.Error(); why != lastLogged { // log each reason once, not at every attempt
			f.log.Warn("the bridge is out of reach; trying again", "bridge", f.opts.URL, "error", why)
			lastLogged = why
		}
		reconnect.Wait(ctx, failures)
		failures++
	}
}

// link is one connection to the bridge.
type link struct {
	*Forwarder
	client *phx.Client
	topic  string

	sent    bool          // an event was pushed; owned by follow
	unacked chan struct{} // one element for each event without a reply
	answers chan struct{} // one element for each answer in progress
	running sync.WaitGroup

	mu      sync.Mutex
	cancels map[string]context.CancelFunc // by the query's id
	watched map[[sha256.Size]byte]bool    // digests of the tokens whose end will be reported to the bridge
}

// connect forwards until the connection fails. It reports whether it had joined.
func (f *Forwarder) connect(ctx context.Context) (joined bool, err error) {
	l := &link{
		Forwarder: f, topic: serverTopic + f.opts.ServerID, unacked: make(chan struct{}, maxUnacked),
		answers: make(chan struct{}, maxAnswers), cancels: map[string]context.CancelFunc{}, watched: map[[sha256.Size]byte]bool{},
	}
	start, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	ready := make(chan struct{}) // closed when l.client is set
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
	l.running.Go(l.pushAccess)
	err = l.follow(last)
	f.stuck.note(last, l.sent, f.acknowledged(), err)
	return true, err
}

// join joins the server's topic and returns the last event that the bridge has.
func (l *link) join(ctx context.Context) (loquat.EventID, error) {
	_ = l.opts.Log.Check(ctx, l.opts.Log.Latest()) // A new bridge begins at Latest. If Check fails, the events come later.
	response, err := l.client.Join(ctx, l.topic, serverParams{l.opts.Token, l.opts.StoreID, l.opts.Log.Latest()})
	if err != nil {
		if refusal, ok := errors.AsType[*phx.Refusal](err); ok {
			return 0, fmt.Errorf("the bridge refuses server %q: %s (its bridge.servers must list this bridge.server_id with this bridge.token)", l.opts.ServerID, refusal.Reason)
		}
		return 0, fmt.Errorf("join the bridge: %w", err)
	}
	var joined serverJoined
	if err := json.Unmarshal(response, &joined); err != nil {
		return 0, errors.New("the bridge's reply to the join is not valid; is it a Loquat bridge?")
	}
	l.acked.Store(int64(joined.LastEventID))
	return joined.LastEventID, l.catchUp(ctx, joined.LastEventID)
}

// catchUp waits for events that the bridge has from another node and that this node has not seen
// yet. Otherwise they would look lost.
func (l *link) catchUp(ctx context.Context, last loquat.EventID) error {
	for end := time.Now().Add(catchUpWithin); l.opts.Log.Latest() < last && time.Now().Before(end); {
		if err := backoff.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// follow pushes the events after since, in order, until the connection fails.
func (l *link) follow(since loquat.EventID) error {
	ctx := l.client.Context()
	for {
		window, err := l.opts.Log.Window(ctx, since, 0, "", pumpWait)
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
	if l.stuck.givesUp(since) {
		l.log.Error("the bridge refuses an event; its apps must load their sessions again", "event", rec.ID.String(), "type", rec.Type, "session_id", rec.SessionID)
		_, err := l.gap(rec.ID)
		return err
	}
	payload, err := l.append(ctx, nil, rec)
	if loquat.CodeOf(err) == loquat.CodeInternal {
		return fmt.Errorf("%w: encode event %s: %w", errEventRefused, rec.ID, err)
	}
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	l.sent = true
	if len(payload) > maxEvent || !loquat.NestsWithin(payload, maxEventDepth) {
		l.log.Warn("an event is too large or nests too deep for the bridge; its apps must load their sessions again", "event", rec.ID.String(), "bytes", len(payload))
		_, err := l.gap(rec.ID)
		return err
	}
	return l.pushAcked(eventSession, payload, rec.ID)
}

// append appends an event as a bridge gets it: {event}, and with a user {event, user}.
func (l *link) append(ctx context.Context, dst []byte, rec loquat.Record) ([]byte, error) {
	dst, err := l.opts.Log.AppendEvent(ctx, append(dst, `{"event":`...), rec, false)
	if rec.User != "" {
		dst = append(append(dst, `,"user":`...), loquat.Quote(rec.User)...)
	}
	return append(dst, '}'), err
}

// gap pushes a gap: the events up to at cannot be forwarded. It returns at.
func (l *link) gap(at loquat.EventID) (loquat.EventID, error) {
	payload, err := json.Marshal(latest{at})
	if err != nil {
		return at, err
	}
	return at, l.pushAcked(eventGap, payload, at)
}

// pushAcked pushes an event that the bridge must acknowledge. It waits while maxUnacked
// pushes have no reply yet, but at most ackWithin.
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

// pushAccess pushes the valid tokens and pairing codes, now and at every change.
func (l *link) pushAccess() {
	for {
		now, changed := l.opts.Access()
		payload, err := json.Marshal(now)
		if err == nil {
			err = l.client.Push(l.topic, eventAccess, payload, nil)
		}
		if err != nil {
			l.client.Fail(fmt.Errorf("push the tokens to the bridge: %w", err))
			return
		}
		select {
		case <-changed:
		case <-l.client.Context().Done():
			return
		}
	}
}

// serve answers a query of the bridge in a new goroutine.
func (l *link) serve(event string, payload json.RawMessage) {
	var params askParams
	if json.Unmarshal(payload, &params) != nil || params.ID == "" {
		return
	}
	if event == eventCancel {
		l.mu.Lock()
		defer l.mu.Unlock()
		if cancel := l.cancels[params.ID]; cancel != nil {
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
	l.cancels[params.ID] = cancel
	l.mu.Unlock()
	l.running.Go(func() {
		l.answer(ctx, event, params)
		cancel()
		l.mu.Lock()
		delete(l.cancels, params.ID)
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
		end.Answer, err = l.opts.Relay.claim(ctx, params.Body, params.Address, take)
	case eventEvents:
		end.Answer, err = l.events(ctx, params, take)
	case eventWho:
		err = l.who(ctx, params, take)
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
		_ = l.client.Push(l.topic, eventGetDone, payload, nil) // an error also ends the link
	}
}

// part sends a part of an answer and waits for the bridge's reply.
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
			return loquat.Errorf(loquat.CodeUnavailable, "the bridge refuses the answer; its client has disconnected")
		}
		return nil
	case <-l.client.Context().Done():
		return context.Cause(l.client.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// who answers what the token of an app may see. From then on the end of the token is reported to the bridge.
func (l *link) who(ctx context.Context, params askParams, take func(Part) error) error {
	who, err := l.opts.Authenticate(ctx, params.Token, params.Address)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(params.Token))
	text, err := json.Marshal(NewToken(digest, who))
	if err == nil {
		err = take(Part{Data: string(text)})
	}
	if err == nil {
		l.watch(digest, who) // the bridge has the answer, so the end of the token comes after it
	}
	return err
}

// watch pushes the digest of a token to the bridge when the token ends.
func (l *link) watch(digest [sha256.Size]byte, who Principal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[digest] {
		return
	}
	l.watched[digest] = true
	during, end := who.During(l.client.Context())
	l.running.Go(func() {
		<-during.Done()
		end()
		l.mu.Lock()
		delete(l.watched, digest)
		l.mu.Unlock()
		if l.client.Context().Err() == nil {
			_ = l.client.Push(l.topic, eventEnded, fmt.Appendf(nil, `{"digest":"%x"}`, digest), nil) // an error also ends the link
		}
	})
}

// unreadable returns the error for an event that cannot be encoded. It is CodeGone, so
// that apps do not ask for the event again.
func (l *link) unreadable(rec loquat.Record, err error) error {
	if loquat.CodeOf(err) != loquat.CodeInternal {
		return err
	}
	l.log.Error("could not encode an event", "event", rec.ID.String(), "error", err)
	return loquat.Errorf(loquat.CodeGone, "event %s cannot be read", rec.ID)
}

// events answers with a window of events, one per line: as append appends it, or without its user for a bridge
// that knows no users.
func (l *link) events(ctx context.Context, params askParams, take func(Part) error) (Answer, error) {
	if err := l.opts.Log.Check(ctx, params.SinceID); err != nil {
		return Answer{}, err
	}
	answer := Answer{http.StatusOK, "application/x-ndjson"}
	if params.UntilID <= params.SinceID {
		return answer, nil
	}
	window, err := l.opts.Log.Window(ctx, params.SinceID, params.UntilID, params.User, 0)
	if err != nil {
		return Answer{}, err
	}
	w := &partWriter{header: http.Header{"Content-Type": {answer.ContentType}}, take: take}
	appendEvent := l.append
	if !params.Users {
		appendEvent = func(ctx context.Context, dst []byte, rec loquat.Record) ([]byte, error) {
			return l.opts.Log.AppendEvent(ctx, dst, rec, false)
		}
	}
	var line []byte
	for size, i := 0, 0; i < len(window) && size < windowBytes; i++ {
		if line, err = appendEvent(ctx, line[:0], window[i]); err != nil {
			return Answer{}, l.unreadable(window[i], err)
		}
		size += len(line)
		if _, err := w.Write(append(line, '\n')); err != nil {
			return Answer{}, err
		}
	}
	return answer, w.end()
}
