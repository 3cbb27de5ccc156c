package store

import (
	"database/sql"
	"fmt"

	"loquat"
)

// QueuePlace is a place in the queue of a session.
type QueuePlace int

// The places where a request enters a queue. Behind the steers is in front of the first request that
// entered at the end.
const (
	AtTheEnd QueuePlace = iota
	AtTheFront
	BehindSteers
)

// NextQueued returns the first queued request of a session.
func (r *Reader) NextQueued(h Head) (Request, bool, error) {
	return r.requestWhere(`r.sid = ? AND r.status = 'queued' ORDER BY r.queue_order LIMIT 1`, h.SID)
}

// Queued returns the queued requests of a session, in the order in which they start.
func (r *Reader) Queued(h Head) ([]Request, error) {
	return r.requestsWhere(`r.sid = ? AND r.status = 'queued' ORDER BY r.queue_order`, h.SID)
}

// Steers returns the queued requests of a session that are to steer another one, in their order.
func (r *Reader) Steers(h Head) ([]Request, error) {
	return r.requestsWhere(`r.sid = ? AND r.status = 'queued' AND r.on_busy = ? ORDER BY r.queue_order`, h.SID, loquat.BusySteer)
}

// CountQueued returns the number of queued requests of a session.
func (r *Reader) CountQueued(h Head) (n int, err error) {
	err = one(r.q, `SELECT count(*) FROM requests WHERE sid = ? AND status = 'queued'`, []any{h.SID}, &n)
	return n, err
}

// QueuedBytes returns the size of the queued sends of a session, as they are stored.
func (r *Reader) QueuedBytes(h Head) (n int64, err error) {
	err = one(r.q, `SELECT CAST(coalesce(sum(octet_length(send)), 0) AS BIGINT) FROM requests WHERE sid = ? AND status = 'queued'`, []any{h.SID}, &n)
	return n, err
}

// EnqueueRequest stores a queued request at a place of the session's queue. It sets q's row id and
// position.
func (tx *Tx) EnqueueRequest(h *Head, q *Request, at QueuePlace) (err error) {
	if q.Order, err = tx.makePlace(h, at); err != nil {
		return err
	}
	q.SID, q.SessionID, q.User, q.Status = h.SID, h.SessionID, h.User, loquat.StatusQueued
	q.RID, err = tx.insert(`INSERT INTO requests (request_id, sid, status, queue_order, on_busy, send, body_hash, answer, meter) VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?) RETURNING rid`,
		q.RequestID, q.SID, q.Order, q.OnBusy, q.Send, q.BodyHash[:], q.Answer, q.Meter)
	if err != nil {
		return fmt.Errorf("store request: %w", err)
	}
	return nil
}

// makePlace returns the position of a place that no request has. Requests behind it move.
func (tx *Tx) makePlace(h *Head, at QueuePlace) (int64, error) {
	var first, last, plain sql.NullInt64
	err := one(tx.q, `SELECT min(queue_order), max(queue_order), min(CASE WHEN on_busy IN (?, '') THEN queue_order END)
		FROM requests WHERE sid = ? AND status = 'queued'`, []any{loquat.BusyQueue, h.SID}, &first, &last, &plain)
	switch {
	case err != nil:
		return 0, err
	case at == AtTheFront:
		return first.Int64 - 1, nil
	case at == AtTheEnd || !plain.Valid:
		return last.Int64 + 1, nil
	}
	return plain.Int64, tx.exec(`UPDATE requests SET queue_order = queue_order + 1 WHERE sid = ? AND status = 'queued' AND queue_order >= ?`, h.SID, plain.Int64)
}

// ChangeQueued stores the send of a queued request, and how the request is to leave the queue.
func (tx *Tx) ChangeQueued(q *Request) error {
	return tx.exec(`UPDATE requests SET send = ?, on_busy = ? WHERE rid = ? AND status = 'queued'`, q.Send, q.OnBusy, q.RID)
}

// MoveQueued moves a queued request to a place of its queue.
func (tx *Tx) MoveQueued(h *Head, q *Request, to QueuePlace) (err error) {
	if q.Order, err = tx.makePlace(h, to); err != nil {
		return err
	}
	return tx.exec(`UPDATE requests SET queue_order = ? WHERE rid = ? AND status = 'queued'`, q.Order, q.RID)
}

// OrderQueue puts the queued requests of a session, which must be all of them, into an order.
func (tx *Tx) OrderQueue(queue []Request) error {
	for i := range queue {
		queue[i].Order = int64(i + 1)
		if err := tx.exec(`UPDATE requests SET queue_order = ? WHERE rid = ? AND status = 'queued'`, queue[i].Order, queue[i].RID); err != nil {
			return err
		}
	}
	return nil
}

// EndSteered completes a queued request whose message a running request has taken in.
func (tx *Tx) EndSteered(q *Request, into Request) error {
	now := tx.Now
	tx.noteFence(q.RID, "")
	ok, err := tx.execOne(`UPDATE requests SET status = 'completed', started_at = ?, ended_at = ?, steered_into = ?, send = NULL WHERE rid = ? AND status = 'queued'`,
		micros(now), micros(now), into.RequestID, q.RID)
	if err == nil && !ok {
		return ErrFenced
	}
	q.Status, q.StartedAt, q.EndedAt, q.SteeredInto = loquat.StatusCompleted, &now, &now, into.RequestID
	return err
}
