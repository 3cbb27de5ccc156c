package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// The check of npm packages fails on findings, except those that docs/decisions.md justifies. Where the registry's
// advisories cannot be read, it says that nothing was checked.
func TestNpmVulnerabilityCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts npm eight times")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	released := make(chan struct{})
	registry := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		return s.URL
	}
	stalled := registry(func(http.ResponseWriter, *http.Request) { <-released })
	t.Cleanup(func() { close(released) }) // before the server is closed, which waits for its answers
	const id = "GHSA-aaaa-bbbb-2222"
	advisories := registry(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/-/npm/v1/security/advisories/bulk" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"made-up":[{"id":1,"url":"https://github.com/advisories/%s","title":"Made up","severity":"low","vulnerable_versions":"<2.0.0"}]}`, id)
	})
	text := func(status int, body string) string {
		return registry(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
		})
	}
	folder := func(version, decisions string) string {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "docs"), 0o700); err != nil {
			t.Fatal(err)
		}
		binary.WriteFiles(t, dir, map[string]string{
			"package.json": `{"name":"a","version":"1.0.0","dependencies":{"made-up":"` + version + `"}}`,
			"package-lock.json": `{"name":"a","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"a","version":"1.0.0","dependencies":{"made-up":"` + version +
				`"}},"node_modules/made-up":{"version":"` + version + `"}}}`,
			"docs/decisions.md": decisions,
		})
		return dir
	}
	const notChecked = "NOT CHECKED for known vulnerabilities of npm packages: "
	for _, tt := range []struct {
		name, registry, folder string
		code                   int
		output                 string
	}{
		{"a finding", advisories, folder("1.0.0", "nothing"), 3, id + " low: made-up"},
		{"a finding that is justified", advisories, folder("1.0.0", "as "+id+" says"), 0, "1 that docs/decisions.md justifies"},
		{"a version without the fault", advisories, folder("2.0.0", ""), 0, "0 known vulnerabilities"},
		{"nobody listens", "http://127.0.0.1:1", folder("1.0.0", ""), 77, notChecked},
		{"no answer", stalled, folder("1.0.0", ""), 77, notChecked},
		{"a page of the network", text(http.StatusOK, "<html>Sign in</html>"), folder("1.0.0", ""), 77, notChecked},
		{"refused by a proxy", text(http.StatusMethodNotAllowed, "no"), folder("1.0.0", ""), 77, notChecked},
		{"no lockfile", advisories, t.TempDir(), 1, "has no package-lock.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", filepath.Join("..", "..", ".ci", "npm-vulnerabilities.mjs"), tt.folder)
			cmd.Env = append(os.Environ(), "npm_config_registry="+tt.registry, "npm_config_cache="+t.TempDir(), "VULNERABILITY_SECONDS=30")
			if tt.registry == stalled {
				cmd.Env = append(cmd.Env, "VULNERABILITY_SECONDS=2")
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.output) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, tt.code, tt.output, out)
			}
		})
	}
}
