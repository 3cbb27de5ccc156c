package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

// guard refuses what a browser was tricked into: pages of other origins, and names
// that were made to point here. It looks at Host and Origin alone.
type guard struct {
	address string              // that is listened on
	hosts   map[string]bool     // further values of Host, with port
	origins map[string]struct{} // further values of Origin
}

func newGuard(address string, server config.Server) (guard, error) {
	g := guard{address: address, hosts: map[string]bool{}, origins: map[string]struct{}{}}
	for i, given := range append([]string{server.PublicURL}, server.AllowedOrigins...) {
		if given == "" {
			continue
		}
		u, err := url.Parse(given)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			where := "server.public_url"
			if i > 0 {
				where = fmt.Sprintf("server.allowed_origins[%d]", i-1)
			}
			return guard{}, fmt.Errorf("%s: %q is no http or https URL", where, given)
		}
		g.hosts[withPort(u.Host, u.Scheme)] = true
		g.origins[originOf(u)] = struct{}{}
	}
	return g, nil
}

// originOf writes an origin with its port, so that :443 and nothing are the same.
func originOf(u *url.URL) string { return u.Scheme + "://" + withPort(u.Host, u.Scheme) }

// withPort adds the scheme's port where there is none.
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

// admit lets a request in, or says why not. Browsers of allowed origins are told so.
func (g guard) admit(w http.ResponseWriter, r *http.Request, from caller) error {
	own, scheme := g.own(r), from.scheme
	// What a trusted proxy says of the host is looked at as well, not instead: a page can
	// make a browser on the proxy's machine say it, too.
	for _, host := range []string{r.Host, from.host} {
		if !isOwn(own, withPort(host, scheme)) && !isOwn(own, withPort(host, "http")) && !g.allowedHost(host) {
			return loquat.Errorf(loquat.CodeForbidden, "Host %q is neither the address of this server nor server.public_url nor in server.allowed_origins", loquat.Clip(host, loquat.Excerpt))
		}
	}
	w.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) > 1 { // whatever stands between may have checked another one
		return route.Malformed("header.Origin", "is given %d times", len(origins))
	}
	if len(origins) == 0 || origins[0] == "" {
		return nil
	}
	origin := origins[0]
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

// allowedHost compares with both ports that a name without one may mean: what ends
// TLS in front of this server leaves Host as the browser sent it.
func (g guard) allowedHost(host string) bool {
	return g.hosts[withPort(host, "http")] || g.hosts[withPort(host, "https")]
}

// own is the address that the connection came in on, which is more than the one that
// is listened on when that is all of them.
func (g guard) own(r *http.Request) string {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return g.address
}

// isOwn reports whether host is the address own, for which `localhost` and every
// other loopback address are as good when it is one.
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

// preflight answers a browser that asks what it may do. The request was admitted.
func (g guard) preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Range")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// protect sets what keeps browsers from using answers for what they are not. The page
// has a policy of its own.
func protect(h http.Header, from caller) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	// For localhost it would hold on all ports, those of others too.
	if name := (&url.URL{Host: from.host}).Hostname(); from.scheme == "https" && name != "localhost" {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
