//go:build unix

package together_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// guarded is a transport that looks for texts of other users in every answer.
type guarded struct {
	next    http.RoundTripper
	foreign []string
	fault   func(text string)
}

// RoundTrip makes a call.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(r)
	if err == nil && len(g.foreign) > 0 {
		resp.Body = &guardedBody{ReadCloser: resp.Body, guarded: g, url: r.Method + " " + r.URL.Path}
	}
	return resp, err
}

// CloseIdleConnections lets a client end its connections.
func (g *guarded) CloseIdleConnections() {
	if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// guardedBody is the body of an answer. It keeps the end of what was read, because a text may come in two parts.
type guardedBody struct {
	io.ReadCloser
	*guarded
	url  string
	tail []byte
}

// longestWord is the most bytes that a word has.
const longestWord = 16

// Read reads the body.
func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	seen := append(b.tail, p[:n]...)
	for _, word := range b.foreign {
		if i := bytes.Index(seen, []byte(word)); i >= 0 {
			b.fault(fmt.Sprintf("%s: …%s…", b.url, seen[max(0, i-200):min(len(seen), i+200)]))
			seen = nil
		}
	}
	b.tail = bytes.Clone(seen[max(0, len(seen)-longestWord):])
	return n, err
}

// call makes a call once and returns its status and its answer.
func (p *person) call(ctx context.Context, method, path, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// A word of another user is found, also if it comes in two parts.
func TestGuarded(t *testing.T) {
	for text, want := range map[string]int{"nothing": 0, "a heron": 1, "the kestrel": 0, strings.Repeat("x", 100) + "heron" + strings.Repeat("x", 100): 1} {
		found := 0
		g := &guarded{foreign: []string{"heron"}, fault: func(string) { found++ }}
		body := &guardedBody{ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(text))), guarded: g}
		if got, err := io.ReadAll(body); err != nil || string(got) != text || found != want {
			t.Errorf("%q: %d words were found in %q: %v", text, found, got, err)
		}
	}
}
