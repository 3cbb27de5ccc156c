package monitoring_test

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// profiles waits until the log says where a server serves profiles.
func profiles(t *testing.T, p *binary.Process) string {
	t.Helper()
	found := regexp.MustCompile(`without a token" url=(http://[^/]+)/debug/pprof/`)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if m := found.FindStringSubmatch(p.Log.String()); m != nil {
			return m[1]
		}
		if time.Now().After(end) {
			t.Fatalf("the log names no address of profiles:\n%s", p.Log)
		}
	}
}

// A server with tokens serves profiles on loopback without one, never on the listener of the
// API, and no longer than it runs.
func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{"loquat.json": `{"server": {"debug_listen": "127.0.0.1:0",
		"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}]}}`})
	p := binary.Start(t, nil, "serve", "--demo", "--config", filepath.Join(dir, "loquat.json"), "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	address := profiles(t, p)
	if status, body := binary.GetOnce(t, address+"/debug/pprof/goroutine?debug=2"); status != http.StatusOK || !strings.Contains(body, "store.(*Store)") {
		t.Errorf("goroutines: %d %.300s", status, body)
	}
	if status, body := binary.GetOnce(t, address+"/metrics"); status != http.StatusOK || !strings.Contains(body, "go_gc_heap_live_bytes") || !strings.Contains(body, "process_open_fds") {
		t.Errorf("runtime metrics: %d %.300s", status, body)
	}
	for _, path := range []string{"/sessions", "/healthz"} {
		if status, _ := binary.GetOnce(t, address+path); status != http.StatusNotFound {
			t.Errorf("the listener of profiles answers %s with %d", path, status)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if status, _ := binary.GetOnce(t, p.URL+path); status != http.StatusNotFound {
			t.Errorf("the listener of the API answers %s with %d", path, status)
		}
	}
	p.End(t)
	if resp, err := http.Get(address + "/metrics"); err == nil {
		resp.Body.Close()
		t.Error("profiles are served after the server stopped")
	}
}

// Without the flag nothing is served. Beyond loopback it needs a second flag, however open
// the server is.
func TestProfilesBeyondLoopback(t *testing.T) {
	plain := []string{"serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir()}
	p := binary.Start(t, nil, plain...)
	if strings.Contains(p.Log.String(), "/debug/pprof/") {
		t.Errorf("a server without the flag serves profiles:\n%s", p.Log)
	}
	p.End(t)
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		code, said := binary.Exit(t, append(plain, "--insecure", "--debug-listen", address)...)
		if code != binary.ExitUsage || !strings.Contains(said, "server.debug_listen: is "+address) || !strings.Contains(said, "start with --debug-insecure") {
			t.Errorf("--debug-listen %s: exit code %d, said\n%s", address, code, said)
		}
	}
	code, said := binary.Exit(t, append(plain, "--debug-listen", "6060")...)
	if code != binary.ExitUsage || !strings.Contains(said, `server.debug_listen: is "6060", which is not an address`) {
		t.Errorf("--debug-listen 6060: exit code %d, said\n%s", code, said)
	}
	open := binary.Start(t, []string{"LOQUAT_DEBUG_LISTEN=0.0.0.0:0"}, append(plain, "--debug-insecure")...)
	address := strings.Replace(profiles(t, open), "[::]", "127.0.0.1", 1)
	if status, _ := binary.GetOnce(t, strings.Replace(address, "0.0.0.0", "127.0.0.1", 1)+"/debug/pprof/heap"); status != http.StatusOK {
		t.Errorf("with --debug-insecure the answer is %d", status)
	}
}

// An address that is in use keeps the server from starting and is named with its flag.
func TestProfilesAddressInUse(t *testing.T) {
	p := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	code, said := binary.Exit(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--debug-listen", strings.TrimPrefix(p.URL, "http://"))
	if code != binary.ExitFailure || !strings.Contains(said, "--debug-listen or server.debug_listen choose another address") {
		t.Errorf("exit code %d, said\n%s", code, said)
	}
}
