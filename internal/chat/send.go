package chat

import (
	"context"
	"encoding/json"
	"fmt"

	"loquat"
	"loquat/internal/store"
)

// maxQueued is how many sends may wait on one session.
const maxQueued = 10

// storedSend is what a request row keeps of its send until it ends.
type storedSend struct {
	Message     *loquat.Message `json:"message,omitempty"` // the user message, appended at the start
	Stream      bool            `json:"stream"`
	StreamTools bool            `json:"stream_tools,omitempty"`
	DeleteFrom  *int            `json:"delete_from,omitempty"`

	// What the request runs with, whatever becomes of the session: from its start on.
	// The messages that it leaves behind say which model it was, even after a crash.
	AgentID    string        `json:"agent,omitempty"`
	Overrides  loquat.Object `json:"overrides,omitempty"`
	ProviderID string        `json:"provider,omitempty"`
	Model      string        `json:"model,omitempty"`

	attachments []attachment // of Message, until they are checked
}

// Send asks for a reply. When nothing runs on the session, one transaction appends
// the user message and starts the request; otherwise OnBusy says what happens. The
// request goes on whatever becomes of the caller.
func (s *Service) Send(ctx context.Context, call Call, id string, p loquat.Send) (Answer[loquat.SendResult], error) {
	if p.OnBusy == "" {
		p.OnBusy = loquat.BusyReject
	}
	stored, err := checkSend(&p)
	if err != nil {
		return Answer[loquat.SendResult]{}, err
	}
	encoded, err := json.Marshal(stored)
	if err != nil {
		return Answer[loquat.SendResult]{}, fmt.Errorf("encode send: %w", err)
	}
	if p.RequestID == "" {
		p.RequestID = newID()
	}
	s.starting.RLock()
	defer s.starting.RUnlock()
	out, err := store.Do(ctx, s.store, func(tx *store.Tx) (out sent, err error) {
		out.answer, err = once(tx, call, func() (Answer[loquat.SendResult], error) {
			if answer, ok, err := answered(tx, call, id, p.RequestID); ok || err != nil {
				return answer, err
			}
			out, err = s.send(tx, call, id, p, stored, encoded)
			return out.answer, err
		})
		return out, err
	})
	if err != nil {
		return out.answer, err
	}
	if out.interrupted != nil {
		s.interrupt(out.interrupted.RequestID, errCancelled)
	}
	s.launch(out.started)
	return out.answer, nil
}

// sent is what the transaction of a send did.
type sent struct {
	answer      Answer[loquat.SendResult]
	started     *store.Request // nil: the request waits, or the send is a repeat
	interrupted *store.Request // nil: none
}

// answered gives the answer again that a request_id got before.
func answered(tx *store.Tx, call Call, sessionID, requestID string) (Answer[loquat.SendResult], bool, error) {
	var out Answer[loquat.SendResult]
	taken, err := tx.RequestTaken(requestID)
	if err != nil || !taken {
		return out, false, err
	}
	if _, err := tx.Head(sessionID); err != nil {
		return out, false, err // a deleted session has nothing to repeat
	}
	q, err := tx.Request(requestID)
	if loquat.CodeOf(err) == loquat.CodeNotFound || err == nil && q.SessionID != sessionID {
		return out, false, loquat.Errorf(loquat.CodeConflict, "request_id %q was used in another session; choose another, or leave it out", requestID)
	}
	if err != nil {
		return out, false, err
	}
	if q.BodyHash != call.BodyHash {
		return out, false, loquat.Invalid("body.request_id", "was used before with another body; use a new one for a new send")
	}
	if err := json.Unmarshal(q.Answer, &out); err != nil {
		return out, false, fmt.Errorf("read remembered answer: %w", err)
	}
	return out, true, nil
}

// send stores the request and starts it when it can start.
func (s *Service) send(tx *store.Tx, call Call, id string, p loquat.Send, stored storedSend, encoded []byte) (out sent, err error) {
	if s.isDraining() {
		return out, loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down; send again in a moment")
	}
	h, err := headFor(tx, call, id)
	if err != nil {
		return out, err
	}
	if _, err := s.settings.ResolveStatic(h.AgentID, overridesOf(h)); err != nil { // its agent is no longer configured
		return out, err
	}
	if err := s.checkAttachments(stored.attachments, &tx.Reader, h); err != nil {
		return out, err
	}
	running, busy, err := tx.Running(h)
	if err != nil {
		return out, err
	}
	q := store.Request{Request: loquat.Request{RequestID: p.RequestID}, BodyHash: call.BodyHash, Send: encoded}
	if busy {
		if err := s.queueBehind(tx, &h, running, &q, p.OnBusy); err != nil {
			return out, err
		}
		if p.OnBusy == loquat.BusyInterrupt {
			out.interrupted = &running
		}
	} else {
		if err := requireIdle(tx, h); err != nil { // queued sends of a server that has not taken them up yet
			return out, err
		}
		if err := tx.EnqueueRequest(&h, &q, false); err != nil {
			return out, err
		}
		if err := s.startRequest(tx, &h, &q, stored); err != nil {
			return out, err
		}
		out.started = &q
	}
	out.answer = Answer[loquat.SendResult]{Body: loquat.SendResult{RequestID: q.RequestID, SessionID: h.SessionID, Status: q.Status, CursorEventID: h.Cursor}, Checkpoint: h.Checkpoint}
	return out, tx.SetAnswer(&q, out.answer)
}

