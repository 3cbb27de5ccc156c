package access_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
)

// outside counts the calls that a server makes, by path. Calls of its backend hang.
type outside struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
}

func startOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{calls: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.calls[r.URL.Path]++
		o.mu.Unlock()
		if r.URL.Path == "/v1/chat/completions" {
			_, _ = io.Copy(io.Discard, r.Body) // only then a disconnect is noticed
			<-r.Context().Done()
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// called returns which paths were called since the last time.
func (o *outside) called() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	paths := slices.Sorted(maps.Keys(o.calls))
	clear(o.calls)
	return paths
}

// A command that starts a server in its own process may have a copy of another server's data, under the other's
// configuration. It starts no queued sends, joins no bridge, sends no webhooks, and needs no certificate.
func TestCommandsServeOnlyThemselves(t *testing.T) {
	o := startOutside(t)
	dir, data := t.TempDir(), t.TempDir()
	certificate, key := binary.SelfSigned(t, 1)
	config := func(server string) string {
		return fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "%s/v1"}}, %s
			"bridge": {"url": "ws%s/bridge", "server_id": "s", "token": "bridge-token"}, "webhooks": {"allow_private_addresses": true}, "push": {"web": {"subject": "mailto:a@example.org"}}}`,
			o.URL, server, o.URL[len("http"):])
	}
	binary.WriteFiles(t, dir, map[string]string{
		"own.pem": certificate, "own-key.pem": key, "serve.json": config(""),
		"copy.json": config(fmt.Sprintf(`"server": {"tls": {"cert_file": %q, "key_file": %q}},`, filepath.Join(dir, "own.pem"), filepath.Join(dir, "own-key.pem"))),
	})
	serve := func() *binary.Process {
		return binary.Start(t, nil, "serve", "--config", filepath.Join(dir, "serve.json"), "--listen", "127.0.0.1:0", "--data", data)
	}
	p := serve()
	binary.Call(t, http.MethodPost, p.URL+"/webhooks", fmt.Sprintf(`{"url": "%s/hook"}`, o.URL))
	c := binary.NewClient(t, p.URL)
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{loquat.BusyReject, loquat.BusyQueue} {
		content := "hi"
		if _, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: &content, OnBusy: mode}); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"/bridge/websocket", "/hook", "/v1/chat/completions"}
	seen := map[string]bool{}
	reaches := func() bool {
		for _, path := range o.called() {
			seen[path] = true
		}
		return seen[all[0]] && seen[all[1]] && seen[all[2]]
	}
	binary.Eventually(t, "calls of the server", reaches)
	p.Kill(t)
	o.called()
	for _, args := range [][]string{
		{"export", "--all", "--output", filepath.Join(dir, "all.json")}, {"events", "--since", "0"}, {"import", filepath.Join(dir, "all.json"), "--new-ids"},
	} {
		args = append(args, "--config", filepath.Join(dir, "copy.json"), "--data", data)
		if code, said := binary.Exit(t, args...); code != binary.ExitOK {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
		if paths := o.called(); slices.ContainsFunc(paths, func(path string) bool { return slices.Contains(all, path) }) {
			t.Errorf("%v calls %v", args, paths)
		}
	}
	clear(seen)
	serve()
	binary.Eventually(t, "calls of the next server", reaches)
}
