package bridge

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/connlimit"
	"loquat/internal/loglimit"
	"loquat/internal/phx"
)

// Server is one server as apps reach it through a Hub.
type Server struct {
	ID    string
	Log   Log
	Admit Admit
	Get   Get
}

// Hub serves the sockets of apps, and of the servers that may forward to it.
type Hub struct {
	log      *slog.Logger
	refusals *loglimit.Logger
	attempts *auth.Attempts
	endpoint *phx.Endpoint
	rooms    map[string]*room   // by server_id
	servers  map[string]Server  // by server_id
	remotes  map[string]*remote // by server_id: those that forward to this hub
}

// Options are what a Hub is made of.
type Options struct {
	Local  *Server           // the server in this process, if there is one
	Tokens map[string]string // by server_id: of servers elsewhere that may forward to this hub

	// Attempts counts wrong tokens and pairing codes at servers elsewhere; nil: its own.
	// The server in this process counts for itself.
	Attempts *auth.Attempts

	Logger  *slog.Logger
	Limits  phx.Limits
	History History // of servers elsewhere
}

// NewHub makes a hub that serves.
func NewHub(opts Options) *Hub {
	h := &Hub{log: opts.Logger, rooms: map[string]*room{}, servers: map[string]Server{}, remotes: map[string]*remote{}}
	if h.log == nil {
		h.log = slog.Default()
	}
	h.refusals = loglimit.New(h.log)
	if h.attempts = opts.Attempts; h.attempts == nil {
		h.attempts = auth.NewAttempts(h.log)
	}
	if opts.Local != nil {
		h.servers[opts.Local.ID] = *opts.Local
	}
	for id, token := range opts.Tokens {
		r := newRemote(id, token, opts.History.withDefaults(), h.attempts, h.refusals, h.log)
		h.remotes[id] = r
		h.servers[id] = Server{ID: id, Log: r, Admit: r.admit, Get: r.get}
	}
	for id, s := range h.servers {
		h.rooms[id] = newRoom(appTopic+id, s.Log, h.log)
		if r := h.remotes[id]; r != nil {
			r.onReset = h.rooms[id].goOn
		}
	}
	h.endpoint = phx.NewEndpoint(h.topic, opts.Limits, h.log)
	return h
}

// Close ends all sockets and returns when nothing of the hub runs.
func (h *Hub) Close() {
	h.endpoint.Close()
	h.refusals.Flush()
	for _, r := range h.rooms {
		r.close()
	}
}

// Sockets returns how many sockets are open.
func (h *Hub) Sockets() int { return h.endpoint.Sockets() }

// Refuse says why the request of an upgrade is not served, as a *loquat.Error.
func (h *Hub) Refuse(r *http.Request, from netip.Addr) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return &loquat.Error{Code: loquat.CodeInvalid, Malformed: true, Detail: "this is a WebSocket endpoint, for clients of Phoenix Channels"}
	}
	status, detail := h.endpoint.Admit(r, from)
	switch status {
	case 0:
		return nil
	case http.StatusTooManyRequests:
		return loquat.Errorf(loquat.CodeRateLimited, "%s", detail)
	case http.StatusForbidden:
		return loquat.Errorf(loquat.CodeForbidden, "%s", detail)
	}
	return loquat.Errorf(loquat.CodeUnavailable, "%s", detail)
}

// Serve serves the socket of a request that Refuse does not refuse, until it ends.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, from netip.Addr) {
	h.endpoint.Serve(w, r, from)
}

// topic finds what a client wants to join.
func (h *Hub) topic(name string) phx.Topic {
	if id, ok := strings.CutPrefix(name, appTopic); ok {
		if s, ok := h.servers[id]; ok {
			return &appJoins{server: s, room: h.rooms[id], log: h.log, refusals: h.refusals}
		}
	}
	if id, ok := strings.CutPrefix(name, serverTopic); ok && h.remotes[id] != nil {
		return h.remotes[id]
	}
	return nil
}

// appJoins lets apps join the events of a server.
type appJoins struct {
	server   Server
	room     *room
	log      *slog.Logger
	refusals *loglimit.Logger
}

// joinParams are the parameters of a join.
type joinParams struct {
	Token   *string         `json:"token"`
	SinceID json.RawMessage `json:"since_id"`
	Session *string         `json:"session"`
}

func (p *joinParams) since() (id loquat.EventID, given bool, err error) {
	if len(p.SinceID) == 0 || string(p.SinceID) == "null" {
		return 0, false, nil
	}
	var text string
	if err := json.Unmarshal(p.SinceID, &text); err != nil {
		return 0, false, err
	}
	if text == "" { // the same as null
		return 0, false, nil
	}
	id, err = loquat.ParseSinceID(text)
	return id, true, err
}

