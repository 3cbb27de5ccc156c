package chat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/loop"
	"loquat/internal/plugin"
	"loquat/internal/settings"
	"loquat/internal/store"
	"loquat/internal/trace"
)

// errCancelled is the failure of a request that was cancelled.
var errCancelled = errors.New("the request was cancelled")

// runRequest runs one request to its end and returns the request that its end started.
func (s *Requests) runRequest(ctx context.Context, q store.Request) (next *store.Request) {
	log := s.log.With("request_id", q.RequestID, "session_id", q.SessionID)
	ctx, span := s.traceRequest(ctx, q)
	defer span.End()
	if id := span.TraceID(); id != "" {
		log = log.With("trace_id", id)
	}
	out := newSink(ctx, s, q)
	err := s.checkOwner(q)
	if err == nil {
		err = s.runJob(ctx, q, out)
	}
	out.close()
	if err == nil {
		span.Ended(string(loquat.StatusCompleted))
		log.Info("request completed")
		if !discards(q) {
			s.titles.consider(q)
		}
		return out.next
	}
	if cause := context.Cause(ctx); cause != nil {
		err = withCause(err, cause)
	}
	if errors.Is(err, store.ErrFenced) { // also while the store cannot be reached
		log.Debug("request was ended elsewhere")
		return nil
	}
	failure := err
	next, status, err := s.endAbnormally(q, out, failure)
	if status == loquat.StatusFailed {
		span.Failed(failure)
	}
	span.Ended(string(status))
	switch {
	case status == loquat.StatusFailed:
		log.Warn("request failed", "error", err)
	case status == loquat.StatusCancelled:
		log.Info("request cancelled")
	case errors.Is(err, store.ErrFenced):
		log.Debug("request was ended elsewhere")
	default:
		log.Error("the end of the request could not be written; it is ended later", "error", err)
	}
	return next
}

// traceRequest starts the span of a request, below that of the client that sent it.
func (s *Requests) traceRequest(ctx context.Context, q store.Request) (context.Context, trace.Span) {
	if s.tracer == nil {
		return ctx, trace.Span{}
	}
	r := trace.Request{SessionID: q.SessionID, RequestID: q.RequestID}
	if stored, err := sendOf(q); err == nil {
		r.AgentID = stored.AgentID
		if stored.Trace != nil {
			r.Parent = *stored.Trace
		}
	}
	return s.tracer.Request(ctx, r)
}

// TraceRelay starts the span of a relayed request.
func (s *Requests) TraceRelay(ctx context.Context, call Call, r settings.Resolved, stream bool) (context.Context, trace.Span) {
	return s.tracer.Relay(ctx, call.Trace, r.ProviderID, r.Config.String("model"), stream)
}

// runJob runs a request's job. A panic of a plugin fails this request alone.
func (s *Requests) runJob(ctx context.Context, q store.Request, out *sink) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v\n%s", fault, debug.Stack())
		}
	}()
	job, err := s.newJob(ctx, q, out)
	if err != nil {
		return err
	}
	return loop.Run(ctx, job, out)
}

// withCause replaces the error of a stopped request with the reason why it was stopped. It
// keeps the usage and the finished results of the failure.
func withCause(err, cause error) error {
	if f, ok := errors.AsType[*loop.Failure](err); ok {
		return &loop.Failure{Err: cause, Usage: f.Usage, Finished: f.Finished}
	}
	return cause
}

// newJob returns the job of a request: its settings, plugins and history.
func (s *Requests) newJob(ctx context.Context, q store.Request, out *sink) (loop.Job, error) {
	stored, err := sendOf(q)
	if err != nil {
		return loop.Job{}, err
	}
	// The history is read after the wait, because after a crash many requests may wait at once.
	if s.mayAwaitPlugins() {
		if err := s.requireUncancelled(ctx, q); err != nil {
			return loop.Job{}, err
		}
	}
	if err := s.starts.await(ctx, stored.AgentID, s.log.With("request_id", q.RequestID)); err != nil {
		return loop.Job{}, err
	}
	earlier, history, err := s.history(ctx, q)
	if err != nil {
		return loop.Job{}, err
	}
	resolved, err := s.resolve(ctx, stored)
	if err != nil {
		return loop.Job{}, err
	}
	rules, err := s.rulesOf(stored)
	if err != nil {
		return loop.Job{}, err
	}
	if err := mayUseModel(rules, resolved.ProviderID, resolved.Config.String("model")); err != nil { // an override may name it in a plugin's setting
		return loop.Job{}, err
	}
	if model := resolved.Config.String("model"); model != stored.Model || resolved.ProviderID != stored.ProviderID {
		if err := out.noteModel(ctx, resolved.ProviderID, model); err != nil {
			return loop.Job{}, err
		}
	}
	out.bound(rules.Bounds.TokensPerDay)
	limits := s.config.Now().Limits
	var own RunSettings
	if stored.Run != nil {
		own = stored.Run.Settings
	}
	return loop.Job{
		Instructions: own.Instructions, ClientTools: own.Tools, Params: own.Params, NoteOrder: stored.Run != nil,
		SessionID: q.SessionID, RequestID: q.RequestID,
		ProviderID: resolved.ProviderID, Provider: resolved.Provider, Plugins: s.plugins.Only(rules.AllowsPlugin), Config: resolved.Config,
		Redacted: resolved.Redacted,
		Earlier:  earlier, History: history, Stream: stored.Streams(), StreamTools: stored.StreamTools,
		Attempted:     out.attempted,
		MaxToolRounds: limits.MaxToolRounds, MaxToolResultBytes: limits.MaxToolResultBytes, NewMessage: newMessages(q, stored),
		OpenAsset: func(ctx context.Context, assetID string) (loquat.Asset, io.ReadCloser, error) {
			return s.assets.OpenAsset(ctx, q.SessionID, assetID)
		},
		StoreImage: func(ctx context.Context, img plugin.Image) (loquat.Asset, error) {
			return s.assets.StoreAsset(ctx, q.SessionID, "", "", bytes.NewReader(img.Data))
		},
	}, nil
}

