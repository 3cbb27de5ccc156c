package binary

import (
	"net/http"
	"net/url"
	"sync/atomic"
)

// Route is a server as clients reach it.
type Route struct {
	Through string // host:port to connect to, such as that of a faulty network
	Server  string // host:port of the server itself, which refuses other names
}

// Spread is a transport that sends calls to all servers in turn, whether they run or not.
type Spread struct {
	routes []Route
	next   *http.Transport
	turn   atomic.Int64
	direct atomic.Bool
}

// NewSpread returns a Spread over servers. next makes the calls.
func NewSpread(next *http.Transport, routes ...Route) *Spread {
	return &Spread{routes: routes, next: next}
}

// Direct says whether new calls go past what is in front of the servers.
func (s *Spread) Direct(direct bool) {
	s.direct.Store(direct)
	s.next.CloseIdleConnections()
}

// RoundTrip makes a call at the next server.
func (s *Spread) RoundTrip(r *http.Request) (*http.Response, error) {
	route := s.routes[int(s.turn.Add(1))%len(s.routes)]
	r = r.Clone(r.Context())
	r.URL = &url.URL{Scheme: "http", Host: route.Through, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	if s.direct.Load() {
		r.URL.Host = route.Server
	}
	r.Host = route.Server
	return s.next.RoundTrip(r)
}

// CloseIdleConnections lets a client end its connections.
func (s *Spread) CloseIdleConnections() { s.next.CloseIdleConnections() }
