// Package chat has the operations of the service: create, fork, append, modify, delete, send
// and cancel. It is the only package that writes sessions and requests to the store.
//
// It promises that each operation and its events are one transaction; that a change is on disk
// before its answer; that every request ends exactly once; and that a request keeps running
// after its client disconnected. It does not know HTTP. Its callers parse parameters; chat
// validates them.
package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/config"
	"loquat/internal/headroom"
	"loquat/internal/images"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/store"
	"loquat/internal/trace"
)

// Options configure a Service.
type Options struct {
	Store   *store.Store
	Images  images.Keeper
	Uploads *asset.Spool // images that are being received
	Config  *config.Live
	Plugins *plugin.Registry
	Logger  *slog.Logger     // nil: the default one
	Secrets *config.Redactor // redacts secrets in texts of backends and plugins; nil: there are none
	Tracer  *trace.Tracer    // traces requests; nil: none

	Headroom *headroom.Headroom // refuses what the server has no room for; nil refuses nothing
	Idle     bool               // queued sends stay queued, for another server of the store
}

// Service runs the operations. Make one with New, start it with Start.
type Service struct {
	Requests *Requests
	Assets   *Assets  // images of sessions
	Catalog  *Catalog // choices that clients are offered

	dependencies
	indexing *indexing
	states   map[string]chan struct{} // by application plugin: full while an action of it runs on this node

	leaving atomic.Bool // see Leave

	life context.Context // ends when the service has to stop at once
	end  context.CancelCauseFunc
}

// dependencies are what the types of this package share.
type dependencies struct {
	store    *store.Store
	config   *config.Live
	plugins  *plugin.Registry
	log      *slog.Logger
	redactor *config.Redactor
	tracer   *trace.Tracer
	room     *headroom.Headroom
	idle     bool
	settings *settings.Resolver
	starts   *pluginStarts
	counts   counts
}

// errShutdown is the failure of a request that runs when the server stops.
var errShutdown = errors.New("the server was shut down while the request ran")

