// Package httpapi is the HTTP API: one file for each resource, which takes JSON, makes one
// call to package chat and returns JSON. Package route is the framework below: the table of
// routes, parameters, bodies, problems and the OpenAPI document.
//
// This package decides who may call which route (permissions.go), checks Host and Origin, and bounds
// the cost of connections: no input is read past its bound, and a client that stops reading is
// disconnected. Its only state is counters and limiters.
package httpapi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/httpapi/route"
	"loquat/internal/trace"
	"loquat/internal/webhook"
)

// Options are the parts and settings of the API.
type Options struct {
	Service  *chat.Service
	Feed     *feed.Feed
	Access   *auth.Keeper
	Config   *config.Live
	Logger   *slog.Logger // nil: the default one
	Version  string       // of the build
	ServerID string       // name of the server when the configuration gives none
	Address  string       // the listening address, like 127.0.0.1:8787

	// Web is the browser client, with index.html as its page. Nil serves none.
	Web fs.FS

	// Reload takes up a changed configuration file.
	Reload func(context.Context) (loquat.ConfigReload, error)

	// Bridge serves /bridge/websocket. Nil: the bridge is elsewhere.
	Bridge Sockets

	// Push keeps the subscriptions of browsers to notifications.
	Push Notifier

	// Webhooks keeps the URLs to which events are sent.
	Webhooks *webhook.Sender

	// Faces are other APIs that are served with the same checks and limits.
	Faces []route.Face

	// Metrics is the registry that /metrics shows. Others may register with it. Nil: a new
	// registry is made.
	Metrics *prometheus.Registry
}

// api is the handler, with everything that its routes share.
type api struct {
	chat     *chat.Service
	feed     *feed.Feed
	log      *slog.Logger
	now      func() *configured
	throttle *throttle
	inflight *inflightLimits
	access   access
	metrics  *metrics
	table    *route.Table
	imports  chan struct{} // full while maxImports run
	reload   func(context.Context) (loquat.ConfigReload, error)

	compressor *compressor
}

// New returns the handler. Its streams end when the feed is closed.
func New(opts Options) (http.Handler, error) {
	now := config.Derived(opts.Config, func(cfg *config.Config) *configured { return newConfigured(cfg, opts.Address, opts.ServerID) })
	a := &api{
		chat: opts.Service, feed: opts.Feed, log: opts.Logger, now: now,
		throttle: newThrottle(func(a netip.Addr) bool { return now().proxies.trusts(a) }), inflight: newInflightLimits(opts.Config),
		access:  access{keeper: opts.Access, requests: opts.Service.Requests, users: opts.Service, now: now},
		imports: make(chan struct{}, maxImports), reload: opts.Reload,
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	var err error
	if a.metrics, err = newMetrics(opts.Metrics, opts.Service, a.inflight); err != nil {
		return nil, err
	}
	if a.compressor, err = newCompressor(); err != nil {
		return nil, err
	}
	state := &serverState{chat: opts.Service, version: opts.Version, metrics: a.metrics}
	routes := a.routes(state, &credentials{keeper: opts.Access, now: now}, opts.Bridge, opts.Push, opts.Webhooks)
	for _, face := range opts.Faces {
		routes = append(routes, face.Routes...)
	}
	schemas := newSchemas()
	if state.document, err = describe(routes, schemas); err != nil {
		return nil, err
	}
	files, err := a.files(opts.Web, state.document)
	if err != nil {
		return nil, err
	}
	a.table = route.NewTable(route.Options{Routes: routes, Faces: opts.Faces, Files: files, Schemas: schemas, Call: a.serve, Fail: a.fail})
	return a, nil
}

// routes returns the table of routes, without the files of the web client.
func (a *api) routes(state *serverState, keys *credentials, bridge Sockets, push Notifier, hooks *webhook.Sender) []route.Route {
	return slices.Concat(a.eventRoutes(), a.sessionRoutes(), a.archiveRoutes(), a.searchRoutes(), a.messageRoutes(), a.alternativeRoutes(), a.assetRoutes(), a.sendRoutes(), a.requestRoutes(), a.catalogRoutes(), a.usageRoutes(), state.routes(),
		keys.pairingRoutes(), keys.browserSessionRoutes(), keys.tokenRoutes(), a.uiRoutes(), a.actionRoutes(), a.pluginRoutes(), a.bridgeRoutes(bridge), pushRoutes(push), webhookRoutes(webhooks{hooks}), a.auditRoutes(), a.configurationRoutes())
}

// Document returns the OpenAPI document that a server of this version serves. It needs no server.
func Document() ([]byte, error) {
	a := &api{}
	return describe(a.routes(&serverState{}, &credentials{}, nil, nil, nil), newSchemas())
}

// ServeHTTP does what all routes share: it limits bodies, counts, recovers from panics and
// checks Host and Origin. Then it calls the table of routes.
func (a *api) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	growStack()
	w := &responseWriter{ResponseWriter: rw, method: r.Method, began: time.Now()}
	from := a.now().proxies.caller(r)
	r, ended := a.throttle.arrive(w, r, from)
	defer ended()
	defer a.metrics.observe(w)
	defer a.rescue(w, r)
	protect(w.Header(), from)
	if err := a.now().origins.admit(w, r, from); err != nil {
		a.fail(w, r, nil, err)
		return
	}
	if a.now().origins.preflight(w, r) {
		return
	}
	a.table.ServeHTTP(w, r)
}

