package chat

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"loquat"
	"loquat/internal/heap"
	"loquat/internal/loop"
	"loquat/internal/store"
)

// The values of a kept message's metadata.incomplete.
const (
	incompleteCancelled   = "cancelled"
	incompleteError       = "error"
	incompleteInterrupted = "interrupted"
)

// endAbnormally ends a request of this process: as cancelled if a cancel was acknowledged,
// otherwise as failed. Text that clients have seen is kept. If status is not empty, the error
// is the failure of the request. Otherwise the end could not be written, and the error says
// why.
func (s *Requests) endAbnormally(q store.Request, k *sink, failure error) (next *store.Request, status loquat.RequestStatus, err error) {
	// The end has to be written even while the service stops.
	ctx, cancel := s.endContext()
	defer cancel()
	type ended struct {
		next   *store.Request
		status loquat.RequestStatus
	}
	endBy := s.endOwn(k.attempts, readOpenStep)
	end := func(tx *store.Tx) (out ended, err error) {
		if err := s.checkOwner(q); err != nil {
			return out, err
		}
		row, err := tx.FenceRequest(q.RequestID, q.Owner)
		if err != nil {
			return out, err
		}
		k.meterIn(tx) // the end counts all, so the increments must not
		if err := k.PublishIncrements(tx); err != nil {
			return out, err
		}
		out.next, err = endBy(tx, &row, failure)
		out.status = row.Status
		return out, err
	}
	k.setStepping(true)
	out, err := endPersistently(ctx, k, end)
	if err != nil && !errors.Is(err, store.ErrFenced) && ctx.Err() == nil {
		// Waiting increments or the failure itself cannot be written. End without them.
		s.log.Error("waiting increments of a request are lost", "request_id", q.RequestID, "error", err, "after", failure)
		k.dropPending()
		if !errors.Is(failure, errUnstored) {
			failure = errors.New("the last increments of the request could not be written")
		}
		if out, err = endPersistently(ctx, k, end); err != nil && !errors.Is(err, store.ErrFenced) && ctx.Err() == nil {
			s.log.Error("the streamed text of a request is lost, too", "request_id", q.RequestID, "error", err)
			endBy = s.endOwn(k.attempts, readWithoutIncrements)
			out, err = persistently(ctx, s.store, end)
		}
	}
	if err != nil {
		return nil, "", err
	}
	return out.next, out.status, failure
}

// endPersistently is persistently for the end of a request. It gives up if the store can write
// other things, twice, but not this end, and something of the request has waited for
// unstoredLimit.
func endPersistently[T any](ctx context.Context, k *sink, end func(*store.Tx) (T, error)) (T, error) {
	for n, others := 0, 0; ; n++ {
		out, err := store.Do(ctx, k.s.store, end)
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			return out, err
		}
		if k.overdue() && k.s.store.TryWrite(ctx) == nil {
			if others++; others == 2 {
				return out, err
			}
		}
		if rewrite.Wait(ctx, n) != nil {
			return out, err
		}
	}
}

// endTimeout bounds how long a stopping service tries to write the end of a request while
// the store cannot write. The next start ends the requests that are left.
const endTimeout = 5 * time.Second

