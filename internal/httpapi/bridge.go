package httpapi

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

// Sockets is the bridge in this process: it serves the WebSockets of apps.
type Sockets interface {
	// Refuse returns an error if a request must not be served.
	Refuse(r *http.Request, from netip.Addr) error
	// Serve serves a request that was not refused, until its socket closes.
	Serve(w http.ResponseWriter, r *http.Request, from netip.Addr)
}

// bridgeRoutes returns the endpoint of Phoenix Channels. It needs no token, because tokens
// are sent when a client joins a topic.
func (a *api) bridgeRoutes(sockets Sockets) []route.Route {
	if sockets == nil {
		return nil
	}
	serve := func(x *route.Exchange) error {
		if err := sockets.Refuse(x.R, a.now().proxies.caller(x.R).address); err != nil {
			return err
		}
		sockets.Serve(x.W, x.R, a.now().proxies.caller(x.R).address)
		return nil
	}
	return []route.Route{{
		Method: http.MethodGet, Path: "/bridge/websocket", ID: "bridge", Tag: "bridge", Summary: "Phoenix Channels: events pushed to apps",
		Serve: serve, Open: true,
		Query:     []route.Param{{Name: "vsn", Doc: "The serializer: 2.0.0 or 1.0.0. Default: 1.0.0."}},
		Responses: []route.Response{{Status: http.StatusSwitchingProtocols}},
	}}
}

// CheckOrigin passes a request to next if its Host and Origin are allowed, as the API does. It
// sets RemoteAddr to the client's address, also behind trusted proxies.
func CheckOrigin(address string, server config.Server, next http.Handler) http.Handler {
	g, trusted := newOriginCheck(address, server), newProxies(server.TrustedProxies)
	throttle := newThrottle(trusted.trusts)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		from := trusted.caller(r)
		w := &responseWriter{ResponseWriter: rw, method: r.Method, began: time.Now()}
		r, ended := throttle.arrive(w, r, from)
		defer ended()
		protect(w.Header(), from)
		if err := g.admit(w, r, from); err != nil {
			route.WriteProblem(w, err)
			return
		}
		if !g.preflight(w, r) {
			r.RemoteAddr = netip.AddrPortFrom(from.address, 0).String()
			next.ServeHTTP(w, r)
		}
	})
}

// Metrics returns a handler that shows a registry and metrics of the process to callers with
// a token of scope full or read. It is for processes without the API. RemoteAddr must be the
// client's address, as CheckOrigin sets it.
func Metrics(registry *prometheus.Registry, keeper *auth.Keeper) (http.Handler, error) {
	if err := registerProcess(registry); err != nil {
		return nil, err
	}
	show := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r)
		if !ok {
			route.WriteProblem(w, loquat.Errorf(loquat.CodeUnauthorized, "this needs Authorization: Bearer with a token of server.auth_tokens"))
			return
		}
		from, _ := netip.ParseAddrPort(r.RemoteAddr)
		who, err := keeper.Authenticate(r.Context(), token, from.Addr())
		if err == nil && who.Scope != auth.Full && who.Scope != auth.Read {
			err = loquat.Errorf(loquat.CodeForbidden, "a token of scope %s may not read metrics", who.Scope)
		}
		if err != nil {
			route.WriteProblem(w, err)
			return
		}
		show.ServeHTTP(w, r)
	}), nil
}
