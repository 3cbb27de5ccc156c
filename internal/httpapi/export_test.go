package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"loquat/internal/httpapi/route"
	"loquat/internal/store"
)

// Names that the tests compare answers with.
const (
	FilePolicy  = filePolicy
	PagePolicy  = pagePolicy
	FramePolicy = framePolicy
)

var (
	PathDocs   = pathDocs
	NewSchemas = newSchemas
)

// Bounds holds the limits of bodies whose effect the tests measure.
var Bounds = struct {
	BodySilence, BodyTimeout, OpenBodyTimeout, SettleTime, LingerTime time.Duration
	LingerBytesOpen                                                   int64
	OpenBodyBurst                                                     int
}{
	BodySilence: bodySilence, BodyTimeout: bodyTimeout, OpenBodyTimeout: openBodyTimeout, SettleTime: settleTime, LingerTime: lingerTime,
	LingerBytesOpen: lingerBytesOpen, OpenBodyBurst: openBodyBurst,
}

// TableOf returns the table of routes of a handler that New made.
func TableOf(h http.Handler) *route.Table { return h.(*api).table }

// ServePipe serves a handler on one connection in memory, so that its deadlines are in fake
// time.
func ServePipe(t *testing.T, handler http.Handler) (client net.Conn) {
	ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(ln)
	client, conn := net.Pipe()
	ln.conns <- conn
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// Unreadable is a database whose reads fail while Fails is true.
type Unreadable struct {
	store.Driver
	Fails atomic.Bool
}

// Read fails, or reads.
func (d *Unreadable) Read(ctx context.Context, fn func(store.SQL) error) error {
	if d.Fails.Load() {
		return errors.New("the connection was cut")
	}
	return d.Driver.Read(ctx, fn)
}