// endContext returns a context that outlives the service by endTimeout.
func (s *Requests) endContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(s.life, func() {
		select {
		case <-time.After(endTimeout):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel() }
}

// endRequest ends a running request within a transaction. It reads the open step from the
// log: it closes an open phase, keeps visible text, gives an open tool round its results,
// publishes error or request_cancelled and request_completed, and starts the next queued
// send.
//
// It is for a request whose process is gone: the log alone says how often the backend was called.
func (s *Requests) endRequest(tx *store.Tx, q *store.Request, failure error) (*store.Request, error) {
	return s.endBy(readOpenStep, tx, q, nil, failure)
}

// endWithout is endRequest for a request whose increments cannot be read or stored: it
// drops what the request streamed since its last closed step.
func (s *Requests) endWithout(tx *store.Tx, q *store.Request, failure error) (*store.Request, error) {
	return s.endBy(readWithoutIncrements, tx, q, nil, failure)
}

// endOwn returns what ends a request of this process, which has made these calls of the backend since
// its last closed step.
func (s *Requests) endOwn(attempts []loquat.Attempt, read stepReader) func(*store.Tx, *store.Request, error) (*store.Request, error) {
	return func(tx *store.Tx, q *store.Request, failure error) (*store.Request, error) {
		return s.endBy(read, tx, q, &attempts, failure)
	}
}

// endBy ends a request whose open step read returns. With attempts nil the step says how often the
// backend was called.
func (s *Requests) endBy(read stepReader, tx *store.Tx, q *store.Request, attempts *[]loquat.Attempt, failure error) (*store.Request, error) {
	h, err := tx.Head(q.SessionID)
	if err != nil {
		return nil, err
	}
	var memory heap.Gauge
	defer memory.Reset()
	open, err := read(&tx.Reader, *q, &memory)
	if err != nil {
		return nil, err
	}
	if attempts == nil {
		attempts = &open.attempts
	}
	if err := count(&tx.Reader, h, q, *attempts); err != nil {
		return nil, err
	}
	return s.endStep(tx, &h, q, open, failure)
}

// endStep closes the open step of a running request, then ends the request. A request that is rolled
// back takes its messages with it.
func (s *Requests) endStep(tx *store.Tx, h *store.Head, q *store.Request, open openStep, failure error) (*store.Request, error) {
	unfinished, _ := errors.AsType[*loop.Failure](failure)
	from, back, err := rollbackOf(*q)
	if err != nil {
		return nil, err
	}
	if back {
		err = open.rollBack(tx, h, q, from)
	} else {
		err = open.close(tx, h, q, incompleteOf(*q, failure), unfinished)
	}
	if err != nil {
		return nil, err
	}
	end, status, detail := loquat.Event{Type: loquat.RequestCancelled}, loquat.StatusCancelled, ""
	if !q.Cancelled {
		status, detail = loquat.StatusFailed, s.describe(failure)
		end = loquat.Event{Type: loquat.ErrorEvent, Detail: detail}
	}
	if err := publish(tx, h, q, end, loquat.Event{Type: loquat.RequestCompleted}); err != nil {
		return nil, err
	}
	if err := s.finish(tx, *h, q, status, detail); err != nil {
		return nil, err
	}
	return s.startNext(tx, h)
}

func incompleteOf(q store.Request, failure error) string {
	switch {
	case q.Cancelled:
		return incompleteCancelled
	case errors.Is(failure, errShutdown), errors.Is(failure, errCrashed), errors.Is(failure, errAbandoned):
		return incompleteInterrupted
	}
	return incompleteError
}

// describe returns the text that users see of a failure, without secrets.
func (s *Requests) describe(failure error) string {
	detail := "the request failed inside the server; its log says more"
	if e, ok := errors.AsType[*loquat.Error](failure); ok {
		detail = e.Detail
	} else if errors.Is(failure, errShutdown) || errors.Is(failure, errCrashed) || errors.Is(failure, errAbandoned) {
		detail = failure.Error()
	}
	return s.redactor.Redact(detail)
}

// openStep is what a request published since its last closed step.
type openStep struct {
	streaming bool          // assistant_message start without its end
	draft     *loquat.Delta // the draft that clients have computed
	calls     []loquat.ToolCall
	finished  map[string]loquat.Message

	attempts []loquat.Attempt // the calls of the backend that the events tell of
	settled  bool             // the step is a round of tools, which calls no backend
}

// stepReader reads the open step of a request. It adds the sizes of events to memory.
type stepReader func(r *store.Reader, q store.Request, memory *heap.Gauge) (openStep, error)

// readOpenStep folds the events above a request's mark.
func readOpenStep(r *store.Reader, q store.Request, memory *heap.Gauge) (openStep, error) {
	open := newOpenStep()
	var draft loquat.DraftBuilder
	err := r.EachRequestEvent(q, q.ClosedUpTo, true, func(r loquat.Record) error {
		memory.Add(len(r.Body))
		e, err := r.Decode()
		if err != nil {
			return err
		}
		if e.Type == loquat.Partial && e.Message != nil {
			draft.Add(*e.Message)
		}
		open.note(e)
		return nil
	})
	open.draft = draft.Delta()
	open.settle()
	return open, err
}

// newOpenStep returns a step of which no event is known. The backend may have been called.
func newOpenStep() openStep {
	return openStep{finished: map[string]loquat.Message{}, attempts: []loquat.Attempt{{}}}
}

// settle is called after the last event.
func (o *openStep) settle() {
	if o.settled {
		o.attempts = nil
	}
}

// readWithoutIncrements is readOpenStep without increments. It leaves out what cannot be
// read.
func readWithoutIncrements(r *store.Reader, q store.Request, _ *heap.Gauge) (openStep, error) {
	open := newOpenStep()
	err := r.EachRequestEvent(q, q.ClosedUpTo, false, func(r loquat.Record) error {
		if e, err := r.Decode(); err == nil {
			open.note(e)
		}
		return nil
	})
	open.settle()
	return open, err
}

// readAttempts returns the attempts of the open step. It holds no text, however much was streamed.
func readAttempts(r *store.Reader, q store.Request) ([]loquat.Attempt, error) {
	open := newOpenStep()
	err := r.EachRequestEvent(q, q.ClosedUpTo, true, func(r loquat.Record) error {
		e, err := r.Decode()
		if err != nil {
			return err
		}
		open.note(e)
		clear(open.finished)
		return nil
	})
	open.settle()
	return open.attempts, err
}

// note takes in an event of the step, in order.
func (o *openStep) note(e loquat.Event) {
	switch e.Type {
	case loquat.AssistantMessage:
		o.streaming = e.Phase == loquat.PhaseStart
	case loquat.ToolCalls:
		o.calls, o.settled = e.ToolCalls, true
	case loquat.Partial:
		o.attempts[len(o.attempts)-1].Received += sizeOf(e.Message)
	case loquat.RetryScheduled:
		o.attempts[len(o.attempts)-1].Refused = e.Cause != loquat.CauseStream && e.Cause != loquat.CauseTimeout
		o.attempts = append(o.attempts, loquat.Attempt{})
	case loquat.ToolPartial:
		if e.Phase == loquat.PhaseEnd && e.Payload != nil && e.Payload.Result != nil {
			o.finished[e.ToolCallID] = *e.Payload.Result
		}
	}
}

// close ends the open step: exactly one assistant_message end for a start, the kept
// text as a final, results for every call of a round.
func (o openStep) close(tx *store.Tx, h *store.Head, q *store.Request, why string, unfinished *loop.Failure) error {
	if o.streaming {
		if err := publish(tx, h, q, phaseEnd); err != nil {
			return err
		}
	}
	if o.visible() {
		m, err := o.kept(tx, *h, *q, why, unfinished)
		if err != nil {
			return err
		}
		return addMessages(tx, h, q, loquat.Final, []loquat.Message{m})
	}
	if len(o.calls) == 0 {
		return nil
	}
	stored, err := sendOf(*q)
	if err != nil {
		return err
	}
	if stored.Run != nil { // its client was not asked yet, and may still run its tools
		o.calls = loop.ServerCalls(stored.Run.Settings.Tools, o.calls)
	}
	return addMessages(tx, h, q, loquat.ToolResults, o.results(unfinished))
}

// visible reports whether clients show text or reasoning of the phase.
func (o openStep) visible() bool {
	if o.draft == nil {
		return false
	}
	return o.draft.Content != "" || hasText(o.draft.Metadata[loquat.MetaReasoning]) || hasText(o.draft.Metadata[loquat.MetaReasoningContent])
}

// hasText reports whether raw is a text that is not empty.
func hasText(raw json.RawMessage) bool { return len(raw) > 2 && raw[0] == '"' }

// kept returns a message with the text and reasoning that clients have seen of a phase.
func (o openStep) kept(tx *store.Tx, h store.Head, q store.Request, why string, unfinished *loop.Failure) (loquat.Message, error) {
	stored, err := sendOf(q)
	if err != nil {
		return loquat.Message{}, err
	}
	m, err := nextReply(tx, h, q, stored)
	if err != nil {
		return m, err
	}
	m.Content = o.draft.Content
	m.Metadata = o.draft.Metadata.Clone().Set(loquat.MetaIncomplete, why)
	delete(m.Metadata, loquat.MetaStreamRestarted)
	if stored.ProviderID != "" {
		m.Metadata.Set(loquat.MetaProvider, stored.ProviderID)
	}
	if stored.Model != "" {
		m.Metadata.Set(loquat.MetaModel, stored.Model)
	}
	if unfinished != nil {
		for k, v := range unfinished.Usage {
			m.Metadata[k] = v
		}
	}
	return m, nil
}

// results returns the tool messages of an interrupted round, in the order of its calls. For
// calls that did not finish, the message says that their outcome is unknown.
func (o openStep) results(unfinished *loop.Failure) []loquat.Message {
	out := make([]loquat.Message, len(o.calls))
	for i, call := range o.calls {
		m, ok := o.finished[call.ID]
		if !ok && unfinished != nil {
			m, ok = unfinished.Finished[call.ID]
		}
		if !ok {
			m = loop.UnknownOutcome(newMessage(loquat.RoleTool), call)
		}
		out[i] = m
	}
	return out
}

// startNext starts the next queued request of a session. While the service is stopping, or if it is idle, it does
// nothing: another node starts the request, or else the next start of the server.
func (s *Requests) startNext(tx *store.Tx, h *store.Head) (*store.Request, error) {
	if s.idle || s.workers.isDraining() {
		return nil, nil
	}
	q, ok, err := tx.NextQueued(*h)
	if err != nil || !ok {
		return nil, err
	}
	stored, err := sendOf(q)
	if err != nil {
		return nil, err
	}
	if err := s.startRequest(tx, h, &q, stored); err != nil {
		return nil, err
	}
	return &q, nil
}
