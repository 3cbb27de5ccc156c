package client

import (
	"context"
	"iter"

	"loquat"
)

// maxReloads is how often in a row a session may be gone right after it was loaded.
const maxReloads = 5

// Update is one step of a session that is followed.
type Update struct {
	// Event is what happened; nil when the session was loaded, at the beginning
	// and whenever the log no longer reached back far enough.
	Event *loquat.Event
	// State is the session after it. It changes with the next update.
	State *loquat.Fold
	// ActiveRequestID is the request that ran when the session was loaded. Only
	// set when Event is nil.
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
			if err := pause(ctx, reloads); err != nil {
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