// New returns a service that runs nothing before Start.
func New(opts Options) *Service {
	s := &Service{
		dependencies: dependencies{store: opts.Store, config: opts.Config, plugins: opts.Plugins, log: opts.Logger, redactor: opts.Secrets, tracer: opts.Tracer, room: opts.Headroom, idle: opts.Idle, counts: newCounts()},
		states:       map[string]chan struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.redactor == nil {
		s.redactor = &config.Redactor{}
	}
	s.store.ShowMetadata(s.shown)
	s.settings = settings.New(settings.Options{Store: s.store, Config: s.config, Plugins: s.plugins, Logger: s.log, Redactor: s.redactor})
	s.store.OnPluginStates(s.settings.Invalidate) // elements may depend on the state
	for _, p := range s.plugins.Applications() {
		s.states[p.Name()] = make(chan struct{}, 1)
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.starts = &pluginStarts{config: s.config, plugins: s.plugins}
	s.indexing = &indexing{store: s.store, log: s.log, life: s.life}
	s.Catalog = &Catalog{s.dependencies}
	s.Assets = &Assets{store: s.store, images: opts.Images, uploads: opts.Uploads, room: s.room}
	s.Requests = &Requests{
		dependencies: s.dependencies, assets: s.Assets,
		life: s.life, recent: newRecentMessages(),
	}
	s.Requests.workers = workers{life: s.life, run: s.Requests.runRequest, recent: s.Requests.recent, byID: map[string]*worker{}}
	s.Requests.other = &otherUsage{dependencies: s.dependencies, sum: map[meteredUsage]loquat.Usage{}}
	s.Requests.titles = newTitles(s.Requests)
	s.Requests.listen()
	return s
}

// Start ends the requests that the last process of this node, and nodes that are gone, left
// running. It starts queued sends and begins the cleanup. It has to return before clients are
// served. While the store cannot write, Start does this later in the background, and until then
// the service only reads.
func (s *Service) Start(ctx context.Context) error {
	seen := map[string]bool{}
	err := s.Requests.reconcile(ctx, seen)
	switch {
	case err == nil:
		s.begin()
	case loquat.CodeOf(err) == loquat.CodeUnavailable && ctx.Err() == nil:
		s.Requests.reconciling.Store(true)
		s.store.Hold()
		s.Requests.workers.running.Go(func() {
			if s.Requests.reconcileLater(seen) {
				s.begin()
			}
		})
	default:
		return fmt.Errorf("end the requests that the last run left: %w", err)
	}
	return nil
}

// begin starts what the service does in the background.
func (s *Service) begin() {
	s.Requests.workers.running.Go(s.cleanupLoop)
	s.Requests.workers.running.Go(s.indexing.loop)
	s.Requests.workers.running.Go(func() {
		if err := s.auditRoles(s.life); err != nil && s.life.Err() == nil {
			s.log.Warn("the roles could not be compared with those of the last start", "error", err)
		}
	})
	s.Requests.workers.running.Go(func() { s.Requests.other.loop(s.life) })
	if s.store.Shared() {
		s.Requests.workers.running.Go(s.Requests.lookLoop)
	}
}

// Leave makes Ready report that the server is shutting down, and changes nothing else: load
// balancers send calls to other nodes, and those that still arrive are served.
func (s *Service) Leave() { s.leaving.Store(true) }

// Stop starts no more requests. It waits until ctx ends for running requests and for actions
// of application plugins; then it ends the remaining requests as interrupted. Queued sends
// stay queued for the next start. After Stop no request publishes an event.
func (s *Service) Stop(ctx context.Context) {
	defer context.AfterFunc(ctx, s.store.Leave)() // a change that the database does not answer is waited for until then
	s.Requests.stopping.Store(true)
	s.Requests.starting.Lock() // no request is between the decision to start it and its worker
	s.Requests.workers.drain()
	s.Requests.starting.Unlock()
	s.Requests.workers.awaitIdle(ctx)
	s.awaitActions(ctx)
	s.store.Leave()
	s.end(errShutdown)
	s.Requests.workers.running.Wait()
}

// awaitActions prevents further actions of application plugins and waits until none runs or ctx
// ends.
func (s *Service) awaitActions(ctx context.Context) {
	for _, turn := range s.states {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// Nodes returns the live servers that write to the log, the oldest first.
func (s *Service) Nodes(ctx context.Context) (loquat.NodeList, error) {
	nodes, err := s.store.Nodes(ctx)
	return loquat.NodeList{Nodes: nodes}, err
}

// Ready reports whether the service can take requests.
func (s *Service) Ready(ctx context.Context) loquat.Readiness {
	r := loquat.Readiness{Ready: true, Store: "ok", Detail: map[string]string{}}
	if err := s.store.Healthy(); err != nil {
		r.Ready, r.Store = false, err.Error()
	}
	if loss := s.store.Loss(); loss != nil { // Ready only reports a loss; the server can work
		r.Detail["lost"] = loss.Error()
	}
	if s.Requests.reconciling.Load() {
		r.Ready, r.Detail["start"] = false, "requests of the last run are ended once the store can write; until then the server only reads"
	}
	if err := s.Assets.uploads.Check(); err != nil {
		r.Ready, r.Detail["images"] = false, err.Error()
	} else if unready, err := s.Assets.images.Check(ctx); err != nil {
		r.Ready, r.Detail["images"] = r.Ready && !unready, err.Error()
	}
	if left := s.indexing.left(); left != "" { // a search says itself that it is incomplete
		r.Detail["search"] = left
	}
	for _, p := range s.plugins.Plugins() {
		if state := plugin.StatusOf(p).State; state != plugin.StateRunning {
			r.Detail["plugin "+p.Name()] = state
		}
		if plugin.InFirstStart(p) {
			r.Ready, r.Detail["plugin "+p.Name()] = false, "starting for the first time; requests wait for it"
		}
	}
	if s.leaving.Load() || s.Requests.workers.isDraining() {
		r.Ready, r.Detail["shutdown"] = false, "the server is shutting down"
	}
	return r
}
