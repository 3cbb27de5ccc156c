package store

import (
	"context"
	"errors"
	"time"
)

// Coordinator is implemented by the driver of a database that several nodes share. Its methods
// keep short-lived state that is not part of the log, on the database's clock. This state may
// be lost when the database restarts or fails over.
type Coordinator interface {
	// AddDebts adds to the debts of keys and returns their sums, in the order of keys. A debt
	// shrinks with the time, down to zero.
	AddDebts(ctx context.Context, keys []string, add []time.Duration) ([]time.Duration, error)
	// ReserveSlot reserves the next start in a scope: interval after the newest slot and start,
	// and after a pause. It returns how long it is until then. TakeSlot decides about the start.
	ReserveSlot(ctx context.Context, scope string, interval time.Duration) (wait time.Duration, err error)
	// TakeSlot begins a start in a scope and returns 0, unless the last start was less than
	// interval ago or has not ended, or the scope is paused. It then returns how long to wait until
	// the next try. A start that nobody ends is over after MaxStart. With interval 0 it counts a
	// start that is over.
	TakeSlot(ctx context.Context, scope string, interval time.Duration) (wait time.Duration, err error)
	// EndStart ends the start that TakeSlot began. The interval until the next start begins now.
	EndStart(ctx context.Context, scope string) error
	// Pause keeps further starts in a scope from being taken, for at most MaxPause.
	Pause(ctx context.Context, scope string, pause time.Duration) error
}

const (
	MaxPause = time.Minute     // the longest pause of a scope
	MaxStart = 5 * time.Second // the longest start; the node of a longer one died
)

var errNotShared = errors.New("the store is not shared with other nodes")

// coordinate calls fn with the driver's Coordinator.
func coordinate[T any](s *Store, fn func(Coordinator) (T, error)) (T, error) {
	c, ok := s.driver.(Coordinator)
	if !ok {
		var none T
		return none, errNotShared
	}
	out, err := fn(c)
	return out, s.classify(context.Background(), asDatabaseError(err))
}

// AddDebts is Coordinator.AddDebts.
func (s *Store) AddDebts(ctx context.Context, keys []string, add []time.Duration) ([]time.Duration, error) {
	return coordinate(s, func(c Coordinator) ([]time.Duration, error) { return c.AddDebts(ctx, keys, add) })
}

// ReserveSlot is Coordinator.ReserveSlot.
func (s *Store) ReserveSlot(ctx context.Context, scope string, interval time.Duration) (time.Duration, error) {
	return coordinate(s, func(c Coordinator) (time.Duration, error) { return c.ReserveSlot(ctx, scope, interval) })
}

// TakeSlot is Coordinator.TakeSlot.
func (s *Store) TakeSlot(ctx context.Context, scope string, interval time.Duration) (time.Duration, error) {
	return coordinate(s, func(c Coordinator) (time.Duration, error) { return c.TakeSlot(ctx, scope, interval) })
}

// EndStart is Coordinator.EndStart.
func (s *Store) EndStart(ctx context.Context, scope string) error {
	_, err := coordinate(s, func(c Coordinator) (struct{}, error) { return struct{}{}, c.EndStart(ctx, scope) })
	return err
}

// Pause is Coordinator.Pause.
func (s *Store) Pause(ctx context.Context, scope string, pause time.Duration) error {
	_, err := coordinate(s, func(c Coordinator) (struct{}, error) { return struct{}{}, c.Pause(ctx, scope, min(pause, MaxPause)) })
	return err
}
