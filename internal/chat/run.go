package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"loquat"
	"loquat/internal/loop"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// errCancelled is the cause for which a request ends that was cancelled.
var errCancelled = errors.New("the request was cancelled")

// worker is a request that runs in this process.
type worker struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the request has its end
}

// launch runs a request that a committed transaction has started; nil is none.
func (s *Service) launch(q *store.Request) {
	if q == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(s.life)
	w := &worker{cancel: cancel, done: make(chan struct{})}
	s.workers[q.RequestID] = w
	s.running.Go(func() {
		defer cancel(nil)
		s.launch(s.work(ctx, *q)) // first, so that the service is not idle in between
		s.mu.Lock()
		delete(s.workers, q.RequestID)
		s.mu.Unlock()
		close(w.done)
	})
}

// interrupt makes a request of this process stop what it does.
func (s *Service) interrupt(requestID string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.workers[requestID]; ok {
		w.cancel(cause)
	}
}

func (s *Service) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// work runs one request to its end and returns the one that its end has started.
func (s *Service) work(ctx context.Context, q store.Request) (next *store.Request) {
	log := s.log.With("request_id", q.RequestID, "session_id", q.SessionID)
	out := newSink(s, q)
	flushed := out.run(ctx)
	err := s.run(ctx, q, out)
	flushed()
	if err == nil {
		log.Info("request completed")
		return out.next
	}
	if cause := context.Cause(ctx); cause != nil {
		err = withCause(err, cause)
	}
	next, status, err := s.endAbnormally(q, out, err)
	switch {
	case status == loquat.StatusFailed:
		log.Warn("request failed", "error", err)
	case status == loquat.StatusCancelled:
		log.Info("request cancelled")
	case errors.Is(err, store.ErrFenced):
		log.Debug("request was ended elsewhere")
	default:
		log.Error("the end of the request could not be written; the next start ends it", "error", err)
	}
	return next
}

// run runs a request's job. A panic of what is plugged in is the request's failure and
// nobody else's.
func (s *Service) run(ctx context.Context, q store.Request, out *sink) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
		}
	}()
	job, err := s.job(ctx, q)
	if err != nil {
		return err
	}
	return loop.Run(ctx, job, out)
}

// withCause puts why the work was stopped in the place of what the stopping looked
// like from within, and keeps what the failure had in hand.
func withCause(err, cause error) error {
	if f, ok := errors.AsType[*loop.Failure](err); ok {
		return &loop.Failure{Err: cause, Usage: f.Usage, Finished: f.Finished}
	}
	return cause
}

// job gathers what a request runs with.
func (s *Service) job(ctx context.Context, q store.Request) (loop.Job, error) {
	var stored storedSend
	if err := json.Unmarshal(q.Send, &stored); err != nil {
		return loop.Job{}, fmt.Errorf("read send of request %s: %w", q.RequestID, err)
	}
	// The history is read after the wait: after a crash many requests may wait at once.
	if err := s.requireUncancelled(ctx, q); err != nil {
		return loop.Job{}, err
	}
	if err := s.awaitPlugins(ctx, stored.AgentID, s.log.With("request_id", q.RequestID)); err != nil {
		return loop.Job{}, err
	}
	history, err := s.history(ctx, q)
	if err != nil {
		return loop.Job{}, err
	}
	resolved, err := s.settings.Resolve(ctx, stored.AgentID, stored.Overrides)
	if err != nil {
		return loop.Job{}, err
	}
	return loop.Job{
		SessionID: q.SessionID, RequestID: q.RequestID,
		ProviderID: resolved.ProviderID, Provider: resolved.Provider, Plugins: s.plugins, Config: resolved.Config,
		Concealed: s.settings.Redact(resolved.Config),
		History:   history, Stream: stored.Stream, StreamTools: stored.StreamTools,
		MaxToolRounds: s.config.Limits.MaxToolRounds, MaxToolResultBytes: s.config.Limits.MaxToolResultBytes, NewMessage: newMessage,
		OpenAsset: func(ctx context.Context, assetID string) (loquat.Asset, io.ReadCloser, error) {
			return s.OpenAsset(ctx, q.SessionID, assetID)
		},
		StoreImage: func(ctx context.Context, img plugin.Image) (loquat.Asset, error) {
			return s.StoreAsset(ctx, q.SessionID, "", "", bytes.NewReader(img.Data))
		},
	}, nil
}

// requireUncancelled is errCancelled when a cancel came before this worker could be
// told: then it is in the row.
func (s *Service) requireUncancelled(ctx context.Context, q store.Request) error {
	return s.store.View(ctx, func(r *store.Reader) error {
		row, err := r.Request(q.RequestID)
		if err == nil && row.Cancelled {
			err = errCancelled
		}
		return err
	})
}

// history returns the messages that a request answers.
func (s *Service) history(ctx context.Context, q store.Request) (history []loquat.Message, err error) {
	err = s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(q.SessionID)
		if err != nil {
			return err
		}
		history, err = r.Messages(h, h.Rev, 0, -1)
		return err
	})
	return history, err
}

// The pauses between attempts to write while the store cannot.
const (
	firstRewrite = 50 * time.Millisecond
	lastRewrite  = 2 * time.Second
)

// persistently runs an update until the store takes it, so that no end of a request
// and no increment is lost to a disk that is full for a while. Only the end of ctx
// makes it give up.
func persistently[T any](ctx context.Context, s *Service, fn func(*store.Tx) (T, error)) (T, error) {
	for pause := firstRewrite; ; pause = min(2*pause, lastRewrite) {
		out, err := store.Do(ctx, s.store, fn)
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(pause):
		}
	}
}
