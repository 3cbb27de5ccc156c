//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// Tokens that are kept in the store let a server listen beyond loopback as those of the configuration do; none let
// nobody.
func TestStoredTokensCount(t *testing.T) {
	t.Run("data directory", func(t *testing.T) { storedTokensCount(t, loquat.Object{}) })
	t.Run("database", func(t *testing.T) {
		_, url := pgtest.Start(t).Database(t)
		storedTokensCount(t, loquat.Object{}.Set("store", map[string]string{"url": url}))
	})
}

func storedTokensCount(t *testing.T, raw loquat.Object) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	env := config.Environment{Lookup: func(string) (string, bool) { return "", false }}
	raw = raw.Set("server", map[string]string{"listen": "0.0.0.0:8787"}).Set("providers", map[string]any{"main": map[string]string{"provider": "x"}})
	cfg := config.New(raw, env)
	cfg.SetServer("", t.TempDir())
	refused := func() bool {
		t.Helper()
		stored, err := storedTokens(t.Context(), cfg, false, quiet)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range cfg.Check(config.Loaded{Insecure: stored, Selectors: []string{"x"}}) {
			if p.Path == "server.listen" {
				return true
			}
		}
		return false
	}
	if !refused() {
		t.Error("a server without tokens may listen to everybody")
	}
	keeper, done, err := openStored(t.Context(), cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	made, err := storedKeys{keeper}.MakeToken(t.Context(), loquat.NewToken{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	if refused() {
		t.Error("tokens are not seen while a server uses the store")
	}
	if err := keeper.RevokeToken(t.Context(), made.TokenID); loquat.CodeOf(err) != loquat.CodeConflict {
		t.Errorf("the last token can be revoked: %v", err)
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	if refused() {
		t.Error("a server with stored tokens may not listen")
	}
}

func TestLocalURL(t *testing.T) {
	for _, c := range []struct {
		listen string
		tls    bool
		want   string
	}{
		{"127.0.0.1:8787", false, "http://127.0.0.1:8787"},
		{"0.0.0.0:8787", false, "http://127.0.0.1:8787"},
		{"[::]:8787", false, "http://127.0.0.1:8787"},
		{":8787", true, "https://127.0.0.1:8787"},
		{"192.0.2.1:80", false, "http://192.0.2.1:80"},
	} {
		server := config.Server{Listen: c.listen}
		if c.tls {
			server.TLS.CertFile = "cert.pem"
		}
		if got := localURL(server); got != c.want {
			t.Errorf("%s: %s, want %s", c.listen, got, c.want)
		}
	}
}

// From no tokens at all to a phone: what `token` and `pair` say to a running server.
// A token for data that the server of the configuration does not use comes with a warning.
func TestTokenForOtherData(t *testing.T) {
	t.Parallel()
	p := binary.Start(t, nil, "serve", "--demo", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	said := func(listen string, args ...string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "loquat.json")
		text := fmt.Sprintf(`{"server": {"listen": %q, "data_dir": %q}}`, listen, t.TempDir())
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, told bytes.Buffer
		if err := run(t.Context(), append([]string{"token", "new", "laptop", "--config", file}, args...), strings.NewReader(""), &out, &told); err != nil {
			t.Fatal(err)
		}
		return told.String()
	}
	address := strings.TrimPrefix(p.URL, "http://")
	const warning = "does not know this token"
	if told := said(address); !strings.Contains(told, warning) || !strings.Contains(told, "--server "+p.URL) {
		t.Errorf("the command does not say that the server uses another data directory: %s", told)
	}
	if told := said(address, "--data", t.TempDir()); strings.Contains(told, warning) {
		t.Errorf("the command warns although --data was given: %s", told)
	}
	if told := said(address, "--server", p.URL); strings.Contains(told, warning) {
		t.Errorf("the command warns although --server was given: %s", told)
	}
	if told := said("127.0.0.1:1"); strings.Contains(told, warning) {
		t.Errorf("the command warns although no server answers: %s", told)
	}
}

func TestTokenAndPairRemotely(t *testing.T) {
	p := binary.Start(t, nil, "serve", "--demo", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	loquatSays := func(args ...string) (stdout, stderr string, err error) {
		var out, told bytes.Buffer
		err = run(t.Context(), args, strings.NewReader(""), &out, &told)
		return out.String(), told.String(), err
	}
	token, told, err := loquatSays("token", "new", "laptop", "--server", p.URL)
	if err != nil || !strings.Contains(told, "first token") {
		t.Fatalf("%v: %s", err, told)
	}
	token = strings.TrimSpace(token)
	if _, _, err := loquatSays("pair", "--server", p.URL); loquat.CodeOf(err) != loquat.CodeUnauthorized {
		t.Errorf("pair without a token: %v", err)
	}
	shown, told, err := loquatSays("pair", "--server", p.URL, "--token", token)
	if err != nil || !strings.HasPrefix(shown, "code: ") || strings.Contains(shown, "█") || !strings.Contains(told, "only this machine") {
		t.Errorf("%v: %s%s", err, shown, told)
	}
	asJSON, _, err := loquatSays("pair", "--server", p.URL, "--token", token, "--scope", "full", "--json")
	var code loquat.Pairing
	if err != nil || json.Unmarshal([]byte(asJSON), &code) != nil || code.URL != p.URL {
		t.Errorf("%v: %s", err, asJSON)
	}
	if link := pairLink(code); link != p.URL+"/#pair="+code.Code {
		t.Errorf("the link is %s", link)
	}
	list, _, err := loquatSays("token", "list", "--server", p.URL, "--token", token, "--json")
	var tokens []loquat.Token
	if err != nil || json.Unmarshal([]byte(list), &tokens) != nil || len(tokens) != 1 {
		t.Fatalf("%v: %s", err, list)
	}
	if _, _, err := loquatSays("token", "revoke", tokens[0].TokenID, "--server", p.URL, "--token", token); err != nil {
		t.Error(err)
	}
	if list, _, err := loquatSays("token", "list", "--server", p.URL); err != nil || strings.Contains(list, "laptop") {
		t.Errorf("after the last token is gone: %v: %s", err, list)
	}
}
