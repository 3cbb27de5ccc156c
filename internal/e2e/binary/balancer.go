package binary

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync"
	"testing"
	"time"
)

// How a Balancer looks at its nodes.
const (
	lookAtNodes  = 200 * time.Millisecond
	lookPatience = time.Second
	looksToDown  = 2 // looks without an answer after which a node is down
)

// Balancer is a load balancer for tests. It sends each call to the next node whose /readyz is
// 200, and to another node if the connection is refused. When a node goes down, the balancer cuts
// the node's calls.
type Balancer struct {
	URL string

	transport *http.Transport
	stop      chan struct{}
	looking   sync.WaitGroup

	mu      sync.Mutex
	targets []*target
	next    int
}

// target is a node of a Balancer. Its fields are guarded by the balancer's mu.
type target struct {
	address string
	up      bool
	silent  int             // looks in a row without an answer
	life    context.Context // of the calls to this node
	cut     context.CancelFunc
}

// startBalancer starts a load balancer in front of addresses (host:port).
func startBalancer(t testing.TB, addresses ...string) *Balancer {
	t.Helper()
	b := &Balancer{transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}, stop: make(chan struct{})}
	for _, address := range addresses {
		n := &target{address: address}
		n.life, n.cut = context.WithCancel(context.Background())
		b.targets = append(b.targets, n)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // a node that dies is not worth a line
	}
	server := httptest.NewServer(proxy)
	b.URL = server.URL
	for _, n := range b.targets {
		b.look(n)
		b.looking.Go(func() { b.lookLoop(n) })
	}
	t.Cleanup(func() {
		close(b.stop)
		b.looking.Wait()
		for _, n := range b.targets {
			n.cut()
		}
		server.CloseClientConnections()
		server.Close()
		b.transport.CloseIdleConnections()
	})
	return b
}

func (b *Balancer) lookLoop(n *target) {
	tick := time.NewTicker(lookAtNodes)
	defer tick.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-tick.C:
			b.look(n)
		}
	}
}

// look finds out whether a node is up.
func (b *Balancer) look(n *target) {
	ctx, cancel := context.WithTimeout(context.Background(), lookPatience)
	defer cancel()
	status := 0
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+"/readyz", nil)
	if err == nil {
		var resp *http.Response
		if resp, err = b.transport.RoundTrip(req); err == nil {
			status = resp.StatusCode
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n.up = err == nil && status == http.StatusOK
	if err == nil {
		n.silent = 0
		return
	}
	if n.silent++; n.silent == looksToDown {
		n.cut()
		n.life, n.cut = context.WithCancel(context.Background())
	}
}

// Up returns the number of nodes that get calls.
func (b *Balancer) Up() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.targets {
		if t.up {
			n++
		}
	}
	return n
}

// candidates returns the nodes for a call, in the order in which to try them.
func (b *Balancer) candidates() (out []target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	for i := range b.targets {
		if n := b.targets[(b.next+i)%len(b.targets)]; n.up {
			out = append(out, *n)
		}
	}
	return out
}

var errNoNode = errors.New("no node is up")

// RoundTrip makes a call at one of the nodes.
func (b *Balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	err := errNoNode
	for _, n := range b.candidates() {
		ctx, cancel := context.WithCancel(req.Context())
		end := context.AfterFunc(n.life, cancel)
		call := req.Clone(ctx)
		call.URL.Scheme, call.URL.Host, call.Host = "http", n.address, n.address
		if req.Body != nil {
			call.Body = io.NopCloser(bytes.NewReader(body))
		}
		var resp *http.Response
		if resp, err = b.transport.RoundTrip(call); err == nil {
			resp.Body = &cutBody{resp.Body, func() { end(); cancel() }}
			return resp, nil
		}
		end()
		cancel()
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
			break
		}
	}
	return nil, err
}

// cutBody is the body of an answer that ends when its node goes down.
type cutBody struct {
	io.ReadCloser
	end func()
}

// Close closes the body.
func (c *cutBody) Close() error {
	defer c.end()
	return c.ReadCloser.Close()
}
