package store

import (
	"context"
	"errors"

	"loquat"
)

// A server that starts while the database cannot be written serves reads. It refuses changes
// until the requests of the last process have been reconciled, because until then these
// requests seem to run.

// Hold refuses updates until Release, except those with a WhileHeld context.
func (s *Store) Hold() { s.held.Store(true) }

// Release ends Hold.
func (s *Store) Release() { s.held.Store(false) }

type whileHeld struct{}

// WhileHeld returns a context whose updates Hold does not refuse.
func WhileHeld(ctx context.Context) context.Context {
	return context.WithValue(ctx, whileHeld{}, true)
}

// heldError returns the error of an update that Hold refuses, or nil.
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
