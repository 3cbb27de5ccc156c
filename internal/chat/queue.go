package chat

import (
	"context"
	"slices"

	"loquat"
	"loquat/internal/store"
)

// Queue returns the sends that wait on a session, in the order in which they start.
func (s *Requests) Queue(ctx context.Context, sessionID string) (loquat.Queue, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Queue, error) {
		h, err := r.Head(sessionID)
		if err != nil {
			return loquat.Queue{}, err
		}
		waiting, err := r.Queued(h)
		if err != nil {
			return loquat.Queue{}, err
		}
		return queueOf(h, waiting)
	})
}

func queueOf(h store.Head, waiting []store.Request) (loquat.Queue, error) {
	out := loquat.Queue{SessionID: h.SessionID, Queue: make([]loquat.QueuedSend, len(waiting))}
	for i, q := range waiting {
		stored, err := sendOf(q)
		if err != nil {
			return out, err
		}
		out.Queue[i] = queuedSend(q, stored)
	}
	return out, nil
}

// queuedSend returns a send that waits. Only sends with a message can wait.
func queuedSend(q store.Request, stored storedSend) loquat.QueuedSend {
	if q.OnBusy == "" { // stored by an older program
		q.OnBusy = loquat.BusyQueue
	}
	return loquat.QueuedSend{RequestID: q.RequestID, OnBusy: q.OnBusy, Message: *stored.Message, Stream: stored.Streams(), StreamTools: stored.StreamTools}
}

// escaped is how many times a text may grow when it is stored as JSON, and more.
const escaped = 8

// publishQueue publishes the queue of a session after a change.
func publishQueue(tx *store.Tx, h *store.Head) error {
	stored, err := tx.QueuedBytes(*h)
	if err != nil {
		return err
	}
	if stored > escaped*loquat.MaxEventQueue { // reading them would take all writers' time, for nothing
		return publish(tx, h, nil, loquat.Event{Type: loquat.QueueChanged, QueueOmitted: true})
	}
	waiting, err := tx.Queued(*h)
	if err != nil {
		return err
	}
	queue, err := queueOf(*h, waiting)
	if err != nil {
		return err
	}
	e := loquat.Event{Type: loquat.QueueChanged, Queue: queue.Queue}
	size := 0
	for _, q := range queue.Queue {
		size += len(q.Message.Content) + q.Message.Metadata.Size()
	}
	if size > loquat.MaxEventQueue {
		e.Queue, e.QueueOmitted = nil, true
	}
	return publish(tx, h, nil, e)
}

// waitingOf returns the queue of a session and its last request.
func waitingOf(r *store.Reader, h store.Head) (out loquat.Waiting, err error) {
	waiting, err := r.Queued(h)
	if err != nil {
		return out, err
	}
	queue, err := queueOf(h, waiting)
	if err != nil {
		return out, err
	}
	out.Queue = queue.Queue
	last, ok, err := r.LastRequest(h)
	if ok {
		out.LastRequest = &loquat.LastRequest{RequestID: last.RequestID, Status: last.Status, StartedAt: last.StartedAt, EndedAt: last.EndedAt, Error: last.Error}
	}
	return out, err
}

// OrderQueue gives the queue of a session another order. ids must name exactly the requests that wait.
func (s *Requests) OrderQueue(ctx context.Context, call Call, sessionID string, ids []string) (Answer[loquat.Queue], error) {
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.Queue], err error) {
		h, err := headFor(tx, call, sessionID)
		if err != nil {
			return out, err
		}
		waiting, err := tx.Queued(h)
		if err != nil {
			return out, err
		}
		ordered, err := inOrder(waiting, ids)
		if err != nil {
			return out, err
		}
		if err := tx.OrderQueue(ordered); err != nil {
			return out, err
		}
		if err := publishQueue(tx, &h); err != nil {
			return out, err
		}
		out.Checkpoint = h.Checkpoint
		out.Body, err = queueOf(h, ordered)
		return out, err
	})
}

// inOrder returns the requests in the order of ids.
func inOrder(waiting []store.Request, ids []string) ([]store.Request, error) {
	out := make([]store.Request, 0, len(waiting))
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return nil, loquat.Invalid("body.request_ids", "names %q twice", loquat.Clip(id, loquat.Excerpt))
		}
		at := slices.IndexFunc(waiting, func(q store.Request) bool { return q.RequestID == id })
		if at < 0 {
			return nil, loquat.Errorf(loquat.CodeConflict, "request %q does not wait in this queue, or not any more; load the queue again", loquat.Clip(id, loquat.Excerpt))
		}
		out = append(out, waiting[at])
	}
	if len(out) < len(waiting) {
		return nil, loquat.Errorf(loquat.CodeConflict, "%d sends wait and %d are named; load the queue again and name all of them", len(waiting), len(out))
	}
	return out, nil
}

