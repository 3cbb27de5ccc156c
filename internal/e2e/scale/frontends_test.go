package scale_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"loquat/internal/e2e/front"
	"loquat/internal/store/postgres/pgtest"
)

// addresses are what the samples call the nodes.
var addresses = []string{"10.0.0.11:8787", "10.0.0.12:8787", "10.0.0.13:8787"}

// nodes is how many of them run.
const nodes = 1

// samples are the files of deploy/ by the name of the program.
var samples = map[string]string{"nginx": "nginx.conf", "caddy": "Caddyfile", "haproxy": "haproxy.cfg"}

// The load balancers of deploy/ work unchanged, except for addresses and paths, in front of
// nodes some of which do not run.
func TestLoadBalancers(t *testing.T) {
	for _, proxy := range front.Proxies {
		t.Run(proxy.Name, func(t *testing.T) {
			sample, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", samples[proxy.Name]))
			if err != nil {
				t.Fatal(err)
			}
			_, url := pgtest.Shared(t).Database(t)
			config, err := json.Marshal(map[string]any{
				"server": map[string]any{"public_url": "https://chat.example.org", "trusted_proxies": []string{"127.0.0.1"}},
				"store":  map[string]any{"url": url},
			})
			if err != nil {
				t.Fatal(err)
			}
			f := front.New(t, nodes, string(config))
			f.Run(proxy, string(sample), addresses...)
			f.Check(t)
		})
	}
}
