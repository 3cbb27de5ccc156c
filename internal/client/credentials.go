package client

import (
	"context"
	"net/http"

	"loquat"
)

// newUnkeyedChange returns a change without an Idempotency-Key. The API does not accept a key
// where the answer is a secret, because the server does not keep the answer.
func newUnkeyedChange(method string, body any, path ...string) *call {
	return &call{method: method, path: path, body: body, header: http.Header{}}
}

// Pair creates a pairing code.
func (c *Client) Pair(ctx context.Context, p loquat.NewPairing) (out loquat.Pairing, err error) {
	_, err = c.do(ctx, newUnkeyedChange(http.MethodPost, p, "pairing"), &out)
	return out, err
}

// RemoveDevice removes a device and ends its connections.
func (c *Client) RemoveDevice(ctx context.Context, id string) error {
	_, err := c.do(ctx, newUnkeyedChange(http.MethodDelete, nil, "devices", id), nil)
	return err
}

// MakeToken creates a token.
func (c *Client) MakeToken(ctx context.Context, t loquat.NewToken) (out loquat.Token, err error) {
	_, err = c.do(ctx, newUnkeyedChange(http.MethodPost, t, "tokens"), &out)
	return out, err
}

// Tokens returns all tokens, including those of the configuration.
func (c *Client) Tokens(ctx context.Context) ([]loquat.Token, error) {
	var answer loquat.TokenList
	_, err := c.do(ctx, get(nil, "tokens"), &answer)
	return answer.Tokens, err
}

// RevokeToken revokes a token that is not in the configuration.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.do(ctx, newUnkeyedChange(http.MethodDelete, nil, "tokens", id), nil)
	return err
}
