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
	// Refuse says why a request is not served.
	Refuse(r *http.Request, from netip.Addr) error
	// Serve serves one that is not refused, until its socket ends.
	Serve(w http.ResponseWriter, r *http.Request, from netip.Addr)
}

// bridgeRoutes is the endpoint of Phoenix Channels. It is open, because tokens come in
// the joins.
func (a *api) bridgeRoutes(sockets Sockets) []route.Route {
	if sockets == nil {
		return nil
	}
	serve := func(x *route.Exchange) error {
		if err := sockets.Refuse(x.R, a.proxies.caller(x.R).address); err != nil {
			return err
		}
		sockets.Serve(x.W, x.R, a.proxies.caller(x.R).address)
		return nil
	}
	return []route.Route{{
		Method: http.MethodGet, Path: "/bridge/websocket", ID: "bridge", Tag: "bridge", Summary: "Phoenix Channels: events pushed to apps",
		Serve: serve, Open: true,
		Query:     []route.Param{{Name: "vsn", Doc: "The serializer: 2.0.0, or 1.0.0, which a missing one means."}},
		Responses: []route.Response{{Status: http.StatusSwitchingProtocols}},
	}}
}

// Guard lets requests to a handler through whose Host and Origin are those of a
// server, as the API does. RemoteAddr is then the client's, also behind proxies that
// are trusted.
func Guard(address string, server config.Server, next http.Handler) (http.Handler, error) {
	g, err := newGuard(address, server)
	if err != nil {
		return nil, err
	}
	trusted := newProxies(server.TrustedProxies)
	throttle := newThrottle(trusted)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		from := trusted.caller(r)
		w := &answerWriter{ResponseWriter: rw, method: r.Method, began: time.Now()}
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
	}), nil
}

// Metrics shows a registry, with figures of the process beside, to who has a token of
// scope full or read, for what serves no API. Behind Guard, RemoteAddr is the client's.
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
		who, err := keeper.Authorize(r.Context(), token, from.Addr())
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
