package docs_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// quoted are the messages that docs/troubleshooting.md shows.
var quoted = regexp.MustCompile("``(.+?)``")

// Every message that the page quotes is one that Loquat really gives, in the situation
// that the page describes.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]func(t *testing.T) string{
		"the backend answered 404":                                    func(t *testing.T) string { return failureOf(t, "BACKEND", "", `{}`) },
		"the connection to the backend":                               func(t *testing.T) string { return failureOf(t, nobodyListens(t)+"/v1", "", `{}`) },
		"the backend answered 401":                                    func(t *testing.T) string { return failureOf(t, "BACKEND/v1", "", `{"status": 401}`) },
		"the backend answered 429":                                    func(t *testing.T) string { return failureOf(t, "BACKEND/v1", "", `{"status": 429}`) },
		"the backend did not answer":                                  func(t *testing.T) string { return failureOf(t, "BACKEND/v1", `"timeout": 0.2,`, `{"delay_ms": 60000}`) },
		"the connection broke in the middle":                          func(t *testing.T) string { return failureOf(t, "BACKEND/v1", "", `{"drop_after": 3, "drop": "short"}`) },
		"the backend's answer cannot be used: JSON nests":             nil, // tests of the provider see it
		"the backend's answer cannot be used: the body is compressed": func(t *testing.T) string { return failureOf(t, "BACKEND/v1", "", `{"content_encoding": "br"}`) },
		"the data directory":                                          takenDirectory,
		"all connections that limits":                                 nil, // tests of connlimit see it
		"this token has":                                              nil,
		"answers of":                                                  nil,
		"body did not arrive in time":                                 nil, // tests of httpapi see these two
		"this address calls routes":                                   nil,
		"listen on":                                                   takenPort,
		"plugins: names none":                                         noProvider,
		"the store cannot write at the moment":                        nil, // TestFullDisk sees it
		"the store cannot be read or written":                         nil, // TestCheckFindsDamage sees both
		"the database has lost the events":                            nil,
		"… was not made by Loquat":                                    nil, // TestDatabaseThatCannotBeUsed sees it
		"…was removed or replaced":                                    nil, // TestDataDirectoryIsTakenAway sees it

		"…the answer is over the limit":       nil, // tests of the provider see it
		"…because 2 starts of the server did": nil, // tests of chat see it

		"[The result of":                                 func(t *testing.T) string { return fragileTool(t, "talk", 1) },
		"plugin … is not running (starting)":             func(t *testing.T) string { return fragileTool(t, "end", 2) },
		"plugin … is not running (…)…; required_plugins": missingPlugin,
	}
	quotes := quoted.FindAllStringSubmatch(string(page), -1)
	if len(quotes) != len(said) {
		t.Errorf("the page quotes %d messages and %d are tried", len(quotes), len(said))
	}
	for _, q := range quotes {
		t.Run(q[1], func(t *testing.T) {
			for begin, try := range said {
				if !strings.HasPrefix(q[1], begin) || try == nil {
					continue
				}
				var parts []string
				for _, part := range strings.Split(q[1], "…") {
					parts = append(parts, regexp.QuoteMeta(part))
				}
				if got := try(t); !regexp.MustCompile(strings.Join(parts, "(?s:.*)")).MatchString(got) {
					t.Errorf("the message is %q", got)
				}
			}
		})
	}
}

// failureOf runs a request that fails and returns what its error event says. BACKEND in
// baseURL stands for a scripted backend.
func failureOf(t *testing.T, baseURL, settings, script string) string {
	t.Helper()
	baseURL = strings.Replace(baseURL, "BACKEND", binary.ScriptedBackend(t, backend.Options{}), 1)
	c := binary.ServerWith(t, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo",
		%s "base_url": %q, "request_options": {"loquat_script": %s}}}}`, settings, baseURL, script))
	return failure(t, c)
}

// failure runs a request that fails and returns what its error event says.
func failure(t *testing.T, c *client.Client) string {
	t.Helper()
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	content := "Hello"
	sent, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: &content, Stream: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range binary.FollowRequest(t.Context(), t, c, sent.RequestID) {
		if e.Type == loquat.ErrorEvent {
			return e.Detail
		}
	}
	t.Fatal("the request did not fail")
	return ""
}

// nobodyListens is the URL of a port that was just given up.
func nobodyListens(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + ln.Addr().String()
}

// refusal returns the error of a server that must not start.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	code, stderr := binary.Exit(t, args...)
	if code == binary.ExitOK {
		t.Fatalf("loquat %v started", args)
	}
	return strings.TrimSpace(stderr)
}

// takenDirectory starts a second server on the data of a first one.
func takenDirectory(t *testing.T) string {
	t.Helper()
	args := []string{"serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir()}
	binary.Start(t, nil, args...)
	return refusal(t, args...)
}

// takenPort starts a second server where one listens.
func takenPort(t *testing.T) string {
	t.Helper()
	first := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	return refusal(t, "serve", "--demo", "--listen", strings.TrimPrefix(first.URL, "http://"), "--data", t.TempDir())
}

// noProvider starts a server whose list of plugins names one of the user's own only.
func noProvider(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "loquat.json")
	binary.WriteFile(t, config, `{"plugins": ["path:`+dir+`"], "providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}}`)
	return refusal(t, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir())
}

// fragile is a plugin that talks too much, or ends and does not come back.
const fragile = `
import json, os, sys
if os.path.exists("ended"):
    sys.exit("it has ended before")
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    result = {}
    if m["method"] == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "fragile", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("talk", "end")]}
    elif m["method"] == "tools/call" and m["params"]["name"] == "end":
        open("ended", "w").close()
        sys.exit("it ends")
    elif m["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "x" * 5000}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
`

// writePlugin writes a plugin and returns its entry of the configuration.
func writePlugin(t *testing.T, manifest string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["plugin.json"] = manifest
	binary.WriteFiles(t, dir, files)
	return "path:" + dir
}

// fragileTool has the model call a tool of the fragile plugin several times and returns
// what the last call said.
func fragileTool(t *testing.T, tool string, times int) (said string) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	entry := writePlugin(t, `{"name": "fragile", "kind": "tool", "command": "python3", "args": ["fragile.py"]}`, map[string]string{"fragile.py": fragile})
	config := strings.TrimSuffix(strings.TrimSpace(pluginServer(t, entry, tool, "{}")), "}") + `, "limits": {"max_tool_result_bytes": 1024}}`
	c := binary.ServerWith(t, config)
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		said = toolMessage(t, c, s.SessionID)
	}
	return said
}

// missingPlugin runs a request that needs a plugin which cannot be started.
func missingPlugin(t *testing.T) string {
	t.Helper()
	entry := writePlugin(t, `{"name": "gone", "kind": "tool", "command": "./nothing"}`, map[string]string{})
	config := strings.TrimSuffix(strings.TrimSpace(pluginServer(t, entry, "none", "{}")), "}") + fmt.Sprintf(`, "required_plugins": [%q]}`, entry)
	return failure(t, binary.ServerWith(t, config))
}
