package client

import (
	"context"
	"net/http"

	"loquat"
)

// Alternatives returns what the regenerated and edited messages of a session were.
func (c *Client) Alternatives(ctx context.Context, sessionID string) ([]loquat.Alternative, error) {
	var list loquat.AlternativeList
	_, err := c.do(ctx, get(nil, "sessions", sessionID, "alternatives"), &list)
	return list.Alternatives, err
}

// Switch puts an alternative in place.
func (c *Client) Switch(ctx context.Context, sessionID, alternativeID string) (loquat.SwitchResult, error) {
	var res loquat.SwitchResult
	_, err := c.do(ctx, change(http.MethodPost, nil, nil, "sessions", sessionID, "alternatives", alternativeID, "switch"), &res)
	return res, err
}

// Queue returns the sends that wait on a session.
func (c *Client) Queue(ctx context.Context, sessionID string) ([]loquat.QueuedSend, error) {
	var queue loquat.Queue
	_, err := c.do(ctx, get(nil, "sessions", sessionID, "queue"), &queue)
	return queue.Queue, err
}