// ChangeQueued changes a send that waits.
func (s *Requests) ChangeQueued(ctx context.Context, call Call, sessionID, requestID string, p loquat.QueuedPatch) (Answer[loquat.QueuedSend], error) {
	if p.OnBusy != "" && p.OnBusy != loquat.BusyQueue && p.OnBusy != loquat.BusySteer {
		return Answer[loquat.QueuedSend]{}, loquat.Invalid("body.on_busy", "is %q; it can become queue or steer", loquat.Clip(p.OnBusy, loquat.Excerpt))
	}
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.QueuedSend], err error) {
		h, err := headFor(tx, call, sessionID)
		if err != nil {
			return out, err
		}
		q, err := queuedRequest(tx, h, requestID)
		if err != nil {
			return out, err
		}
		stored, err := sendOf(q)
		if err != nil {
			return out, err
		}
		attachments, err := stored.patch(p)
		if err != nil {
			return out, err
		}
		if size, most := int64(stored.Message.Metadata.Size()), s.config.Now().Limits.MaxBodyBytes; size > most {
			return out, loquat.Errorf(loquat.CodeTooLarge, "the metadata of the message would have %d bytes; the limit is %d (limits.max_body_bytes)", size, most)
		}
		if err := checkAttachments(s.settings, attachments, &tx.Reader, h); err != nil {
			return out, err
		}
		if err := changeQueued(tx, &h, &q, stored, p.OnBusy); err != nil {
			return out, err
		}
		if err := publishQueue(tx, &h); err != nil {
			return out, err
		}
		return Answer[loquat.QueuedSend]{Body: queuedSend(q, stored), Checkpoint: h.Checkpoint}, nil
	})
}

// queuedRequest returns a request that waits on a session.
func queuedRequest(tx *store.Tx, h store.Head, requestID string) (store.Request, error) {
	q, err := tx.Request(requestID)
	switch {
	case err != nil:
		return q, err
	case q.SID != h.SID:
		return q, loquat.Errorf(loquat.CodeNotFound, "session %s has no request %q", h.SessionID, loquat.Clip(requestID, loquat.Excerpt))
	case q.Status != loquat.StatusQueued:
		return q, loquat.Errorf(loquat.CodeConflict, "request %s is %s, so it cannot be changed any more", q.RequestID, q.Status)
	}
	return q, nil
}

// patch changes the send. It returns the attachments of its message, which the caller checks
// against the session.
func (s *storedSend) patch(p loquat.QueuedPatch) ([]attachment, error) {
	if p.Stream != nil {
		s.Stream = p.Stream
	}
	if p.StreamTools != nil {
		s.StreamTools = *p.StreamTools
	}
	before := s.Message
	n := loquat.NewMessage{Role: before.Role, Content: before.Content, Metadata: mergePatch(before.Metadata, p.Metadata)}
	if p.Content != nil {
		n.Content = *p.Content
	}
	if p.Attachments != nil {
		if p.Metadata[loquat.MetaAttachments] == nil {
			delete(n.Metadata, loquat.MetaAttachments)
		}
		n.Attachments = p.Attachments
	}
	m, attachments, err := checkMessage("body", n)
	m.ID, m.CreatedAt = before.ID, before.CreatedAt
	s.Message = &m
	return attachments, err
}

// changeQueued stores the changed send of a request, and its new place if it is to steer now.
func changeQueued(tx *store.Tx, h *store.Head, q *store.Request, stored storedSend, onBusy string) (err error) {
	steers := onBusy == loquat.BusySteer && q.OnBusy != loquat.BusySteer
	if onBusy != "" {
		q.OnBusy = onBusy
	}
	if q.Send, err = stored.encode(); err != nil {
		return err
	}
	if err := tx.ChangeQueued(q); err != nil || !steers {
		return err
	}
	return tx.MoveQueued(h, q, store.BehindSteers)
}

// takeSteers puts the messages of the sends that wait to steer into a request, whose next call of the
// model answers them too. They are completed with that: they never run. It returns the messages.
func (s *Requests) takeSteers(tx *store.Tx, h *store.Head, into store.Request) ([]loquat.Message, error) {
	steers, err := tx.Steers(*h)
	if err != nil {
		return nil, err
	}
	var out []loquat.Message
	for _, q := range steers {
		stored, err := sendOf(q)
		if err != nil {
			return nil, err
		}
		if _, err := s.prepareMessages(tx, h, stored); err != nil {
			return nil, err
		}
		err = publish(tx, h, &q,
			loquat.Event{Type: loquat.RequestStarted, Stream: stored.Stream, SteeredInto: into.RequestID},
			loquat.Event{Type: loquat.RequestCompleted})
		if err != nil {
			return nil, err
		}
		if err := tx.EndSteered(&q, into); err != nil {
			return nil, err
		}
		out = append(out, *stored.Message)
	}
	return out, nil
}

// markRollback makes the end of a running request delete the messages that the request added.
func markRollback(tx *store.Tx, running *store.Request) error {
	stored, err := sendOf(*running)
	if err != nil {
		return err
	}
	if stored.From == nil {
		return loquat.Errorf(loquat.CodeConflict, "request %s was started by an older version of the server, which did not note its messages; use on_busy interrupt, and delete them", running.RequestID)
	}
	stored.RollBack = true
	send, err := stored.encode()
	if err != nil {
		return err
	}
	return tx.SetSend(running, send)
}

// rollbackOf reports whether a request is rolled back, and the index of its first message.
func rollbackOf(q store.Request) (from int, ok bool, err error) {
	if !q.Cancelled {
		return 0, false, nil
	}
	stored, err := sendOf(q)
	if err != nil || !stored.RollBack {
		return 0, false, err
	}
	return *stored.From, true, nil
}

// rollBack ends the open step without its results, and deletes the messages that the request added.
func (o openStep) rollBack(tx *store.Tx, h *store.Head, q *store.Request, from int) error {
	if o.streaming {
		if err := publish(tx, h, q, phaseEnd); err != nil {
			return err
		}
	}
	if from >= h.Count {
		return nil
	}
	if err := deleteFrom(tx, h, from, tx.DeleteFrom); err != nil {
		return err
	}
	return tx.Checkpoint(h, nil, false)
}
