package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"
)

// Of several servers each gets its own token, and one without a token gets none.
func TestTokensOfSeveralServers(t *testing.T) {
	shown := map[string]string{}
	urls := []string{}
	for _, name := range []string{"one", "two", "three"} {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown[name] = r.Header.Get("Authorization") }))
		defer server.Close()
		urls = append(urls, server.URL)
	}
	f := &chatFlags{}
	f.servers.of, f.tokens.of = &f.server, &f.token
	for _, url := range urls {
		_ = f.servers.Set(url) // never fails
	}
	_, _ = f.tokens.Set("first"), f.tokens.Set("second")
	servers, done, err := f.connectAll(t.Context(), &cobra.Command{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, s := range servers {
		_, _ = s.Client.Agents(t.Context()) // an empty answer; the header counts
	}
	if shown["one"] != "Bearer first" || shown["two"] != "Bearer second" || shown["three"] != "" {
		t.Errorf("the servers got %q", shown)
	}
}
