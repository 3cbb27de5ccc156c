package client

import (
	"context"
	"net/http"

	"loquat"
)

// Send starts a request on a session. The events of the request report its progress.
func (c *Client) Send(ctx context.Context, sessionID string, s loquat.Send, opts ...Option) (loquat.SendResult, error) {
	var res loquat.SendResult
	_, err := c.do(ctx, change(http.MethodPost, s, opts, "sessions", sessionID, "send"), &res)
	return res, err
}

// Request returns the state of a request.
func (c *Client) Request(ctx context.Context, id string) (loquat.Request, error) {
	var r loquat.Request
	_, err := c.do(ctx, get(nil, "requests", id), &r)
	return r, err
}

// Cancel cancels a request. It succeeds too if the request has ended before.
func (c *Client) Cancel(ctx context.Context, id string) (loquat.CancelResult, error) {
	var res loquat.CancelResult
	_, err := c.do(ctx, change(http.MethodPost, nil, nil, "requests", id, "cancel"), &res)
	return res, err
}
