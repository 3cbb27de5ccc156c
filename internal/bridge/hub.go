package bridge

import (
	"context"
	"encoding/json"
	"errors"
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

// Server holds the functions through which a Hub reaches one server.
type Server struct {
	ID           string
	Log          Log
	Authenticate Authenticate
	Get          Get
}

// Hub serves the sockets of apps and of the servers that forward to it.
type Hub struct {
	log          *slog.Logger
	refusals     *loglimit.Logger
	attempts     *auth.Attempts
	endpoint     *phx.Endpoint
	broadcasters map[string]*broadcaster // by server_id
	servers      map[string]Server       // by server_id
	remotes      map[string]*remote      // by server_id: servers that forward to this hub
}

// Options configure a Hub.
type Options struct {
	Local  *Server           // the server in this process; nil if there is none
	Tokens map[string]string // by server_id: tokens of the remote servers that may forward to this hub

	// Attempts limits wrong tokens and pairing codes for remote servers; nil means a new
	// limiter. The server in this process has its own.
	Attempts *auth.Attempts

	Logger  *slog.Logger
	Limits  phx.Limits
	History History // bounds of the events kept for each remote server
}

// NewHub returns a Hub that is ready to serve.
func NewHub(opts Options) *Hub {
	h := &Hub{log: opts.Logger, broadcasters: map[string]*broadcaster{}, servers: map[string]Server{}, remotes: map[string]*remote{}}
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
		h.servers[id] = Server{ID: id, Log: r, Authenticate: r.authenticate, Get: r.get}
	}
	for id, s := range h.servers {
		h.broadcasters[id] = newBroadcaster(appTopic+id, s.Log, h.log)
		if r := h.remotes[id]; r != nil {
			r.onReset = h.broadcasters[id].jumpTo
		}
	}
	h.endpoint = phx.NewEndpoint(h.topic, opts.Limits, h.log)
	return h
}

// Close ends all sockets and waits for the hub's goroutines.
func (h *Hub) Close() {
	h.endpoint.Close()
	h.refusals.Flush()
	for _, r := range h.broadcasters {
		r.close()
	}
}

// Sockets returns how many sockets are open.
func (h *Hub) Sockets() int { return h.endpoint.Sockets() }

// Refuse checks an upgrade request. It returns a *loquat.Error if the request must be
// refused, and nil otherwise.
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

// Serve upgrades a request that passed Refuse, and returns when its socket ends.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, from netip.Addr) {
	h.endpoint.Serve(w, r, from)
}

// topic returns the topic with a name, nil if there is none.
func (h *Hub) topic(name string) phx.Topic {
	if id, ok := strings.CutPrefix(name, appTopic); ok {
		if s, ok := h.servers[id]; ok {
			return &appTopicJoin{server: s, broadcaster: h.broadcasters[id], log: h.log, refusals: h.refusals}
		}
	}
	if id, ok := strings.CutPrefix(name, serverTopic); ok && h.remotes[id] != nil {
		return h.remotes[id]
	}
	return nil
}

// appTopicJoin lets apps join the events of a server.
type appTopicJoin struct {
	server      Server
	broadcaster *broadcaster
	log         *slog.Logger
	refusals    *loglimit.Logger
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
	if text == "" { // means the same as null
		return 0, false, nil
	}
	id, err = loquat.ParseSinceID(text)
	return id, true, err
}

// joined is the response to a join. LatestEventID is the cursor of an app that sent no
// since_id or that must load its snapshot again.
type joined struct {
	Gap           bool           `json:"gap,omitempty"`
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// Join implements phx.Topic.
func (t *appTopicJoin) Join(ctx context.Context, m *phx.Member, payload json.RawMessage) (phx.Channel, any, error) {
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
	principal, err := t.server.Authenticate(ctx, token, m.Address())
	if err != nil {
		return nil, nil, t.refuse(m, err)
	}
	response, err := t.start(ctx, since, given)
	if err != nil {
		return nil, nil, t.refuse(m, err)
	}
	cursor := since
	if !given || response.Gap {
		cursor = response.LatestEventID
	}
	a := &app{
		broadcaster: t.broadcaster, member: m, sight: principal.Sight, omitSession: params.Session != nil,
		cursor: cursor, atLeast: response.LatestEventID,
	}
	a.ctx, a.stop = context.WithCancel(t.broadcaster.ctx)
	return &appChannel{app: a, joins: t, member: m, principal: principal, token: token, busy: make(chan struct{}, maxGets)}, response, nil
}

// start returns the response to a join: the newest event, or a gap if the events after
// since cannot be read.
func (t *appTopicJoin) start(ctx context.Context, since loquat.EventID, given bool) (joined, error) {
	var err error
	if given {
		err = t.server.Log.Check(ctx, since)
	}
	gap := isGone(err) || errors.Is(err, errDisconnected)
	if gap {
		err = nil
	}
	return joined{Gap: gap, LatestEventID: t.server.Log.Latest()}, err // Latest after Check, see Log
}

// refuse converts an error to the refusal that the app gets, and logs it.
func (t *appTopicJoin) refuse(m *phx.Member, err error) error {
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
	app       *app
	joins     *appTopicJoin
	member    *phx.Member
	principal Principal
	token     string
	release   func() // stops watching the token and gives up the connection's priority

	gets sync.WaitGroup
	busy chan struct{} // one element for each running get
}

// maxGets bounds the concurrent gets of one app.
const maxGets = 4

// Joined implements phx.Channel.
func (c *appChannel) Joined() {
	release := connlimit.Hold(c.member.Context())
	during, end := c.principal.During(c.app.ctx)
	unwatch := context.AfterFunc(during, func() {
		if c.app.ctx.Err() == nil { // otherwise the app left by itself
			c.member.Close(phx.ClosePolicy, "the token is no longer valid")
		}
	})
	c.release = func() { unwatch(); end(); release() }
	c.app.broadcaster.enter(c.app)
}

// Left implements phx.Channel.
func (c *appChannel) Left() {
	c.app.broadcaster.leave(c.app)
	if c.release != nil {
		c.release()
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

// Handle implements phx.Channel.
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

// getWithin bounds a get, including the time the app takes to read the answer.
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
		_ = in.Reply(ctx, phx.StatusOK, answer) // an app that disconnected asks again
	case c.app.ctx.Err() != nil:
	case ctx.Err() != nil:
		_ = in.Refuse(c.app.ctx, reasonUnavailable)
	default:
		if loquat.CodeOf(err) == loquat.CodeInternal {
			c.joins.log.Error("could not answer an app's get", "topic", c.member.Topic(), "error", err)
		}
		_ = in.Refuse(c.app.ctx, string(loquat.CodeOf(err)))
	}
}
