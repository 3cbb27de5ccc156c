package chat

import (
	"context"
	"encoding/json"
	"fmt"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/trace"
)

// maxQueued bounds the queued sends of one session.
const maxQueued = 10

// storedSend is what the request's row keeps of a send until the request ends. Message
// replaces the fields of the user message, and the row has the request's id.
type storedSend struct {
	loquat.Send
	Message *loquat.Message `json:"message,omitempty"` // the user message, appended at the start

	// Set when the request starts. A change of the session does not affect the request,
	// and after a crash its messages still name the provider and the model.
	AgentID    string        `json:"agent,omitempty"`
	Overrides  loquat.Object `json:"overrides,omitempty"`
	ProviderID string        `json:"provider,omitempty"`
	Model      string        `json:"model,omitempty"`
	From       *int          `json:"from,omitempty"` // index of its first message; nil if an older program started it

	Run *run `json:"run,omitempty"` // of a request that Respond started

	Role string `json:"role,omitempty"` // of the caller

	Trace *trace.Parent `json:"trace,omitempty"` // the span of the caller; nil: none, or nothing is traced

	RollBack bool `json:"roll_back,omitempty"` // its messages are deleted when it ends

	attachments []attachment // of Message, until they are checked
}

func (s storedSend) encode() ([]byte, error) {
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode send: %w", err)
	}
	return encoded, nil
}

// sendOf returns what the row of a request that has not ended keeps of its send.
func sendOf(q store.Request) (out storedSend, err error) {
	if err := json.Unmarshal(q.Send, &out); err != nil {
		return out, fmt.Errorf("read send of request %s: %w", q.RequestID, err)
	}
	return out, nil
}

// Send asks for a reply. When no request runs on the session, one transaction appends the
// user message and starts the request; otherwise OnBusy decides. The request keeps running
// when the caller disconnects.
func (s *Requests) Send(ctx context.Context, call Call, id string, p loquat.Send) (Answer[loquat.SendResult], error) {
	stored, err := checkSend(&p)
	if err != nil {
		return Answer[loquat.SendResult]{}, err
	}
	return s.start(ctx, call, id, p, stored)
}

// sendFirst sends in the transaction that creates the session. It updates h.
func (s *Requests) sendFirst(tx *store.Tx, call Call, h *store.Head, p loquat.Send, stored storedSend, out *sent) (err error) {
	if p.RequestID == "" {
		p.RequestID = newID()
	} else if _, _, err := replayedSend(tx, call, h.SessionID, p.RequestID); err != nil { // another session has it
		return err
	}
	if _, err := s.send(tx, call, h.SessionID, p, stored, out); err != nil {
		return inSend(err)
	}
	*h, err = tx.Head(h.SessionID)
	return err
}

// start stores the request of a send that was checked, and starts or queues it.
func (s *Requests) start(ctx context.Context, call Call, id string, p loquat.Send, stored storedSend) (Answer[loquat.SendResult], error) {
	if err := s.lookForRoom(ctx, call, p.RequestID, !joins(p.OnBusy)); err != nil {
		return Answer[loquat.SendResult]{}, err
	}
	named := p.RequestID != ""
	if !named {
		p.RequestID = newID()
	}
	return launching(ctx, s, func(tx *store.Tx, out *sent) (Answer[loquat.SendResult], error) {
		return runOnce(tx, call, func() (Answer[loquat.SendResult], error) {
			if named { // ids that were made here are new
				if answer, ok, err := replayedSend(tx, call, id, p.RequestID); ok || err != nil {
					return answer, err
				}
			}
			return s.send(tx, call, id, p, stored, out)
		})
	})
}

// sent is what a send's transaction changes among the workers.
type sent struct {
	started     *store.Request // nil: the request waits, or the send is a repeat
	interrupted *store.Request // nil: none
}

// launching runs a transaction that may send, and then starts and interrupts workers accordingly.
func launching[T any](ctx context.Context, s *Requests, fn func(*store.Tx, *sent) (T, error)) (T, error) {
	s.starting.RLock()
	defer s.starting.RUnlock()
	var out sent
	result, err := store.Do(ctx, s.store, func(tx *store.Tx) (T, error) {
		out = sent{}
		return fn(tx, &out)
	})
	if err != nil {
		return result, err
	}
	if out.interrupted != nil {
		s.workers.cancel(out.interrupted.RequestID, errCancelled)
	}
	s.workers.start(out.started)
	return result, nil
}

