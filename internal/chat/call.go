package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"loquat"
	"loquat/internal/store"
)

// runOnce runs a change, unless the call's Idempotency-Key was used before: then it returns
// the first answer and changes nothing. Failures are not remembered.
func runOnce[T any](tx *store.Tx, call Call, change func() (T, error)) (T, error) {
	var out T
	if call.IdempotencyKey == "" {
		return change()
	}
	first, ok, err := tx.Answer(call.IdempotencyKey, call.Method, call.Path, tx.Now)
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
	return out, tx.Remember(call.IdempotencyKey, call.Method, call.Path, store.Answer{BodyHash: call.BodyHash, Result: result})
}

// change runs fn in one transaction, once for each Idempotency-Key, and returns its answer.
func change[T any](ctx context.Context, s *Service, call Call, fn func(*store.Tx) (T, error)) (T, error) {
	return store.Do(ctx, s.store, func(tx *store.Tx) (T, error) {
		return runOnce(tx, call, func() (T, error) { return fn(tx) })
	})
}

// isReplay reports whether a call repeats one that was answered. Callers use it to save
// work early; runOnce decides.
func (s *Service) isReplay(ctx context.Context, call Call) (bool, error) {
	if call.IdempotencyKey == "" {
		return false, nil
	}
	return store.Read(ctx, s.store, func(r *store.Reader) (bool, error) {
		_, yes, err := r.Answer(call.IdempotencyKey, call.Method, call.Path, time.Now())
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
