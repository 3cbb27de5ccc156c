package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error that a flag would avoid names the flag.
func TestAdvice(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const providers = `"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}`
	closed := write("closed.json", `{`+providers+`, "server": {"auth_tokens": [{"name": "a", "token": "0123456789abcdef", "scope": "full"}]}}`)
	away := write("away.json", `{`+providers+`, "server": {"listen": "127.0.0.1:1"}}`)
	data := filepath.Join(dir, "data")
	url, stop, err := startServer(t.Context(), serveOptions{config: closed, listen: "127.0.0.1:0", data: data}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, tc := range []struct{ command, want string }{
		{"chat --demo --data " + data + " hello", "or name the server that uses it with --server"},
		{"events --server " + url, "give it with --token or LOQUAT_TOKEN"},
		{"pair --config " + away, "--server names another"},
		{"token list --data " + data + " --config " + away, "it was asked because the data directory " + data + " is in use by process"},
		{"token list --data " + data + " --config " + away, "name the server that uses it with --server"},
		{"serve --port 80", "unknown flag: --port; loquat serve --help lists the flags"},
	} {
		var out strings.Builder
		err := run(t.Context(), strings.Fields(tc.command), strings.NewReader(""), &out, &out)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("loquat %s: %v, which does not say %q", tc.command, err, tc.want)
		}
	}
}

// A server whose port is taken does not touch the data: they may be those of an older version.
func TestTakenPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	data := filepath.Join(t.TempDir(), "data")
	var out strings.Builder
	err = run(t.Context(), []string{"serve", "--demo", "--listen", ln.Addr().String(), "--data", data}, strings.NewReader(""), &out, &out)
	if err == nil || !strings.Contains(err.Error(), "address already in use; if that is a Loquat server, use it or stop it") {
		t.Errorf("the server ends with %v", err)
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

// startServer starts a server within this process, for tests that need one.
func startServer(ctx context.Context, opts serveOptions, stderr io.Writer) (baseURL string, stop func(), err error) {
	s, err := newServer(ctx, opts, stderr)
	if err != nil {
		return "", nil, err
	}
	return s.url, s.stop, nil
}