// replayedSend returns the first answer to a send with this request_id, if there was one.
func replayedSend(tx *store.Tx, call Call, sessionID, requestID string) (Answer[loquat.SendResult], bool, error) {
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

// send stores the request, and starts it if no request runs on the session.
func (s *Requests) send(tx *store.Tx, call Call, id string, p loquat.Send, stored storedSend, out *sent) (answer Answer[loquat.SendResult], err error) {
	if s.workers.isDraining() {
		return answer, loquat.Errorf(loquat.CodeUnavailable, "the server is shutting down; send again in a moment")
	}
	h, busy, err := tx.HeadAndBusy(id)
	if err != nil {
		return answer, err
	}
	if err := call.IfMatch.check(h); err != nil {
		return answer, err
	}
	if !busy && joins(p.OnBusy) { // there is nothing to join, which lookForRoom could not know
		if err := s.room.ForRunning(s.workers.count()); err != nil {
			return answer, err
		}
	}
	resolved, err := s.settings.ResolveStatic(h.AgentID, overridesOf(h))
	if err != nil { // its agent was removed from the configuration
		return answer, err
	}
	if stored.Run == nil {
		stored.ProviderID, stored.Model = resolved.ProviderID, resolved.Config.String("model")
	}
	if err := call.By.maySend(tx, h, stored, !busy || !joins(p.OnBusy)); err != nil {
		return answer, err
	}
	stored.Role = call.By.Role
	if s.tracer != nil && call.Trace != (trace.Parent{}) {
		stored.Trace = &call.Trace
	}
	if err := checkAttachments(s.settings, stored.attachments, &tx.Reader, h); err != nil {
		return answer, err
	}
	q := store.Request{Request: loquat.Request{RequestID: p.RequestID}, BodyHash: call.BodyHash, OnBusy: p.OnBusy, Meter: call.By.Meter}
	if busy {
		err = s.sendBusy(tx, &h, &q, stored, out)
	} else {
		out.started = &q
		err = s.startNew(tx, &h, &q, stored)
	}
	if err != nil {
		return answer, err
	}
	return answerOf(q, h), nil
}

// sendBusy queues a send on a session that has a running or queued request.
func (s *Requests) sendBusy(tx *store.Tx, h *store.Head, q *store.Request, stored storedSend, out *sent) error {
	first, ok, err := tx.FirstUnended(*h)
	if err == nil && !ok {
		err = fmt.Errorf("session %s has no unended request any more", h.SessionID) // cannot happen in one transaction
	}
	if err != nil {
		return err
	}
	if q.Send, err = stored.encode(); err != nil {
		return err
	}
	if err := s.queueBehind(tx, h, first, q); err != nil {
		return err
	}
	if first.Status != loquat.StatusRunning { // the node that would have started the first of the queue has stopped
		out.started, err = s.startNext(tx, h)
		return err
	}
	if cancels(q.OnBusy) {
		out.interrupted = &first
	}
	return nil
}

// cancels reports whether a send cancels the running request.
func cancels(onBusy string) bool {
	return onBusy == loquat.BusyInterrupt || onBusy == loquat.BusyRollback
}

// joins reports whether a send joins the running request of its session, or takes its place.
func joins(onBusy string) bool { return cancels(onBusy) || onBusy == loquat.BusySteer }

// answerOf returns the answer to a send whose request is stored.
func answerOf(q store.Request, h store.Head) Answer[loquat.SendResult] {
	return Answer[loquat.SendResult]{Body: loquat.SendResult{RequestID: q.RequestID, SessionID: h.SessionID, Status: q.Status, CursorEventID: h.Cursor}, Checkpoint: h.Checkpoint}
}

// setAnswer sets the answer that a request's row keeps. The status is the one with which the
// row is stored next.
func setAnswer(q *store.Request, h store.Head, status loquat.RequestStatus) (err error) {
	q.Status = status
	if q.Answer, err = json.Marshal(answerOf(*q, h)); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return nil
}

// queueBehind queues a send behind the first request of the session, which runs or waits. With
// interrupt or rollback it cancels that request if it runs, and puts the send at the head of the
// queue.
func (s *Requests) queueBehind(tx *store.Tx, h *store.Head, first store.Request, q *store.Request) error {
	if q.OnBusy == loquat.BusyReject {
		return busyError(first)
	}
	queued, err := tx.CountQueued(*h)
	if err != nil {
		return err
	}
	if queued >= maxQueued {
		return loquat.Errorf(loquat.CodeRateLimited, "session %[2]s already has %[1]d queued sends; wait until one has started", queued, h.SessionID)
	}
	if first.Status == loquat.StatusRunning {
		if err := stopFor(tx, &first, q.OnBusy); err != nil {
			return err
		}
	}
	if err := setAnswer(q, *h, loquat.StatusQueued); err != nil {
		return err
	}
	at := store.AtTheEnd
	switch {
	case cancels(q.OnBusy):
		at = store.AtTheFront
	case q.OnBusy == loquat.BusySteer:
		at = store.BehindSteers
	}
	if err := tx.EnqueueRequest(h, q, at); err != nil {
		return err
	}
	return publishQueue(tx, h)
}

// stopFor cancels the running request of a session if a send with onBusy does that. With rollback,
// the end of the request also takes back its messages.
func stopFor(tx *store.Tx, running *store.Request, onBusy string) error {
	if !cancels(onBusy) {
		return nil
	}
	if onBusy == loquat.BusyRollback {
		if err := markRollback(tx, running); err != nil {
			return err
		}
	}
	if running.Cancelled {
		return nil
	}
	return flagCancelled(tx, running)
}

// startNew starts a request that was not queued. Its row is written once.
func (s *Requests) startNew(tx *store.Tx, h *store.Head, q *store.Request, stored storedSend) error {
	before := h.Checkpoint
	from, err := s.prepareMessages(tx, h, stored)
	if err != nil {
		return err
	}
	if q.Send, err = s.startedSend(*h, stored, from); err != nil {
		return err
	}
	if err := setAnswer(q, *h, loquat.StatusRunning); err != nil {
		return err
	}
	if err := tx.AddRunning(h, q, s.store.Owner()); err != nil {
		return err
	}
	if stored.Run != nil && !stored.Run.Settings.Discard {
		if err := tx.DiscardWith(*h, ""); err != nil {
			return err
		}
	}
	s.recent.note(tx, before, h, q.RequestID)
	return publish(tx, h, q, loquat.Event{Type: loquat.RequestStarted, Stream: stored.Stream})
}

// startedSend returns what the row of a started request keeps of its send. The first message of the
// request has the index from.
func (s *Requests) startedSend(h store.Head, stored storedSend, from int) ([]byte, error) {
	stored.Message, stored.DeleteFrom, stored.Keep = nil, nil, false // they are applied, and may be large
	stored.From = &from
	stored.AgentID, stored.Overrides = h.AgentID, overridesOf(h)
	if stored.Run != nil {
		started := *stored.Run
		started.Messages, stored.Run = nil, &started
		return stored.encode() // Respond has set the provider and the model
	}
	if resolved, err := s.settings.ResolveStatic(h.AgentID, stored.Overrides); err == nil {
		stored.ProviderID, stored.Model = resolved.ProviderID, resolved.Config.String("model")
	}
	return stored.encode()
}

// startRequest starts a queued request: it changes the messages as the send asks, then
// publishes request_started. The sends that wait to steer go with it.
func (s *Requests) startRequest(tx *store.Tx, h *store.Head, q *store.Request, stored storedSend) error {
	before := h.Checkpoint
	from, err := s.prepareMessages(tx, h, stored)
	if err != nil {
		return err
	}
	if q.Send, err = s.startedSend(*h, stored, from); err != nil {
		return err
	}
	if err := tx.StartRequest(q, s.store.Owner()); err != nil {
		return err
	}
	if err := publish(tx, h, q, loquat.Event{Type: loquat.RequestStarted, Stream: stored.Stream}); err != nil {
		return err
	}
	if _, err := s.takeSteers(tx, h, *q); err != nil {
		return err
	}
	if err := publishQueue(tx, h); err != nil {
		return err
	}
	s.recent.note(tx, before, h, q.RequestID)
	return tx.CloseStep(q)
}

// prepareMessages applies delete_from and appends the user message. from is the index of the first
// message that the request adds.
func (s *Requests) prepareMessages(tx *store.Tx, h *store.Head, stored storedSend) (from int, err error) {
	if stored.DeleteFrom != nil {
		if *stored.DeleteFrom >= h.Count {
			return 0, loquat.Invalid("body.delete_from", "has to be the index of one of the %d messages", h.Count)
		}
		remove := tx.DeleteFrom
		if stored.Keep {
			remove = tx.KeepFrom
		}
		if err := deleteFrom(tx, h, *stored.DeleteFrom, remove); err != nil {
			return 0, err
		}
	}
	from = h.Count
	if stored.Run != nil {
		return from, appendAll(tx, h, stored.Run.Messages)
	}
	if stored.Message != nil {
		if _, err := appendMessage(tx, h, *stored.Message); err != nil {
			return 0, err
		}
	} else if err := requireQuestion(tx, *h); err != nil {
		return 0, err
	}
	if stored.DeleteFrom == nil && stored.Message == nil {
		return from, nil
	}
	return from, tx.Checkpoint(h, nil, false)
}

// deleteFrom removes the messages from an index on with remove, and publishes that. The caller
// publishes the checkpoint.
func deleteFrom(tx *store.Tx, h *store.Head, index int, remove func(*store.Head, int) ([]int, error)) error {
	if err := forgetTitle(tx, h, index); err != nil {
		return err
	}
	indices, err := remove(h, index)
	if err != nil {
		return err
	}
	return publish(tx, h, nil, loquat.Event{Type: loquat.MessagesDeleted, Indices: indices})
}

// requireQuestion returns an error unless the last message has the role user or tool.
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
