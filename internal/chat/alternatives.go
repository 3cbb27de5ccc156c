package chat

import (
	"context"
	"strconv"

	"loquat"
	"loquat/internal/store"
)

// maxSwitch bounds the messages that a switch brings back: their events have the whole texts.
const maxSwitch = 32 << 20

// previewLength bounds the preview of an alternative, in characters.
const previewLength = 200

// Alternatives lists the alternatives at the messages of a session: all, or those at one index.
func (s *Service) Alternatives(ctx context.Context, id string, index *int) (loquat.AlternativeList, error) {
	if index != nil && *index < 0 {
		return loquat.AlternativeList{}, loquat.Invalid("query.index", "is at least 0, not %d", *index)
	}
	out := loquat.AlternativeList{SessionID: id, Alternatives: []loquat.Alternative{}}
	err := s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		found, err := r.Alternatives(h, index)
		if err != nil {
			return err
		}
		out.Alternatives = out.Alternatives[:0]
		for _, a := range found {
			shown, err := describeAlternative(r, h, a)
			if err != nil {
				return err
			}
			out.Alternatives = append(out.Alternatives, shown)
		}
		return nil
	})
	return out, err
}

// describeAlternative returns an alternative as clients see it.
func describeAlternative(r *store.Reader, h store.Head, a store.Alternative) (loquat.Alternative, error) {
	text, err := r.Preview(h, a)
	if err != nil {
		return loquat.Alternative{}, err
	}
	out := loquat.Alternative{
		AlternativeID: strconv.FormatInt(a.N, 10), Index: a.Index, InPlace: a.InPlace, CreatedAt: a.CreatedAt,
		MessageCount: a.Count, Preview: loquat.Clip(text, previewLength),
	}
	if a.InPlace {
		out.MessageCount = h.Count - a.Index
	}
	return out, nil
}

// Alternative returns an alternative at the messages of a session, with its messages.
func (s *Service) Alternative(ctx context.Context, id, alternativeID string) (loquat.AlternativeMessages, error) {
	var out loquat.AlternativeMessages
	err := s.store.View(ctx, func(r *store.Reader) error {
		h, a, err := findAlternative(r, id, alternativeID)
		if err != nil {
			return err
		}
		shown, err := describeAlternative(r, h, a)
		if err != nil {
			return err
		}
		messages, err := r.MessagesOf(h, a)
		out = loquat.AlternativeMessages{Alternative: shown, SessionID: h.SessionID, Messages: messages}
		return err
	})
	if out.Messages == nil {
		out.Messages = []loquat.Message{}
	}
	return out, err
}

func findAlternative(r *store.Reader, id, alternativeID string) (store.Head, store.Alternative, error) {
	h, err := r.Head(id)
	if err != nil {
		return h, store.Alternative{}, err
	}
	n, err := strconv.ParseInt(alternativeID, 10, 64)
	if err != nil {
		return h, store.Alternative{}, loquat.Errorf(loquat.CodeNotFound, "session %s has no alternative %q; list its alternatives", id, loquat.Clip(alternativeID, loquat.Excerpt))
	}
	a, err := r.Alternative(h, n)
	return h, a, err
}

// SwitchAlternative puts an alternative in place of the messages from its index on, which are kept in
// turn. It publishes messages_deleted, a message_appended for each message of the alternative, and
// checkpoint. If the alternative is in place already, it does nothing.
func (s *Service) SwitchAlternative(ctx context.Context, call Call, id, alternativeID string) (Answer[loquat.SwitchResult], error) {
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.SwitchResult], err error) {
		h, a, err := findAlternative(&tx.Reader, id, alternativeID)
		if err != nil {
			return out, err
		}
		if err := call.IfMatch.check(h); err != nil {
			return out, err
		}
		if err := requireIdle(tx, h); err != nil {
			return out, err
		}
		if a.Bytes > maxSwitch {
			return out, loquat.Errorf(loquat.CodeTooLarge, "the messages of alternative %s have %d bytes, and a switch brings back at most %d; load them instead", alternativeID, a.Bytes, maxSwitch)
		}
		if !a.InPlace {
			if err := exchange(tx, &h, a); err != nil {
				return out, err
			}
		}
		out.Body = loquat.SwitchResult{AlternativeID: alternativeID, Index: a.Index, Total: h.Count, CursorEventID: h.Cursor}
		out.Checkpoint = h.Checkpoint
		return out, nil
	})
}

// exchange puts an alternative in place and publishes that.
func exchange(tx *store.Tx, h *store.Head, a store.Alternative) error {
	removed, err := tx.KeepInPlace(h, a)
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		if err := publish(tx, h, nil, loquat.Event{Type: loquat.MessagesDeleted, Indices: removed}); err != nil {
			return err
		}
	}
	err = tx.PutInPlace(h, a, func(m loquat.Message) error { return publish(tx, h, nil, appendedEvent(m)) })
	if err != nil {
		return err
	}
	return tx.Checkpoint(h, nil, false)
}

// RemoveAlternative removes a kept alternative and those that hang in its messages.
func (s *Service) RemoveAlternative(ctx context.Context, call Call, id, alternativeID string) error {
	_, err := change(ctx, s.store, call, func(tx *store.Tx) (out struct{}, err error) {
		h, a, err := findAlternative(&tx.Reader, id, alternativeID)
		if err != nil {
			return out, err
		}
		if err := call.IfMatch.check(h); err != nil {
			return out, err
		}
		if a.InPlace {
			return out, loquat.Errorf(loquat.CodeConflict, "alternative %s is in place; switch to another one first, or delete its messages", alternativeID)
		}
		return out, tx.RemoveAlternative(h, a)
	})
	return err
}
