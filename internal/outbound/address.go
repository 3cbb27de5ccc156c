package outbound

import (
	"net/netip"
	"syscall"
)

// refusePrivate is called for each connection, after the name was resolved.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || !isPublic(at.Addr()) {
		return ErrPrivate
	}
	return nil
}

// reserved are networks that are not public, besides those that package netip knows. Addresses of
// the IPv6 networks contain an IPv4 address that may be private.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("168.63.129.16/32"), // the host of a machine at Azure, which gives out its secrets
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// isPublic reports whether an address can belong to a host on the internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, network := range reserved {
		if network.Contains(a) {
			return false
		}
	}
	return true
}
