// Package chat holds the verbs of the service: create, fork, append, modify, delete,
// send and cancel. It is the only writer to the store.
//
// It promises that each verb is one transaction with its events, that what it
// answered is on disk, that every request has exactly one end, whatever happens, and
// that a request runs on after the client that sent it went away. It knows nothing of
// HTTP; parameters come parsed, but not checked.
package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/store"
)

// Options are what a service is made of.
type Options struct {
	Store   *store.Store
	Assets  *asset.Dir // where images are kept
	Config  *config.Config
	Plugins *plugin.Registry
	Logger  *slog.Logger   // nil: the default one
	Secrets *config.Masker // takes secrets out of what others wrote, and learns of more; nil: there are none
}

// Service runs the verbs. Make one with New, start it with Start.
type Service struct {
	store    *store.Store
	assets   *asset.Dir
	config   *config.Config
	plugins  *plugin.Registry
	log      *slog.Logger
	masker   *config.Masker
	owner    string          // names this process in the rows of the requests that it runs
	noted    map[string]bool // requests of which a row says that this start takes them up; recover's
	settings *settings.Resolver

	absences absences
	states   map[string]chan struct{} // by application plugin: full while an action of it runs

	life context.Context // ends when the service has to stop at once
	end  context.CancelCauseFunc

	recovering atomic.Bool // what the last process left is not taken up yet

	starting sync.RWMutex // held shared from the decision to start a request until it is launched

	mu       sync.Mutex
	workers  map[string]*worker // by request_id
	draining bool               // no request starts any more
	running  sync.WaitGroup     // workers and the sweeper
}

// errShutdown is the cause for which a request ends when the server stops.
var errShutdown = errors.New("the server was shut down while the request ran")

// The pause between two sweeps is as long as events are kept, within these bounds.
const (
	minSweepPause = time.Second
	maxSweepPause = 30 * time.Second
)

func sweepPause(retention time.Duration) time.Duration {
	if retention <= 0 { // all events are kept, but not all increments
		return maxSweepPause
	}
	return min(max(retention, minSweepPause), maxSweepPause)
}

// New makes a service that does not run anything yet.
func New(opts Options) *Service {
	s := &Service{
		store: opts.Store, assets: opts.Assets, config: opts.Config, plugins: opts.Plugins, log: opts.Logger,
		masker: opts.Secrets, owner: newID(), noted: map[string]bool{}, workers: map[string]*worker{},
		states: map[string]chan struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.masker == nil {
		s.masker = &config.Masker{}
	}
	s.store.ShowMetadata(s.shown)
	s.settings = settings.New(settings.Options{Store: s.store, Config: s.config, Plugins: s.plugins, Logger: s.log, Masker: s.masker})
	for _, p := range s.plugins.Applications() {
		s.states[p.Name()] = make(chan struct{}, 1)
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Start ends what a former process left running, starts what it left queued, and
// begins to sweep. It has to return before anybody is served. While nothing can be
// written it leaves that for later, and until then there are reads only.
func (s *Service) Start(ctx context.Context) error {
	seen := map[string]bool{}
	err := s.recover(ctx, seen)
	switch {
	case err == nil:
		s.running.Go(s.sweepLoop)
	case loquat.CodeOf(err) == loquat.CodeUnavailable && ctx.Err() == nil:
		// What is stored can be read all the same.
		s.recovering.Store(true)
		s.store.Hold()
		s.running.Go(func() { s.recoverLater(seen) })
	default:
		return fmt.Errorf("take up what the last run left: %w", err)
	}
	return nil
}

// Stop starts no more requests and waits until ctx ends for those that run, and for
// actions of application plugins. What is left then ends as interrupted. Queued requests
// stay queued for the next start. After Stop no request publishes an event.
func (s *Service) Stop(ctx context.Context) {
	s.starting.Lock() // nobody is between deciding to start a request and launching it
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.starting.Unlock()
	s.awaitIdle(ctx)
	s.awaitActions(ctx)
	s.end(errShutdown)
	s.running.Wait()
}

// awaitIdle returns when no worker is left, or ctx ends.
func (s *Service) awaitIdle(ctx context.Context) {
	for {
		w := s.anyWorker()
		if w == nil {
			return
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			return
		}
	}
}

// awaitActions takes the turns of all application plugins, so that no action of theirs
// runs or begins, or returns when ctx ends.
func (s *Service) awaitActions(ctx context.Context) {
	for _, turn := range s.states {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) anyWorker() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		return w
	}
	return nil
}

func (s *Service) sweepLoop() {
	if err := s.assets.Restrict(); err != nil {
		s.log.Warn("other users of the machine may read images; make the user of the server the owner of the files", "error", err)
	}
	if err := s.sweepStrayFiles(s.life); err != nil && s.life.Err() == nil {
		s.log.Warn("could not remove images that nobody owns", "error", err)
	}
	tick := time.NewTicker(sweepPause(s.config.Events.Retention))
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
			if err := s.Sweep(s.life); err != nil && s.life.Err() == nil {
				s.log.Warn("could not sweep", "error", err)
			}
		}
	}
}

// Sweep removes what nothing needs any more, images included.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.store.Sweep(ctx); err != nil {
		return err
	}
	if err := s.sweepUploads(ctx, time.Now().Add(-uploadAge)); err != nil {
		return err
	}
	return s.sweepFreedFiles(ctx)
}

// Readiness is what the service says of its parts.
type Readiness struct {
	Ready  bool
	Store  string            // "ok", or what is wrong
	Detail map[string]string // of further parts
}

// Ready reports whether the service can take requests.
func (s *Service) Ready(context.Context) Readiness {
	r := Readiness{Ready: true, Store: "ok", Detail: map[string]string{}}
	if err := s.store.Healthy(); err != nil {
		r.Ready, r.Store = false, err.Error()
	}
	if loss := s.store.Loss(); loss != nil { // which is no reason to stop now
		r.Detail["lost"] = loss.Error()
	}
	if s.recovering.Load() {
		r.Ready, r.Detail["start"] = false, "what the last run left is taken up once the store can write; until then there are reads only"
	}
	if err := s.assets.Check(); err != nil {
		r.Ready, r.Detail["images"] = false, err.Error()
	}
	for _, p := range s.plugins.Plugins() {
		if state := plugin.StatusOf(p).State; state != plugin.StateRunning {
			r.Detail["plugin "+p.Name()] = state
		}
		if plugin.InFirstStart(p) {
			r.Ready, r.Detail["plugin "+p.Name()] = false, "starting for the first time; requests wait for it"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		r.Ready, r.Detail["shutdown"] = false, "the server is shutting down"
	}
	return r
}

// Running returns how many requests run in this process.
func (s *Service) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// StoreID is the random name of the store.
func (s *Service) StoreID() string { return s.store.ID() }

// ServerID is the name of the server where the configuration gives none: that of the
// store, or of the one that it was copied from.
func (s *Service) ServerID() string { return s.store.ServerID() }

// newID makes an id that sorts by time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// newMessage makes a message without content.
func newMessage(role string) loquat.Message {
	return loquat.Message{ID: newID(), Role: role, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)}
}
