// Package profile serves profiles and runtime metrics of this process on an address of its
// own, for whoever runs the server.
//
// It asks for no token: whoever reaches the address may read. So it refuses calls that a
// browser makes for a page of another site, and the command lets it listen beyond loopback only
// if the caller allows it. The number of connections and the duration of a profile are limited.
package profile

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"loquat/internal/connlimit"
)

const (
	maxConnections = 16
	maxSeconds     = 300 // of one profile
	maxTrace       = 60  // seconds of one trace, which grows by megabytes a second

	// While a profile of waiting is taken, one of so many waits for a lock is recorded, and a
	// goroutine that waits for so long on average.
	mutexFraction = 10
	blockRate     = 10 * time.Microsecond
)

// Server serves profiles until it is closed.
type Server struct {
	URL    string // its address, as http://127.0.0.1:6060
	http   *http.Server
	waits  waits
	served chan struct{} // closed when Serve has returned
}

// Start listens on an address and serves profiles.
func Start(ctx context.Context, address string, log *slog.Logger) (*Server, error) {
	s := &Server{served: make(chan struct{})}
	handler, err := newHandler(&s.waits)
	if err != nil {
		return nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles on %s (--debug-listen or server.debug_listen choose another address): %w", address, err)
	}
	s.URL = "http://" + ln.Addr().String()
	s.http = &http.Server{
		Handler: handler, ConnContext: connlimit.Context, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, WriteTimeout: (maxSeconds + 60) * time.Second,
	}
	go func() {
		defer close(s.served)
		bounded := connlimit.New(ln, connlimit.Options{
			Total: maxConnections, PerAddress: maxConnections, Logger: slog.New(slog.DiscardHandler), // its messages name the limits of the API
			Refusal: []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nall " +
				strconv.Itoa(maxConnections) + " connections for profiles are in use; end one of the calls\n"),
		})
		if err := s.http.Serve(bounded); err != http.ErrServerClosed {
			log.Error("serve profiles", "error", err)
		}
	}()
	return s, nil
}

// Close closes the listener and all connections. A profile that is being taken is cut off.
func (s *Server) Close() {
	_ = s.http.Close() // all that is left is to forget the connections
	<-s.served
}

// newHandler returns the handler of all pages.
func newHandler(waits *waits) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register runtime metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.Handle("GET /debug/pprof/", bounded(maxSeconds, http.HandlerFunc(pprof.Index)))
	mux.Handle("GET /debug/pprof/profile", bounded(maxSeconds, http.HandlerFunc(pprof.Profile)))
	mux.Handle("GET /debug/pprof/trace", bounded(maxTrace, http.HandlerFunc(pprof.Trace)))
	mux.Handle("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	mux.Handle("GET /debug/pprof/mutex", bounded(maxSeconds, waits.during(pprof.Handler("mutex"))))
	mux.Handle("GET /debug/pprof/block", bounded(maxSeconds, waits.during(pprof.Handler("block"))))
	return guard(mux), nil
}

// guard refuses what a browser may have been tricked into: calls for a page of another site,
// and calls by a host name, which may have been made to resolve to this machine.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := (&url.URL{Host: r.Host}).Hostname()
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
			http.Error(w, "Host must be the IP address of this listener, or localhost", http.StatusForbidden)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin" {
			http.Error(w, "pages of other origins may not read profiles; open the address itself, or use go tool pprof", http.StatusForbidden)
			return
		}
		defer connlimit.Hold(r.Context())() // never closed to make room for others
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// bounded refuses a call whose parameter seconds is not a number from 0 to most.
func bounded(most int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.Query().Get("seconds")
		if n, err := strconv.Atoi(given); given != "" && (err != nil || n < 0 || n > most) {
			http.Error(w, fmt.Sprintf("query.seconds: must be a whole number from 0 to %d", most), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// waits has the runtime record waits for locks and channels only while a call profiles them,
// because recording costs each lock a little.
type waits struct {
	mu    sync.Mutex
	calls int // that take a profile; guarded by mu
}

// during returns a handler that records waits while next runs. Without the parameter
// seconds it sets 30: there is nothing from before the call.
func (ws *waits) during(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("seconds") == "" || q.Get("seconds") == "0" {
			q.Set("seconds", "30")
			r.URL.RawQuery = q.Encode()
			r.Form = nil
		}
		ws.add(1)
		defer ws.add(-1)
		next.ServeHTTP(w, r)
	})
}

func (ws *waits) add(n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.calls += n
	if ws.calls == 0 {
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
		return
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(int(blockRate))
}
