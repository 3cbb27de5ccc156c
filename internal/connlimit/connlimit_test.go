package connlimit

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakes is a listener whose connections the test makes.
type fakes struct{ conns chan net.Conn }

func (f fakes) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (fakes) Close() error   { return nil }
func (fakes) Addr() net.Addr { return &net.TCPAddr{} }

// fake is one end of a pipe with an address.
type fake struct {
	net.Conn
	remote string
}

type addr string

func (a addr) Network() string       { return "tcp" }
func (a addr) String() string        { return string(a) }
func (f *fake) RemoteAddr() net.Addr { return addr(f.remote) }

// rig dials a Listener.
type rig struct {
	t     *testing.T
	l     *Listener
	conns chan net.Conn
}

func newRig(t *testing.T, opts Options) *rig {
	opts.Logger = slog.New(slog.DiscardHandler)
	conns := make(chan net.Conn, 1)
	return &rig{t: t, l: New(fakes{conns}, opts), conns: conns}
}

// dial returns both ends of a new connection; server is nil when it was refused.
func (r *rig) dial(from string) (client net.Conn, server net.Conn) {
	r.t.Helper()
	client, other := net.Pipe()
	r.t.Cleanup(func() { client.Close(); other.Close() })
	c := r.l.admit(&fake{other, from})
	time.Sleep(time.Microsecond) // another is younger
	if c == nil {
		return client, nil
	}
	return client, c
}

func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF || err == io.ErrClosedPipe
}

func hold(server net.Conn) (release func()) {
	return Hold(Context(context.Background(), server))
}

func TestListenerMakesRoom(t *testing.T) {
	const here = "192.0.2.1:1"
	for _, tt := range []struct {
		name  string
		opts  Options
		froms []string
		busy  []int // connections that serve a call
		spare int   // that is closed for one more; -1: none is
		more  string
		room  bool
	}{
		{"below the bounds", Options{Total: 9, PerAddress: 3}, []string{here, here}, nil, -1, here, true},
		{"of an address, the oldest goes", Options{Total: 9, PerAddress: 2}, []string{here, here}, nil, 0, here, true},
		{"another address has room", Options{Total: 9, PerAddress: 2}, []string{here, here}, nil, -1, "192.0.2.2:1", true},
		{"busy ones stay", Options{Total: 9, PerAddress: 2}, []string{here, here}, []int{0}, 1, here, true},
		{"all are busy", Options{Total: 9, PerAddress: 2}, []string{here, here}, []int{0, 1}, -1, here, false},
		{"in all, the oldest goes", Options{Total: 2, PerAddress: 2}, []string{"192.0.2.2:1", here}, nil, 0, "192.0.2.3:1", true},
		{"in all, all are busy", Options{Total: 2, PerAddress: 2}, []string{"192.0.2.2:1", here}, []int{0, 1}, -1, "192.0.2.3:1", false},
		{"one network of IPv6", Options{Total: 9, PerAddress: 1}, []string{"[2001:db8::1]:1"}, nil, 0, "[2001:db8::2]:1", true},
		{"a proxy is many", Options{Total: 9, PerAddress: 1, Shared: func(a netip.Addr) bool { return a.String() == "192.0.2.1" }}, []string{here, here}, []int{0, 1}, -1, here, true},
		{"a proxy counts in all", Options{Total: 2, PerAddress: 1, Shared: func(netip.Addr) bool { return true }}, []string{here, here}, nil, 0, here, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.opts)
			var clients, servers []net.Conn
			for _, from := range tt.froms {
				c, s := r.dial(from)
				clients, servers = append(clients, c), append(servers, s)
			}
			for _, i := range tt.busy {
				defer hold(servers[i])()
			}
			if _, s := r.dial(tt.more); (s != nil) != tt.room {
				t.Errorf("there is room: %v, want %v", s != nil, tt.room)
			}
			for i, c := range clients {
				if got := closed(c); got != (i == tt.spare) {
					t.Errorf("connection %d is closed: %v", i, got)
				}
			}
			if n := r.l.Len(); n > tt.opts.Total {
				t.Errorf("%d connections are counted", n)
			}
			for _, s := range servers {
				s.Close()
				s.Close() // counts once
			}
		})
	}
}

// Connections that never served a call go before those that did, which are idle between
// two calls of a user.
func TestListenerSparesUsers(t *testing.T) {
	r := newRig(t, Options{Total: 9, PerAddress: 2})
	user, server := r.dial("192.0.2.1:1")
	hold(server)()
	stranger, _ := r.dial("192.0.2.1:1")
	r.dial("192.0.2.1:1")
	if closed(user) || !closed(stranger) {
		t.Error("the user's connection was closed rather than the stranger's")
	}
}

func TestListenerForgetsClosedConnections(t *testing.T) {
	r := newRig(t, Options{Total: 1, PerAddress: 1})
	for range 3 {
		_, s := r.dial("192.0.2.1:1")
		if s == nil {
			t.Fatal("a connection that was closed still counts")
		}
		release := hold(s)
		s.Close()
		release()
	}
	if n := r.l.Len(); n != 0 || len(r.l.from) != 0 {
		t.Errorf("%d connections of %d addresses are counted", n, len(r.l.from))
	}
}

// A refused client gets the reason, and then its connection is closed.
func TestListenerRefuses(t *testing.T) {
	const refusal = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n"
	r := newRig(t, Options{Total: 1, PerAddress: 1, Refusal: []byte(refusal)})
	_, s := r.dial("192.0.2.1:1")
	defer hold(s)()
	client, other := net.Pipe()
	r.conns <- &fake{other, "192.0.2.1:2"}
	close(r.conns)
	if _, err := r.l.Accept(); err == nil {
		t.Fatal("it was accepted")
	}
	var got strings.Builder
	buf := make([]byte, len(refusal))
	if _, err := io.ReadFull(client, buf); err != nil {
		t.Fatal(err)
	}
	got.Write(buf)
	client.Close()
	if got.String() != refusal {
		t.Errorf("the client reads %q", got.String())
	}
	for len(r.l.refusing) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// An address that opens connections in a loop is slowed down: few of its connections are
// closed for new ones, and new ones wait before they are refused.
func TestListenerSlowsDownFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Total: 99, PerAddress: 4})
		admitted := 0
		var last net.Conn
		for range 4 + 3*evictionBurst {
			client, s := r.dial("192.0.2.1:1")
			if s != nil {
				admitted++
			} else {
				last = client
			}
		}
		if admitted != 4+evictionBurst {
			t.Errorf("%d connections are admitted, want %d", admitted, 4+evictionBurst)
		}
		if _, s := r.dial("192.0.2.2:1"); s == nil {
			t.Error("another address is refused")
		}
		if closed(last) {
			t.Error("the flood is refused at once")
		}
		time.Sleep(penalty)
		synctest.Wait()
		if !closed(last) {
			t.Error("the flood is not refused")
		}
		if _, s := r.dial("192.0.2.1:1"); s == nil {
			t.Error("the address is refused after a pause")
		}
		r.dial("192.0.2.1:1")
		if err := r.l.Close(); err != nil || len(r.l.waiting) != 0 {
			t.Errorf("%d connections wait after the end, %v", len(r.l.waiting), err)
		}
	})
}
