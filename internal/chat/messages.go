package chat

import (
	"context"
	"fmt"
	"slices"

	"loquat"
	"loquat/internal/store"
)

// PageQuery chooses a part of a session's messages. Limit nil means all; At nil
// means the newest state. With Last, the page has the last messages, and From and Limit do not count.
type PageQuery struct {
	From  int
	Limit *int
	Last  *int
	At    *loquat.EventID
}

// Messages returns a page of the messages of one snapshot.
func (s *Service) Messages(ctx context.Context, id string, p PageQuery) (loquat.MessagePage, error) {
	var out loquat.MessagePage
	err := s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		out = loquat.MessagePage{SessionID: h.SessionID, CursorEventID: h.Cursor, Checkpoint: h.Checkpoint}
		rev := h.Rev
		if p.At != nil {
			if rev, err = r.RevisionAt(h, *p.At); err != nil {
				return err
			}
			out.CursorEventID = *p.At
		}
		running, _, err := r.Running(h)
		if err != nil {
			return err
		}
		out.ActiveRequestID = running.RequestID
		if out.Waiting, err = waitingOf(r, h); err != nil {
			return err
		}
		if out.Total, err = r.CountAt(h, rev); err != nil {
			return err
		}
		limit := -1
		if p.Limit != nil {
			limit = *p.Limit
		}
		if p.Last != nil {
			p.From, limit = max(0, out.Total-*p.Last), *p.Last
		}
		out.Messages, err = r.Messages(h, rev, p.From, limit)
		return err
	})
	return out, err
}

// AppendMessage appends a message. It publishes message_appended and checkpoint.
func (s *Service) AppendMessage(ctx context.Context, call Call, id string, p loquat.NewMessage) (Answer[loquat.MessageResult], error) {
	m, attachments, err := checkMessage("body", p)
	if err != nil {
		return Answer[loquat.MessageResult]{}, err
	}
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.MessageResult], err error) {
		h, err := s.headForMore(tx, call, id)
		if err != nil {
			return out, err
		}
		if err := checkAttachments(s.settings, attachments, &tx.Reader, h); err != nil {
			return out, err
		}
		index, err := appendMessage(tx, &h, m)
		if err != nil {
			return out, err
		}
		err = tx.Checkpoint(&h, nil, false)
		return Answer[loquat.MessageResult]{Body: loquat.MessageResult{Index: index, Message: m, CursorEventID: h.Cursor}, Checkpoint: h.Checkpoint}, err
	})
}

// AppendMessages appends several messages, all or none, and returns them.
func (s *Service) AppendMessages(ctx context.Context, call Call, id string, list []loquat.NewMessage) ([]loquat.Message, error) {
	messages, attachments := make([]loquat.Message, len(list)), []attachment(nil)
	for i, n := range list {
		m, attached, err := checkMessage(fmt.Sprintf("body.items[%d]", i), n)
		if err != nil {
			return nil, err
		}
		messages[i], attachments = m, append(attachments, attached...)
	}
	return messages, s.store.Update(ctx, func(tx *store.Tx) error {
		h, err := s.headForMore(tx, call, id)
		if err != nil {
			return err
		}
		if err := checkAttachments(s.settings, attachments, &tx.Reader, h); err != nil {
			return err
		}
		return appendAll(tx, &h, messages)
	})
}

// appendAll appends several messages in a transaction. It publishes the events of AppendMessage, with one
// checkpoint.
func appendAll(tx *store.Tx, h *store.Head, messages []loquat.Message) error {
	for _, m := range messages {
		if _, err := appendMessage(tx, h, m); err != nil {
			return err
		}
	}
	return tx.Checkpoint(h, nil, false)
}

// headForMessages is headFor for a change of messages: the session must be idle.
func (s *Service) headForMessages(tx *store.Tx, call Call, id string) (store.Head, error) {
	h, err := headFor(tx, call, id)
	if err != nil {
		return h, err
	}
	return h, requireIdle(tx, h)
}

// appendMessage appends a message and publishes message_appended. It sets the session's
// title if the session has none. The caller publishes the checkpoint.
func appendMessage(tx *store.Tx, h *store.Head, m loquat.Message) (int, error) {
	if titled := withTitle(h.Metadata, []loquat.Message{m}); len(titled) != len(h.Metadata) {
		tx.Describe(h, h.AgentID, titled)
	}
	index, err := tx.AppendMessage(h, m)
	if err != nil {
		return 0, err
	}
	return index, publish(tx, h, nil, appendedEvent(m))
}

// appendedEvent returns the event of an appended message.
func appendedEvent(m loquat.Message) loquat.Event {
	return loquat.Event{Type: loquat.MessageAppended, Role: m.Role, Content: &m.Content, Metadata: m.Metadata, Message: m.AsDelta()}
}

// headForMore is headForMessages for a change that may need more room.
func (s *Service) headForMore(tx *store.Tx, call Call, id string) (store.Head, error) {
	h, err := s.headForMessages(tx, call, id)
	if err != nil {
		return h, err
	}
	return h, call.By.mayStore(&tx.Reader)
}

// ModifyMessage changes the content of a message. It publishes message_modified and
// checkpoint.
func (s *Service) ModifyMessage(ctx context.Context, call Call, id string, index int, content string) (Answer[loquat.MessageResult], error) {
	content = loquat.CleanText(content)
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.MessageResult], err error) {
		h, err := s.headForMore(tx, call, id)
		if err != nil {
			return out, err
		}
		m, err := tx.ModifyMessage(&h, index, "", content)
		if err != nil {
			return out, err
		}
		if err := publish(tx, &h, nil, loquat.Event{Type: loquat.MessageModified, Index: &index, Content: &content}); err != nil {
			return out, err
		}
		err = tx.Checkpoint(&h, nil, false)
		return Answer[loquat.MessageResult]{Body: loquat.MessageResult{Index: index, Message: m, CursorEventID: h.Cursor}, Checkpoint: h.Checkpoint}, err
	})
}

// DeleteMessages deletes the messages at these indices, all or none. It publishes
// messages_deleted and checkpoint.
func (s *Service) DeleteMessages(ctx context.Context, call Call, id string, indices []int) (Answer[loquat.DeleteResult], error) {
	indices = slices.Clone(indices)
	slices.Sort(indices)
	indices = slices.Compact(indices)
	if len(indices) == 0 {
		return Answer[loquat.DeleteResult]{}, loquat.Invalid("body.indices", "has to name at least one message")
	}
	return change(ctx, s.store, call, func(tx *store.Tx) (out Answer[loquat.DeleteResult], err error) {
		h, err := s.headForMessages(tx, call, id)
		if err != nil {
			return out, err
		}
		if err := tx.DeleteMessages(&h, indices); err != nil {
			return out, err
		}
		if err := publish(tx, &h, nil, loquat.Event{Type: loquat.MessagesDeleted, Indices: indices}); err != nil {
			return out, err
		}
		err = tx.Checkpoint(&h, nil, false)
		return Answer[loquat.DeleteResult]{Body: loquat.DeleteResult{Indices: indices, CursorEventID: h.Cursor}, Checkpoint: h.Checkpoint}, err
	})
}
