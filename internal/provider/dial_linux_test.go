package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// deafAddress returns an address at which connections are neither accepted nor refused,
// because the listener's queue is full.
func deafAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("this system takes connections that nobody accepts")
	return ""
}

// Connecting takes at most the configured timeout, whether that is long or short.
func TestTimeoutOfConnecting(t *testing.T) {
	dialled := make(chan error, 1)
	transport := provider.DefaultTransport().(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := provider.Dial(context.WithoutCancel(ctx), network, address)
		dialled <- err
		return c, err
	}
	p := provider.New(provider.Options{Transport: transport})
	t.Cleanup(p.Close)
	c := providertest.Config("http://"+deafAddress(t)+"/v1").Set("timeout", 0.2)
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")})
	if o.err == nil || !strings.Contains(o.err.Error(), "in time") {
		t.Errorf("the end is %v", o.err)
	}
	select {
	case err := <-dialled:
		if netErr, ok := errors.AsType[net.Error](err); !ok || !netErr.Timeout() {
			t.Errorf("connecting ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the timeout does not reach who connects")
	}
}
