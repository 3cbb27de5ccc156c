package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// Two generators from npm make clients of the OpenAPI document. Programs that use them
// compile and work, a linter has no complaint, and what a server sends is what the document
// says.
func TestSDKs(t *testing.T) {
	if testing.Short() {
		t.Skip("installs npm packages")
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "sdk"))); err != nil {
		t.Fatal(err)
	}
	if out, err := inFolder(t, dir, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"); err != nil {
		t.Skipf("the npm registry cannot be reached: %v\n%s", err, out)
	}
	url, c := binary.ServerAt(t, fmt.Sprintf(`{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "retry_on_status": {"503": [0]}}}}`,
		binary.ScriptedBackend(t, backend.Options{})))
	write := func(name, content string) {
		t.Helper()
		binary.WriteFile(t, filepath.Join(dir, name), content)
	}
	must := func(program string, args ...string) string {
		t.Helper()
		out, err := inFolder(t, dir, filepath.Join("node_modules", ".bin", program), args...)
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", program, args, err, out)
		}
		return out
	}
	write("openapi.json", binary.Call(t, http.MethodGet, url+"/openapi.json", ""))
	if out := must("redocly", "lint", "openapi.json", "--format=summary", "--max-problems=1000"); !strings.Contains(out, "is valid") || strings.Contains(out, "warning ") {
		t.Errorf("the linter says:\n%s", out)
	}
	must("openapi-typescript", "openapi.json", "-o", "schema.d.ts")
	must("openapi-ts", "-i", "openapi.json", "-o", "hey")
	must("tsc", "-p", ".")
	t.Run("calls", func(t *testing.T) { checkCallsOfSDK(t, dir, url) })
	t.Run("events", func(t *testing.T) {
		events, err := json.Marshal(allKindsOfEvents(t, url, c))
		if err != nil {
			t.Fatal(err)
		}
		write("events.json", string(events))
		write("schema.json", binary.Call(t, http.MethodGet, url+"/sessions/kinds/ui-schema", ""))
		checkAgainstDocument(t, dir)
	})
}

// inFolder runs a program in a folder and returns what it writes to both outputs.
func inFolder(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if strings.Contains(program, string(filepath.Separator)) {
		program = filepath.Join(dir, program)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "DO_NOT_TRACK=1", "CI=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func checkCallsOfSDK(t *testing.T, dir, url string) {
	out, err := inFolder(t, dir, "node", filepath.Join(dir, "out", "calls.js"), url)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct{ Request, Text, Stored, URL, Code, At string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Request == "" || got.Text == "" || got.Text != got.Stored || got.URL != "https://a.example/b.png" || got.Code != "invalid" || got.At != "body.on_busy" {
		t.Errorf("the client saw %+v", got)
	}
}

// allKindsOfEvents has a server publish events of every type, and returns them all.
func allKindsOfEvents(t *testing.T, url string, c *client.Client) []json.RawMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all []json.RawMessage
	collect := func(query string) string {
		t.Helper()
		var list struct{ Events []json.RawMessage }
		answer := binary.Call(t, http.MethodGet, url+"/events?limit=5000&"+query, "")
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			t.Fatal(err)
		}
		all = append(all, list.Events...)
		return answer
	}
	say := func(script string) {
		t.Helper()
		options := loquat.Object{}.Set("request_options", map[string]any{"loquat_script": json.RawMessage(script)})
		s, err := c.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", options)})
		if err != nil {
			t.Fatal(err)
		}
		content := "hi"
		sent, err := c.Send(ctx, s.SessionID, loquat.Send{Content: &content, StreamTools: true})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(script, "stall_after") {
			for !strings.Contains(collect("wait=5&request_id="+sent.RequestID), `"type":"partial"`) {
				if ctx.Err() != nil {
					t.Fatal("no partial came")
				}
			}
			binary.Call(t, http.MethodPost, url+"/requests/"+sent.RequestID+"/cancel", "")
		}
		binary.FollowRequest(ctx, t, c, sent.RequestID)
	}
	say(`{"reasoning": "Hm.", "text": "One two three.", "id": "again", "attempts": [{"status": 503}, {}]}`)
	say(`{"text": "Let me see.", "tool_calls": [{"name": "nothing", "arguments": {"a": 1}}]}`)
	say(`{"status": 400, "body": {"error": {"message": "no"}}}`)
	say(`{"text": "Never ends.", "stall_after": 2}`)
	binary.Call(t, http.MethodPost, url+"/sessions", `{"session_id": "kinds", "messages": [{"role": "user", "content": "x"}]}`)
	at := url + "/sessions/kinds"
	binary.Call(t, http.MethodPatch, at, `{"metadata": {"a": 1}}`)
	binary.Call(t, http.MethodPatch, at+"/messages/0", `{"content": "changed"}`)
	binary.Call(t, http.MethodDelete, at+"/messages?indices=0", "")
	binary.Call(t, http.MethodPost, at+"/messages", `{"role": "user", "content": "x", "attachments": [{"type": "image", "url": "https://a.example/b.png"}]}`)
	binary.Call(t, http.MethodPost, at+"/fork", `{"metadata": {"fork": true}}`)
	binary.Call(t, http.MethodPost, url+"/sessions", `{"session_id": "short"}`)
	binary.Call(t, http.MethodDelete, url+"/sessions/short", "")
	collect("since_id=0")
	return all
}

func checkAgainstDocument(t *testing.T, dir string) {
	out, err := inFolder(t, dir, "node", "validate.mjs", "openapi.json", "events.json", "schema.json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct{ Kinds, Faults []string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, fault := range got.Faults {
		t.Error(fault)
	}
	for _, kind := range []loquat.EventType{
		loquat.SessionCreated, loquat.MessageAppended, loquat.MessageModified, loquat.MessagesDeleted, loquat.SessionDeleted, loquat.Checkpoint,
		loquat.RequestStarted, loquat.AssistantMessage, loquat.Partial, loquat.Final, loquat.ToolCalls, loquat.ToolResults,
		loquat.RetryScheduled, loquat.ErrorEvent, loquat.RequestCancelled, loquat.RequestCompleted,
	} {
		if !slices.Contains(got.Kinds, string(kind)) {
			t.Errorf("no %s was checked, of %q", kind, got.Kinds)
		}
	}
	if !slices.Contains(got.Kinds, "config") {
		t.Errorf("no UI element was checked, of %q", got.Kinds)
	}
}