// resolve returns the settings of a request that starts.
func (s *Requests) resolve(ctx context.Context, stored storedSend) (settings.Resolved, error) {
	if stored.Run == nil {
		return s.settings.Resolve(ctx, stored.AgentID, stored.Overrides)
	}
	resolved, err := s.settings.Named(ctx, stored.Run.Model)
	if err == nil && resolved.Redacted == nil {
		resolved.Redacted = s.settings.Redact(resolved.Config)
	}
	return resolved, err
}

// mayAwaitPlugins reports whether awaitPlugins may have to wait.
func (s *Requests) mayAwaitPlugins() bool {
	return slices.ContainsFunc(s.plugins.Plugins(), func(p plugin.Plugin) bool { return plugin.StatusOf(p).State != plugin.StateRunning })
}

// requireUncancelled returns errCancelled when the request's row has a cancel that came
// before the worker existed.
func (s *Requests) requireUncancelled(ctx context.Context, q store.Request) error {
	return s.store.View(ctx, func(r *store.Reader) error {
		_, err := uncancelledHead(r, q)
		return err
	})
}

// uncancelledHead returns the session of a request, or errCancelled.
func uncancelledHead(r *store.Reader, q store.Request) (store.Head, error) {
	h, cancelled, err := r.HeadOfRequest(q)
	if err == nil && cancelled {
		err = errCancelled
	}
	return h, err
}

// longHistory is the size in bytes from which the messages of a session are read only as far
// as the provider needs them. It caches the others.
const longHistory = 64 << 10

// history returns the messages of the request's session; those of a long session are read
// later. It returns errCancelled like requireUncancelled.
func (s *Requests) history(ctx context.Context, q store.Request) (earlier *loquat.EarlierMessages, history []loquat.Message, err error) {
	if history, ok, err := s.recent.history(q.RequestID); ok || err != nil {
		return nil, history, err
	}
	err = s.store.View(ctx, func(r *store.Reader) error {
		h, err := uncancelledHead(r, q)
		if err != nil {
			return err
		}
		if h.Bytes() >= longHistory {
			earlier = s.earlierMessages(h)
			return nil
		}
		history, err = r.Messages(h, h.Rev, 0, -1)
		return err
	})
	return earlier, history, err
}

// earlierMessages returns the messages that a session has now. No others can change or remove
// them while the request runs. It keeps what it has read, because each phase of the request
// reads it. Only the request's worker may call Read.
func (s *Requests) earlierMessages(h store.Head) *loquat.EarlierMessages {
	var kept []loquat.Message // the last ones
	read := func(ctx context.Context, from int) ([]loquat.Message, error) {
		first := h.Count - len(kept)
		if from >= first {
			return slices.Clip(kept[from-first:]), nil
		}
		err := s.store.View(ctx, func(r *store.Reader) error {
			now, err := r.Head(h.SessionID)
			if err == nil && now.Version() != h.Version() {
				err = fmt.Errorf("messages of session %s changed while its request ran", h.SessionID)
			}
			if err == nil {
				kept, err = r.Messages(now, now.Rev, from, h.Count-from)
			}
			return err
		})
		return slices.Clip(kept), err
	}
	return &loquat.EarlierMessages{SessionID: h.SessionID, Version: h.Version(), Count: h.Count, Read: read}
}

// rewrite is the delay between attempts to write while the store cannot.
var rewrite = backoff.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}

// persistently repeats an update while the store cannot write, until ctx ends. So a disk
// that is full for a while loses neither increments nor the end of a request.
func persistently[T any](ctx context.Context, s *store.Store, fn func(*store.Tx) (T, error)) (T, error) {
	for n := 0; ; n++ {
		out, err := store.Do(ctx, s, fn)
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			return out, err
		}
		if rewrite.Wait(ctx, n) != nil {
			return out, err
		}
	}
}
