package chat

import (
	"errors"
	"testing"

	"loquat"
	"loquat/internal/loop"
)

// Why a request was stopped takes the place of what that looked like from within; what
// it had in hand stays.
func TestCauseOfAFailure(t *testing.T) {
	unfinished := &loop.Failure{
		Err: errors.New("read: connection closed"), Usage: loquat.Object{}.Set("usage_total_tokens", 7),
		Finished: map[string]loquat.Message{"call": {Content: "done"}},
	}
	err := withCause(unfinished, errCancelled)
	f, ok := errors.AsType[*loop.Failure](err)
	if !ok || !errors.Is(err, errCancelled) || errors.Is(err, unfinished.Err) || len(f.Usage) != 1 || f.Finished["call"].Content != "done" {
		t.Errorf("it became %+v", err)
	}
	if err := withCause(unfinished.Err, errCancelled); err != errCancelled {
		t.Errorf("with nothing in hand: %v", err)
	}
}
