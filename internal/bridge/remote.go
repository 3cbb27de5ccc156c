package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/backoff"
	"loquat/internal/loglimit"
	"loquat/internal/phx"
)

// Between a bridge and a remote server, on the topic server:<server_id>, the server
// pushes
//
//	session_event {event, user?}      an event, in order; the reply acknowledges it
//	gap {latest_event_id}             earlier events cannot be read; continue from there
//	access {codes, tokens}            the valid tokens and open codes, on every join and change; not tokens of users
//	ended {digest}                    a token about which the bridge has asked (who) is no longer valid
//	get_chunk {id, data, encoding?}   a part of an answer; the next one waits for the reply
//	get_done {id, status, content_type} or {id, error}
//
// and the bridge
//
//	get {id, path, token, address}    read something with a token's rights
//	events {id, since_id, until_id, users, user?}   read events, one per line as {event, user?}
//	who {id, token, address}          what a token may see, as a Token
//	claim {id, body, address}         claim a pairing code
//	cancel {id}                       stop answering
const (
	eventAccess  = "access"
	eventGetDone = "get_done"
	eventEvents  = "events"
	eventWho     = "who"
	eventEnded   = "ended"
	eventClaim   = "claim"
	eventCancel  = "cancel"
)

// serverParams are the parameters with which a server joins.
type serverParams struct {
	Token         string         `json:"token"`
	StoreID       string         `json:"store_id"`
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// serverJoined is the response: the last event that the bridge has.
type serverJoined struct {
	LastEventID loquat.EventID `json:"last_event_id"`
}

// maxServerFrame bounds a frame of a server. An event that needs a larger frame becomes a
// gap.
const maxServerFrame = 33 << 20

// Bounds of queries to a server.
const (
	connectWithin = 5 * time.Second // how long a join waits for a server that is not connected
	maxAsking     = 32              // concurrent queries per server
	maxAskingGets = 24              // of them reads of apps, which may take long
)

// askWithin bounds the time between two pushes of the server in an answer. A read of an app has getWithin instead: the
// server may be quiet for as long as a long poll lasts.
var askWithin = 20 * time.Second

// maxAnswer is the most bytes of a window of events.
var maxAnswer = 64 << 20

// History bounds the events that a hub keeps in memory for each remote server.
type History struct {
	Events int // default 10,000
	Bytes  int // default 32 MiB
}

func (h History) withDefaults() History {
	return History{cmp.Or(h.Events, 10_000), cmp.Or(h.Bytes, 32<<20)}
}

// remote is a remote server: the topic that it joins, the Log of the events that it
// pushed, and the queries to it.
type remote struct {
	id       string
	digest   [sha256.Size]byte // SHA-256 of its token
	attempts *auth.Attempts
	refusals *loglimit.Logger
	log      *slog.Logger
	onReset  func(loquat.EventID) // called when the log continues after an event, regardless of earlier ones; set before use

	mu        sync.Mutex
	tail      *tail
	storeID   string
	joined    *serverChannel         // nil while the server is not connected
	access    map[string]Token       // by digest: what the server has pushed
	asked     map[string]*askedToken // by digest: of users, for which the server was asked
	codes     []string
	ready     bool          // the server has pushed its tokens and codes
	changed   chan struct{} // closed at the next change of any of these
	tokenUses map[*tokenUse]struct{}
	query     map[string]*query
	asking    chan struct{} // full while maxAsking queries run
	gets      chan struct{} // full while maxAskingGets of them are reads of apps
	lastAsk   int
}

func newRemote(id, token string, history History, attempts *auth.Attempts, refusals *loglimit.Logger, log *slog.Logger) *remote {
	return &remote{
		id: id, digest: sha256.Sum256([]byte(token)), attempts: attempts, refusals: refusals, log: log.With("server", id), tail: newTail(history),
		changed: make(chan struct{}), asked: map[string]*askedToken{}, tokenUses: map[*tokenUse]struct{}{}, query: map[string]*query{},
		asking: make(chan struct{}, maxAsking), gets: make(chan struct{}, maxAskingGets),
	}
}

// notify wakes the goroutines that wait for a change. The caller holds the lock.
func (r *remote) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Join implements phx.Topic. A server that joins again replaces its earlier connection.
func (r *remote) Join(_ context.Context, m *phx.Member, payload json.RawMessage) (phx.Channel, any, error) {
	var params serverParams
	if json.Unmarshal(payload, &params) != nil || params.StoreID == "" {
		return nil, nil, &phx.Refusal{Reason: reasonInvalid}
	}
	digest := sha256.Sum256([]byte(params.Token))
	if subtle.ConstantTimeCompare(digest[:], r.digest[:]) != 1 {
		if r.attempts.WrongToken(m.Address()) != nil {
			return nil, nil, &phx.Refusal{Reason: reasonRateLimited}
		}
		r.refusals.Log(slog.LevelWarn, "a server was refused: its token is wrong", "server", r.id, "client", m.Address())
		return nil, nil, &phx.Refusal{Reason: reasonUnauthorized}
	}
	r.mu.Lock()
	former := r.joined
	r.joined = nil
	changed := r.storeID != params.StoreID
	if changed {
		r.storeID = params.StoreID
		r.tail.reset(params.LatestEventID)
	}
	last := r.tail.last
	r.mu.Unlock()
	if former != nil {
		former.member.Close(phx.CloseRestart, "another connection of this server took over")
	}
	if changed {
		r.onReset(last)
	}
	m.Trust(maxServerFrame)
	r.log.Info("the server is connected", "client", m.Address(), "last_event_id", last.String())
	return &serverChannel{remote: r, member: m}, serverJoined{last}, nil
}

// serverChannel is the joined topic of a server.
type serverChannel struct {
	remote  *remote
	member  *phx.Member
	refused bool // an event was refused, so later ones are refused too; owned by Handle

	stop   context.CancelFunc // ends asking
	asking sync.WaitGroup
}

// Joined implements phx.Channel.
func (c *serverChannel) Joined() {
	r := c.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = c
	r.notify()
	ctx, stop := context.WithCancel(c.member.Context())
	c.stop = stop
	c.asking.Go(func() { r.askAgain(ctx) })
}

// Left implements phx.Channel.
func (c *serverChannel) Left() {
	if c.stop != nil {
		c.stop()
		defer c.asking.Wait() // after the lock is released
	}
	r := c.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joined != c {
		return
	}
	r.joined = nil
	r.notify()
	r.log.Info("the server is disconnected")
}

// Handle implements phx.Channel. Nothing in it waits for an app.
func (c *serverChannel) Handle(ctx context.Context, in phx.Incoming) {
	var err error
	switch in.Event {
	case eventSession:
		if err = errRefusedBefore; !c.refused {
			err = c.remote.take(in.Payload)
			c.refused = err != nil
		}
	case eventGap:
		err = c.remote.skip(in.Payload)
	case eventAccess:
		err = c.remote.setAccess(in.Payload)
	case eventEnded:
		err = c.remote.endToken(in.Payload)
	case eventGetChunk:
		if c.remote.part(in) {
			return // the goroutine that reads the part replies
		}
		err = &phx.Refusal{Reason: "gone"}
	case eventGetDone:
		c.remote.done(in.Payload)
	default:
		err = &phx.Refusal{Reason: reasonUnknown}
	}
	if err == nil {
		_ = in.Reply(ctx, phx.StatusOK, nil)
		return
	}
	if refusal, ok := errors.AsType[*phx.Refusal](err); ok {
		_ = in.Refuse(ctx, refusal.Reason)
		return
	}
	c.remote.log.Warn("a push of the server is not valid", "event", in.Event, "error", err)
	_ = in.Refuse(ctx, reasonInvalid)
}

// errRefusedBefore refuses the events that follow a refused one, until the server joins
// again.
var errRefusedBefore = &phx.Refusal{Reason: reasonInvalid}

// take adds an event to the tail, unless the tail has it already.
func (r *remote) take(payload json.RawMessage) error {
	rec, err := parseForwarded(payload)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.ID > r.tail.last {
		r.tail.add(rec)
		r.notify()
	}
	return nil
}

// skip continues after a later event, because the server pushed a gap.
func (r *remote) skip(payload json.RawMessage) error {
	var params latest
	if err := json.Unmarshal(payload, &params); err != nil {
		return err
	}
	r.mu.Lock()
	r.tail.reset(params.LatestEventID)
	r.notify()
	r.mu.Unlock()
	r.onReset(params.LatestEventID)
	return nil
}

// Latest implements Log.
func (r *remote) Latest() loquat.EventID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.last
}

