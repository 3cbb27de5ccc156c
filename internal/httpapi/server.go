// Package httpapi is the HTTP API: routes, one file for each resource, that take JSON
// in, make one call to chat and put JSON out.
//
// It promises that every failing answer is a problem document with a stable code,
// that no input is read past its bound, that a client that stops reading is cut off,
// and that what is checked, what is served and what /openapi.json says come from one
// table. It holds no state of its own but counters.
//
// The table and the checks are here and not in a router framework, because the API
// tells 400 from 422, names every fault at once, and answers unknown routes and
// methods like any other failure. Schemas and document are huma's.
package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
)

// Options are what the API is made of.
type Options struct {
	Service *chat.Service
	Feed    *feed.Feed
	Access  *auth.Keeper
	Config  *config.Config
	Logger  *slog.Logger // nil: the default one
	Version string       // of the build
	Address string       // that is listened on, like 127.0.0.1:8787

	// Web is the browser client, with index.html as its page. Nil serves none.
	Web fs.FS

	// Bridge serves /bridge/websocket. Nil: the bridge is elsewhere.
	Bridge Sockets

	// Metrics is what /metrics shows; others may register with it. Nil makes one.
	Metrics *prometheus.Registry
}

// api is the handler and all that its routes share.
type api struct {
	chat     *chat.Service
	feed     *feed.Feed
	log      *slog.Logger
	version  string
	guard    guard
	proxies  proxies
	throttle *throttle
	inflight *inflight
	access   access
	door     door
	schemas  schemas
	metrics  *metrics
	document []byte // of /openapi.json
	routes   []route
	mux      *http.ServeMux
	limits   config.Limits
}

// New makes the handler. Its streams end when the feed is closed.
func New(opts Options) (http.Handler, error) {
	guard, err := newGuard(opts.Address, opts.Config.Server)
	if err != nil {
		return nil, err
	}
	a := &api{
		chat: opts.Service, feed: opts.Feed, log: opts.Logger, version: opts.Version, guard: guard, proxies: newProxies(opts.Config.Server.TrustedProxies),
		door: newDoor(opts.Config, opts.Service.ServerID()), schemas: newSchemas(), limits: opts.Config.Limits,
	}
	a.throttle, a.inflight = newThrottle(a.proxies), newInflight(a.limits)
	a.access = access{keeper: opts.Access, cookie: a.door.cookie, requests: opts.Service}
	if a.log == nil {
		a.log = slog.Default()
	}
	if a.metrics, err = newMetrics(opts.Metrics, opts.Service); err != nil {
		return nil, err
	}
	client, err := webRoutes(opts.Web)
	if err != nil {
		return nil, err
	}
	a.routes = slices.Concat(a.eventRoutes(), a.sessionRoutes(), a.messageRoutes(), a.assetRoutes(), a.requestRoutes(), a.catalogRoutes(), a.healthRoutes(),
		a.pairingRoutes(), a.authRoutes(), a.uiRoutes(), a.actionRoutes(), a.pluginRoutes(), client)
	a.routes = append(a.routes, a.bridgeRoutes(opts.Bridge)...)
	if a.document, err = a.describe(); err != nil {
		return nil, err
	}
	docs, err := docsRoutes(a.document)
	if err != nil {
		return nil, err
	}
	a.routes = append(a.routes, docs...)
	a.mux = a.newMux()
	return a, nil
}

// route is one row of the table that everything else follows from.
type route struct {
	method, path string
	id, summary  string
	tag          string
	serve        func(*exchange) error

	query   []param
	change  bool   // takes Idempotency-Key and If-Match
	matches bool   // takes If-Match alone
	body    any    // a value of the type that the body is decoded to; nil: none is read
	media   string // of the body, beside application/json
	upload  bool   // the body is an image, which the route reads by itself
	answers []answer
	open    bool // may be called without a token
	full    bool // needs the scope full, also to read
	follows bool // may take long, and ends when the caller's token does
}

// answer is one way in which a route succeeds.
type answer struct {
	status int
	body   any    // a value of the type; nil: none
	media  string // "" is application/json
	etag   bool
	tagOf  string // what the ETag tells apart; "" means the newest checkpoint of the session
}

// newMux spreads the table over the paths. The mux finds the path, this package the
// method, so that it can tell what is allowed.
func (a *api) newMux() *http.ServeMux {
	byPath := map[string][]*route{}
	for i := range a.routes {
		r := &a.routes[i]
		byPath[r.path] = append(byPath[r.path], r)
	}
	mux := http.NewServeMux()
	for pattern, routes := range byPath {
		mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.dispatch(w, r, routes) }))
	}
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.fail(w, r, a.errNoRoute(r)) }))
	return mux
}

// maxHint is the length of the longest path that an answer suggests.
const maxHint = 300

// errNoRoute reports an unknown path. When only its slashes are wrong, it names the right one.
// It does not redirect: clients drop the body or the token on the way, and never learn.
func (a *api) errNoRoute(r *http.Request) error {
	clean := path.Clean("/" + r.URL.Path)
	if clean != r.URL.Path && len(clean) <= maxHint {
		_, pattern := a.mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: clean}})
		if pattern != "" && pattern != "/" {
			return loquat.Errorf(loquat.CodeNotFound, "there is no route %q; use %q", loquat.Clip(r.URL.Path, loquat.Excerpt), clean)
		}
	}
	return loquat.Errorf(loquat.CodeNotFound, "there is no route %q; /docs lists them", loquat.Clip(r.URL.Path, loquat.Excerpt))
}

