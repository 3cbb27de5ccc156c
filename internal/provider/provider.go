// Package provider runs models of any backend that speaks the chat-completions
// convention over HTTP, streaming or not.
//
// The package hides the known differences between backends: it returns text, reasoning,
// usage, and tool calls with unique ids in one form. Unknown fields are kept unchanged.
// Failures are retried only by the configured lists and recovered only in the configured
// mode. A cancelled call closes its connection at once. Every answer, line and wait has
// a limit.
//
// Three layers run a call, from inside out, in one file each: attempt makes one HTTP
// call; retry repeats it before streaming begins; recover restarts a broken stream. The
// files request_parts, request_encode and history build a request. read_answer reads
// an answer, the files named decode decode its chunks, and collect puts them together.
//
// The package runs no tools, stores nothing, and never edits a model's reply.
package provider

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/config"
)

// Options configure a Provider. The zero value is valid.
type Options struct {
	Transport        http.RoundTripper // nil: a new one with the package's defaults
	Logger           *slog.Logger      // nil: none
	MaxResponseBytes int64             // 0: config.DefaultMaxResponseBytes
	UserAgent        string            // "": loquat
	Secrets          *config.Redactor  // secrets to redact in addition to those of each config; may be nil
}

// Provider is the adapter. It is safe for concurrent use. All requests of a process
// should share one Provider, because it holds the state of the pacing. ShareSlots makes the
// pacing hold for several processes.
type Provider struct {
	client   *http.Client
	log      *slog.Logger
	maxBytes int64
	agent    string
	secrets  *config.Redactor
	pace     pacer

	histories historyCache
	parsed    settingsCache
}

// New returns a Provider.
func New(o Options) *Provider {
	p := &Provider{log: o.Logger, maxBytes: o.MaxResponseBytes, agent: o.UserAgent, secrets: o.Secrets}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.pace.log = p.log
	if p.maxBytes <= 0 {
		p.maxBytes = config.DefaultMaxResponseBytes
	}
	if p.agent == "" {
		p.agent = "loquat"
	}
	transport := o.Transport
	if transport == nil {
		transport = defaultTransport()
	}
	p.client = &http.Client{
		Transport: transport,
		// A redirect would turn the POST into a GET, or carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// ShareSlots makes the pacing hold for all nodes that share slots. It must be called before
// the first Chat.
func (p *Provider) ShareSlots(slots Slots) { p.pace.slots = slots }

func defaultTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	// Sends that start together find the connections of the last ones. Idle ones end after 90 s.
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 1024, 512
	t.DisableCompression = true // servers that compress a stream delay and batch its events
	t.TLSHandshakeTimeout = 0   // `timeout` limits the handshake, too
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &notingConn{Conn: conn}, nil
	}
	return t
}

// watchKey is the key of the watch in the context of a call.
type watchKey struct{}

// dial connects within the call's `timeout`. Several addresses of a host share the
// timeout, so that an address that does not answer leaves time for the next.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	w, _ := ctx.Value(watchKey{}).(*idleWatch)
	d := net.Dialer{KeepAlive: 30 * time.Second}
	if w == nil {
		return d.DialContext(ctx, network, address)
	}
	d.Timeout = w.timeout
	conn, err := d.DialContext(ctx, network, address)
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() && ctx.Err() == nil {
		if left := w.left(); left >= w.tick { // the process did not run meanwhile
			d.Timeout = left
			return d.DialContext(ctx, network, address)
		}
	}
	return conn, err
}

// notingConn is a connection that notes when something is written. The transport itself reports
// the write of a request before it has emptied its buffer.
type notingConn struct {
	net.Conn
	note atomic.Pointer[func()] // called once
}

func (c *notingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if note := c.note.Swap(nil); note != nil {
		(*note)()
	}
	return n, err
}

// onWrite calls note after the next write to a connection of defaultTransport. On other connections
// it does nothing.
func onWrite(conn net.Conn, note func()) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*notingConn); ok {
		c.note.Store(&note)
	}
}

// Name returns the reference by which `plugins` names the adapter.
func (p *Provider) Name() string { return Name }

// Kind returns "provider".
func (p *Provider) Kind() string { return "provider" }

// Selector returns the value of a provider config's `provider` that selects the adapter.
func (p *Provider) Selector() string { return Selector }

// ConfigSchema returns the keys of a provider config.
func (p *Provider) ConfigSchema() config.Schema { return schema }

// Close closes idle connections and empties the caches.
func (p *Provider) Close() {
	p.client.CloseIdleConnections()
	p.histories.clear()
}

// ReadsEarlier declares that Chat reads the Earlier messages of a call.
func (p *Provider) ReadsEarlier() {}

// CountsAttempts declares that Chat reports each call of the backend.
func (p *Provider) CountsAttempts() {}

// Chat runs one phase. The last chunk has a Reply, or comes with an error. The Reply next
// to an error, if there is one, holds only the usage of the failed phase.
func (p *Provider) Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		s, err := p.settingsOf(req.Config)
		if err != nil {
			yield(loquat.Chunk{}, err)
			return
		}
		b, err := s.encode(ctx, req, &p.histories)
		if err != nil {
			yield(loquat.Chunk{}, err)
			return
		}
		ph := &phase{
			exchange:   exchange{Provider: p, settings: &s, method: http.MethodPost, path: chatPath, body: b, paced: true},
			ctx:        ctx,
			providerID: req.ProviderID,
			stream:     req.Stream,
			yield:      yield,
			attempted:  req.Attempted,
		}
		if ph.attempted == nil {
			ph.attempted = func(loquat.Attempt) {}
		}
		ph.run()
	}
}

// DecodeStream decodes a recorded stream in the way in which Chat decodes the body of a
// response. Tests and benchmarks use it; the server has no recorded streams.
func DecodeStream(r io.Reader, providerID string) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		var a reading
		f := a.stream(r, func(c loquat.Chunk) bool { return yield(c, nil) })
		switch {
		case f == nil:
			yield(loquat.Chunk{Reply: a.collector.reply(providerID, "")}, nil)
		case f.kind != failStopped:
			yield(loquat.Chunk{Reply: a.collector.remains()}, f.asError(nil, 0))
		}
	}
}

// DecodeStats decodes a recorded stream and returns counts of how it was decoded. Like
// DecodeStream it is for tests and benchmarks.
func DecodeStats(r io.Reader) Stats {
	var a reading
	a.stream(r, func(loquat.Chunk) bool { return true })
	return a.decoder.stats
}
