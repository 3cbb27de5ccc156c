package faultproxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer starts a server that sends back every byte that it receives.
func echoServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

func start(t *testing.T, o Options) *Proxy {
	t.Helper()
	o.Target = echoServer(t)
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// exchange sends data through the proxy and returns the bytes that came back.
func exchange(t *testing.T, p *Proxy, data []byte) (got []byte, whole bool) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return nil, false // the connection was reset before Dial returned
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err = io.ReadAll(c)
	return got, err == nil && len(got) == len(data)
}

func randomBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.IntN(256))
	}
	return data
}

// With every fault, a prefix of the data arrives, and all of it unless the connection was
// cut.
func TestFaults(t *testing.T) {
	data := randomBytes(100_000)
	for _, tc := range []struct {
		name  string
		opts  Options
		whole bool
		did   func(Stats) bool
	}{
		{"none", Options{}, true, func(s Stats) bool { return s == Stats{Connections: 1} }},
		{"split", Options{Split: 1}, true, func(s Stats) bool { return s == Stats{Connections: 1, Split: 2} }},
		{"stall", Options{Stall: 1, StallFor: 50 * time.Millisecond}, true, func(s Stats) bool { return s == Stats{Connections: 1, Stalls: 2} }},
		{"slow", Options{Slow: 1, Rate: 1 << 20}, true, func(s Stats) bool { return s == Stats{Connections: 1, Slowed: 2} }},
		{"cut", Options{Cut: 1}, false, func(s Stats) bool { return s.Cuts >= 1 }},
		{"all", Options{Cut: 1, Stall: 1, Split: 1, Slow: 1, Rate: 1 << 20, Within: 1000, StallFor: time.Millisecond}, false, func(s Stats) bool { return s.Cuts >= 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := start(t, tc.opts)
			got, whole := exchange(t, p, data)
			if whole != tc.whole || !bytes.HasPrefix(data, got) {
				t.Errorf("%d of %d bytes came back, whole %v", len(got), len(data), whole)
			}
			if s := p.Stats(); !tc.did(s) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestSlowLimitsTheRate(t *testing.T) {
	p := start(t, Options{Slow: 1, Rate: 10_000})
	began := time.Now()
	if _, whole := exchange(t, p, randomBytes(3000)); !whole {
		t.Error("bytes were lost")
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("3000 bytes at 10000 a second took %v", took)
	}
}

// Equal seeds draw equal faults, and the probability of one fault does not affect the
// others.
func TestSeed(t *testing.T) {
	drawAll := func(o Options) (drawn []faults) {
		o.Within, o.StallFor = 1000, time.Second
		p := &Proxy{opts: o}
		rng := rand.New(rand.NewPCG(o.Seed, 0))
		for range 100 {
			drawn = append(drawn, p.drawFaults(rng))
		}
		return drawn
	}
	a, b := drawAll(Options{Seed: 7, Cut: 0.5}), drawAll(Options{Seed: 7, Cut: 0.5, Split: 1})
	other := drawAll(Options{Seed: 8, Cut: 0.5})
	same, cuts := 0, 0
	for i := range a {
		if a[i].cutAt != b[i].cutAt || a[i].reset != b[i].reset {
			t.Errorf("connection %d: cut at %d, then at %d", i, a[i].cutAt, b[i].cutAt)
		}
		if a[i].cutAt == other[i].cutAt {
			same++
		}
		if a[i].cutAt >= 0 {
			cuts++
		}
	}
	if same > 60 || cuts < 30 || cuts > 70 {
		t.Errorf("%d of 100 the same with another seed, %d cut", same, cuts)
	}
}

// Connections above the bound wait for a free slot.
func TestMaxConnections(t *testing.T) {
	p := start(t, Options{MaxConnections: 1})
	first, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	echo := func(c net.Conn, within time.Duration) error {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := echo(first, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	second, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := echo(second, 50*time.Millisecond); err == nil {
		t.Error("two connections at once, where one is allowed")
	}
	first.Close()
	if err := echo(second, 10*time.Second); err != nil {
		t.Errorf("the second connection never got a slot: %v", err)
	}
}

// Close ends stalled connections. If the target cannot be reached, the client's connection
// ends.
func TestConnectionsEnd(t *testing.T) {
	p := start(t, Options{Stall: 1, StallFor: time.Hour, Within: 1})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for p.Stats().Stalls == 0 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	p.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	nowhere, err := Start(Options{Target: ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	if got, whole := exchange(t, nowhere, []byte("hello")); whole || len(got) > 0 {
		t.Errorf("without a target the client received %q", got)
	}
}

// While the proxy is blocked, open and new connections are silent. Afterwards they go on, and
// nothing is lost.
func TestBlock(t *testing.T) {
	p := start(t, Options{})
	before, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	answer := make([]byte, 4)
	echo := func(c net.Conn, patience time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadFull(c, answer)
		return err
	}
	if _, err := before.Write([]byte("ping")); err != nil || echo(before, 5*time.Second) != nil {
		t.Fatal("the proxy does not pass on bytes")
	}
	p.Block()
	p.Block()
	during, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer during.Close()
	for _, c := range []net.Conn{before, during} {
		if _, err := c.Write([]byte("held")); err != nil {
			t.Fatal(err)
		}
		if err := echo(c, 100*time.Millisecond); err == nil {
			t.Error("bytes passed while the proxy was blocked")
		}
	}
	p.Unblock()
	p.Unblock()
	for _, c := range []net.Conn{before, during} {
		if err := echo(c, 5*time.Second); err != nil || string(answer) != "held" {
			t.Errorf("after the block: %q, %v", answer, err)
		}
	}
	p.Block() // Close ends blocked connections
}
