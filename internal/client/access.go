package client

import (
	"context"
	"net/http"

	"loquat"
)

// once is a change that the API gives no key for: its answer is a secret, which
// cannot be told again.
func once(method string, body any, path ...string) *call {
	return &call{method: method, path: path, body: body, header: http.Header{}}
}

// Pair makes a pairing code; an empty scope means read.
func (c *Client) Pair(ctx context.Context, scope string) (out loquat.Pairing, err error) {
	_, err = c.do(ctx, once(http.MethodPost, loquat.NewPairing{Scope: scope}, "pairing"), &out)
	return out, err
}

// Devices returns the devices that were paired.
func (c *Client) Devices(ctx context.Context) ([]loquat.Device, error) {
	var answer loquat.DeviceList
	_, err := c.do(ctx, get(nil, "devices"), &answer)
	return answer.Devices, err
}

// RemoveDevice removes a device and cuts it off.
func (c *Client) RemoveDevice(ctx context.Context, id string) error {
	_, err := c.do(ctx, once(http.MethodDelete, nil, "devices", id), nil)
	return err
}

// MakeToken makes a token.
func (c *Client) MakeToken(ctx context.Context, t loquat.NewToken) (out loquat.Token, err error) {
	_, err = c.do(ctx, once(http.MethodPost, t, "tokens"), &out)
	return out, err
}

// Tokens returns the tokens, those of the configuration too.
func (c *Client) Tokens(ctx context.Context) ([]loquat.Token, error) {
	var answer loquat.TokenList
	_, err := c.do(ctx, get(nil, "tokens"), &answer)
	return answer.Tokens, err
}

// RevokeToken ends a token that was made.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.do(ctx, once(http.MethodDelete, nil, "tokens", id), nil)
	return err
}
