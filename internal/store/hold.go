package store

import (
	"context"
	"errors"

	"loquat"
)

// A server that starts while nothing can be written serves reads. Changes are held until
// what the last process left running has its end: they would be made on sessions whose
// requests seem to run.

// Hold refuses updates until Release, but for those of WhileHeld.
func (s *Store) Hold() { s.held.Store(true) }

// Release ends Hold.
func (s *Store) Release() { s.held.Store(false) }

type whileHeld struct{}

// WhileHeld returns a context whose updates are not refused by Hold.
func WhileHeld(ctx context.Context) context.Context {
	return context.WithValue(ctx, whileHeld{}, true)
}

// refused is the error of an update that is held, else nil.
func (s *Store) heldError(ctx context.Context) error {
	if !s.held.Load() || ctx.Value(whileHeld{}) != nil {
		return nil
	}
	reason := "the server is still starting"
	if fault, ok := errors.AsType[Fault](s.Healthy()); ok {
		reason = fault.Text
	}
	return loquat.Errorf(loquat.CodeUnavailable, "the store cannot write at the moment: %s; nothing of this change was kept, try again", reason)
}
