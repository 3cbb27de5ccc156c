package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
	"loquat/internal/store"
)

// Respond asks for a reply to several messages at once, with settings of one request alone. A face
// uses it in place of Send.
type Respond struct {
	RequestID string              // from NewRequestID
	Messages  []loquat.NewMessage // are appended together; the last has the role user or tool
	Model     string              // as Catalog.Named takes it; replaces the agent's settings and the overrides
	Settings  RunSettings
}

// RunSettings are settings of one request.
type RunSettings struct {
	Instructions string            `json:"instructions,omitempty"` // a system message that is not stored
	Tools        []json.RawMessage `json:"tools,omitempty"`        // functions that the caller runs; a call of one ends the request
	Params       loquat.Object     `json:"params,omitempty"`       // fields of the backend's request
	Discard      bool              `json:"discard,omitempty"`      // the session stays one that is not kept; see Call
}

// run is what the row of a request keeps of a Respond.
type run struct {
	Messages []loquat.Message `json:"messages,omitempty"` // until the request starts
	Model    string           `json:"model"`
	Settings RunSettings      `json:"settings"`
}

// NewRequestID returns an id for a request.
func NewRequestID() string { return newID() }

// Respond starts a request. Its assistant messages have the ids that ReplyID returns.
func (s *Requests) Respond(ctx context.Context, call Call, sessionID string, p Respond) (Answer[loquat.SendResult], error) {
	resolved, err := s.settings.Named(ctx, p.Model)
	if err == nil {
		err = s.mayUseNamed(call.By, p.Model)
	}
	if err != nil {
		return Answer[loquat.SendResult]{}, err
	}
	stream := true
	stored := storedSend{
		Send: loquat.Send{Stream: &stream}, ProviderID: resolved.ProviderID, Model: resolved.Config.String("model"),
		Run: &run{Model: p.Model, Settings: p.Settings},
	}
	for i, n := range p.Messages {
		m, attachments, err := checkMessage(fmt.Sprintf("body.input[%d]", i), n)
		if err != nil {
			return Answer[loquat.SendResult]{}, err
		}
		stored.Run.Messages = append(stored.Run.Messages, m)
		stored.attachments = append(stored.attachments, attachments...)
	}
	return s.start(ctx, call, sessionID, loquat.Send{RequestID: p.RequestID, OnBusy: loquat.BusyReject}, stored)
}

// replySeparator is between the id of a request and the number of its assistant message.
const replySeparator = "-r"

// ReplyID returns the id of the n-th assistant message of a request that Respond started. It is
// known before the message is complete.
func ReplyID(requestID string, n int) string {
	return fmt.Sprintf("%s%s%d", requestID, replySeparator, n)
}

// isReplyOf reports whether a message is an assistant message of a request that Respond started.
func isReplyOf(m loquat.Message, requestID string) bool {
	return m.Role == loquat.RoleAssistant && strings.HasPrefix(m.ID, requestID+replySeparator)
}

// RequestOfReply returns the request of an id that begins with one of ReplyID.
func RequestOfReply(id string) (requestID string, ok bool) {
	i := strings.LastIndex(id, replySeparator)
	if i < 0 {
		return "", false
	}
	return id[:i], true
}

// newMessages returns the function that makes the messages of a request.
func newMessages(q store.Request, stored storedSend) func(role string) loquat.Message {
	if stored.Run == nil {
		return newMessage
	}
	replies := 0
	return func(role string) loquat.Message {
		m := newMessage(role)
		if role == loquat.RoleAssistant {
			m.ID = ReplyID(q.RequestID, replies)
			replies++
		}
		return m
	}
}

// nextReply returns the message of the open phase of a request that ends.
func nextReply(tx *store.Tx, h store.Head, q store.Request, stored storedSend) (loquat.Message, error) {
	next := newMessages(q, stored)
	m := next(loquat.RoleAssistant)
	if stored.Run == nil || stored.From == nil {
		return m, nil
	}
	added, err := tx.Messages(h, h.Rev, *stored.From, -1)
	for _, before := range added {
		if isReplyOf(before, q.RequestID) {
			m = next(loquat.RoleAssistant)
		}
	}
	return m, err
}

