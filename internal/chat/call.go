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

// once runs a change, unless the call's Idempotency-Key was used before: then the
// first answer is given again and nothing is done. Failures are not remembered.
func once[T any](tx *store.Tx, call Call, change func() (T, error)) (T, error) {
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

// change runs a change in one transaction, once for each Idempotency-Key, and returns its
// answer.
func change[T any](ctx context.Context, s *Service, call Call, fn func(*store.Tx) (T, error)) (T, error) {
	return store.Do(ctx, s.store, func(tx *store.Tx) (T, error) {
		return once(tx, call, func() (T, error) { return fn(tx) })
	})
}

// answered reports whether a call is the repeat of one that was answered. It saves work
// beforehand; what counts is once.
func (s *Service) answered(ctx context.Context, call Call) (bool, error) {
	if call.IdempotencyKey == "" {
		return false, nil
	}
	return store.Read(ctx, s.store, func(r *store.Reader) (bool, error) {
		_, yes, err := r.Answer(call.IdempotencyKey, call.Method, call.Path, time.Now())
		return yes, err
	})
}

// check holds the precondition of a change against the session.
func (m *Match) check(h store.Head) error {
	if m == nil || m.Any || slices.Contains(m.IDs, h.Checkpoint) {
		return nil
	}
	return loquat.Errorf(loquat.CodePreconditionFailed, "session %s has changed since: its newest checkpoint is %s; load it again", h.SessionID, h.Checkpoint)
}

// headFor returns the session that a change is for, its precondition checked.
func headFor(tx *store.Tx, call Call, sessionID string) (store.Head, error) {
	h, err := tx.Head(sessionID)
	if err != nil {
		return store.Head{}, err
	}
	return h, call.IfMatch.check(h)
}

// requireIdle refuses a change of messages while a request runs or waits.
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
