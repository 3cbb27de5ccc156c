package access_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// Commands reach the server of a configuration although its certificate has another name and no known authority, and
// although a key of a backend is only in the environment of the server. They send a token to no other server.
func TestCommandsReachTheirServer(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	certificate, key := binary.SelfSigned(t, 1)
	other, otherKey := binary.SelfSigned(t, 2)
	address := binary.FreeAddress(t)
	config := func(cert string) string {
		return fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "api_key": "${LOQUAT_TEST_KEY}"}},
			"server": {"listen": %q, "data_dir": %q, "public_url": "https://chat.example.org", "tls": {"cert_file": %q, "key_file": %q}}}`,
			address, data, filepath.Join(dir, cert+".pem"), filepath.Join(dir, cert+"-key.pem"))
	}
	binary.WriteFiles(t, dir, map[string]string{
		"own.pem": certificate, "own-key.pem": key, "other.pem": other, "other-key.pem": otherKey,
		"own.json": config("own"), "other.json": config("other"), "none.json": strings.Replace(config("none"), "LOQUAT_TEST_KEY", "LOQUAT_TEST_KEY:-", 1),
	})
	server := binary.Start(t, []string{"LOQUAT_TEST_KEY=secret"}, "serve", "--config", filepath.Join(dir, "own.json"))
	if host, _, err := net.SplitHostPort(strings.TrimPrefix(server.URL, "https://")); err != nil || host != "127.0.0.1" {
		t.Fatalf("the server is at %s", server.URL)
	}
	if !strings.Contains(server.Log.String(), "the server has no tokens") {
		t.Errorf("no warning of an open server that others reach:\n%s", server.Log)
	}
	for _, c := range []struct {
		file string
		args []string
		code int
		said string
	}{
		{"own", []string{"config", "reload"}, 0, ""}, // the server has the variable
		{"other", []string{"token", "list"}, 1, "another certificate than"},
		{"none", []string{"token", "list"}, 2, "none.pem"},
		{"own", []string{"health"}, 0, ""},
		{"own", []string{"token", "new", "first"}, 0, "from now on every call needs one"},
		{"own", []string{"token", "list"}, 1, "needs Authorization"},
	} {
		code, said := binary.Exit(t, append(c.args, "--config", filepath.Join(dir, c.file+".json"))...)
		if code != c.code || !strings.Contains(said, c.said) {
			t.Errorf("%s %v: exit code %d: %s", c.file, c.args, code, said)
		}
	}
	for _, args := range [][]string{{"check"}, {"backup", filepath.Join(dir, "copy")}} {
		if code, said := binary.Exit(t, append(args, "--config", filepath.Join(dir, "own.json"))...); code != binary.ExitOK {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
}