// ServeHTTP is what stands before all routes.
func (a *api) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &answerWriter{ResponseWriter: rw, method: r.Method, began: time.Now()}
	from := a.proxies.caller(r)
	r, ended := a.throttle.arrive(w, r, from)
	defer ended()
	defer a.metrics.observe(w)
	defer a.rescue(w, r)
	protect(w.Header(), from)
	if err := a.guard.admit(w, r, from); err != nil {
		a.fail(w, r, err)
		return
	}
	if a.guard.preflight(w, r) {
		return
	}
	if path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect
		a.fail(w, r, a.errNoRoute(r))
		return
	}
	a.mux.ServeHTTP(w, r)
}

// dispatch finds the route of the method and serves it.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request, routes []*route) {
	i := slices.IndexFunc(routes, func(t *route) bool {
		return t.method == r.Method || t.method == http.MethodGet && r.Method == http.MethodHead
	})
	if i < 0 {
		allowed := strings.Join(methodsOf(routes), ", ")
		w.Header().Set("Allow", allowed)
		a.fail(w, r, loquat.Errorf(loquat.CodeMethodNotAllowed, "%s cannot be used here; there are %s", loquat.Clip(r.Method, loquat.Excerpt), allowed))
		return
	}
	if aw, ok := w.(*answerWriter); ok {
		aw.route = routes[i].path
	}
	if routes[i].open && routes[i].body != nil {
		if err := a.throttle.admitBody(r.Context(), a.proxies.caller(r)); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	limit := a.bodyLimit(routes[i], r)
	if r.ContentLength > limit.bytes {
		a.fail(w, r, limit.exceeded())
		return
	}
	if body, ok := r.Body.(*incoming); ok {
		body.open(limit, routes[i].bodyTimeout())
	}
	if err := a.serve(w, r, routes[i]); err != nil {
		a.fail(w, r, err)
	}
}

func methodsOf(routes []*route) []string {
	var out []string
	for _, t := range routes {
		out = append(out, t.method)
		if t.method == http.MethodGet {
			out = append(out, http.MethodHead)
		}
	}
	slices.Sort(out)
	return out
}

// serve asks for a token where one is needed, reads what the route declares, then lets
// it do its work.
func (a *api) serve(w http.ResponseWriter, r *http.Request, t *route) (err error) {
	x := &exchange{api: a, route: t, w: w, r: r, from: a.proxies.caller(r)}
	if x.who, err = a.access.admit(r, t, x.from); err != nil {
		return err
	}
	if t.open {
		a.pace(w, r)
	} else if aw, ok := w.(*answerWriter); ok {
		aw.admitted = true
	}
	if x.query, err = parseQuery(t.query, r.URL.RawQuery); err != nil {
		return err
	}
	if t.body != nil {
		if x.body, err = readBody(r, t.medias()); err != nil {
			return err
		}
	}
	if t.open && t.body != nil {
		done, err := a.throttle.work(r.Context())
		if err != nil {
			return err
		}
		defer done()
	}
	if t.change {
		if x.call, err = callOf(r, x.body); err != nil {
			return err
		}
	}
	if !t.open {
		body, _ := r.Body.(*incoming)
		defer body.hold(r.Context())()
	}
	if t.follows {
		done, err := x.follow()
		if err != nil {
			return err
		}
		defer done()
		return a.access.follow(x, t.serve)
	}
	return t.serve(x)
}

// bodyTimeout is how long a body of the route may take to arrive.
func (r *route) bodyTimeout() time.Duration {
	switch {
	case r.open:
		return openBodyTimeout
	case r.upload:
		return uploadTimeout
	}
	return bodyTimeout
}

const jsonMedia = "application/json"

func (r *route) medias() []string {
	if r.media != "" {
		return []string{jsonMedia, r.media}
	}
	return []string{jsonMedia}
}

// exchange is one call of a route.
type exchange struct {
	api   *api
	route *route
	w     http.ResponseWriter
	r     *http.Request
	from  caller
	who   auth.Principal // nobody on an open route
	query query
	body  []byte // as it came; nil when there was none
	call  chat.Call
	held  *hold // of a route that follows
}

// reply answers with JSON.
func (x *exchange) reply(status int, v any) error {
	h := x.w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if x.held == nil {
		x.w.WriteHeader(status)
		writeJSON(x.w, v)
		return nil
	}
	var body bytes.Buffer
	writeJSON(&body, v)
	x.held.shrink(int64(body.Len()))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body.Bytes())
	return nil
}

// replyChanged answers a change of a session, with its ETag.
func replyChanged[T any](x *exchange, status int, a chat.Answer[T]) error {
	x.tag(a.Checkpoint)
	return x.reply(status, a.Body)
}

// tag sets the ETag of a session, its newest checkpoint.
func (x *exchange) tag(checkpoint loquat.EventID) {
	if checkpoint != 0 {
		x.w.Header().Set("ETag", `"`+checkpoint.String()+`"`)
	}
}

// fail answers with a problem. What is not a client's doing goes to the log. A client
// that has closed only its half of the connection still reads: silence would count as
// success.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Cause(r.Context())) {
		err = loquat.Errorf(loquat.CodeUnavailable, "the connection was closed before there was an answer; nothing was changed")
	}
	if loquat.CodeOf(err) == loquat.CodeInternal {
		a.log.Error("could not serve", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.pace(w, r)
	writeProblem(w, err)
}

// rescue turns a panic into an answer, or cuts one that has begun.
func (a *api) rescue(w *answerWriter, r *http.Request) {
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
	writeProblem(w, loquat.Errorf(loquat.CodeInternal, "panic"))
}
