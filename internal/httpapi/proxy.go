package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"loquat/internal/config"
)

// caller is the other end of a call: what the connection says, or what a trusted
// proxy says that stands between.
type caller struct {
	address netip.Addr // zero when it is not known
	scheme  string     // http or https
	host    string     // as the browser named this server
	proxied bool       // host is the proxy's word
}

// proxies are the networks whose X-Forwarded-* headers count.
type proxies []netip.Prefix

// newProxies reads server.trusted_proxies, which were checked.
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
func TrustedProxies(server config.Server) func(netip.Addr) bool {
	return newProxies(server.TrustedProxies).trusts
}

func (p proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// caller finds the other end. Everybody can send these headers, so only what trusted
// proxies added counts: addresses are read from the right, up to the first that is
// no proxy.
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
	// Where several proxies add to them, the one that is next to the browser comes first.
	if protos := items(r, "X-Forwarded-Proto"); len(protos) > 0 && (protos[0] == "http" || protos[0] == "https") {
		c.scheme = protos[0]
	}
	if hosts := items(r, "X-Forwarded-Host"); len(hosts) > 0 && hosts[0] != "" {
		c.host, c.proxied = hosts[0], true
	}
	return c
}

// items splits a header that may come several times and hold lists.
func items(r *http.Request, header string) (out []string) {
	for _, line := range r.Header.Values(header) {
		for item := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(item))
		}
	}
	return out
}

// parseHop reads an address, with which some proxies write a port.
func parseHop(s string) (netip.Addr, error) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err
}