// serve checks whether the caller may call a route, reads the declared inputs, and runs the
// route.
func (a *api) serve(w http.ResponseWriter, r *http.Request, t *route.Route) error {
	from := a.now().proxies.caller(r)
	aw, _ := w.(*responseWriter)
	if aw != nil {
		aw.route = t
	}
	if t.Open && t.Body != nil {
		if err := a.throttle.admitBody(r.Context(), from); err != nil {
			return err
		}
	}
	limit := a.bodyLimit(t, r)
	if r.ContentLength > limit.bytes {
		return limit.exceeded()
	}
	body, _ := r.Body.(*requestBody)
	if body != nil {
		body.open(limit, timeoutOf(t))
	}
	who, err := a.access.admit(r, t, from)
	if err != nil {
		return err
	}
	by, err := a.access.by(who)
	if err != nil {
		return err
	}
	if aw != nil {
		aw.who, aw.by = who, by
	}
	if t.Open {
		a.pace(w, r)
	} else if aw != nil {
		aw.admitted = true
	}
	x, err := a.table.Read(w, r, t)
	if err != nil {
		return err
	}
	attribute(x, who, by)
	if t.Open && t.Body != nil {
		done, err := a.throttle.work(r.Context())
		if err != nil {
			return err
		}
		defer done()
	}
	if !t.Open {
		defer body.hold(r.Context())()
	}
	serve := a.server(x, who)
	if aw == nil {
		return serve()
	}
	return a.compressor.serve(aw, r, t, serve)
}

// server returns what serves a call.
func (a *api) server(x *route.Exchange, who auth.Principal) func() error {
	switch {
	case x.Route.Large:
		return func() error { return a.large(x, who) }
	case x.Route.Follows:
		x.Renew = func() (chat.By, error) { return a.access.by(who) }
		return func() error { return a.follow(x, who) }
	}
	return func() error { return x.Route.Serve(x) }
}

// attribute says in a call who makes it.
func attribute(x *route.Exchange, who auth.Principal, by chat.By) {
	x.Call.By, x.Call.Trace = by, trace.ParentOf(x.R.Header)
	if !reads(x.R) {
		x.R = x.R.WithContext(loquat.WithActor(x.R.Context(), actorOf(who, x.R.Header.Get(onBehalfOf) != "")))
	}
	if who.User != "" && x.Call.IdempotencyKey != "" {
		x.Call.IdempotencyKey = who.User + "\n" + x.Call.IdempotencyKey // which no other user can send
	}
}

// timeoutOf returns how long the body of a route may take to arrive.
func timeoutOf(r *route.Route) time.Duration {
	switch {
	case r.Open:
		return openBodyTimeout
	case r.ID == importRoute:
		return importTimeout
	case r.Upload != nil:
		return uploadTimeout
	}
	return bodyTimeout
}

// replyChanged answers a change of a session, with its ETag.
func replyChanged[T any](x *route.Exchange, status int, a chat.Answer[T]) error {
	x.Tag(a.Checkpoint)
	return x.Reply(status, a.Body)
}

// fail answers with an error, in the route's own form or as a problem. Internal errors are
// logged. It answers even after the client closed its side of the connection: the client may
// still read, and would take silence for success.
func (a *api) fail(w http.ResponseWriter, r *http.Request, t *route.Route, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Cause(r.Context())) {
		what := "nothing was changed"
		if !reads(r) {
			what = "look whether the change was made before you repeat it"
		}
		err = loquat.Errorf(loquat.CodeUnavailable, "the connection was closed before there was an answer; %s", what)
	}
	if loquat.CodeOf(err) == loquat.CodeInternal {
		a.log.Error("could not serve", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.pace(w, r)
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.Bound != "" {
		if aw, ok := w.(*responseWriter); ok {
			a.throttle.paceRefused(r.Context(), aw.by.Meter)
		}
	}
	a.table.FormOf(r, t).Write(w, err)
}

// rescue answers a panic with an internal error. If the answer has begun, it aborts the
// connection.
func (a *api) rescue(w *responseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	a.log.Error("panic", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	a.table.FormOf(r, w.route).Write(w, loquat.Errorf(loquat.CodeInternal, "panic"))
}
