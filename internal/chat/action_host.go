package chat

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// host returns the functions of the service that an action may call.
func (s *Service) host(a Action) plugin.Host {
	return plugin.Host{Sessions: &sessionsHost{s: s, action: a, seen: map[string]seen{}}, Assets: assetsHost{s.Assets, a.By}}
}

// assetsHost lets an action store images within the bounds of its caller and the room of the server.
type assetsHost struct {
	*Assets
	by By
}

// StoreAsset implements plugin.Assets.
func (x assetsHost) StoreAsset(ctx context.Context, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error) {
	return x.AddAsset(ctx, Call{By: x.by}, sessionID, name, mediaType, content)
}

// sessionsHost lets an action read and change sessions. It remembers the revisions that it
// has shown, so that it refuses a change of a session that changed since.
type sessionsHost struct {
	s      *Service
	action Action

	mu   sync.Mutex
	seen map[string]seen // by session
}

// seen identifies the state of a session that was shown.
type seen struct {
	rev     int64
	request int64 // the newest
}

func see(r *store.Reader, sessionID string) (h store.Head, now seen, err error) {
	if h, err = r.Head(sessionID); err != nil {
		return h, seen{}, err
	}
	now.rev = h.Rev
	now.request, err = r.NewestRequest(h)
	return h, now, err
}

// Messages returns the present messages of a session.
func (x *sessionsHost) Messages(ctx context.Context, sessionID string) ([]loquat.Message, error) {
	var out []loquat.Message
	var now seen
	err := x.s.store.View(ctx, func(r *store.Reader) (err error) {
		var h store.Head
		if h, now, err = see(r, sessionID); err != nil {
			return err
		}
		out, err = r.Messages(h, h.Rev, 0, -1)
		return err
	})
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen[sessionID] = now
	return out, nil
}

// RequireIdle returns a busy error while a request of the session runs or is queued.
func (x *sessionsHost) RequireIdle(ctx context.Context, sessionID string) error {
	return x.s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(sessionID)
		if err != nil {
			return err
		}
		busy, err := r.Unended(&h)
		if err != nil || len(busy) == 0 {
			return err
		}
		return busyError(busy[0])
	})
}

// Ask asks the session's model, without tools, for the caller of the action.
func (x *sessionsHost) Ask(ctx context.Context, sessionID string, messages []loquat.Message) (loquat.Reply, error) {
	h, err := readHead(ctx, x.s.store, sessionID)
	if err != nil {
		return loquat.Reply{}, err
	}
	e, err := x.s.Requests.settingsOf(ctx, h)
	if err != nil {
		return loquat.Reply{}, err
	}
	of, done, err := x.s.Requests.admitCall(ctx, x.action.By, h.AgentID, e)
	if err != nil {
		return loquat.Reply{}, err
	}
	defer done()
	of.User = h.User
	reply, err := x.s.Requests.askResolved(ctx, e, of, sessionID, "", messages)
	if cause := context.Cause(ctx); err != nil && cause != nil { // the caller disconnected
		err = cause
	}
	return reply, err
}

// Compact replaces a range of messages by one system message. It publishes message_modified
// with the message, messages_deleted when the range had more than one, and checkpoint.
func (x *sessionsHost) Compact(ctx context.Context, sessionID string, c plugin.Compaction) error {
	content := loquat.CleanText(c.Content)
	return x.s.store.Update(ctx, func(tx *store.Tx) error {
		h, err := x.requireUnchanged(tx, sessionID, c)
		if err != nil {
			return err
		}
		index := c.Start
		m, err := tx.ModifyMessage(&h, index, loquat.RoleSystem, content)
		if err != nil {
			return err
		}
		if err := publish(tx, &h, nil, loquat.Event{Type: loquat.MessageModified, Index: &index, Content: &content, Message: m.AsDelta()}); err != nil {
			return err
		}
		var indices []int
		for i := c.Start + 1; i <= c.End; i++ {
			indices = append(indices, i)
		}
		if len(indices) > 0 {
			if err := tx.DeleteMessages(&h, indices); err != nil {
				return err
			}
			if err := publish(tx, &h, nil, loquat.Event{Type: loquat.MessagesDeleted, Indices: indices}); err != nil {
				return err
			}
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// requireUnchanged returns a conflict error when the range of messages, or the requests of
// the session, changed after the action had read them.
func (x *sessionsHost) requireUnchanged(tx *store.Tx, sessionID string, c plugin.Compaction) (store.Head, error) {
	h, now, err := see(&tx.Reader, sessionID)
	if err != nil {
		return h, err
	}
	x.mu.Lock()
	was, shown := x.seen[sessionID]
	x.mu.Unlock()
	if !shown || c.Start < 0 || c.End < c.Start || len(c.Was) != c.End-c.Start+1 {
		return h, fmt.Errorf("compact messages %d to %d of session %s: only %d messages were read", c.Start, c.End, sessionID, len(c.Was))
	}
	if sessionID == x.action.SessionID {
		if err := x.action.IfMatch.check(h); err != nil {
			return h, err
		}
	}
	overtaken := loquat.Errorf(loquat.CodeConflict, "session %s has changed meanwhile, so nothing was done; try again", sessionID)
	busy, err := tx.Unended(&h)
	switch {
	case err != nil:
		return h, err
	case len(busy) > 0 || now.request != was.request:
		return h, overtaken
	case now.rev == was.rev:
		return h, nil
	case c.End >= h.Count:
		return h, overtaken
	}
	messages, err := tx.Messages(h, h.Rev, c.Start, len(c.Was))
	if err == nil && !slices.EqualFunc(messages, c.Was, func(a, b loquat.Message) bool { return reflect.DeepEqual(a, b) }) {
		err = overtaken
	}
	return h, err
}
