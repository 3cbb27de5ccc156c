// Package provider runs models of any backend that speaks the chat-completions
// convention over HTTP, streaming or not.
//
// It promises that what backends are known to do differently comes out the same:
// text, reasoning, tool calls with ids of their own, usage. What it does not know
// is kept as it came. Failures are retried by the configured lists and recovered by
// the configured mode, and never otherwise; a cancelled call closes its connection
// at once; every answer, line and wait has a bound.
//
// The rings from inside out, one file each: attempt is one HTTP call; retry repeats
// it before streaming begins; recover starts a broken stream again. Beside them,
// encode and history make a request, decode and collect read an answer.
//
// It runs no tools, stores nothing, and never edits what a model said.
package provider

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"loquat"
	"loquat/internal/config"
)

// DefaultMaxResponseBytes is the size at which an answer is given up.
const DefaultMaxResponseBytes = config.DefaultMaxResponseBytes

// Options are what a Provider needs of the program. The zero value works.
type Options struct {
	Transport        http.RoundTripper // nil: one of its own
	Logger           *slog.Logger      // nil: none
	MaxResponseBytes int64             // 0: DefaultMaxResponseBytes
	UserAgent        string            // "": loquat
	Secrets          *config.Masker    // what backends may not repeat, besides the secrets of each config; nil: nothing
}

// Provider is the adapter. It is safe for concurrent use; all requests of a
// process should share one, for pacing is kept in it.
type Provider struct {
	client   *http.Client
	log      *slog.Logger
	maxBytes int64
	agent    string
	secrets  *config.Masker
	pace     pacer
}

// New makes a Provider.
func New(o Options) *Provider {
	p := &Provider{log: o.Logger, maxBytes: o.MaxResponseBytes, agent: o.UserAgent, secrets: o.Secrets}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.maxBytes <= 0 {
		p.maxBytes = DefaultMaxResponseBytes
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

func defaultTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true // a compressed stream arrives in lumps
	t.TLSHandshakeTimeout = 0   // `timeout` bounds it
	t.DialContext = dial
	return t
}

// watchKey is the key of the watch in the context of a call.
type watchKey struct{}

// dial connects within the call's `timeout`. A host with several addresses has it shared
// out among them, so that one that is dead leaves time for the next.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	w, _ := ctx.Value(watchKey{}).(*watch)
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

// Name is the reference by which `plugins` names the adapter.
func (p *Provider) Name() string { return "loquat.providers.reference_generic_compatible" }

// Kind is provider.
func (p *Provider) Kind() string { return "provider" }

// Selector is the value of a provider config's `provider` that chooses it.
func (p *Provider) Selector() string { return Selector }

// ConfigSchema is the keys of a provider config.
func (p *Provider) ConfigSchema() config.Schema { return schema }

// Close gives up idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Chat runs one phase. It ends with a chunk whose Reply is set, or with an error,
// beside which a Reply may tell of the usage of what was lost.
func (p *Provider) Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		s, err := p.settingsOf(req.Config)
		if err != nil {
			yield(loquat.Chunk{}, err)
			return
		}
		b, err := s.encode(ctx, req)
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
		}
		ph.run()
	}
}

// DecodeStream decodes a recorded stream without HTTP around it, as Chat would
// decode it.
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

// DecodeStats decodes a recorded stream and tells how.
func DecodeStats(r io.Reader) Stats {
	var a reading
	a.stream(r, func(loquat.Chunk) bool { return true })
	return a.decoder.stats
}
