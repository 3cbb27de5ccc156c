package access_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loquat/internal/config"
	"loquat/internal/e2e/front"
)

// The sample that accepts tokens of another system is a valid configuration, and closes the server.
func TestSampleOfJWT(t *testing.T) {
	if cfg := parsed(t, `{"server": {"jwt"`); len(cfg.Server.JWT) != 1 || !cfg.Server.Closed() {
		t.Errorf("the sample accepts no tokens: %+v", cfg)
	}
}

func TestSampleOfRoles(t *testing.T) {
	roles := parsed(t, `{"server": {"roles"`).Server.Roles
	if user := roles["user"]; len(roles) != 2 || user.AllowsPlugin("x") || !user.AllowsModel("local", "any") || user.AllowsModel("main", "other") || user.Bounds.RunningRequests != 3 {
		t.Errorf("the sample has %+v", roles)
	}
}

// parsed returns the configuration of the sample that has a text, which has no faults in its server section.
func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, problems := config.Parse([]byte(sample(t, "users.md", "json", text)), config.ProcessEnvironment())
	if cfg == nil {
		t.Fatal(problems)
	}
	for _, p := range append(problems, cfg.Check(config.Loaded{})...) {
		if strings.Contains(p.String(), "server.") {
			t.Error(p)
		}
	}
	return cfg
}

// sample returns the code sample of a page of docs in a language that has a text.
func sample(t *testing.T, name, language, text string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	m = slices.DeleteFunc(m, func(found []string) bool { return !strings.Contains(found[1], text) })
	if len(m) != 1 {
		t.Fatalf("docs/%s has %d samples in %s with %s", name, len(m), language, text)
	}
	return m[0][1]
}

// The proxy configurations in docs/proxies.md work unchanged, except for addresses and paths:
// TLS, the API, event streams, long polls, sockets, uploads, and the client's address.
func TestProxies(t *testing.T) {
	languages := map[string]string{"nginx": "nginx", "caddy": "caddyfile"}
	for _, proxy := range front.Proxies {
		if languages[proxy.Name] == "" {
			continue // docs/scale.md has its sample
		}
		t.Run(proxy.Name, func(t *testing.T) {
			f := front.New(t, 1, sample(t, "proxies.md", "json", "trusted_proxies"))
			f.Run(proxy, sample(t, "proxies.md", languages[proxy.Name], ""), "127.0.0.1:8787")
			f.Check(t)
		})
	}
}
