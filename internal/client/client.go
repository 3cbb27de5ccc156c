// Package client is a client of the service's HTTP API.
//
// Each POST carries an Idempotency-Key, so that the client can repeat a call whose answer
// was lost without doing anything twice. Following the log neither loses nor repeats an
// event when connections break. Errors are *loquat.Error, with the server's code if the
// server answered and CodeUnavailable if it could not be reached.
//
// The client keeps no state between calls. It does not repeat PATCH and DELETE, for which
// the API has no key. Some methods are used only by tests; they are a reference for others.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"loquat"
	"loquat/internal/backoff"
)

const (
	// maxAnswer is the largest size of an answer, in bytes. A whole session must fit.
	maxAnswer = 1 << 30
	// maxAttempts is the largest number of attempts of a call that may be repeated.
	maxAttempts = 4
)

// reconnect is the delay between attempts.
var reconnect = backoff.Backoff{First: 250 * time.Millisecond, Max: 10 * time.Second, Jitter: true}

// Options are the parts of a Client that have a default.
type Options struct {
	// Token is the access token. It is empty if the server requires none.
	Token string
	// HTTPClient makes the calls. Its Timeout must be 0, because a timeout would cut
	// streams. Nil means a client that limits the time to connect and to get an answer.
	HTTPClient *http.Client
	// TLS is for calls over HTTPS. Nil means the default; HTTPClient has its own.
	TLS *tls.Config
	// Patience is the time after which Follow gives up if the server sends nothing. 0
	// means never.
	Patience time.Duration
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	token    string
	http     *http.Client
	patience time.Duration
}

// New returns a client of the server at baseURL, such as http://127.0.0.1:8787.
func New(baseURL string, o Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, loquat.Errorf(loquat.CodeInvalid, "%q is not a server address; an example is http://127.0.0.1:8787", baseURL)
	}
	c := &Client{base: u, token: o.Token, http: o.HTTPClient, patience: o.Patience}
	if c.http == nil {
		c.http = defaultHTTPClient(o.TLS)
	}
	return c, nil
}

// defaultHTTPClient returns a client that limits every wait except reading the body, because
// a stream may have no end. Its limit for the headers is longer than a long poll.
func defaultHTTPClient(c *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:       c,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 2 * maxWait,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}}
}

// CloseIdleConnections closes idle connections.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Option is an option of a call that changes something.
type Option func(*call)

// IfMatch makes a change fail with CodePreconditionFailed unless checkpoint is still the
// newest checkpoint of the session.
func IfMatch(checkpoint loquat.EventID) Option {
	return func(c *call) { c.header.Set("If-Match", `"`+checkpoint.String()+`"`) }
}

// IdempotencyKey sets the key of a POST, so that another process can repeat the call.
func IdempotencyKey(key string) Option {
	return func(c *call) { c.header.Set("Idempotency-Key", key) }
}

// call is one call of the HTTP API.
type call struct {
	method string
	path   []string
	query  url.Values
	body   any // nil: none
	header http.Header
}

func get(query url.Values, path ...string) *call {
	return &call{method: http.MethodGet, path: path, query: query, header: http.Header{}}
}

func change(method string, body any, opts []Option, path ...string) *call {
	c := &call{method: method, path: path, body: body, header: http.Header{}}
	if method == http.MethodPost {
		c.header.Set("Idempotency-Key", rand.Text())
	}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// repeatable reports whether repeating the call does no harm.
func (c *call) repeatable() bool {
	return c.method == http.MethodGet || c.header.Get("Idempotency-Key") != ""
}

// do makes a call and decodes the answer into out, unless out is nil. It repeats the call if
// the server is unavailable and the call is repeatable.
func (c *Client) do(ctx context.Context, call *call, out any) (http.Header, error) {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", call.method, strings.Join(call.path, "/"), err)
		}
	}
	var header http.Header
	once := func() (err error) {
		header, err = c.doOnce(ctx, call, body, out)
		return err
	}
	var err error
	if call.repeatable() {
		err = c.attempts(ctx, once)
	} else {
		err = once()
	}
	return header, err
}

// attempts calls once until it does not fail because the server is unavailable, but not too often.
func (c *Client) attempts(ctx context.Context, once func() error) error {
	for attempt := 1; ; attempt++ {
		err := once()
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
		temporary := loquat.CodeOf(err) == loquat.CodeUnavailable && !untrusted && ctx.Err() == nil
		if !temporary || attempt == maxAttempts {
			return err
		}
		if err := reconnect.Wait(ctx, attempt-1); err != nil {
			return err
		}
	}
}

func (c *Client) doOnce(ctx context.Context, call *call, body []byte, out any) (http.Header, error) {
	resp, err := c.send(ctx, call, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return nil, c.problem(ctx, resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if len(answer) > maxAnswer {
		return nil, loquat.Errorf(loquat.CodeTooLarge, "the answer of %s is larger than %d bytes; request a part of it", resp.Request.URL.Path, maxAnswer)
	}
	if out == nil || len(answer) == 0 {
		return resp.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, &loquat.Error{Code: loquat.CodeInternal, Err: err,
			Detail: fmt.Sprintf("the answer of %s is not what this client knows; do its version and the server's agree?", resp.Request.URL.Path)}
	}
	return resp.Header, nil
}

// send makes a call and returns the response with any status.
func (c *Client) send(ctx context.Context, call *call, body []byte) (*http.Response, error) {
	if body != nil {
		call.header.Set("Content-Type", "application/json")
	}
	return c.sendBody(ctx, call, bytes.NewReader(body))
}

// sendBody is send with a body of any size.
func (c *Client) sendBody(ctx context.Context, call *call, body io.Reader) (*http.Response, error) {
	u := c.base.JoinPath(call.path...)
	u.RawQuery = call.query.Encode()
	req, err := http.NewRequestWithContext(ctx, call.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("create the HTTP request: %w", err)
	}
	req.Header = call.header.Clone()
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return resp, nil
}

// unreachable returns the error of a call that got no complete answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &loquat.Error{Code: loquat.CodeUnavailable, Err: err, Detail: fmt.Sprintf("the certificate of %s cannot be verified; "+
			"use the name in the certificate, and let this machine trust its authority, on Linux also with SSL_CERT_FILE", c.base.Redacted())}
	}
	return &loquat.Error{Code: loquat.CodeUnavailable, Err: err,
		Detail: fmt.Sprintf("no answer from %s; is the server running there?", c.base.Redacted())}
}

// URL returns the address of a resource, for people. It has no token.
func (c *Client) URL(path ...string) string { return c.base.JoinPath(path...).Redacted() }