// discards reports whether the session of a request is not kept.
func discards(q store.Request) bool {
	stored, err := sendOf(q)
	return err == nil && stored.Run != nil && stored.Run.Settings.Discard
}

// Exchange is a request of Respond with its messages, read together.
type Exchange struct {
	loquat.Request
	Marker     loquat.Object    // of the last input message
	Input      []loquat.Message // what the request answered
	Replies    []loquat.Message // the assistant and tool messages that it added
	First      int              // index of the first of Input
	End        int              // index after the last message of the request
	Total      int              // messages of the session
	Checkpoint loquat.EventID   // newest of the session
}

// MetaResponse is the key of the metadata that marks the input messages of a Respond. The face sets it:
// an object with the request's id as id, and what else it has to know in the last message.
const MetaResponse = "response"

// markerOf returns the marker of a message, nil if it has none.
func markerOf(m loquat.Message) loquat.Object { return m.Metadata.Object(MetaResponse) }

// scanned is how many messages are read at once to find those of a request.
const scanned = 64

// Exchange returns a request and its messages.
func (s *Requests) Exchange(ctx context.Context, requestID string) (out Exchange, err error) {
	err = s.store.View(ctx, func(r *store.Reader) error {
		q, err := r.Request(requestID)
		if err != nil {
			return err
		}
		h, err := r.Head(q.SessionID)
		if err != nil {
			return err
		}
		out = Exchange{Request: q.Request, Total: h.Count, Checkpoint: h.Checkpoint}
		last, err := lastInput(r, h, q)
		if err != nil {
			return err
		}
		return out.read(r, h, last)
	})
	return out, err
}

// lastInput returns the index of the last input message of a request. It looks first where the message
// was when the request started. If messages before it were deleted since, it searches backward from
// there, then from the end of the session.
func lastInput(r *store.Reader, h store.Head, q store.Request) (int, error) {
	started := min(q.LastIndex+1, h.Count)
	if started > 0 {
		page, err := r.Messages(h, h.Rev, started-1, 1)
		if err != nil {
			return 0, err
		}
		if len(page) > 0 && isInputOf(page[0], q) {
			return started - 1, nil
		}
	}
	for _, part := range [][2]int{{0, started}, {started, h.Count}} {
		for end := part[1]; end > part[0]; {
			from := max(part[0], end-scanned)
			page, err := r.Messages(h, h.Rev, from, end-from)
			if err != nil {
				return 0, err
			}
			for i := len(page) - 1; i >= 0; i-- {
				if isInputOf(page[i], q) {
					return from + i, nil
				}
			}
			end = from
		}
	}
	return 0, loquat.Errorf(loquat.CodeNotFound, "request %q has no response", loquat.Clip(q.RequestID, loquat.Excerpt))
}

// isInputOf reports whether a message is of the input of a request.
func isInputOf(m loquat.Message, q store.Request) bool {
	return markerOf(m).String("id") == q.RequestID
}

// read reads the messages around the last input message.
func (e *Exchange) read(r *store.Reader, h store.Head, last int) error {
	first := max(0, last-scanned)
	before, err := r.Messages(h, h.Rev, first, last-first+1)
	if err != nil {
		return err
	}
	for first > 0 && markerOf(before[0]).String("id") == e.RequestID { // more input than one page
		from := max(0, first-scanned)
		page, err := r.Messages(h, h.Rev, from, first-from)
		if err != nil {
			return err
		}
		before, first = append(page, before...), from
	}
	e.Marker = markerOf(before[len(before)-1])
	for len(before) > 0 && markerOf(before[0]).String("id") != e.RequestID {
		before, first = before[1:], first+1
	}
	e.Input, e.First, e.End = before, first, last+1
	for at := e.End; at < h.Count; {
		page, err := r.Messages(h, h.Rev, at, scanned)
		if err != nil {
			return err
		}
		for i, m := range page {
			if markerOf(m) != nil || m.Role == loquat.RoleAssistant && !isReplyOf(m, e.RequestID) {
				return nil
			}
			if isReplyOf(m, e.RequestID) || m.Role == loquat.RoleTool {
				e.Replies, e.End = append(e.Replies, m), at+i+1
			}
		}
		at += len(page)
	}
	return nil
}
