package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

// originCheck protects against requests that a browser was tricked into: by a page of
// another origin, or by a host name that was made to resolve to this server (DNS
// rebinding). It checks the headers Host and Origin.
type originCheck struct {
	address string              // the address on which the server listens
	hosts   map[string]bool     // further allowed values of Host, with port
	origins map[string]struct{} // further allowed values of Origin, with port
}

// newOriginCheck takes the URLs of a configuration, which has validated them.
func newOriginCheck(address string, server config.Server) originCheck {
	g := originCheck{address: address, hosts: map[string]bool{}, origins: map[string]struct{}{}}
	for _, given := range append([]string{server.PublicURL}, server.AllowedOrigins...) {
		u, err := url.Parse(given)
		if err != nil || u.Host == "" {
			continue
		}
		g.hosts[withPort(u.Host, u.Scheme)] = true
		g.origins[originOf(u)] = struct{}{}
	}
	return g
}

// originOf returns an origin with its port, so that https://a and https://a:443 are equal.
func originOf(u *url.URL) string { return u.Scheme + "://" + withPort(u.Host, u.Scheme) }

// withPort adds the scheme's default port if host has none.
func withPort(host, scheme string) string {
	host = strings.ToLower(host)
	if u := (&url.URL{Host: host}); u.Port() == "" {
		port := "80"
		if scheme == "https" {
			port = "443"
		}
		host = net.JoinHostPort(u.Hostname(), port)
	}
	return host
}

// admit returns an error if the Host or Origin of a request is not allowed. For an allowed
// other origin it sets the CORS headers.
func (g originCheck) admit(w http.ResponseWriter, r *http.Request, from caller) error {
	own, scheme := g.own(r), from.scheme
	// Both Host and the host that a trusted proxy forwards are checked: a page can make a
	// browser on the proxy's machine send the proxy's headers.
	for _, host := range []string{r.Host, from.host} {
		if !isOwn(own, withPort(host, scheme)) && !isOwn(own, withPort(host, "http")) && !g.allowedHost(host) {
			return loquat.Errorf(loquat.CodeForbidden, "Host %q is neither the address of this server nor server.public_url nor in server.allowed_origins; set server.public_url to the URL that clients use", loquat.Clip(host, loquat.Excerpt))
		}
	}
	w.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) > 1 { // a proxy may have checked another one of them
		return route.Malformed("header.Origin", "is given %d times", len(origins))
	}
	if len(origins) == 0 || origins[0] == "" {
		return nil
	}
	origin := origins[0]
	if origin == "null" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasPrefix(r.URL.Path, framePath) {
		return nil // a sandboxed frame has no origin, and Chromium says so when it loads the frame's script
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return errOrigin(origin)
	}
	if u.Scheme == scheme && isOwn(own, withPort(u.Host, scheme)) {
		return nil
	}
	if _, ok := g.origins[originOf(u)]; !ok {
		return errOrigin(origin)
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Expose-Headers", "Content-Range, ETag, Location, Retry-After")
	return nil
}

func errOrigin(origin string) error {
	return loquat.Errorf(loquat.CodeForbidden, "Origin %q is neither this server nor in server.allowed_origins", loquat.Clip(origin, loquat.Excerpt))
}

// allowedHost reports whether a host is configured. A host without a port is tried with both
// default ports: behind a proxy that ends TLS, this server does not see the scheme.
func (g originCheck) allowedHost(host string) bool {
	return g.hosts[withPort(host, "http")] || g.hosts[withPort(host, "https")]
}

// own returns the local address of the connection. It is more specific than the listening
// address if the server listens on all addresses.
func (g originCheck) own(r *http.Request) string {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return g.address
}

// isOwn reports whether host is the address own. If own is a loopback address, `localhost`
// and every other loopback address match too.
func isOwn(own, host string) bool {
	address, err := netip.ParseAddrPort(own)
	if err != nil {
		return own == host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != fmt.Sprint(address.Port()) {
		return false
	}
	loopback := address.Addr().Unmap().IsLoopback()
	if name == "localhost" {
		return loopback
	}
	named, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	return named.Unmap() == address.Addr().Unmap() || loopback && named.Unmap().IsLoopback()
}

// preflight answers a CORS preflight request that admit allowed, and reports whether the
// request was one.
func (g originCheck) preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", allowedHeaders(r.Header.Get("Access-Control-Request-Headers")))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// sdkHeaders begin the names of headers that OpenAI's SDKs send. They have no effect.
var sdkHeaders = []string{"x-stainless-", "openai-"}

// maxSDKHeaders limits the length of the list of headers of which the SDKs' are allowed.
const maxSDKHeaders = 2 << 10

// allowedHeaders returns the headers that a page may send: those of the API, and those of OpenAI's
// SDKs among the requested ones.
func allowedHeaders(requested string) string {
	allowed := "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Range, Traceparent, Tracestate"
	if len(requested) > maxSDKHeaders {
		return allowed
	}
	for name := range strings.SplitSeq(requested, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		ofSDK := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.ContainsFunc(sdkHeaders, ofSDK) && !strings.ContainsFunc(name, notInHeader) {
			allowed += ", " + name
		}
	}
	return allowed
}

// notInHeader reports whether the name of a header of an SDK cannot have this character.
func notInHeader(c rune) bool {
	return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
}

// protect sets the security headers of an answer. Static files replace the content security
// policy with their own.
func protect(h http.Header, from caller) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	// For localhost the header would apply to all ports, also those of other programs.
	if name := (&url.URL{Host: from.host}).Hostname(); from.scheme == "https" && name != "localhost" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
