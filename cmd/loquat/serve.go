package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/backend"
	"loquat/internal/bridge"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/headroom"
	"loquat/internal/heap"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
	"loquat/internal/mcphost"
	"loquat/internal/openai"
	"loquat/internal/otlp"
	"loquat/internal/plugin"
	"loquat/internal/profile"
	"loquat/internal/store"
	"loquat/internal/web"
	"loquat/internal/webhook"
	"loquat/internal/webpush"
)

// serveOptions are the flags of `loquat serve`.
type serveOptions struct {
	config   string // file; "" searches
	listen   string // "" means the configuration's
	data     string // directory; "" is the configuration's
	demo     bool
	insecure bool

	debugListen   string // address of profiles; "" means the configuration's
	debugInsecure bool

	private bool // the server of one command: it serves its client and calls nobody but backends and plugins
	idle    bool // starts no queued sends
}

func newServeCommand() *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Runs the server. Without a configuration file it takes the first backend that it finds: the one of\n" +
			"OPENAI_API_KEY and OPENAI_BASE_URL, a local one, or its own scripted backend.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), opts, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	addListenFlags(flags, &opts.config, &opts.listen)
	flags.StringVar(&opts.data, "data", "", "data `directory` (default $XDG_DATA_HOME/loquat)")
	flags.BoolVar(&opts.demo, "demo", false, "use the scripted backend, which needs neither a key nor a model")
	flags.BoolVar(&opts.insecure, "insecure", false, "listen beyond loopback even without a token")
	flags.StringVar(&opts.debugListen, "debug-listen", "", "`address` on which to serve profiles and runtime metrics, without a token (default: nowhere)")
	flags.BoolVar(&opts.debugInsecure, "debug-insecure", false, "serve profiles beyond loopback")
	return cmd
}

// addListenFlags adds the flags that serve and bridge share.
func addListenFlags(flags *pflag.FlagSet, file, listen *string) {
	flags.StringVar(file, "config", "", "configuration `file` (default: ./loquat.json, then $XDG_CONFIG_HOME/loquat/loquat.json)")
	flags.StringVar(listen, "listen", "", "`address` to listen on; port 0 picks a free one (default "+config.DefaultListen+")")
}

// serve runs a server until ctx ends. SIGHUP reloads the configuration.
func serve(ctx context.Context, opts serveOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	heap.Tune()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	attended := isTerminal(stdin)
	s, err := newServer(ctx, opts, stderr)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // a stop during the start is not a failure
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on %s\n", s.url)
	for {
		select {
		case <-hangups:
			if !attended || isTerminal(stdin) {
				_, _ = s.reload(loquat.WithActor(ctx, loquat.Actor{Kind: loquat.ActorConfiguration, Name: "SIGHUP"})) // which logs
				continue
			}
			s.stop() // the terminal is gone
			return nil
		case <-ctx.Done():
			s.stop()
			return nil
		case err := <-s.failed:
			s.stop()
			return fmt.Errorf("serve HTTP: %w", err)
		}
	}
}

// isTerminal reports whether a stream is a terminal that is still there.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// server is a running server and its parts, in the order in which they are started.
type server struct {
	config   configuration
	log      *slog.Logger
	secrets  *config.Redactor // redacts secrets in the log and in text from backends
	scripts  *scripted        // the scripted backend, when it is used
	store    *store.Store
	access   *auth.Keeper
	profiles *profile.Server // nil unless there is an address for it
	metrics  *prometheus.Registry
	traces   *otlp.Sender     // nil unless there is a collector
	plugins  []plugin.Process // plugin processes that were started
	guard    *mcphost.Guard   // process guard of plugins
	chat     *chat.Service
	feed     *feed.Feed
	openai   *openai.API
	http     *http.Server
	url      string
	failed   chan error

	notifier       *webpush.Notifier
	webhooks       *webhook.Sender
	hub            *bridge.Hub       // nil if the bridge is elsewhere
	forwarder      *bridge.Forwarder // to the bridge elsewhere
	startForwarder func() error
}

