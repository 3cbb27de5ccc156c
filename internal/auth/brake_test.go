package auth

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However many addresses guess, what is remembered has a bound, and those beyond it
// are slowed down together until others are forgotten.
func TestBrakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBrake(2)
		address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
		slowed := 0
		for i := range 3 * maxAddresses {
			if wait, _ := b.wrong(address(i)); wait > 0 {
				slowed++
			}
		}
		if len(b.wrongs) > maxAddresses+1 || slowed < maxAddresses {
			t.Errorf("%d addresses are remembered, %d were slowed down", len(b.wrongs), slowed)
		}
		time.Sleep(forgetAfter + time.Second)
		if wait, _ := b.wrong(address(1 << 20)); wait > 0 || len(b.wrongs) > 2 {
			t.Errorf("later: a wait of %s, %d addresses", wait, len(b.wrongs))
		}
	})
}

func TestBrakeWithoutAddress(t *testing.T) {
	b := newBrake(1)
	b.wrong(netip.Addr{})
	if wait, first := b.wrong(netip.Addr{}); wait == 0 || !first {
		t.Errorf("what has no address is not slowed down: %v, %v", wait, first)
	}
	if wait := b.wait(netip.MustParseAddr("192.0.2.1")); wait != 0 {
		t.Errorf("it holds up others: %s", wait)
	}
}

func FuzzReadCode(f *testing.F) {
	for _, s := range []string{"7K3M-9QRT4XWZ0A", " 7k3m - 9qrt-4xwz-oi ", "", "-", "7K3M9QRT4XWZ0A", "ÄÖÜß-ſſſſſſſſſſ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		public, code, ok := readCode(typed)
		if !ok {
			return
		}
		if len(public) != publicLen || !strings.HasPrefix(code, public+"-") || len(code) != publicLen+1+secretLen {
			t.Errorf("%q reads as %q, %q", typed, public, code)
		}
		if p, c, ok := readCode(code); !ok || p != public || c != code {
			t.Errorf("%q reads as %q, and that as %q", typed, code, c)
		}
	})
}
