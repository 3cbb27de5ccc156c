package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"loquat/internal/config"
)

// caller is the client of a call, according to the connection or to a trusted proxy.
type caller struct {
	address netip.Addr // zero if unknown
	scheme  string     // http or https
	host    string     // the name by which the browser called this server
	proxied bool       // host was forwarded by a proxy
}

// proxies are the networks whose X-Forwarded-* headers count.
type proxies []netip.Prefix

// newProxies parses server.trusted_proxies, which the configuration has validated.
func newProxies(given []string) (out proxies) {
	for _, s := range given {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	return out
}

// TrustedProxies reports whether an address is one of server.trusted_proxies.
func TrustedProxies(l *config.Live) func(netip.Addr) bool {
	now := config.Derived(l, func(cfg *config.Config) proxies { return newProxies(cfg.Server.TrustedProxies) })
	return func(a netip.Addr) bool { return now().trusts(a) }
}

func (p proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// caller returns the client of a request. Everybody can send X-Forwarded-* headers, so only
// entries that trusted proxies added count. Addresses are read from the right, up to the
// first that is not a trusted proxy.
func (p proxies) caller(r *http.Request) caller {
	c := caller{scheme: "http", host: r.Host}
	if r.TLS != nil {
		c.scheme = "https"
	}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		c.address = peer.Addr().Unmap().WithZone("")
	}
	if !p.trusts(c.address) {
		return c
	}
	hops := items(r, "X-Forwarded-For")
	for i := len(hops) - 1; i >= 0 && p.trusts(c.address); i-- {
		a, err := parseHop(hops[i])
		if err != nil {
			break
		}
		c.address = a
	}
	// If several proxies add entries, the proxy next to the browser adds the first.
	if protos := items(r, "X-Forwarded-Proto"); len(protos) > 0 && (protos[0] == "http" || protos[0] == "https") {
		c.scheme = protos[0]
	}
	if hosts := items(r, "X-Forwarded-Host"); len(hosts) > 0 && hosts[0] != "" {
		c.host, c.proxied = hosts[0], true
	}
	return c
}

// items returns the entries of a header that may be repeated and may contain lists.
func items(r *http.Request, header string) (out []string) {
	for _, line := range r.Header.Values(header) {
		for item := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(item))
		}
	}
	return out
}

// parseHop parses an address. Some proxies add a port.
func parseHop(s string) (netip.Addr, error) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err
}