// queueBehind stores a send behind the request that runs, or ahead of all that wait
// while that one is cancelled.
func (s *Service) queueBehind(tx *store.Tx, h *store.Head, running store.Request, q *store.Request, onBusy string) error {
	if onBusy == loquat.BusyReject {
		return busyError(running)
	}
	queued, err := tx.CountQueued(*h)
	if err != nil {
		return err
	}
	if queued >= maxQueued {
		return loquat.Errorf(loquat.CodeRateLimited, "%d sends wait on session %s already; wait until one has started", queued, h.SessionID)
	}
	if onBusy == loquat.BusyInterrupt && !running.Cancelled {
		if err := tx.FlagCancelled(&running); err != nil {
			return err
		}
	}
	return tx.EnqueueRequest(h, q, onBusy == loquat.BusyInterrupt)
}

// startRequest makes a queued request run: what it deletes, its user message, then
// request_started.
func (s *Service) startRequest(tx *store.Tx, h *store.Head, q *store.Request, stored storedSend) error {
	if err := s.prepareMessages(tx, h, stored); err != nil {
		return err
	}
	stored.Message, stored.DeleteFrom = nil, nil // they are done, and may be large
	stored.AgentID, stored.Overrides = h.AgentID, overridesOf(*h)
	if resolved, err := s.settings.ResolveStatic(h.AgentID, overridesOf(*h)); err == nil {
		stored.ProviderID, stored.Model = resolved.ProviderID, resolved.Config.String("model")
	}
	send, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode send: %w", err)
	}
	q.Send = send
	if err := tx.StartRequest(q, s.owner); err != nil {
		return err
	}
	if err := publish(tx, h, q, loquat.Event{Type: loquat.RequestStarted, Stream: &stored.Stream}); err != nil {
		return err
	}
	return tx.SetMark(q)
}

// prepareMessages brings the messages into the shape that the request answers.
func (s *Service) prepareMessages(tx *store.Tx, h *store.Head, stored storedSend) error {
	changed := false
	if stored.DeleteFrom != nil {
		if *stored.DeleteFrom >= h.Count {
			return loquat.Invalid("body.delete_from", "has to be the index of one of the %d messages", h.Count)
		}
		indices, err := tx.DeleteFrom(h, *stored.DeleteFrom)
		if err != nil {
			return err
		}
		if err := publish(tx, h, nil, loquat.Event{Type: loquat.MessagesDeleted, Indices: indices}); err != nil {
			return err
		}
		changed = true
	}
	if stored.Message != nil {
		if _, err := appendMessage(tx, h, *stored.Message); err != nil {
			return err
		}
		changed = true
	} else if err := requireQuestion(tx, *h); err != nil {
		return err
	}
	if !changed {
		return nil
	}
	return tx.Checkpoint(h, nil, false)
}

// requireQuestion wants the messages to end in what a model can answer.
func requireQuestion(tx *store.Tx, h store.Head) error {
	last, err := tx.Messages(h, h.Rev, max(0, h.Count-1), 1)
	if err != nil {
		return err
	}
	if len(last) == 0 || last[0].Role != loquat.RoleUser && last[0].Role != loquat.RoleTool {
		return loquat.Invalid("body.content", "is missing, and the messages do not end in a user or tool message that could be answered")
	}
	return nil
}

// Request returns a request as it stands.
func (s *Service) Request(ctx context.Context, id string) (loquat.Request, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Request, error) {
		q, err := r.Request(id)
		return q.Request, err
	})
}

// Cancel ends a queued request at once, and makes request_cancelled the only end of
// one that runs. One that has ended is left alone.
func (s *Service) Cancel(ctx context.Context, call Call, id string) (Answer[loquat.CancelResult], error) {
	out, err := change(ctx, s, call, func(tx *store.Tx) (out Answer[loquat.CancelResult], err error) {
		q, err := tx.Request(id)
		if err != nil {
			return out, err
		}
		out.Accepted = true
		switch {
		case q.Status == loquat.StatusQueued:
			err = cancelQueued(tx, &q)
		case q.Status.Ended():
			out.Accepted = false
		case !q.Cancelled:
			err = tx.FlagCancelled(&q)
		}
		out.Body = loquat.CancelResult{RequestID: id, Status: q.Status}
		return out, err
	})
	if err == nil && out.Body.Status == loquat.StatusRunning {
		s.interrupt(id, errCancelled)
	}
	return out, err
}

// cancelQueued ends a request that never started: it has events, but no message.
func cancelQueued(tx *store.Tx, q *store.Request) error {
	h, err := tx.Head(q.SessionID)
	if err != nil {
		return err
	}
	var stored storedSend
	if err := json.Unmarshal(q.Send, &stored); err != nil {
		return fmt.Errorf("read send of request %s: %w", q.RequestID, err)
	}
	err = publish(tx, &h, q,
		loquat.Event{Type: loquat.RequestStarted, Stream: &stored.Stream},
		loquat.Event{Type: loquat.RequestCancelled},
		loquat.Event{Type: loquat.RequestCompleted})
	if err != nil {
		return err
	}
	return tx.EndRequest(q, loquat.StatusCancelled, "")
}
