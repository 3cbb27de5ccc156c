package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/bridge"
	"loquat/internal/config"
	"loquat/internal/connlimit"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
	"loquat/internal/loglimit"
)

// bridgeOptions are the flags of `loquat bridge`.
type bridgeOptions struct{ config, listen string }

func newBridgeCommand() *cobra.Command {
	var opts bridgeOptions
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Run a standalone bridge for servers that cannot be reached from outside",
		Long: "Runs a standalone bridge on a public host. Servers behind NAT forward their events to it, and apps\n" +
			"follow the events over Phoenix Channels. The bridge's configuration lists the servers and their tokens in\n" +
			"bridge.servers. A server's configuration names the bridge: bridge.url, bridge.server_id, bridge.token.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveBridge(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addListenFlags(cmd.Flags(), &opts.config, &opts.listen)
	return cmd
}

// serveBridge runs a bridge until ctx ends.
func serveBridge(ctx context.Context, opts bridgeOptions, stdout, stderr io.Writer) error {
	secrets := &config.Redactor{}
	log := newLogger(stderr, secrets)
	cfg, err := bridgeConfig(opts, log)
	if err != nil {
		return err
	}
	secrets.Add(cfg.Secrets())
	ln, err := listen(cfg.Server.Listen)
	if err != nil {
		return err
	}
	attempts := auth.NewAttempts(log)
	hub := bridge.NewHub(bridge.Options{Tokens: cfg.Bridge.Servers, Attempts: attempts, Logger: log})
	handler, err := bridgeHandler(ctx, hub, attempts, cfg, ln.Addr().String(), log)
	if err != nil {
		hub.Close()
		return errors.Join(err, ln.Close())
	}
	server, serve, scheme, err := newHTTPServer(handler, config.NewLive(cfg), log)
	if err != nil {
		hub.Close()
		return errors.Join(err, ln.Close())
	}
	failed := make(chan error, 1)
	go func() { failed <- serve(ln) }()
	fmt.Fprintf(stdout, "listening on %s://%s\n", scheme, ln.Addr())
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
		err = fmt.Errorf("serve HTTP: %w", err)
	}
	hub.Close()
	shutdown(server)
	return err
}

// bridgeHandler returns the HTTP handler of a standalone bridge.
func bridgeHandler(ctx context.Context, hub *bridge.Hub, attempts *auth.Attempts, cfg *config.Config, address string, log *slog.Logger) (http.Handler, error) {
	keeper, err := auth.Open(ctx, auth.Options{Configured: auth.Configured{Tokens: configTokens(cfg)}, Attempts: attempts, Logger: log})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := hub.Register(registry); err != nil {
		return nil, err
	}
	metrics, err := httpapi.Metrics(registry, keeper)
	if err != nil {
		return nil, err
	}
	return httpapi.CheckOrigin(address, cfg.Server, hub.Handler(route.WriteProblem, metrics)), nil
}

// bridgeConfig reads the configuration of a standalone bridge, which needs no provider.
func bridgeConfig(opts bridgeOptions, log *slog.Logger) (*config.Config, error) {
	env := config.ProcessEnvironment()
	path := config.Find(opts.config, env)
	if path == "" {
		return nil, usageError{errors.New("there is no configuration: a bridge needs bridge.servers, an object of server_id and token; name a file with --config")}
	}
	log.Info("configuration", "file", path)
	cfg, problems := config.Load(path, env)
	if cfg == nil {
		return nil, configError(problems)
	}
	cfg.SetServer(opts.listen, "")
	compiled := compiledIn(cfg.Limits, log, nil)
	facts := loaded(compiled, chosen(cfg, compiled), true) // every join of a bridge needs a token
	problems = config.InOrder(problems, cfg.Check(facts), cfg.CheckBridgeServers())
	return cfg, report(problems, log)
}

