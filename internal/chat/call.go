package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/trace"
)

// Call holds the parameters that every change has.
type Call struct {
	// IdempotencyKey identifies a repeat with the same Method and Path, which gets the
	// first answer. Empty means none.
	IdempotencyKey string
	Method, Path   string
	BodyHash       [32]byte // SHA-256 of the body as received

	// IfMatch is the precondition of the change; nil means none.
	IfMatch *Match

	// By says who makes the change, and what the caller may use.
	By By

	// Trace is the span of the caller, below which a request is traced.
	Trace trace.Parent

	// Discard makes a new session one that is deleted when this process ends, unless a Respond without
	// Discard starts a request on it.
	Discard bool
}

// Match is a precondition on the newest checkpoint of a session.
type Match struct {
	Any bool // `*`: any session that exists
	IDs []loquat.EventID
}

// Answer is the answer to a change: the body, and the values for HTTP headers and the status.
type Answer[T any] struct {
	Body       T
	Checkpoint loquat.EventID // newest checkpoint of the session, its ETag; 0 when there is none
	Accepted   bool           // of a cancel: the request had not ended
}

// answerExtra holds the fields of a stored Answer that are not in its body.
type answerExtra struct {
	Checkpoint loquat.EventID `json:"checkpoint,omitempty"`
	Accepted   bool           `json:"accepted,omitempty"`
}

// MarshalJSON writes one object: the fields of the body, checkpoint and accepted.
func (a Answer[T]) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(a.Body)
	if err != nil {
		return nil, err
	}
	extra, err := json.Marshal(answerExtra{a.Checkpoint, a.Accepted})
	if err != nil || string(extra) == "{}" {
		return body, err
	}
	body[len(body)-1] = ',' // every body has fields
	return append(body, extra[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer[T]) UnmarshalJSON(b []byte) error {
	var extra answerExtra
	if err := json.Unmarshal(b, &extra); err != nil {
		return err
	}
	a.Checkpoint, a.Accepted = extra.Checkpoint, extra.Accepted
	return json.Unmarshal(b, &a.Body)
}

// runOnce runs a change, unless the call's Idempotency-Key was used before: then it returns
// the first answer and changes nothing. Failures are not remembered.
func runOnce[T any](tx *store.Tx, call Call, change func() (T, error)) (T, error) {
	var out T
	if call.IdempotencyKey == "" {
		return change()
	}
	first, ok, err := tx.Replay(call.IdempotencyKey, call.Method, call.Path, tx.Now)
	if err != nil {
		return out, err
	}
	if ok {
		if first.BodyHash != call.BodyHash {
			return out, loquat.Invalid("header.Idempotency-Key", "was used before with another body; use a new key for a new change")
		}
		if err := json.Unmarshal(first.Result, &out); err != nil {
			return out, fmt.Errorf("read remembered answer: %w", err)
		}
		return out, nil
	}
	if out, err = change(); err != nil {
		return out, err
	}
	result, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("encode answer: %w", err)
	}
	return out, tx.StoreReplay(call.IdempotencyKey, call.Method, call.Path, store.Replay{BodyHash: call.BodyHash, Result: result})
}

// change runs fn in one transaction, once for each Idempotency-Key, and returns its answer.
func change[T any](ctx context.Context, s *store.Store, call Call, fn func(*store.Tx) (T, error)) (T, error) {
	return store.Do(ctx, s, func(tx *store.Tx) (T, error) {
		return runOnce(tx, call, func() (T, error) { return fn(tx) })
	})
}

// isReplay reports whether a call repeats one that was answered. Callers use it to skip work
// that a repeat does not need. Only runOnce decides, within the transaction.
func isReplay(ctx context.Context, s *store.Store, call Call) (bool, error) {
	if call.IdempotencyKey == "" {
		return false, nil
	}
	return store.Read(ctx, s, func(r *store.Reader) (bool, error) {
		_, yes, err := r.Replay(call.IdempotencyKey, call.Method, call.Path, time.Now())
		return yes, err
	})
}

// check returns precondition_failed when the session does not meet the precondition.
func (m *Match) check(h store.Head) error {
	if m == nil || m.Any || slices.Contains(m.IDs, h.Checkpoint) {
		return nil
	}
	return loquat.Errorf(loquat.CodePreconditionFailed, "session %s has changed since: its newest checkpoint is %s; load it again", h.SessionID, h.Checkpoint)
}

// headFor returns the session of a change after its precondition was checked.
func headFor(tx *store.Tx, call Call, sessionID string) (store.Head, error) {
	h, err := tx.Head(sessionID)
	if err != nil {
		return store.Head{}, err
	}
	return h, call.IfMatch.check(h)
}

// requireIdle refuses a change of messages while a request runs or is queued.
func requireIdle(tx *store.Tx, h store.Head) error {
	busy, err := tx.Unended(&h)
	if err != nil || len(busy) == 0 {
		return err
	}
	return busyError(busy[0])
}

func busyError(q store.Request) error {
	return &loquat.Error{
		Code: loquat.CodeBusy, RequestID: q.RequestID,
		Detail: fmt.Sprintf("request %s is %s on session %s; wait for its end or cancel it", q.RequestID, q.Status, q.SessionID),
	}
}
