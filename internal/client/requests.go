package client

import (
	"context"
	"encoding/json"
	"net/http"

	"loquat"
)

// Send asks for a reply. Its zero value runs on the messages as they stand and
// does not stream.
type Send struct {
	RequestID   string            `json:"request_id,omitempty"`
	Content     *string           `json:"content,omitempty"`
	Attachments []json.RawMessage `json:"attachments,omitempty"`
	Metadata    loquat.Object     `json:"metadata,omitempty"`
	Stream      bool              `json:"stream"`
	StreamTools bool              `json:"stream_tools"`
	DeleteFrom  *int              `json:"delete_from,omitempty"`
	OnBusy      string            `json:"on_busy,omitempty"` // reject (the default), queue or interrupt
}

// SendResult answers a send: the request runs, or waits for its turn.
type SendResult struct {
	RequestID     string               `json:"request_id"`
	SessionID     string               `json:"session_id"`
	Status        loquat.RequestStatus `json:"status"`
	CursorEventID loquat.EventID       `json:"cursor_event_id"`
}

// CancelResult answers a cancel.
type CancelResult struct {
	RequestID string               `json:"request_id"`
	Status    loquat.RequestStatus `json:"status"`
}

// Send starts a request on a session. Its events tell how it goes on.
func (c *Client) Send(ctx context.Context, sessionID string, s Send, opts ...Option) (SendResult, error) {
	var res SendResult
	_, err := c.do(ctx, change(http.MethodPost, s, opts, "sessions", sessionID, "send"), &res)
	return res, err
}

// Request tells where a request stands.
func (c *Client) Request(ctx context.Context, id string) (loquat.Request, error) {
	var r loquat.Request
	_, err := c.do(ctx, get(nil, "requests", id), &r)
	return r, err
}

// Cancel ends a request. It is no error when the request had ended before.
func (c *Client) Cancel(ctx context.Context, id string) (CancelResult, error) {
	var res CancelResult
	_, err := c.do(ctx, change(http.MethodPost, nil, nil, "requests", id, "cancel"), &res)
	return res, err
}