// startBridge starts the bridge in this process, or the forwarder to a bridge elsewhere. The
// relay is complete once the API is.
func (s *server) startBridge(cfg *config.Config, relay *bridge.Relay, metrics *prometheus.Registry) (httpapi.Sockets, error) {
	log := bridge.NewLocalLog(s.feed)
	id := cfg.Bridge.ServerID
	if id == "" {
		id = s.store.ServerID()
	}
	if cfg.Bridge.URL != "" {
		s.startForwarder = func() error {
			s.forwarder = bridge.StartForwarder(bridge.ForwarderOptions{
				URL: cfg.Bridge.URL, ServerID: id, Token: cfg.Bridge.Token, StoreID: s.store.ID(),
				Log: log, Relay: relay, Access: s.grants, Authenticate: s.admit, Leads: s.store.Leads, Logger: s.log,
			})
			return s.forwarder.Register(metrics)
		}
		return nil, nil
	}
	s.hub = bridge.NewHub(bridge.Options{
		Local:  &bridge.Server{ID: id, Log: log, Authenticate: s.admit, Get: relay.Get},
		Logger: s.log,
	})
	return s.hub, s.hub.Register(metrics)
}

// admit authenticates a client of the bridge like a client of the API.
func (s *server) admit(ctx context.Context, token string, from netip.Addr) (bridge.Principal, error) {
	who, err := s.access.Anyone()
	if token != "" { // a token must be valid even if none is required
		who, err = s.access.Authenticate(ctx, token, from)
	}
	if err == nil && !s.access.HasRole(who.Role) {
		err = loquat.Errorf(loquat.CodeUnauthorized, "the token has the role %q, which server.roles does not have", loquat.Clip(who.Role, loquat.Excerpt))
	}
	if err != nil {
		return bridge.Principal{}, err
	}
	return bridge.Principal{
		Sight:     bridge.Sight{SessionID: who.SessionID, User: who.User},
		ExpiresAt: s.access.Until(who),
		During:    func(ctx context.Context) (context.Context, context.CancelFunc) { return s.access.During(ctx, who) },
	}, nil
}

// grants returns the tokens and open pairing codes that a bridge elsewhere accepts. The
// channel is closed when they change.
func (s *server) grants() (bridge.Access, <-chan struct{}) {
	changed := s.access.Changed()
	var a bridge.Access
	for _, g := range s.access.Grants() {
		a.Tokens = append(a.Tokens, bridge.NewToken(g.Digest, bridge.Principal{Sight: bridge.Sight{SessionID: g.SessionID}, ExpiresAt: g.ExpiresAt}))
	}
	for _, code := range s.access.OpenCodes() {
		a.Codes = append(a.Codes, code.Public)
	}
	return a, changed
}

// maxHeaders bounds the line and the headers of a request, in bytes: a connection keeps them in memory before
// anything of the request is checked.
const maxHeaders = 64 << 10

// newHTTPServer returns an HTTP server for a handler, and the function that serves a listener
// with it. The number of connections is limited. Each connection has a deadline for its
// request, for its body (set by the handler), and while it is idle.
func newHTTPServer(handler http.Handler, live *config.Live, log *slog.Logger) (server *http.Server, serve func(net.Listener) error, scheme string, err error) {
	cfg := live.Now()
	server = &http.Server{
		Handler:           handler,
		MaxHeaderBytes:    maxHeaders,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnContext:       connlimit.Context,
		ErrorLog:          stdlog.New(loglimit.New(log).Writer(slog.LevelWarn), "", 0), // any client can cause handshake errors
	}
	bounds := connlimit.Options{
		Total: cfg.Limits.MaxConnections, PerAddress: cfg.Limits.MaxConnectionsPerAddress,
		Shared: httpapi.TrustedProxies(live), Logger: log,
	}
	if cfg.Server.TLS.CertFile == "" {
		bounds.Refusal = route.Refusal(loquat.Errorf(loquat.CodeUnavailable,
			"all connections that limits.max_connections and limits.max_connections_per_address allow are in use"))
		return server, func(ln net.Listener) error { return server.Serve(connlimit.New(ln, bounds)) }, "http", nil
	}
	certificate, err := loadCertificate(cfg.Server.TLS, log)
	if err != nil {
		return nil, nil, "", err
	}
	server.TLSConfig = &tls.Config{GetCertificate: certificate.get}
	return server, func(ln net.Listener) error { return server.ServeTLS(connlimit.New(ln, bounds), "", "") }, "https", nil
}

// shutdown closes a server's connections.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // clients that still read can resume
	}
}