// newServer starts all parts of a server. On an error it stops those that it started.
func newServer(ctx context.Context, opts serveOptions, stderr io.Writer) (s *server, err error) {
	s = &server{config: configuration{opts: opts}, failed: make(chan error, 1), secrets: &config.Redactor{}}
	s.log = newLogger(stderr, s.secrets)
	defer func() {
		if err != nil {
			s.stop()
			s = nil
		}
	}()
	cfg, problems, err := s.findConfig(ctx)
	if err != nil {
		return s, err
	}
	s.config.use(cfg)
	compiled := compiledIn(cfg.Limits, s.log, s.secrets)
	s.config.compiled = compiled
	plugins := chosen(cfg, compiled)
	tokens, err := storedTokens(ctx, cfg, opts.insecure, s.log)
	if err != nil {
		return s, err
	}
	facts := loaded(compiled, plugins, opts.insecure || tokens)
	facts.DebugInsecure = opts.debugInsecure
	if err := report(config.InOrder(problems, cfg.Check(facts), startProblems(cfg, plugins)), s.log); err != nil {
		return s, err
	}
	s.secrets.Add(cfg.Secrets(facts.Owners...))
	if err := s.serveProfiles(ctx, cfg.Server.DebugListen); err != nil {
		return s, err
	}
	if s.guard, err = newGuard(s.log); err != nil {
		return s, err
	}
	plugins = withProcesses(cfg, plugins, mcphost.Options{
		CacheDir: cfg.PluginCache(), Logger: s.log, Redact: s.secrets.Redact, Guard: s.guard,
	})
	registry, err := plugin.NewRegistry(plugins...)
	if err != nil {
		return s, usageError{err}
	}
	driver, err := s.openStore(ctx, cfg)
	if err != nil {
		return s, err
	}
	sharePacing(plugins, s.store)
	if s.access, err = openAccess(ctx, &s.config, s.store, s.log); err != nil {
		return s, err
	}
	s.warnIfOpen(cfg.Server)
	s.metrics = prometheus.NewRegistry()
	s.metrics.MustRegister(s.config.usable)
	if s.traces, err = otlp.Start(ctx, otlp.Options{Config: cfg.Telemetry, Version: version(), Node: s.store.Owner(), Registry: s.metrics, Logger: s.log}); err != nil {
		return s, err
	}
	if err := s.startChat(ctx, cfg, plugins, registry, driver); err != nil {
		return s, err
	}
	return s, s.answer(cfg)
}

// openStore opens the store, unless the port is taken: a start that fails must not change the data. The port is
// not kept, so that load balancers find it closed until the server answers.
func (s *server) openStore(ctx context.Context, cfg *config.Config) (driver store.Driver, err error) {
	ln, err := listen(cfg.Server.Listen)
	if err != nil {
		return nil, err
	}
	if err := ln.Close(); err != nil {
		return nil, err
	}
	if driver, err = openDriver(ctx, cfg, true, s.log); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(ctx, driver, store.Options{Logger: s.log, Retention: cfg.Events.Retention, Version: version()}); err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return driver, nil
}

// listen opens a port.
func listen(address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err == nil {
		return ln, nil
	}
	remedy := "choose another address with --listen, LOQUAT_LISTEN or server.listen"
	if errors.Is(err, syscall.EADDRINUSE) {
		remedy = "if that is a Loquat server, use it or stop it, otherwise " + remedy
	}
	return nil, fmt.Errorf("%w; %s", err, remedy)
}

// warnIfOpen warns of a server that others reach through a proxy, and that asks nobody for a token.
func (s *server) warnIfOpen(cfg config.Server) {
	if !s.config.opts.insecure && !s.access.Closed() && isReached(cfg) {
		s.log.Warn("the server has no tokens, so everyone who reaches server.public_url has full access; make a token with `loquat token new NAME`, or start with --insecure if the proxy restricts access", "public_url", cfg.PublicURL)
	}
}

