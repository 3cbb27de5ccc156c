//go:build unix

package openai_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// Programs that know nothing of Loquat work with the settings of docs/openai.md: they get a reply, and
// the model calls one of their tools.
func TestPrograms(t *testing.T) {
	dir := npmFolder(t, "programs")
	scripted := binary.ScriptedBackend(t, backend.Options{})
	calls := func(tool, arguments string) string {
		return fmt.Sprintf(`{"provider": "main", "request_options": {"loquat_script": {"tool_calls": [{"name": %q, "arguments": %s}]}}}`, tool, arguments)
	}
	server, _ := binary.ServerAt(t, fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}]},
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"agents": {
			"default": {"provider": "main"},
			"codex-runs": %s,
			"codex-asks": %s,
			"continue-runs": %s
		}}`, fullToken, scripted,
		calls("exec_command", `{"cmd": "echo ran > ran-by-codex"}`),
		calls("multi_agent_v1__close_agent", `{"target": "nobody"}`),
		calls("Bash", `{"command": "echo ran > ran-by-continue"}`)))
	settings := settingsOfDocs(t, server)

	codex := []string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Hello"}
	for _, c := range []struct {
		name, model string
		args        []string
		file        string // the settings
		language    string // of the settings in the docs
		want, wrote string
	}{
		{"codex", "default", codex, "codex/config.toml", "toml", "You said", ""},
		{"codex calls a function", "codex-runs", codex, "codex/config.toml", "toml", backend.ToolResultsText, "ran-by-codex"},
		{"codex calls a function of a namespace", "codex-asks", codex, "codex/config.toml", "toml", "invalid agent id", ""}, // which its own tool says
		{"continue", "default", []string{"cn", "--config", "loquat.yaml", "-p", "Hello"}, "loquat.yaml", "yaml", "You said", ""},
		{"continue calls a function", "continue-runs", []string{"cn", "--auto", "--config", "loquat.yaml", "-p", "Hello"}, "loquat.yaml", "yaml", backend.ToolResultsText, "ran-by-continue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			if err := os.MkdirAll(filepath.Join(home, "codex"), 0o700); err != nil {
				t.Fatal(err)
			}
			text := regexp.MustCompile(`\bdefault\b`).ReplaceAllString(settings[c.language], c.model)
			binary.WriteFile(t, filepath.Join(home, c.file), text)
			out := runProgram(t, home, filepath.Join(dir, "node_modules", ".bin", c.args[0]), c.args[1:]...)
			if !strings.Contains(out, c.want) {
				t.Errorf("%v says\n%s", c.args, out)
			}
			if c.wrote != "" {
				if _, err := os.Stat(filepath.Join(home, c.wrote)); err != nil {
					t.Errorf("the tool did not run: %v; the program says\n%s", err, out)
				}
			}
		})
	}
}

// settingsOfDocs returns the settings of programs in docs/openai.md by their languages, with the address
// and the key of a server.
func settingsOfDocs(t *testing.T, server string) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "openai.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```(toml|yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(block[2], "http://127.0.0.1:8787", server)
		if text != block[2] {
			out[block[1]] = regexp.MustCompile(`\bany\b`).ReplaceAllString(text, fullToken)
		}
	}
	if len(out) != 2 {
		t.Fatalf("docs/openai.md has settings for %d programs", len(out))
	}
	return out
}

// runProgram runs a program in an empty home, together with all that it starts, and returns its output.
func runProgram(t *testing.T, home, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CODEX_HOME=" + filepath.Join(home, "codex"), "OPENAI_API_KEY=" + fullToken}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %q: %v\n%s", filepath.Base(program), args, err, out.String())
	}
	return out.String()
}
