package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"loquat"
)

// Upload stores an image in a session. media is its type, or application/octet-stream.
func (c *Client) Upload(ctx context.Context, sessionID, name, media string, image []byte) (loquat.Asset, error) {
	call := change(http.MethodPost, nil, nil, "sessions", sessionID, "assets")
	call.query = url.Values{"name": {name}}
	call.header.Set("Content-Type", media)
	var a loquat.Asset
	err := c.attempts(ctx, func() error {
		resp, err := c.sendBody(ctx, call, bytes.NewReader(image))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return c.problem(ctx, resp)
		}
		if json.NewDecoder(resp.Body).Decode(&a) != nil {
			return c.unreachable(ctx, io.ErrUnexpectedEOF)
		}
		return nil
	})
	return a, err
}
