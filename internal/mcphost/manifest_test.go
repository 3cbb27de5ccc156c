package mcphost

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/plugin"
)

// All faults of a manifest are reported at once, each with its place.
func TestManifest(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // the beginnings of what is wrong, in order
	}{
		{"least", `{"name": "x", "kind": "tool", "command": "node"}`, nil},
		{"whole", `{"name": "x.y-z_1", "version": "1", "kind": "application", "command": "./run", "args": ["a"], "env": {"A": "b"},
			"timeout_seconds": 2.5, "start_timeout_seconds": 300, "ui": ["e"], "actions": ["a", "b"], "transforms": ["t"]}`, nil},
		{"empty", `{}`, []string{"command: is missing", "kind: is missing", "name: is missing"}},
		{"no JSON", `{"name": "x",}`, []string{"line 1, column 13"}},
		{"no object", `[1]`, []string{"line 1, column 1: is a list; must be one JSON object"}},
		{"twice", `{"name": "x", "name": "y"}`, []string{"line 1, column 15: name is given twice"}},
		{"kinds", `{"name": 1, "kind": "provider", "command": "", "args": "a", "env": {"A": 1}, "timeout_seconds": 0, "start_timeout_seconds": 4000, "ui": [1], "actions": [""]}`,
			[]string{"actions: holds an empty name", "args: is a string; must be a list of strings", "command: is empty", "env: is an object; must be an object of strings",
				`kind: is "provider"; must be one of provider_extension, feature, tool, application`, "name: is a number; must be a string", "start_timeout_seconds: is 4000; must be from 0.1 to 3600",
				"timeout_seconds: is 0; must be from 0.1 to 86400", "ui: is a list; must be a list of strings"}},
		{"unknown", `{"name": "x", "kind": "tool", "command": "y", "comand": "z", "tools": [], "zzz": 1}`,
			[]string{"comand: is not a known key here; did you mean command?", "tools: is not a known key here; the keys are name, version", "zzz: is not a known key here"}},
		{"names", `{"name": "../x", "kind": "tool", "command": "y"}`, []string{`name: is "../x"; must be 1 to 64`}},
		{"uses", `{"name": "x", "kind": "feature", "command": "y", "ui": ["a", "a"], "transforms": ["a"]}`,
			[]string{`transforms[0]: is "a", which is already named at ui[0]`, `ui[1]: is "a", which is already named at ui[0]`}},
		{"variables", `{"name": "x", "kind": "tool", "command": "y", "env": {"": "", "A=B": "", "LOQUAT_PLUGIN_CACHE": "/"}}`,
			[]string{`env: cannot set "", "A=B", "LOQUAT_PLUGIN_CACHE"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, manifestName), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, faults := ReadManifest(dir)
			for i, f := range faults {
				if got := f.String(); i >= len(c.want) || !strings.HasPrefix(got, "plugin.json "+c.want[i]) {
					t.Errorf("fault %d: %s", i, got)
				}
			}
			if len(faults) != len(c.want) {
				t.Errorf("%d faults, want %d", len(faults), len(c.want))
			}
		})
	}
}

// A directory without a valid manifest makes a failed plugin with a reason, and does not
// keep the server from starting.
func TestNoPlugin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	p := New(dir, Options{CacheDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	p.Start(t.Context())
	defer p.Stop()
	s := p.Status()
	if s.State != plugin.StateFailed || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "plugin.json: cannot be read: there is no directory "+dir) {
		t.Errorf("status %+v", s)
	}
	if p.Name() != "path:"+dir || p.Kind() != plugin.KindUnknown || len(p.Tools()) != 0 {
		t.Errorf("it is %s, %s", p.Name(), p.Kind())
	}
	if big := strings.Repeat(" ", maxManifestBytes+1); os.MkdirAll(dir, 0o700) == nil && os.WriteFile(filepath.Join(dir, manifestName), []byte(big), 0o600) == nil {
		if _, faults := ReadManifest(dir); len(faults) != 1 || !strings.Contains(faults[0].Message, "is larger than 65536 bytes") {
			t.Errorf("of a large file: %v", faults)
		}
	}
}

// A command with a slash is relative to the plugin's directory; others are looked up.
func TestCommand(t *testing.T) {
	for command, want := range map[string]string{"node": "node", "./run": "/p/run", "bin/run it": "'/p/bin/run it'", "/usr/bin/x": "/usr/bin/x"} {
		c := Manifest{Command: command, Args: []string{"-a", "it's", ""}}.command("/p", "/cache", []string{"PATH=/bin", "OPENAI_API_KEY=k", "LC_ALL=C", "ODD"})
		if got, want := c.String(), want+` -a 'it'\''s' ''`; got != want {
			t.Errorf("%s is started as %s, not as %s", command, got, want)
		}
		if got := strings.Join(c.env, " "); got != "LC_ALL=C LOQUAT_PLUGIN_CACHE=/cache PATH=/bin" {
			t.Errorf("with %s", got)
		}
	}
}

// The delays grow up to a bound. A plugin that keeps failing is restarted rarely.
func TestPauses(t *testing.T) {
	var got []time.Duration
	for n := 1; n <= maxFailures+1; n++ {
		got = append(got, delayAfter(n))
	}
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, failedDelay, failedDelay}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("after %d failures a pause of %v, not %v", i+1, got[i], want[i])
		}
	}
}
