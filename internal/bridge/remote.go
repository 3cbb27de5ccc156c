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
	"loquat/internal/loglimit"
	"loquat/internal/phx"
)

// Between a bridge and a server elsewhere, on the topic server:<server_id>, the server
// pushes
//
//	session_event {event}             what happened, in order; the reply acknowledges it
//	gap {latest_event_id}             what came before is not to be had; go on from there
//	access {codes, tokens}            what is open, on every join and change
//	get_chunk {id, data, encoding?}   a part of an answer; the next one waits for the reply
//	get_done {id, status, content_type} or {id, error}
//
// and the bridge
//
//	get {id, path, token, address}    read something with a token's rights
//	events {id, since_id, until_id}   read events, one a line
//	claim {id, body, address}         claim a pairing code
//	cancel {id}                       nobody waits for it any more
const (
	eventAccess  = "access"
	eventGetDone = "get_done"
	eventEvents  = "events"
	eventClaim   = "claim"
	eventCancel  = "cancel"
)

// serverParams are the parameters with which a server joins.
type serverParams struct {
	Token         string         `json:"token"`
	StoreID       string         `json:"store_id"`
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// serverJoined is the response: where to go on.
type serverJoined struct {
	LastEventID loquat.EventID `json:"last_event_id"`
}

// maxServerFrame bounds a frame of a server, and so an event: a larger one becomes a
// gap.
const maxServerFrame = 33 << 20

// The bounds of waiting for a server.
const (
	patience  = 5 * time.Second  // of a join whose server is away
	askWithin = 20 * time.Second // without a sign of the server
	maxAsking = 32               // answers that one server is asked for at a time
	maxAnswer = 64 << 20         // bytes of a window of events
)

// History is how much a hub keeps of the events of each server elsewhere.
type History struct {
	Events int // default 10,000
	Bytes  int // default 32 MiB
}

func (h History) withDefaults() History {
	return History{cmp.Or(h.Events, 10_000), cmp.Or(h.Bytes, 32<<20)}
}

// remote is a server elsewhere: the topic that it joins, the Log of what it pushed, and
// a Relay to it.
type remote struct {
	id       string
	digest   [sha256.Size]byte // of its token
	attempts *auth.Attempts
	refusals *loglimit.Logger
	log      *slog.Logger
	onReset  func(loquat.EventID) // the log goes on from there, and nothing before it counts; set before it is used

	mu      sync.Mutex
	kept    *kept
	storeID string
	joined  *serverChannel // nil: it is away
	access  map[string]Token
	codes   []string
	ready   bool          // it has told of its access
	changed chan struct{} // closed at the next change of any of these
	visits  map[*visit]struct{}
	asked   map[string]*asked
	lastAsk int
}

func newRemote(id, token string, history History, attempts *auth.Attempts, refusals *loglimit.Logger, log *slog.Logger) *remote {
	return &remote{
		id: id, digest: sha256.Sum256([]byte(token)), attempts: attempts, refusals: refusals, log: log.With("server", id), kept: newKept(history),
		changed: make(chan struct{}), visits: map[*visit]struct{}{}, asked: map[string]*asked{},
	}
}

// wake tells of a change. The caller holds the lock.
func (r *remote) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Join is of phx.Topic: the server joins. A join that it has already is over.
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
	anew := r.storeID != params.StoreID
	if anew {
		r.storeID = params.StoreID
		r.kept.reset(params.LatestEventID)
	}
	last := r.kept.last
	r.mu.Unlock()
	if former != nil {
		former.member.Close(phx.CloseRestart, "another connection of this server took over")
	}
	if anew {
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
	refused bool // an event was: what follows must not take its place; Handle's
}

// Joined is of phx.Channel.
func (c *serverChannel) Joined() {
	r := c.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = c
	r.wake()
}

// Left is of phx.Channel.
func (c *serverChannel) Left() {
	r := c.remote
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.joined != c {
		return
	}
	r.joined = nil
	r.wake()
	r.log.Info("the server is away")
}

// Handle is of phx.Channel. Nothing in it waits for an app.
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
	case eventGetChunk:
		if c.remote.part(in) {
			return // whoever takes it replies
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
	c.remote.log.Warn("what the server pushed cannot be used", "event", in.Event, "error", err)
	_ = in.Refuse(ctx, reasonInvalid)
}

// errRefusedBefore refuses the events after a refused one, until the server joins again.
var errRefusedBefore = &phx.Refusal{Reason: reasonInvalid}

// take keeps an event, unless it is there already.
func (r *remote) take(payload json.RawMessage) error {
	var params struct {
		Event json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(payload, &params); err != nil {
		return err
	}
	rec, err := parseEvent(params.Event)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.ID > r.kept.last {
		r.kept.add(rec)
		r.wake()
	}
	return nil
}

// skip goes on at a later event.
func (r *remote) skip(payload json.RawMessage) error {
	var params latest
	if err := json.Unmarshal(payload, &params); err != nil {
		return err
	}
	r.mu.Lock()
	r.kept.reset(params.LatestEventID)
	r.wake()
	r.mu.Unlock()
	r.onReset(params.LatestEventID)
	return nil
}

// Latest is of Log.
func (r *remote) Latest() loquat.EventID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.last
}

// Check is of Log. What is not kept here is asked of the server, for which it waits
// a little.
func (r *remote) Check(ctx context.Context, since loquat.EventID) error {
	r.mu.Lock()
	covered := r.kept.covers(since)
	r.mu.Unlock()
	if covered {
		return nil
	}
	for end := time.Now().Add(patience); ; pause(ctx, retryPause) {
		if err := r.await(ctx, func() bool { return r.joined != nil }); err != nil {
			return err
		}
		_, err := r.ask(ctx, eventEvents, askParams{SinceID: since, UntilID: since}, func(Part) error { return nil })
		if loquat.CodeOf(err) != loquat.CodeUnavailable || time.Now().After(end) {
			return err
		}
	}
}

// Window is of Log.
func (r *remote) Window(ctx context.Context, since, until loquat.EventID, wait time.Duration) ([]loquat.Record, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		window, covered := r.kept.window(since, until)
		changed, last := r.changed, r.kept.last
		r.mu.Unlock()
		switch {
		case since > last:
			return nil, loquat.Errorf(loquat.CodeGone, "the log of the server begins anew")
		case !covered:
			return r.read(ctx, since, cmp.Or(until, last))
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

// read reads events that are not kept here.
func (r *remote) read(ctx context.Context, since, until loquat.EventID) ([]loquat.Record, error) {
	var body []byte
	_, err := r.ask(ctx, eventEvents, askParams{SinceID: since, UntilID: until}, func(p Part) error {
		b, err := p.bytes()
		if body = append(body, b...); len(body) > maxAnswer {
			return loquat.Errorf(loquat.CodeTooLarge, "a window of events is over %d bytes", maxAnswer)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	window, err := parseLines(body)
	if err != nil { // it would be the same the next time
		r.log.Warn("what the server answers cannot be used; apps have to load their sessions again", "since", since.String(), "error", err)
		return nil, loquat.Errorf(loquat.CodeGone, "an event after %s cannot be read", since)
	}
	return window, nil
}

// AppendEvent is of Log.
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

// await waits a little until something holds. The condition runs under the lock.
func (r *remote) await(ctx context.Context, holds func() bool) error {
	deadline := time.NewTimer(patience)
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
			return errAway
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errAway = loquat.Errorf(loquat.CodeUnavailable, "the server is not connected to this bridge")
