package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
)

// exchange is a call that a client made, with the answer.
type exchange struct {
	Client  string            `json:"client"`
	Method  string            `json:"method"`
	Path    string            `json:"path"` // with the query
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Status  int               `json:"status"`
	Media   string            `json:"media,omitempty"`
	Answer  string            `json:"answer,omitempty"`
}

// tap is a proxy that keeps the calls of clients.
type tap struct {
	url    string
	mu     sync.Mutex
	client string
	calls  []*exchange
}

// keptHeaders are what clients send and a replay repeats.
var keptHeaders = []string{"Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "Last-Event-ID"}

func newTap(t *testing.T, server string) *tap {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
			if r.Out.Header.Get("Origin") != "" { // the browser's, which names the proxy
				r.Out.Header.Set("Origin", server)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			e := resp.Request.Context().Value(tapKey{}).(*exchange)
			p.mu.Lock()
			defer p.mu.Unlock()
			e.Status, e.Media = resp.StatusCode, resp.Header.Get("Content-Type")
			resp.Body = &tappedBody{resp.Body, p, e}
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy.ServeHTTP(w, p.begin(t, r)) }))
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

type tapKey struct{}

// begin notes a call.
func (p *tap) begin(t *testing.T, r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &exchange{Client: p.client, Method: r.Method, Path: r.URL.RequestURI(), Body: string(body), Headers: map[string]string{}}
	for _, name := range keptHeaders {
		if value := r.Header.Get(name); value != "" {
			e.Headers[name] = value
		}
	}
	p.calls = append(p.calls, e)
	return r.WithContext(context.WithValue(r.Context(), tapKey{}, e))
}

// tappedBody keeps what a client reads.
type tappedBody struct {
	io.ReadCloser
	tap *tap
	e   *exchange
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tap.mu.Lock()
	defer b.tap.mu.Unlock()
	b.e.Answer += string(p[:n])
	return n, err
}

// kept returns the calls of the HTTP API: not the files of the page, nor answers without a body.
func (p *tap) kept() (calls []exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.calls {
		if strings.HasPrefix(e.Media, "application/json") || strings.HasPrefix(e.Media, binary.EventStream) {
			calls = append(calls, *e)
		}
	}
	return calls
}

// replay makes recorded calls at the current program.
type replay struct {
	t       *testing.T
	url     string
	values  map[string]string // what stands for a recorded id, time or secret
	streams []*openStream
}

// openStream is a stream that is read while further calls are made.
type openStream struct {
	place    string
	recorded string
	received binary.LockedBuffer
}

// The clients of an older version, its commands and its page, find in every answer what they found
// in the answers of their own version.
func TestCallsOfOlderClients(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		var clients []string
		for _, e := range c.Calls {
			if !slices.Contains(clients, e.Client) {
				clients = append(clients, e.Client)
			}
		}
		if len(clients) < 3 {
			t.Errorf("the clients are %q", clients)
		}
		r := &replay{t: t, url: serveContract(t, c), values: map[string]string{}}
		for i, e := range c.Calls {
			r.repeat(e)
			if i+1 == len(c.Calls) || c.Calls[i+1].Client != e.Client {
				r.compareStreams()
			}
		}
	})
}

// repeat makes one call and compares its answer.
func (r *replay) repeat(e exchange) {
	r.t.Helper()
	at := fmt.Sprintf("%s: %s %s", e.Client, e.Method, e.Path)
	var pairs []string
	for _, old := range slices.Sorted(maps.Keys(r.values)) {
		pairs = append(pairs, old, r.values[old])
	}
	words := strings.NewReplacer(pairs...)
	req, err := http.NewRequestWithContext(r.t.Context(), e.Method, r.url+words.Replace(e.Path), strings.NewReader(words.Replace(e.Body)))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range e.Headers {
		req.Header.Set(name, words.Replace(value))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.HasPrefix(e.Media, binary.EventStream) {
		s := &openStream{place: at, recorded: e.Answer}
		r.streams = append(r.streams, s)
		go func() {
			defer resp.Body.Close()
			_, _ = io.Copy(&s.received, resp.Body) // until the end of the test
		}()
		return
	}
	defer resp.Body.Close()
	if media := resp.Header.Get("Content-Type"); resp.StatusCode != e.Status || media != e.Media {
		r.t.Errorf("%s: status %d and type %q, not %d and %q", at, resp.StatusCode, media, e.Status, e.Media)
		return
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var older, newer any
	if !strings.Contains(e.Media, "json") || json.Unmarshal([]byte(e.Answer), &older) != nil {
		return
	}
	if err := json.Unmarshal(text, &newer); err != nil {
		r.t.Errorf("%s: %v", at, err)
		return
	}
	r.compare(at, older, newer)
}

// frames returns the last event of each type in a stream.
func frames(stream string) map[string]object {
	found := map[string]object{}
	for line := range strings.Lines(stream) {
		var event object
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &event) == nil && event["type"] != nil {
			found[fmt.Sprint(event["type"])] = event
		}
	}
	return found
}

// compareStreams compares the streams of a client that has made its last call.
func (r *replay) compareStreams() {
	r.t.Helper()
	for _, s := range r.streams {
		r.compareStream(s)
	}
	r.streams = nil
}

// compareStream waits until a stream has brought each type of event that the recorded one brought, and compares these.
func (r *replay) compareStream(s *openStream) {
	r.t.Helper()
	older := frames(s.recorded)
	var newer map[string]object
	binary.Eventually(r.t, fmt.Sprintf("events of %s like %v", s.place, slices.Sorted(maps.Keys(older))), func() bool {
		newer = frames(s.received.String())
		for kind := range older {
			if newer[kind] == nil && kind != string(loquat.Partial) { // a final may have come so soon that it was left out
				return false
			}
		}
		return true
	})
	for kind, event := range older {
		if newer[kind] == nil {
			continue
		}
		r.compare(s.place+" "+kind, event, newer[kind])
	}
}

// compare checks that a value has everything that the recorded one has, with the same types, and learns the
// ids and secrets in it.
func (r *replay) compare(at string, older, newer any) {
	r.t.Helper()
	if fmt.Sprintf("%T", older) != fmt.Sprintf("%T", newer) {
		r.t.Errorf("%s: was %v and is %v", at, older, newer)
		return
	}
	switch old := older.(type) {
	case object:
		now := newer.(object)
		for name, value := range old {
			if _, ok := now[name]; !ok {
				r.t.Errorf("%s: %s is gone", at, name)
				continue
			}
			r.compare(at+" "+name, value, now[name])
		}
	case []any:
		now := byType(newer.([]any))
		for kind, value := range byType(old) {
			if now[kind] == nil {
				r.t.Errorf("%s has no %q", at, kind)
				continue
			}
			r.compare(at+"[] "+kind, value, now[kind])
		}
	case string:
		if now := newer.(string); old != now && len(old) >= 8 {
			r.values[old] = now
		}
	}
}

// byType returns the first element of each type in a list.
func byType(list []any) map[string]any {
	found := map[string]any{}
	for _, element := range list {
		o, _ := element.(object)
		kind, _ := o["type"].(string)
		if _, ok := found[kind]; !ok {
			found[kind] = element
		}
	}
	return found
}