// joined is the response to a join. LatestEventID is where the app stands that said
// nothing of where it stood, or has to load its snapshot again.
type joined struct {
	Gap           bool           `json:"gap,omitempty"`
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// Join is of phx.Topic.
func (t *appJoins) Join(ctx context.Context, m *phx.Member, payload json.RawMessage) (phx.Channel, any, error) {
	var params joinParams
	if err := json.Unmarshal(payload, &params); err != nil {
		return nil, nil, &phx.Refusal{Reason: reasonInvalid}
	}
	since, given, err := params.since()
	if err != nil || params.Session != nil && *params.Session != "omit" {
		return nil, nil, &phx.Refusal{Reason: reasonInvalid}
	}
	token := ""
	if params.Token != nil {
		token = *params.Token
	}
	guest, err := t.server.Admit(ctx, token, m.Address())
	if err != nil {
		return nil, nil, t.refuse(m, err)
	}
	response, err := t.start(ctx, since, given)
	if err != nil {
		return nil, nil, t.refuse(m, err)
	}
	position := since
	if !given || response.Gap {
		position = response.LatestEventID
	}
	return newAppChannel(t, m, guest, token, position, params.Session != nil), response, nil
}

// start finds out where an app begins.
func (t *appJoins) start(ctx context.Context, since loquat.EventID, given bool) (joined, error) {
	at := joined{LatestEventID: t.server.Log.Latest()}
	if !given {
		return at, nil
	}
	err := t.server.Log.Check(ctx, since)
	if isGone(err) || loquat.CodeOf(err) == loquat.CodeUnavailable {
		return joined{Gap: true, LatestEventID: t.server.Log.Latest()}, nil
	}
	return at, err
}

// refuse makes of an error what the app is told.
func (t *appJoins) refuse(m *phx.Member, err error) error {
	reason := ""
	switch loquat.CodeOf(err) {
	case loquat.CodeUnauthorized:
		reason = reasonUnauthorized
	case loquat.CodeRateLimited:
		reason = reasonRateLimited
	case loquat.CodeUnavailable:
		reason = reasonUnavailable
	default:
		return err
	}
	t.refusals.Log(slog.LevelInfo, "a join was refused", "topic", m.Topic(), "client", m.Address(), "reason", reason)
	return &phx.Refusal{Reason: reason}
}

// appChannel is the joined topic of an app.
type appChannel struct {
	app    *app
	joins  *appJoins
	member *phx.Member
	guest  Guest
	token  string
	stay   func() // ends the watch over the token

	gets sync.WaitGroup
	busy chan struct{} // a token for each get that runs
}

// maxGets is how many gets of one app run at a time.
const maxGets = 4

func newAppChannel(t *appJoins, m *phx.Member, guest Guest, token string, position loquat.EventID, omit bool) *appChannel {
	a := &app{room: t.room, member: m, session: guest.SessionID, omitSession: omit, position: position}
	a.ctx, a.stop = context.WithCancel(t.room.ctx)
	return &appChannel{app: a, joins: t, member: m, guest: guest, token: token, busy: make(chan struct{}, maxGets)}
}

// Joined is of phx.Channel.
func (c *appChannel) Joined() {
	release := connlimit.Hold(c.member.Context())
	during, end := c.guest.During(c.app.ctx)
	unwatch := context.AfterFunc(during, func() {
		if c.app.ctx.Err() == nil { // it did not leave by itself
			c.member.Close(phx.ClosePolicy, "the token is no longer good")
		}
	})
	c.stay = func() { unwatch(); end(); release() }
	c.app.room.enter(c.app)
}

// Left is of phx.Channel.
func (c *appChannel) Left() {
	c.app.room.leave(c.app)
	if c.stay != nil {
		c.stay()
	}
	c.gets.Wait()
}

// getParams is the payload of a get.
type getParams struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

// partParams is the payload of a get_chunk.
type partParams struct {
	ID string `json:"id"`
	Part
}

// Handle is of phx.Channel.
func (c *appChannel) Handle(ctx context.Context, in phx.Incoming) {
	if in.Event != eventGet {
		_ = in.Refuse(ctx, reasonUnknown)
		return
	}
	var params getParams
	if json.Unmarshal(in.Payload, &params) != nil || params.ID == "" || len(params.ID) > 64 || !strings.HasPrefix(params.Path, "/") {
		_ = in.Refuse(ctx, reasonInvalid)
		return
	}
	select {
	case c.busy <- struct{}{}:
	default:
		_ = in.Refuse(ctx, reasonBusy)
		return
	}
	c.gets.Go(func() {
		defer func() { <-c.busy }()
		c.get(in, params)
	})
}

// getWithin bounds how long a get may take, its app's reading included.
const getWithin = 2 * time.Minute

func (c *appChannel) get(in phx.Incoming, params getParams) {
	ctx, cancel := context.WithTimeout(c.app.ctx, getWithin)
	defer cancel()
	answer, err := c.joins.server.Get(ctx, c.token, params.Path, c.member.Address(), func(part Part) error {
		payload, err := json.Marshal(partParams{params.ID, part})
		if err != nil {
			return err
		}
		return c.member.Send(ctx, phx.NewPush(c.member.Topic(), eventGetChunk, payload))
	})
	switch {
	case err == nil:
		_ = in.Reply(ctx, phx.StatusOK, answer) // who is gone asks again
	case c.app.ctx.Err() != nil:
	case ctx.Err() != nil:
		_ = in.Refuse(c.app.ctx, reasonUnavailable)
	default:
		if loquat.CodeOf(err) == loquat.CodeInternal {
			c.joins.log.Error("could not get what an app asked for", "topic", c.member.Topic(), "error", err)
		}
		_ = in.Refuse(c.app.ctx, string(loquat.CodeOf(err)))
	}
}
