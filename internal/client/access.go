package client

import (
	"context"
	"net/http"
	"time"
)

// Pairing is a code that a device can claim once.
type Pairing struct {
	Code      string    `json:"code"`
	ExpiresAt time.Time `json:"expires_at"`
	URL       string    `json:"url"`
	ServerID  string    `json:"server_id"`
}

// Device is a device that was paired.
type Device struct {
	DeviceID   string    `json:"device_id"`
	DeviceName string    `json:"device_name"`
	Scope      string    `json:"scope"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedOn string    `json:"last_used_on,omitempty"`
}

// NewToken is what a token shall be. An empty scope means full, no seconds for ever.
type NewToken struct {
	Name             string `json:"name"`
	Scope            string `json:"scope,omitempty"`
	SessionID        string `json:"session_id,omitempty"`
	ExpiresInSeconds int    `json:"expires_in_seconds,omitempty"`
}

// Token is a token of a server. Its secret is there only right after it was made.
type Token struct {
	TokenID    string     `json:"token_id"`
	Token      string     `json:"token,omitempty"`
	Name       string     `json:"name"`
	Source     string     `json:"source,omitempty"` // config or made
	Scope      string     `json:"scope"`
	SessionID  string     `json:"session_id,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedOn string     `json:"last_used_on,omitempty"`
}

// once is a change that the API gives no key for: its answer is a secret, which
// cannot be told again.
func once(method string, body any, path ...string) *call {
	return &call{method: method, path: path, body: body, header: http.Header{}}
}

// Pair makes a pairing code; an empty scope means read.
func (c *Client) Pair(ctx context.Context, scope string) (out Pairing, err error) {
	body := struct {
		Scope string `json:"scope,omitempty"`
	}{scope}
	_, err = c.do(ctx, once(http.MethodPost, body, "pairing"), &out)
	return out, err
}

// Devices returns the devices that were paired.
func (c *Client) Devices(ctx context.Context) ([]Device, error) {
	var answer struct {
		Devices []Device `json:"devices"`
	}
	_, err := c.do(ctx, get(nil, "devices"), &answer)
	return answer.Devices, err
}

// RemoveDevice removes a device and cuts it off.
func (c *Client) RemoveDevice(ctx context.Context, id string) error {
	_, err := c.do(ctx, once(http.MethodDelete, nil, "devices", id), nil)
	return err
}

// MakeToken makes a token.
func (c *Client) MakeToken(ctx context.Context, t NewToken) (out Token, err error) {
	_, err = c.do(ctx, once(http.MethodPost, t, "tokens"), &out)
	return out, err
}

// Tokens returns the tokens, those of the configuration too.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var answer struct {
		Tokens []Token `json:"tokens"`
	}
	_, err := c.do(ctx, get(nil, "tokens"), &answer)
	return answer.Tokens, err
}

// RevokeToken ends a token that was made.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.do(ctx, once(http.MethodDelete, nil, "tokens", id), nil)
	return err
}
