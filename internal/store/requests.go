package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// Request is a row of the requests table.
type Request struct {
	loquat.Request
	RID        int64
	SID        int64
	User       string         // to whom the session belongs
	Owner      string         // process that runs the request; empty while it is queued
	Cancelled  bool           // a cancel was acknowledged: the request must end with request_cancelled
	ClosedUpTo loquat.EventID // last event of the closed steps; later events belong to the open step
	Order      int64          // position in the queue of the session
	OnBusy     string         // of the send, if the request was queued
	Send       []byte         // JSON of the send; package chat defines its form
	BodyHash   [32]byte       // hash of the body of the send
	Answer     []byte         // JSON of the answer to the send
	Meter      string         // counts what the request uses; "" means none does
	Charged    int64          // tokens that the meter has counted so far
	LastIndex  int            // of the messages when the request started; -1 if it is not known
}

const requestColumns = `r.request_id, s.session_id, r.status, r.started_at, r.ended_at, r.error, r.rid, r.sid, r.owner,
	r.cancelled, r.mark, r.queue_order, r.on_busy, r.steered_into, r.send, r.body_hash, r.answer, coalesce(r.last_index, -1), r.usage, r.meter, r.charged, s.user_id`

const requestFrom = ` FROM requests r JOIN sessions s ON s.sid = r.sid WHERE s.deleted = 0 AND `

func scanRequest(scan func(...any) error) (Request, error) {
	var (
		q              Request
		started, ended sql.NullInt64
		failure, into  sql.NullString
		hash, usage    []byte
	)
	err := scan(&q.RequestID, &q.SessionID, &q.Status, &started, &ended, &failure, &q.RID, &q.SID, &q.Owner,
		&q.Cancelled, &q.ClosedUpTo, &q.Order, &q.OnBusy, &into, &q.Send, &hash, &q.Answer, &q.LastIndex, &usage, &q.Meter, &q.Charged, &q.User)
	if err == nil {
		q.Usage, err = decodeUsage(usage)
	}
	if err != nil {
		return Request{}, err
	}
	q.StartedAt, q.EndedAt, q.Error, q.SteeredInto = optionalTime(started), optionalTime(ended), failure.String, into.String
	copy(q.BodyHash[:], hash)
	return q, nil
}

func optionalTime(n sql.NullInt64) *time.Time {
	if !n.Valid {
		return nil
	}
	t := fromMicros(n.Int64)
	return &t
}

// Request returns a request. The error is not_found if it does not exist or its session is
// deleted.
func (r *Reader) Request(requestID string) (Request, error) {
	q, ok, err := r.requestWhere(`r.request_id = ?`, requestID)
	if err == nil && !ok {
		return Request{}, noRequest(requestID)
	}
	return q, err
}

func noRequest(requestID string) error {
	return loquat.Errorf(loquat.CodeNotFound, "there is no request %q", loquat.Clip(requestID, loquat.Excerpt))
}

// RequestOf fails like Request for one that does not exist unless the request is one of a session of a user.
func (r *Reader) RequestOf(user, requestID string) error {
	var rid int64
	err := one(r.q, `SELECT r.rid FROM requests r JOIN sessions s ON s.sid = r.sid WHERE r.request_id = ? AND s.user_id = ?`, []any{requestID, user}, &rid)
	if errors.Is(err, sql.ErrNoRows) {
		return noRequest(requestID)
	}
	return err
}

