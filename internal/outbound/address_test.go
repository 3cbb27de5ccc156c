package outbound

import (
	"net/netip"
	"testing"
)

func TestIsPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "127.0.0.2": false, "172.16.5.5": false, "100.100.1.1": false, "fd00::1": false, "fe80::1%eth0": false,
		"64:ff9b::a00:1": false, "2002:a00:1::": false, "224.0.0.1": false, "255.255.255.255": false, "::": false, "::ffff:10.1.1.1": false, "::ffff:8.8.8.8": true,
		"169.254.169.254": false, "168.63.129.16": false, "168.63.129.17": true, "192.88.99.1": false, "fec0::1": false, "::ffff:0:10.1.1.1": false, "fd00:ec2::254": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is public: %v", address, got)
		}
	}
}
