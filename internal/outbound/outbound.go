// Package outbound makes HTTP clients for addresses that others choose, such as those of push services
// and webhooks.
//
// Such a client connects only to public addresses, unless the operator allows others. It checks the
// address of each connection after the name was resolved, so a name that meanwhile has another address
// does not lead into the operator's network. It follows no redirects and uses no proxy, which would
// connect to addresses that are not checked. It does not bound what an answer has: callers do.
package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// Options configure a client.
type Options struct {
	AllowPrivate bool          // loopback, private and link-local addresses, too
	Timeout      time.Duration // of a call, with its answer
	TLS          *tls.Config   // nil: the default
}

var (
	// ErrPrivate reports that a host has an address to which the client does not connect.
	ErrPrivate = errors.New("the host has an address that is not public")
	// ErrNoAddress reports that the addresses of a host cannot be looked up, or that the host has none.
	ErrNoAddress = errors.New("the host cannot be looked up")
)

// maxHeaders bounds the headers of an answer, in bytes.
const maxHeaders = 64 << 10

// Client returns a client.
func Client(o Options) *http.Client {
	dialer := &net.Dialer{Timeout: o.Timeout}
	if !o.AllowPrivate {
		dialer.Control = refusePrivate
	}
	return &http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
			IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 2, MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// lookupWithin bounds how long Check waits for the addresses of a host.
const lookupWithin = 5 * time.Second

// Check checks that a host has addresses, and only public ones. It fails with ErrNoAddress or ErrPrivate.
func Check(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addresses) == 0 {
		return ErrNoAddress
	}
	for _, a := range addresses {
		if !isPublic(a) {
			return ErrPrivate
		}
	}
	return nil
}
