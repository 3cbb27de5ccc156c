package httpapi

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"loquat/internal/config"
)

// The caller's address, scheme and host come only from headers that trusted proxies set.
func TestCaller(t *testing.T) {
	trusted := newProxies([]string{"10.0.0.0/8", "127.0.0.1", "2001:db8::/32"})
	for _, c := range []struct {
		name, remote string
		headers      string // "Name: value", separated by ;
		want         caller
	}{
		{"nobody between", "192.0.2.1:1", "", caller{scheme: "http", host: "h", address: netip.MustParseAddr("192.0.2.1")}},
		{"lies", "192.0.2.1:1", "X-Forwarded-For: 198.51.100.7;X-Forwarded-Proto: https;X-Forwarded-Host: evil", caller{scheme: "http", host: "h", address: netip.MustParseAddr("192.0.2.1")}},
		{"one proxy", "10.0.0.1:1", "X-Forwarded-For: 198.51.100.7;X-Forwarded-Proto: https;X-Forwarded-Host: chat.example", caller{scheme: "https", host: "chat.example", proxied: true, address: netip.MustParseAddr("198.51.100.7")}},
		{"two proxies", "127.0.0.1:1", "X-Forwarded-For: 198.51.100.7, 10.9.9.9", caller{scheme: "http", host: "h", address: netip.MustParseAddr("198.51.100.7")}},
		{"two lines", "127.0.0.1:1", "X-Forwarded-For: 198.51.100.7;X-Forwarded-For: 10.9.9.9", caller{scheme: "http", host: "h", address: netip.MustParseAddr("198.51.100.7")}},
		{"a lie before the proxy", "10.0.0.1:1", "X-Forwarded-For: 1.2.3.4, 198.51.100.7", caller{scheme: "http", host: "h", address: netip.MustParseAddr("198.51.100.7")}},
		{"with ports", "10.0.0.1:1", "X-Forwarded-For: [2001:db9::1]:443", caller{scheme: "http", host: "h", address: netip.MustParseAddr("2001:db9::1")}},
		{"a zone and a mapped address", "[::ffff:10.0.0.1]:1", "X-Forwarded-For: fe80::1%eth0", caller{scheme: "http", host: "h", address: netip.MustParseAddr("fe80::1")}},
		{"nonsense", "10.0.0.1:1", "X-Forwarded-For: unknown;X-Forwarded-Proto: gopher;X-Forwarded-Host: ", caller{scheme: "http", host: "h", address: netip.MustParseAddr("10.0.0.1")}},
		{"proxies alone", "10.0.0.1:1", "X-Forwarded-For: 10.0.0.2", caller{scheme: "http", host: "h", address: netip.MustParseAddr("10.0.0.2")}},
		{"no address", "@", "X-Forwarded-For: 10.0.0.2", caller{scheme: "http", host: "h"}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = c.remote, "h"
		for h := range strings.SplitSeq(c.headers, ";") {
			if name, value, ok := strings.Cut(h, ": "); ok {
				r.Header.Add(name, value)
			}
		}
		if got := trusted.caller(r); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A page that makes a browser on the proxy's machine call this server by another name can
// send the proxy's headers as well, so both names are checked.
func TestForwardedHost(t *testing.T) {
	server := config.Server{PublicURL: "https://chat.example", TrustedProxies: []string{"127.0.0.1"}}
	g := newOriginCheck("127.0.0.1:8787", server)
	for _, c := range []struct {
		host, forwarded, origin string
		ok                      bool
	}{
		{"chat.example", "", "https://chat.example", true},
		{"chat.example", "chat.example", "https://chat.example", true},
		{"127.0.0.1:8787", "chat.example", "https://chat.example", true},
		{"127.0.0.1:8787", "evil.example", "", false},
		{"evil.example:8787", "chat.example", "", false},
		{"evil.example:8787", "127.0.0.1:8787", "", false},
		{"chat.example", "chat.example", "https://evil.example", false},
		{"chat.example", "chat.example", "http://chat.example", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:50000", c.host
		r.Header.Set("X-Forwarded-Proto", "https")
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-Host", c.forwarded)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		err := g.admit(httptest.NewRecorder(), r, newProxies(server.TrustedProxies).caller(r))
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
