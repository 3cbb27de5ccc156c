package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The check for known vulnerabilities fails on findings. Where its database cannot be
// reached, it ends within its limit and says that nothing was checked.
func TestVulnerabilityCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds govulncheck")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	root := filepath.Join("..", "..")
	build := exec.Command("go", "tool", "-modfile=.ci/lint.mod", "-n", "govulncheck")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("govulncheck cannot be built: %v: %s", err, out)
	}
	withoutCurl := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(withoutCurl, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"bash", "go", "git", "mktemp", "rm", "cat", "grep", "tail", "timeout", "dirname", "gcc", "cc"} {
		if path, err := exec.LookPath(tool); err == nil {
			if err := os.Symlink(path, filepath.Join(withoutCurl, tool)); err != nil {
				t.Fatal(err)
			}
		}
	}
	finding, harmless := "file://"+database(t, "golang.org/x/time/rate"), "file://"+database(t, "golang.org/x/time/none")
	released := make(chan struct{})
	answers := func(handle http.HandlerFunc) string {
		srv := httptest.NewServer(handle)
		t.Cleanup(srv.Close)
		return srv.URL
	}
	stalled := answers(func(http.ResponseWriter, *http.Request) { <-released })
	t.Cleanup(func() { close(released) }) // before the server is closed, which waits for its answers
	portal := answers(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>Sign in to the network</html>")) })
	refusing := answers(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	half := answers(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/index/db.json") {
			w.Write([]byte(`{"modified":"2026-01-01T00:00:00Z"}`))
			return
		}
		http.Error(w, "no", http.StatusServiceUnavailable)
	})
	const notChecked = "NOT CHECKED for known vulnerabilities: "
	for _, tt := range []struct {
		name, database, path string
		code                 int
		output               string
	}{
		{"a finding", finding, "", 3, "GO-2026-0001"},
		{"a finding in what is not called", harmless, "", 0, "No vulnerabilities found"},
		{"nobody listens", "http://127.0.0.1:1", "", 77, notChecked},
		{"no answer", stalled, "", 77, notChecked},
		{"a page of the network", portal, "", 77, notChecked},
		{"refused by a proxy", refusing, "", 77, notChecked},
		{"the index alone", half, "", 77, notChecked},
		{"nobody listens, without curl", "http://127.0.0.1:1", withoutCurl, 77, notChecked},
		{"no database in the folder", "file://" + t.TempDir(), "", 77, notChecked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", ".ci/vulnerabilities", "./internal/ratelimit")
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "GOVULNDB="+tt.database, "VULNERABILITY_SECONDS=3")
			if tt.code == 3 || tt.code == 0 {
				cmd.Env = append(cmd.Env, "VULNERABILITY_SECONDS=25") // a busy machine is slow
			}
			if tt.path != "" {
				cmd.Env = append(cmd.Env, "PATH="+tt.path)
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.output) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, tt.code, tt.output, out)
			}
		})
	}
}

// database makes a database of vulnerabilities that knows one, in a package of the module
// golang.org/x/time, and returns its folder.
func database(t *testing.T, inPackage string) string {
	t.Helper()
	dir := t.TempDir()
	const stamp = `"modified":"2026-01-01T00:00:00Z"`
	for name, content := range map[string]string{
		"index/db.json":      `{` + stamp + `}`,
		"index/modules.json": `[{"path":"golang.org/x/time","vulns":[{"id":"GO-2026-0001",` + stamp + `}]}]`,
		"index/vulns.json":   `[{"id":"GO-2026-0001",` + stamp + `}]`,
		"ID/GO-2026-0001.json": `{"schema_version":"1.3.1","id":"GO-2026-0001",` + stamp + `,"published":"2026-01-01T00:00:00Z",
			"summary":"Made up","details":"Made up.","affected":[{"package":{"name":"golang.org/x/time","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{"imports":[{"path":"` + inPackage + `"}]}}],
			"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2026-0001"}}`,
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// In the summary a check that could not run differs from one that passed.
func TestSummaryOfChecks(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile(`(?ms)^step\(\) \{.*?^\}`).Find(script)
	if step == nil {
		t.Fatal(".ci/run has no function step")
	}
	dir := t.TempDir()
	for command, want := range map[string]string{
		"true":    `^name +\d+s  ok 0$`,
		"exit 1":  `^name +\d+s  FAILED 1$`,
		"exit 3":  `^name +\d+s  FAILED 1$`,
		"exit 77": `^name +\d+s  NOT CHECKED 0$`,
		"echo before; echo 'NOT CHECKED: no line'; echo after; exit 77": `^name +\d+s  NOT CHECKED: no line 0$`,
		"echo 'NOT CHECKED: no line'; exit 1":                           `^name +\d+s  FAILED 1$`,
	} {
		cmd := exec.Command("bash", "-c", `set -euo pipefail
			deadline=$((SECONDS + 60)) output=`+dir+`/output failures=`+dir+`/failures summary=() failed=0
			`+string(step)+`
			step name bash -c "$COMMAND" >/dev/null
			echo "${summary[0]} $failed"`)
		cmd.Env = append(os.Environ(), "COMMAND="+command)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("after %q: %q, %v, want %s", command, got, err, want)
		}
	}
}
