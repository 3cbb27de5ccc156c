package access_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"loquat/internal/e2e/front"
)

// sample returns the code sample of docs/access.md in a language.
func sample(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(m) != 1 {
		t.Fatalf("docs/access.md has %d samples in %s", len(m), language)
	}
	return m[0][1]
}

// The proxy configurations in docs/access.md work unchanged, except for addresses and paths:
// TLS, the API, event streams, long polls, sockets, uploads, and the client's address.
func TestProxies(t *testing.T) {
	languages := map[string]string{"nginx": "nginx", "caddy": "caddyfile"}
	for _, proxy := range front.Proxies {
		if languages[proxy.Name] == "" {
			continue // docs/scale.md has its sample
		}
		t.Run(proxy.Name, func(t *testing.T) {
			f := front.New(t, 1, sample(t, "json"))
			f.Run(proxy, sample(t, languages[proxy.Name]), "127.0.0.1:8787")
			f.Check(t)
		})
	}
}
