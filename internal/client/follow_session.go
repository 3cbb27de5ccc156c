package client

import (
	"context"
	"iter"

	"loquat"
)

// maxReloads is the number of times in a row that a session is loaded again, because the log
// no longer contains the events after the snapshot.
const maxReloads = 5

// Update is one step of a followed session.
type Update struct {
	// Event is the new event. It is nil if the session was loaded: at the beginning,
	// and when the log no longer reached back far enough.
	Event *loquat.Event
	// State is the session after the event. The next update changes it.
	State *loquat.Fold
	// ActiveRequestID is the request that was running when the session was loaded. It is
	// set only if Event is nil.
	ActiveRequestID string
}

// FollowSession loads a session and yields its state, then its state after every
// event. It ends without an error when the session is deleted.
func (c *Client) FollowSession(ctx context.Context, id string) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for reloads := 0; ; reloads++ {
			snapshot, err := c.Session(ctx, id)
			if err != nil {
				yield(Update{}, err)
				return
			}
			state := loquat.NewFold(snapshot)
			if !yield(Update{State: state, ActiveRequestID: snapshot.ActiveRequestID}, nil) {
				return
			}
			err = c.foldFrom(ctx, snapshot, state, func(u Update) bool {
				reloads = 0
				return yield(u, nil)
			})
			switch {
			case err == errStopped:
				return
			case loquat.CodeOf(err) != loquat.CodeGone || reloads >= maxReloads:
				yield(Update{}, err)
				return
			}
			if err := reconnect.Wait(ctx, reloads); err != nil {
				yield(Update{}, err)
				return
			}
		}
	}
}

// foldFrom follows a session from a snapshot. It never returns nil.
func (c *Client) foldFrom(ctx context.Context, s loquat.Snapshot, state *loquat.Fold, yield func(Update) bool) error {
	q := Query{Since: &s.CursorEventID, SessionID: s.SessionID, OmitSession: true}
	for e, err := range c.Follow(ctx, q) {
		if err != nil {
			return err
		}
		state.Apply(e)
		if !yield(Update{Event: &e, State: state}) || state.Deleted() {
			return errStopped
		}
	}
	return errStopped
}