// startChat makes the service and its feed, and starts them and the plugin processes. The service first
// registers what is called when a plugin changes.
func (s *server) startChat(ctx context.Context, cfg *config.Config, plugins []plugin.Plugin, registry *plugin.Registry, driver store.Driver) error {
	kept, uploads, err := openImages(ctx, cfg, driver, s.store, s.log)
	if err != nil {
		return err
	}
	live := s.config.live
	room := headroom.New(headroom.Options{Dir: cfg.Server.DataDir, Limits: func() headroom.Limits {
		limits := live.Now().Limits
		return headroom.Limits{MaxRunning: limits.MaxRunningRequests, MinFreeDisk: limits.MinFreeDiskBytes}
	}})
	s.metrics.MustRegister(room.Collectors()...)
	s.chat = chat.New(chat.Options{Headroom: room, Store: s.store, Images: kept, Uploads: uploads, Config: live, Plugins: registry, Logger: s.log, Secrets: s.secrets, Tracer: s.traces.Tracer(), Idle: s.config.opts.idle})
	s.feed = feed.New(s.store)
	s.plugins = processes(plugins)
	for _, p := range s.plugins {
		p.Start(ctx)
	}
	s.openai = openai.New(openai.Options{Chat: s.chat, Feed: s.feed, MaxBodyMemory: cfg.Limits.MaxInflightBytes, MaxBodyBytes: func() int64 { return live.Now().Limits.MaxBodyBytes }})
	return s.chat.Start(ctx)
}

// findConfig reads the configuration file. Without one it builds a configuration for the
// backend that it finds.
func (s *server) findConfig(ctx context.Context) (*config.Config, []config.Problem, error) {
	env := config.ProcessEnvironment()
	if s.config.file = config.Find(s.config.opts.config, env); s.config.file != "" {
		s.log.Info("configuration", "file", s.config.file)
		return s.readFile(env)
	}
	cfg := config.New(loquat.Object{}, env)
	if !s.config.opts.demo {
		found, err := config.Discover(ctx, env, http.DefaultClient)
		if err != nil {
			return nil, nil, usageError{err}
		}
		s.log.Info(found.Notice)
		if found.Config != nil {
			s.config.override(found.Config)
			return found.Config, nil, nil
		}
	}
	err := s.useScripted(cfg)
	s.config.override(cfg)
	return cfg, nil, err
}

// readFile reads the configuration file. The Config is nil if it cannot be read.
func (s *server) readFile(env config.Environment) (*config.Config, []config.Problem, error) {
	cfg, problems := config.Load(s.config.file, env)
	if cfg == nil {
		return nil, problems, configError(problems)
	}
	if s.config.opts.demo {
		if err := s.useScripted(cfg); err != nil {
			return nil, nil, err
		}
	}
	s.config.override(cfg)
	return cfg, problems, nil
}

// override applies the flags, which override a configuration.
func (c *configuration) override(cfg *config.Config) {
	cfg.SetServer(c.opts.listen, c.opts.data)
	cfg.SetDebugListen(c.opts.debugListen)
	if c.opts.private { // it may have a copy of the data of a server that runs elsewhere
		cfg.Server.DebugListen, cfg.Server.TLS = "", config.TLS{}
		cfg.Bridge.URL, cfg.Push.Subject = "", ""
	}
}

// useScripted starts the scripted backend, unless it runs, and makes it the only provider.
func (s *server) useScripted(cfg *config.Config) (err error) {
	if s.scripts == nil {
		if s.scripts, err = startScripted(s.log); err != nil {
			return err
		}
		remedy := "set OPENAI_API_KEY or OPENAI_BASE_URL, start a local one such as Ollama, or write loquat.json"
		if s.config.opts.demo {
			remedy = "start without --demo"
		}
		s.log.Info("replies come from the scripted backend; for a real one " + remedy)
	}
	cfg.UseOnly("scripted", loquat.Object{}.
		Set("provider", config.DefaultSelector).
		Set("model", "demo").
		Set("base_url", s.scripts.url+"/v1"))
	return nil
}

