package requests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// `loquat config reload` prints what has changed, or what is wrong, with the exit codes of all commands.
func TestReloadCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loquat.json")
	write := func(model, more string) {
		t.Helper()
		text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": %s, "base_url": "http://127.0.0.1:1/v1"}}%s}`, model, more)
		binary.WriteFile(t, file, text)
	}
	write(`"one"`, "")
	server := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	alone := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	reload := func(url string) (out, complaint string, code int) {
		t.Helper()
		path, err := binary.Path()
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		cmd := exec.CommandContext(t.Context(), path, "config", "reload", "--server", url)
		cmd.Env, cmd.Stdout, cmd.Stderr = binary.CleanEnv(), &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	for _, c := range []struct {
		name           string
		change         func()
		out, complaint string
		code           int
		url            string
	}{
		{name: "nothing", out: "nothing has changed\n"},
		{name: "keys", change: func() {
			write(`"two"`, `, "server": {"listen": "127.0.0.1:1", "drain_seconds": 1}, "limits": {"max_connections": 99}`)
		},
			out: "limits.max_connections: needs a restart\nproviders.main.model\nserver.drain_seconds\n"},
		{name: "what still needs a restart", out: "limits.max_connections: needs a restart\n"},
		{name: "back again", change: func() { write(`"two"`, "") }, out: "server.drain_seconds\n"},
		{name: "an unknown key", change: func() { write(`"two"`, `, "no_such_key": "\u001b[2J"`) }, out: "warning: no_such_key: is known to no loaded part\nno_such_key\n"},
		{name: "faults", change: func() { write(`2`, `, "limits": 7`) }, out: "limits: is a number; must be an object\nproviders.main.model: is a number; must be a string\n", complaint: "cannot be used", code: 1},
		{name: "no JSON", change: func() { write(`"`, ``) }, complaint: "cannot be used", code: 1},
		{name: "no file", change: func() { _ = os.Remove(file) }, complaint: "cannot be used", code: 1},
		{name: "a server without a file", url: alone.URL, complaint: "without a configuration file", code: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change()
			}
			url := server.URL
			if c.url != "" {
				url = c.url
			}
			out, complaint, code := reload(url)
			if c.out != "" && out != c.out || !strings.Contains(complaint, c.complaint) || c.complaint == "" && complaint != "" || code != c.code {
				t.Errorf("exit code %d, got\n%s%s", code, out, complaint)
			}
			if strings.ContainsRune(out, 0x1b) {
				t.Errorf("a control character is printed: %q", out)
			}
		})
	}
	const usable = "loquat_config_last_reload_successful"
	if a, b := binary.Metrics(t, server.URL)[usable], binary.Metrics(t, alone.URL)[usable]; a != 0 || b != 1 {
		t.Errorf("%s is %v after an unusable file, and %v without a file", usable, a, b)
	}
}