// RequestTaken reports whether a request id is in use, including requests of deleted sessions.
func (r *Reader) RequestTaken(requestID string) (bool, error) {
	var rid int64
	err := one(r.q, `SELECT rid FROM requests WHERE request_id = ?`, []any{requestID}, &rid)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Running returns the running request of a session.
func (r *Reader) Running(h Head) (Request, bool, error) {
	return r.requestWhere(`r.sid = ? AND r.status = 'running'`, h.SID)
}

func (r *Reader) requestWhere(where string, args ...any) (Request, bool, error) {
	q, err := scanRequest(func(dest ...any) error {
		return one(r.q, `SELECT `+requestColumns+requestFrom+where, args, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Request{}, false, nil
	}
	return q, err == nil, err
}

// FirstUnended returns the running request of a session, or else its first queued request.
func (r *Reader) FirstUnended(h Head) (Request, bool, error) {
	// The subquery sorts without the sends, which may be large.
	return r.requestWhere(`r.rid = (SELECT rid FROM requests WHERE sid = ? AND status IN ('queued', 'running')
		ORDER BY status DESC, queue_order LIMIT 1)`, h.SID)
}

// Unended returns the queued and running requests of a session, or of all sessions if h is
// nil, in the order in which they run.
func (r *Reader) Unended(h *Head) ([]Request, error) {
	where, args := `r.status IN ('queued', 'running') ORDER BY r.sid, r.status DESC, r.queue_order`, []any(nil)
	if h != nil {
		where, args = `r.sid = ? AND `+where, []any{h.SID}
	}
	return r.requestsWhere(where, args...)
}

func (r *Reader) requestsWhere(where string, args ...any) ([]Request, error) {
	rows, err := r.q.Query(`SELECT `+requestColumns+requestFrom+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	defer rows.Close()
	var out []Request
	for rows.Next() {
		q, err := scanRequest(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
		out = append(out, q)
	}
	return out, asDatabaseError(rows.Err())
}

// LastRequest returns the request of a session that runs, or else the one that ended last, without
// those that another one took in.
func (r *Reader) LastRequest(h Head) (Request, bool, error) {
	if q, ok, err := r.Running(h); ok || err != nil {
		return q, ok, err
	}
	return r.requestWhere(`r.rid = (SELECT rid FROM requests WHERE sid = ? AND ended_at IS NOT NULL AND steered_into IS NULL ORDER BY ended_at DESC, rid DESC LIMIT 1)`, h.SID)
}

// NewestRequest returns the row id of a session's newest request, or 0.
func (r *Reader) NewestRequest(h Head) (rid int64, err error) {
	err = one(r.q, `SELECT coalesce(max(rid), 0) FROM requests WHERE sid = ?`, []any{h.SID}, &rid)
	return rid, err
}

// EventsAfterCursor reports whether a session has events after its cursor.
func (r *Reader) EventsAfterCursor(h Head) (some bool, err error) {
	err = one(r.q, `SELECT EXISTS (SELECT 1 FROM events WHERE sid = ? AND event_id > ?)`, []any{h.SID, h.Cursor}, &some)
	return some, err
}

// FirstEvent returns the id of a request's first event, or 0.
func (r *Reader) FirstEvent(q Request) (loquat.EventID, error) {
	var id sql.NullInt64
	err := one(r.q, `SELECT min(event_id) FROM events WHERE rid = ?`, []any{q.RID}, &id)
	return loquat.EventID(id.Int64), err
}

// FenceRequest returns a request if it runs, belongs to owner and its session exists.
// Otherwise it returns ErrFenced.
func (r *Reader) FenceRequest(requestID, owner string) (Request, error) {
	q, ok, err := r.requestWhere(`r.request_id = ?`, requestID)
	if err != nil {
		return Request{}, err
	}
	if !ok || q.Status != loquat.StatusRunning || q.Owner != owner {
		return Request{}, ErrFenced
	}
	return q, nil
}

// Step is what a transaction of a running request needs.
type Step struct {
	Request Request
	Head    Head // of its session
	Queued  bool // other requests wait for its end
}

// FenceStep is FenceRequest by row id. It reads all of a Step in one query.
func (r *Reader) FenceStep(q Request) (out Step, err error) {
	const others = `EXISTS (SELECT 1 FROM requests w WHERE w.sid = r.sid AND w.status = 'queued')`
	out.Request, err = scanRequest(func(dest ...any) (err error) {
		out.Head, err = scanHead(func(head ...any) error {
			return one(r.q, `SELECT `+requestColumns+`, `+headColumns+`, `+others+requestFrom+`r.rid = ? AND r.status = 'running' AND r.owner = ?`,
				[]any{q.RID, q.Owner}, append(append(dest, head...), &out.Queued)...)
		})
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrFenced
	}
	return out, err
}

// AddRunning stores a request that starts at once, without a time in the queue. The next event
// that is published must be its request_started, which closes its first step. It sets q's row
// id.
func (tx *Tx) AddRunning(h *Head, q *Request, owner string) error {
	now := tx.Now
	q.SID, q.SessionID, q.User, q.Status, q.Owner, q.StartedAt, q.ClosedUpTo = h.SID, h.SessionID, h.User, loquat.StatusRunning, owner, &now, tx.last+1
	q.LastIndex = h.Count - 1
	var err error
	q.RID, err = tx.insert(`INSERT INTO requests (request_id, sid, status, owner, mark, queue_order, send, body_hash, answer, started_at, last_index, meter)
		VALUES (?, ?, 'running', ?, ?, 1, ?, ?, ?, ?, ?, ?) RETURNING rid`,
		q.RequestID, q.SID, owner, q.ClosedUpTo, q.Send, q.BodyHash[:], q.Answer, micros(now), q.LastIndex, q.Meter)
	if err != nil {
		return fmt.Errorf("store request: %w", err)
	}
	q.Order = 1
	tx.noteFence(q.RID, owner)
	return nil
}

// StartRequest makes a queued request the running request of its session and stores the
// resolved send.
func (tx *Tx) StartRequest(q *Request, owner string) error {
	now := tx.Now
	q.Status, q.Owner, q.StartedAt = loquat.StatusRunning, owner, &now
	tx.noteFence(q.RID, owner)
	return tx.exec(`UPDATE requests SET status = 'running', owner = ?, started_at = ?, send = ? WHERE rid = ?`, owner, micros(now), q.Send, q.RID)
}

// SetSend changes what the row of a running request keeps of its send.
func (tx *Tx) SetSend(q *Request, send []byte) error {
	q.Send = send
	return tx.exec(`UPDATE requests SET send = ? WHERE rid = ? AND status = 'running'`, send, q.RID)
}

// SetOwner changes the owner of a running request.
func (tx *Tx) SetOwner(q *Request, owner string) error {
	q.Owner = owner
	tx.noteFence(q.RID, "") // it may be cancelled
	return tx.exec(`UPDATE requests SET owner = ? WHERE rid = ? AND status = 'running'`, owner, q.RID)
}

// CloseStep closes the current step of a request, which ends at the last published event, and stores
// what the request has used so far.
func (tx *Tx) CloseStep(q *Request) error {
	q.ClosedUpTo = tx.last
	usage, err := encodeUsage(q.Usage)
	if err != nil {
		return err
	}
	return tx.exec(`UPDATE requests SET mark = ?, usage = ? WHERE rid = ?`, q.ClosedUpTo, usage, q.RID)
}

// FlagCancelled records an acknowledged cancel. The request can then end only with
// request_cancelled.
func (tx *Tx) FlagCancelled(q *Request) error {
	q.Cancelled = true
	tx.noteFence(q.RID, "")
	return tx.exec(`UPDATE requests SET cancelled = 1 WHERE rid = ?`, q.RID)
}

// EndRequest ends a request and stores what it has used. If the request has already ended, it returns ErrFenced.
func (tx *Tx) EndRequest(q *Request, status loquat.RequestStatus, failure string) error {
	now := tx.Now
	var detail any
	if failure != "" {
		detail = failure
	}
	tx.noteFence(q.RID, "")
	usage, err := encodeUsage(q.Usage)
	if err != nil {
		return err
	}
	ok, err := tx.execOne(`UPDATE requests SET status = ?, ended_at = ?, error = ?, usage = ?, send = NULL, owner = '' WHERE rid = ? AND status IN ('queued', 'running')`,
		string(status), micros(now), detail, usage, q.RID)
	if err == nil && !ok {
		return ErrFenced
	}
	q.Status, q.EndedAt, q.Error = status, &now, failure
	return err
}

// Fence is the fast fence for increments. It returns ErrFenced unless the request runs and
// still has q's owner, and reports whether a cancel was acknowledged.
func (tx *Tx) Fence(q Request) (cancelled bool, err error) {
	err = one(tx.q, `SELECT cancelled FROM requests WHERE rid = ? AND status = 'running' AND owner = ?`, []any{q.RID, q.Owner}, &cancelled)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrFenced
	}
	return cancelled, err
}