// answer opens the port and answers calls.
func (s *server) answer(cfg *config.Config) error {
	ln, err := listen(cfg.Server.Listen)
	if err != nil {
		return err
	}
	relay := &bridge.Relay{Host: ln.Addr().String()}
	for _, c := range s.store.Collectors() {
		s.metrics.MustRegister(c)
	}
	sockets, err := s.startBridge(cfg, relay, s.metrics)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s.notifier = webpush.Start(webpush.Options{Store: s.store, Access: s.access, Config: cfg.Push, Logger: s.log})
	s.webhooks = webhook.Start(webhook.Options{Store: s.store, Config: cfg.Webhooks, Logger: s.log, Idle: s.config.opts.private})
	s.metrics.MustRegister(s.webhooks.Collectors()...)
	handler, err := httpapi.New(httpapi.Options{
		Service: s.chat, Feed: s.feed, ServerID: s.store.ServerID(), Logger: s.log, Version: version(), Config: s.config.live, Reload: s.reload, Address: ln.Addr().String(), Web: web.Files(), Access: s.access,
		Bridge: sockets, Push: s.notifier, Webhooks: s.webhooks, Metrics: s.metrics, Faces: []route.Face{s.openai.Face()},
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	relay.Handler = handler
	server, serve, scheme, err := newHTTPServer(handler, s.config.live, s.log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s.http = server
	s.url = scheme + "://" + ln.Addr().String()
	go func() {
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	if s.startForwarder != nil {
		return s.startForwarder()
	}
	return nil
}

// serveProfiles serves profiles, unless address is "". It runs before the other parts start and
// until they have stopped, so that these can be profiled, too.
func (s *server) serveProfiles(ctx context.Context, address string) (err error) {
	if address == "" {
		return nil
	}
	if s.profiles, err = profile.Start(ctx, address, s.log); err != nil {
		return err
	}
	s.log.Info("profiles and runtime metrics, without a token", "url", s.profiles.URL+"/debug/pprof/")
	return nil
}

// closing is how long the server waits for connections to end after all requests have ended.
const closing = 2 * time.Second

// stop stops the parts in reverse order. Clients can follow until the last request has ended: at
// this server, or at other nodes if there are any. Then this server first sends its clients away.
func (s *server) stop() {
	others := s.http != nil && s.hasOtherNodes()
	if others {
		s.chat.Leave()
		time.Sleep(s.config.live.Now().Server.Drain)
		s.leaveClients()
	}
	if s.chat != nil {
		s.endRequests()
	}
	if !others {
		s.leaveClients()
	}
	if s.forwarder != nil {
		s.forwarder.Close()
	}
	if s.notifier != nil {
		s.notifier.Close()
	}
	if s.webhooks != nil {
		s.webhooks.Close()
	}
	var stopping sync.WaitGroup
	for _, p := range s.plugins {
		stopping.Go(p.Stop)
	}
	stopping.Wait()
	s.guard.Close()
	s.traces.Close()
	if s.store != nil {
		if err := s.store.Close(); err != nil {
			s.log.Error("close the store", "error", err)
		}
	}
	if s.scripts != nil {
		s.scripts.stop()
	}
	if s.profiles != nil {
		s.profiles.Close()
	}
}

// endRequests waits for the requests that run, those of sessions and relayed ones, and ends what is
// left after the grace time.
func (s *server) endRequests() {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.live.Now().Server.ShutdownGrace)
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() { s.openai.Stop(ctx) })
	s.chat.Stop(ctx)
	stopping.Wait()
}

// leaveClients ends streams, sockets and connections.
func (s *server) leaveClients() {
	if s.feed != nil {
		s.feed.Close()
	}
	if s.hub != nil {
		s.hub.Close()
	}
	if s.http != nil {
		shutdown(s.http)
	}
}

// hasOtherNodes reports whether clients can go to another node. It assumes so if the database
// does not answer.
func (s *server) hasOtherNodes() bool {
	if !s.store.Shared() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	nodes, err := s.store.Nodes(ctx)
	return err != nil || len(nodes) > 1
}

// scripted is the scripted backend in this process.
type scripted struct {
	url  string
	stop func()
}

func startScripted(log *slog.Logger) (*scripted, error) {
	b, err := backend.New(backend.Options{Logger: log.WithGroup("backend")})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the scripted backend: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Serve(ctx, ln); err != nil {
			log.Error("the scripted backend failed", "error", err)
		}
	}()
	return &scripted{url: "http://" + ln.Addr().String(), stop: func() { cancel(); <-done }}, nil
}

// report logs the warnings of a configuration and returns its errors as one error.
func report(problems []config.Problem, log *slog.Logger) error {
	for _, p := range problems {
		if p.Warning {
			log.Warn("configuration", "at", p.Path, "problem", p.Message)
		}
	}
	if config.Failed(problems) {
		return configError(problems)
	}
	return nil
}

func configError(problems []config.Problem) error {
	var lines []string
	for _, p := range problems {
		if !p.Warning {
			lines = append(lines, "  "+p.String())
		}
	}
	return usageError{fmt.Errorf("the configuration cannot be used:\n%s", strings.Join(lines, "\n"))}
}