// Check implements Log. If the tail does not cover since, Check asks the server, and waits
// up to connectWithin for the server to connect.
func (r *remote) Check(ctx context.Context, since loquat.EventID) error {
	r.mu.Lock()
	covered := r.tail.covers(since)
	r.mu.Unlock()
	if covered {
		return nil
	}
	for end := time.Now().Add(connectWithin); ; backoff.Sleep(ctx, retryPause) {
		if err := r.await(ctx, func() bool { return r.joined != nil }); err != nil {
			return err
		}
		_, err := r.ask(ctx, eventEvents, askParams{SinceID: since, UntilID: since}, func(Part) error { return nil })
		if loquat.CodeOf(err) != loquat.CodeUnavailable || time.Now().After(end) {
			return err
		}
	}
}

// Window implements Log.
func (r *remote) Window(ctx context.Context, since, until loquat.EventID, user string, wait time.Duration) ([]loquat.Record, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		window, covered := r.tail.window(since, until)
		changed, last := r.changed, r.tail.last
		r.mu.Unlock()
		switch {
		case since > last:
			return nil, loquat.Errorf(loquat.CodeGone, "the log of the server was replaced")
		case !covered:
			return r.read(ctx, since, cmp.Or(until, last), user)
		case len(window) > 0 || wait <= 0:
			return window, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read asks the server for events that the tail does not have.
func (r *remote) read(ctx context.Context, since, until loquat.EventID, user string) ([]loquat.Record, error) {
	var body []byte
	_, err := r.ask(ctx, eventEvents, askParams{SinceID: since, UntilID: until, Users: true, User: user}, func(p Part) error {
		b, err := p.bytes()
		if body = append(body, b...); len(body) > maxAnswer {
			return loquat.Errorf(loquat.CodeTooLarge, "a window of events is over %d bytes", maxAnswer)
		}
		return err
	})
	if err != nil && loquat.CodeOf(err) != loquat.CodeTooLarge {
		return nil, err
	}
	var window []loquat.Record
	if err == nil {
		window, err = parseLines(body)
	}
	if err != nil { // asking again would not help
		r.log.Warn("the server's answer is not valid; apps must load their sessions again", "since", since.String(), "error", err)
		return nil, loquat.Errorf(loquat.CodeGone, "an event after %s cannot be read", since)
	}
	return window, nil
}

// AppendEvent implements Log.
func (r *remote) AppendEvent(_ context.Context, dst []byte, rec loquat.Record, omitSession bool) ([]byte, error) {
	if omitSession && carriesSession(rec.Type) {
		var o loquat.Object
		if err := json.Unmarshal(rec.Body, &o); err != nil {
			return dst, err
		}
		delete(o, "session")
		rec.Body = inOrder(o)
	}
	return rec.AppendJSON(dst, nil), nil
}

// await waits up to connectWithin until a condition holds. The condition runs under the
// lock.
func (r *remote) await(ctx context.Context, holds func() bool) error {
	deadline := time.NewTimer(connectWithin)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		ok, changed := holds(), r.changed
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return errDisconnected
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errBusy reports that so many apps read from the server that no other can.
var errBusy = loquat.Errorf(loquat.CodeBusy, "apps read as much of this server at the moment as they may at the same time; try again in a moment")

var errDisconnected = loquat.Errorf(loquat.CodeUnavailable, "the server is not connected to this bridge")
