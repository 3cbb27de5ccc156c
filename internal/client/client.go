// Package client speaks the service's HTTP API from the outside, in its nouns.
//
// It promises that a POST is done once: each carries an Idempotency-Key, so an
// answer that got lost on the way is asked for again without doing anything twice.
// It promises that following the log neither loses nor repeats an event, whatever
// connections break in between. Failures are *loquat.Error, with the server's code
// when the server answered and CodeUnavailable when it could not be reached.
//
// It keeps no state between calls, and it does not retry what the API gives no key
// for (PATCH and DELETE) once it may have arrived.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"loquat"
)

const (
	// maxAnswer bounds what is read of one answer. A whole session has to fit.
	maxAnswer = 1 << 30
	// maxAttempts is how often a call that may be repeated is made.
	maxAttempts = 4

	firstDelay = 250 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// Options are the parts of a Client that have a default.
type Options struct {
	// Token is the access token; empty for a server that asks for none.
	Token string
	// HTTPClient makes the calls. Its Timeout must be 0, or streams are cut by it;
	// nil means one that bounds connecting and waiting for an answer.
	HTTPClient *http.Client
	// Patience is how long following goes on without a sign of life from the
	// server. 0 means for ever.
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
		return nil, loquat.Errorf(loquat.CodeInvalid, "%q is no server address; it looks like http://127.0.0.1:8787", baseURL)
	}
	c := &Client{base: u, token: o.Token, http: o.HTTPClient, patience: o.Patience}
	if c.http == nil {
		c.http = defaultHTTPClient()
	}
	return c, nil
}

// defaultHTTPClient bounds every wait but the one for the rest of a body: a stream
// may go on for ever, and a long poll is silent for up to a minute.
func defaultHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 2 * maxWait,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}}
}

// CloseIdleConnections closes connections that nobody uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Option adds to one change.
type Option func(*call)

// IfMatch makes a change fail with CodePreconditionFailed unless checkpoint is
// still the session's newest.
func IfMatch(checkpoint loquat.EventID) Option {
	return func(c *call) { c.header.Set("If-Match", `"`+checkpoint.String()+`"`) }
}

// IdempotencyKey replaces the key that the client makes for a POST, so that a
// repeat by a later process counts as the same.
func IdempotencyKey(key string) Option {
	return func(c *call) { c.header.Set("Idempotency-Key", key) }
}

// call is one use of a route.
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

// repeatable reports whether making the call twice does what making it once does.
func (c *call) repeatable() bool {
	return c.method == http.MethodGet || c.header.Get("Idempotency-Key") != ""
}

// do makes the call, again where that is safe, and decodes the answer into out
// unless that is nil.
func (c *Client) do(ctx context.Context, call *call, out any) (http.Header, error) {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", call.method, strings.Join(call.path, "/"), err)
		}
	}
	for attempt := 1; ; attempt++ {
		header, err := c.once(ctx, call, body, out)
		passing := loquat.CodeOf(err) == loquat.CodeUnavailable && ctx.Err() == nil
		if !passing || attempt == maxAttempts || !call.repeatable() {
			return header, err
		}
		if err := pause(ctx, attempt-1); err != nil {
			return nil, err
		}
	}
}

func (c *Client) once(ctx context.Context, call *call, body []byte, out any) (http.Header, error) {
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
		return nil, loquat.Errorf(loquat.CodeTooLarge, "the answer of %s is over %d bytes; ask for a part of it", resp.Request.URL.Path, maxAnswer)
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

// send returns the answer, whatever its status.
func (c *Client) send(ctx context.Context, call *call, body []byte) (*http.Response, error) {
	u := c.base.JoinPath(call.path...)
	u.RawQuery = call.query.Encode()
	req, err := http.NewRequestWithContext(ctx, call.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header = call.header.Clone()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return resp, nil
}

// unreachable is the error of a call that got no whole answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return &loquat.Error{Code: loquat.CodeUnavailable, Err: err,
		Detail: fmt.Sprintf("no answer from %s; is the server running there?", c.base.Redacted())}
}

// pause waits before attempt number n+1: twice as long each time, with jitter so
// that clients which lost the same server do not come back together.
func pause(ctx context.Context, n int) error {
	full := float64(firstDelay) * math.Pow(2, float64(min(n, 16)))
	delay := time.Duration(min(full, float64(maxDelay)) * (0.5 + mathrand.Float64()/2))
	return sleep(ctx, delay)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
