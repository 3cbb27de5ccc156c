package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"loquat"
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

// Access is what a server tells its bridge of who may come. It opens nothing.
type Access struct {
	Codes  []string `json:"codes"` // public parts of pairing codes that are open
	Tokens []Token  `json:"tokens"`
}

// Token is a token as a bridge knows it.
type Token struct {
	Digest    string     `json:"digest"` // SHA-256, hex
	Scope     string     `json:"scope"`
	SessionID string     `json:"session_id,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// NewToken makes a Token of the digest of one; a zero time is never.
func NewToken(digest [sha256.Size]byte, scope, sessionID string, expires time.Time) Token {
	t := Token{Digest: hex.EncodeToString(digest[:]), Scope: scope, SessionID: sessionID}
	if !expires.IsZero() {
		t.ExpiresAt = &expires
	}
	return t
}

// askParams is what a bridge asks of a server.
type askParams struct {
	ID      string          `json:"id"`
	Path    string          `json:"path,omitempty"`
	Token   string          `json:"token,omitempty"`
	Address netip.Addr      `json:"address,omitzero"`
	SinceID loquat.EventID  `json:"since_id,omitempty"`
	UntilID loquat.EventID  `json:"until_id,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// doneParams is the end of an answer.
type doneParams struct {
	ID string `json:"id"`
	Answer
	Error loquat.Code `json:"error,omitempty"`
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
	id      string
	digest  [sha256.Size]byte // of its token
	log     *slog.Logger
	onReset func(loquat.EventID) // the log goes on from there, and nothing before it counts; set before it is used

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

func newRemote(id, token string, history History, log *slog.Logger) *remote {
	return &remote{
		id: id, digest: sha256.Sum256([]byte(token)), log: log.With("server", id), kept: newKept(history),
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
		r.log.Warn("a server was refused: its token is wrong", "client", m.Address())
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
	remote *remote
	member *phx.Member
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
		err = c.remote.take(in.Payload)
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
	return parseLines(body)
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

// setAccess takes over who may come, and cuts off who may not any more.
func (r *remote) setAccess(payload json.RawMessage) error {
	var a Access
	if err := json.Unmarshal(payload, &a); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.access, r.codes, r.ready = make(map[string]Token, len(a.Tokens)), a.Codes, true
	for _, t := range a.Tokens {
		r.access[t.Digest] = t
	}
	for v := range r.visits {
		if now, ok := r.access[v.token.Digest]; !ok || now.SessionID != v.token.SessionID {
			v.end()
		}
	}
	r.wake()
	return nil
}

// visit is what runs for a token.
type visit struct {
	token Token
	end   context.CancelFunc
}

// admit is an Admit.
func (r *remote) admit(ctx context.Context, token string, _ netip.Addr) (Guest, error) {
	if err := r.await(ctx, func() bool { return r.ready }); err != nil {
		return Guest{}, err
	}
	sum := sha256.Sum256([]byte(token))
	r.mu.Lock()
	t, ok := r.access[hex.EncodeToString(sum[:])]
	r.mu.Unlock()
	if !ok || t.expired() {
		return Guest{}, loquat.Errorf(loquat.CodeUnauthorized, "the token is not known")
	}
	return Guest{SessionID: t.SessionID, During: func(ctx context.Context) (context.Context, context.CancelFunc) { return r.during(ctx, t) }}, nil
}

func (t Token) expired() bool { return t.ExpiresAt != nil && !time.Now().Before(*t.ExpiresAt) }

// during is of Guest.
func (r *remote) during(ctx context.Context, t Token) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	stop := func() {}
	if t.ExpiresAt != nil {
		ctx, stop = context.WithDeadline(ctx, *t.ExpiresAt)
	}
	v := &visit{t, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.access[t.Digest]; !ok {
		end()
	}
	r.visits[v] = struct{}{}
	return ctx, func() {
		r.mu.Lock()
		delete(r.visits, v)
		r.mu.Unlock()
		stop()
		end()
	}
}

// opens reports whether a pairing code with that public part is open at the server.
func (r *remote) opens(public string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, code := range r.codes {
		if code == public {
			return true
		}
	}
	return false
}

// get is a Get.
func (r *remote) get(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error) {
	return r.ask(ctx, eventGet, askParams{Path: path, Token: token, Address: from}, take)
}

// asked is an answer that the server is asked for.
type asked struct {
	parts chan takenPart
	end   chan doneParams
}

type takenPart struct {
	part Part
	in   phx.Incoming
}

// ask asks the server for something and takes the answer.
func (r *remote) ask(ctx context.Context, event string, params askParams, take func(Part) error) (Answer, error) {
	q := &asked{parts: make(chan takenPart, 1), end: make(chan doneParams, 1)}
	r.mu.Lock()
	server := r.joined
	if server == nil || len(r.asked) >= maxAsking {
		r.mu.Unlock()
		return Answer{}, errAway
	}
	r.lastAsk++
	params.ID = strconv.Itoa(r.lastAsk)
	r.asked[params.ID] = q
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.asked, params.ID)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(server.member.Context(), cancel)() // it is away
	if err := server.push(ctx, event, params); err != nil {
		return Answer{}, errAway
	}
	answer, err := q.wait(ctx, take)
	if err != nil {
		_ = server.push(server.member.Context(), eventCancel, askParams{ID: params.ID})
	}
	if ctx.Err() != nil && server.member.Context().Err() != nil {
		return Answer{}, errAway
	}
	return answer, err
}

func (c *serverChannel) push(ctx context.Context, event string, params askParams) error {
	payload, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return c.member.Send(ctx, phx.NewPush(c.member.Topic(), event, payload))
}

// wait hands on the parts of the answer until its end.
func (q *asked) wait(ctx context.Context, take func(Part) error) (Answer, error) {
	silence := time.NewTimer(askWithin)
	defer silence.Stop()
	for {
		select {
		case p := <-q.parts:
			if err := take(p.part); err != nil {
				_ = p.in.Refuse(ctx, "gone")
				return Answer{}, err
			}
			if err := p.in.Reply(ctx, phx.StatusOK, nil); err != nil {
				return Answer{}, errAway
			}
		case end := <-q.end:
			if end.Error != "" {
				return Answer{}, loquat.Errorf(end.Error, "the server says %s", end.Error)
			}
			return end.Answer, nil
		case <-silence.C:
			return Answer{}, errAway
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
		silence.Reset(askWithin)
	}
}

// part hands on a part of an answer; false is that nobody waits for it.
func (r *remote) part(in phx.Incoming) bool {
	var params partParams
	if json.Unmarshal(in.Payload, &params) != nil {
		return false
	}
	r.mu.Lock()
	q := r.asked[params.ID]
	r.mu.Unlock()
	if q == nil {
		return false
	}
	select {
	case q.parts <- takenPart{params.Part, in}:
		return true
	default: // it did not wait for the reply to the one before
		return false
	}
}

func (r *remote) done(payload json.RawMessage) {
	var params doneParams
	if json.Unmarshal(payload, &params) != nil {
		return
	}
	r.mu.Lock()
	q := r.asked[params.ID]
	r.mu.Unlock()
	if q == nil {
		return
	}
	select {
	case q.end <- params:
	default:
	}
}
