package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// guided are the files that a page of docs has its readers write, by their names.
func guided(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- (\\S+) -->\n```\\w+\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = m[2] + "\n"
	}
	return files
}

// writeGuided writes the files of one folder of the guide.
func writeGuided(t *testing.T, folder string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	found := false
	for name, text := range guided(t, "plugins.md") {
		if rest, ok := strings.CutPrefix(name, folder+"/"); ok {
			found = true
			binary.WriteFile(t, filepath.Join(dir, rest), text)
		}
	}
	if !found {
		t.Fatalf("docs/plugins.md has no files for %s", folder)
	}
	return dir
}

// pluginServer is a configuration with a plugin, whose model calls one tool.
func pluginServer(t *testing.T, plugin, tool, arguments string) string {
	t.Helper()
	return fmt.Sprintf(`{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1",
			"request_options": {"loquat_script": {"tool_calls": [{"name": %q, "arguments": %s}]}}}},
		"plugins": ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", %q]}`,
		binary.ScriptedBackend(t, backend.Options{}), tool, arguments, plugin)
}

// offering waits until the server offers a tool.
func offering(t *testing.T, url, tool string) {
	t.Helper()
	var last string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		if last = binary.Call(t, http.MethodGet, url+"/plugins", ""); strings.Contains(last, `"`+tool+`"`) {
			return
		}
	}
	t.Fatalf("no tool %s is offered: %s", tool, last)
}

// toolMessage has the model of a session call its tool and returns what the tool said.
func toolMessage(t *testing.T, c *client.Client, sessionID string) string {
	t.Helper()
	content := "Go on."
	sent, err := c.Send(t.Context(), sessionID, loquat.Send{Content: &content, Stream: new(true), StreamTools: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range binary.FollowRequest(t.Context(), t, c, sent.RequestID) {
		switch {
		case e.Type == loquat.ToolResults:
			return e.Messages[0].Content
		case e.Type == loquat.ErrorEvent:
			t.Fatal(e.Detail)
		}
	}
	t.Fatal("no tool was called")
	return ""
}

// The guide's plugin in Python works unchanged.
func TestGuidePython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	dir := writeGuided(t, "dice")
	var out bytes.Buffer
	if err := binary.Run(t.Context(), []string{"plugin", "check", dir}, strings.NewReader(""), &out, &out); err != nil {
		t.Errorf("plugin check: %v\n%s", err, &out)
	}
	url, c := binary.ServerAt(t, pluginServer(t, "path:"+dir, "roll", `{"count": 3}`))
	offering(t, url, "roll")
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	at := url + "/sessions/" + s.SessionID
	binary.Call(t, http.MethodPatch, at, `{"metadata": {"overrides": {"dice_sides": 1}}}`) // so that chance has no say
	if said := toolMessage(t, c, s.SessionID); said != "[1, 1, 1], together 3" {
		t.Errorf("the tool said %q", said)
	}
	var acted struct {
		Result struct{ Sum int } `json:"result"`
	}
	answer := binary.Call(t, http.MethodPost, at+"/actions/throw_dice", `{"params": {"count": 4}}`)
	if err := json.Unmarshal([]byte(answer), &acted); err != nil || acted.Result.Sum != 4 {
		t.Errorf("the action answered %s (%v)", answer, err)
	}
	schema := binary.Call(t, http.MethodGet, at+"/ui-schema", "")
	for _, want := range []string{`"dice_sides"`, `"action_owner":"feature"`} {
		if !strings.Contains(schema, want) {
			t.Errorf("the schema lacks %s", want)
		}
	}
}

// The guide's plugin in TypeScript works unchanged.
func TestGuideTypeScript(t *testing.T) {
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("there is no npm here")
	}
	dir := writeGuided(t, "clock")
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--silent")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("the npm registry cannot be reached: %v\n%s", err, out)
	}
	url, c := binary.ServerAt(t, pluginServer(t, "path:"+dir, "time_in", `{"zone": "Europe/Oslo"}`))
	offering(t, url, "time_in")
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	said := toolMessage(t, c, s.SessionID)
	if !regexp.MustCompile(`^\d\d/\d\d/\d{4}, \d\d:\d\d:\d\d$`).MatchString(said) {
		t.Errorf("the tool said %q", said)
	}
}

// The guide's plugin in Go works unchanged when it is compiled in.
func TestGuideGo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program once more")
	}
	const name = "cmd/loquat/word_count.go"
	source, ok := guided(t, "plugins.md")[name]
	if !ok {
		t.Fatalf("docs/plugins.md has no %s", name)
	}
	list, err := os.ReadFile(filepath.Join("..", "..", "..", "cmd", "loquat", "plugins.go"))
	if err != nil {
		t.Fatal(err)
	}
	const last = "builtin.RequestOptions{},\n"
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range map[string]string{
		"word_count.go": source,
		"plugins.go":    strings.Replace(string(list), last, last+"\t\twordCount{},\n", 1),
	} {
		here, err := filepath.Abs(filepath.Join("..", "..", "..", "cmd", "loquat", name))
		if err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][here] = filepath.Join(dir, name)
		binary.WriteFile(t, filepath.Join(dir, name), text)
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := binary.Build(filepath.Join(dir, "loquat"), "-overlay", filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(dir, "loquat.json")
	config := pluginServer(t, "example.features.word_count", "count_words", `{"text": "one two three"}`)
	binary.WriteFile(t, cfg, config)
	server, err := binary.Launch(program, nil, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	if server != nil {
		t.Cleanup(func() { server.End(t) })
	}
	if err == nil {
		err = server.Listening()
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	if said := toolMessage(t, c, s.SessionID); said != "3" {
		t.Errorf("the tool said %q", said)
	}
}
