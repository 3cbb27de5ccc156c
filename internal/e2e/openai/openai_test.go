// Package openai_test runs the SDKs of OpenAI, and frameworks on top of them, against the real program.
package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

const fullToken = "full-token"

// servers starts a scripted backend and a server with several agents and providers on it.
func servers(t *testing.T, opts backend.Options) (server, scripted string) {
	t.Helper()
	scripted = binary.ScriptedBackend(t, opts)
	provider := func(more string) string {
		return fmt.Sprintf(`{"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"%s}`, scripted, more)
	}
	server, _ = binary.ServerAt(t, fmt.Sprintf(`{
		"server": {"auth_tokens": [{"name": "f", "token": %q, "scope": "full"}, {"name": "r", "token": "read-token", "scope": "read"}]},
		"providers": {
			"main": %s,
			"retrying": %s,
			"hasty": %s
		},
		"agents": {
			"default": {"provider": "main"},
			"poet": {"provider": "main", "request_options": {"loquat_script": {"text": "From the options of the agent."}}},
			"gpt-4.1-mini": {"provider": "main", "model": "echo"},
			"two-tools": {"provider": "main", "request_options": {"loquat_script": {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "clock", "arguments": {}}]}}}
		}}`, fullToken, provider(""),
		provider(`, "retry_on_status": {"503": [0]}, "rate_limit_retry_delays_seconds": [0, 0], "stream_recovery": {"mode": "early_only"}`),
		provider(`, "timeout": 0.3`)))
	return server, scripted
}

// npmFolder returns a copy of a folder of testdata with its packages from npm.
func npmFolder(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, dir, "", "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"); err != nil {
		t.Skipf("the npm registry cannot be reached: %v", err)
	}
	return dir
}

// runTime bounds a program. buildTime bounds the compilation of the SDK for Go, which needs all of it
// on a busy machine; it ends before the ten minutes that go test gives a package.
const (
	runTime   = 5 * time.Minute
	buildTime = 9 * time.Minute
)

// run runs a program with an input and returns what it writes to its standard output.
func run(t *testing.T, dir, input, program string, args ...string) (string, error) {
	t.Helper()
	return runWithin(t, runTime, dir, input, program, args...)
}

// runWithin is run with another bound.
func runWithin(t *testing.T, limit time.Duration, dir, input, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %q: %w\n%s", program, args, err, stderr.String())
	}
	return string(out), err
}

// The SDK of npm works as it does with the backend itself, and so do agents of the AI SDK and of
// LangChain.
func TestNodeSDKs(t *testing.T) {
	dir := npmFolder(t, "sdk")
	server, scripted := servers(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	t.Run("openai", func(t *testing.T) {
		out, err := run(t, dir, "", "node", "cases.mjs", server, scripted)
		if err != nil {
			t.Fatal(err)
		}
		checkCases(t, out, 60)
	})
	t.Run("responses", func(t *testing.T) {
		out, err := run(t, dir, "", "node", "responses.mjs", server)
		if err != nil {
			t.Fatal(err)
		}
		checkCases(t, out, 15)
	})
	t.Run("agents", func(t *testing.T) {
		out, err := run(t, dir, "", "node", "agents.mjs", server)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]struct {
			Called [][]any
			Text   string
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want := [][]any{{"weather", map[string]any{"city": "Oslo"}}, {"clock", map[string]any{}}}
		for _, name := range []string{"ai generate", "ai stream", "ai responses generate", "ai responses stream", "langchain"} {
			if a := got[name]; !reflect.DeepEqual(a.Called, want) || a.Text != backend.ToolResultsText {
				t.Errorf("%s called %v and answered %q", name, a.Called, a.Text)
			}
		}
	})
}

// checkCases fails for each case that a program reports as failed.
func checkCases(t *testing.T, out string, least int) {
	t.Helper()
	var got struct {
		Cases  int
		Failed []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range got.Failed {
		t.Error(f)
	}
	if got.Cases < least {
		t.Errorf("%d cases ran", got.Cases)
	}
}

// The SDK for Go is a module of its own, because it takes minutes to compile: accumulated streams,
// errors by class, cancels and lists of models.
func TestGoSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a large module")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "gosdk"))); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, dir, "", "go", "mod", "download"); err != nil {
		t.Skipf("the module proxy cannot be reached: %v", err)
	}
	if _, err := runWithin(t, buildTime, dir, "", "go", "build", "-o", "cases", "."); err != nil {
		t.Fatal(err)
	}
	server, scripted := servers(t, backend.Options{Script: json.RawMessage(`{"rate": 0}`)})
	out, err := run(t, dir, "", filepath.Join(dir, "cases"), server, scripted)
	if err != nil {
		t.Fatal(err)
	}
	checkCases(t, out, 36)
}

// Every recording, in every framing, gives a program that uses the SDK of npm exactly what the backend
// itself gives it.
func TestRecordingsThroughRelay(t *testing.T) {
	shared := os.Getenv("LOQUAT_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "..", "shared")
	}
	root := filepath.Join(shared, "fixtures")
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(files) == 0 {
		t.Skipf("there are no recordings in %s (LOQUAT_SHARED names another place)", root)
	}
	var names []string
	for _, file := range files {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		if kind := filepath.Ext(name); !strings.HasSuffix(name, ".expected.json") && (kind == ".sse" || kind == ".json") {
			names = append(names, filepath.ToSlash(name))
		}
	}
	dir := npmFolder(t, "sdk")
	replay, err := backend.OpenReplay(root)
	if err != nil {
		t.Fatal(err)
	}
	server, scripted := servers(t, backend.Options{Replay: replay})
	out, err := run(t, dir, strings.Join(names, "\n"), "node", "recordings.mjs", server, scripted)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Compared, Empty int
		Differ          []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %.1000s", err, out)
	}
	fmt.Printf("relay: %d recordings in their framings, %d differ\n", got.Compared, len(got.Differ))
	for _, d := range got.Differ {
		t.Error(d)
	}
	if got.Compared < 6*len(names) || got.Empty > 0 {
		t.Errorf("%d were compared, %d of them gave nothing", got.Compared, got.Empty)
	}
}
