package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
	"loquat/internal/plugin"
)

// showcase has one element of each type and an action, for an application with a state; its program is that of the
// tests of 3f0b70a.
var showcase = map[string]string{
	"showcase/plugin.json": `{"name": "showcase", "version": "1", "kind": "application", "command": "python3", "args": ["showcase.py"], "ui": ["get_ui_elements"], "actions": ["do_it"]}`,
	"showcase/elements.json": `[
		{"key": "tone", "type": "select", "label": "Tone", "options": ["plain", {"value": "warm", "label": "Warm and long"}], "default": "plain"},
		{"key": "notes", "type": "multiline", "format": "json"}, {"key": "loud", "type": "checkbox", "condition": {"path": "tone", "eq": "warm"}},
		{"key": "volume", "type": "number", "config_path": "sound.volume"}, {"key": "key", "type": "text", "secret": true}, {"key": "where", "type": "dropdown", "options": ["a"]},
		{"ui_type": "message_footer", "data": "metadata.usage", "template": "{{data}} tokens", "condition": {"path": "role", "eq": "assistant"}},
		{"ui_type": "status_bar", "data": "metadata.model"},
		{"ui_type": "session_action", "id": "a", "label": "Do it", "order": 2, "action_id": "do_it", "fixed_params": {"fixed": true},
			"param_map": {"word": "$dialog.word", "session": "$session.session_id"}, "condition": {"path": "messages", "empty": false},
			"dialog": {"kind": "form", "title": "Do it", "inputs": [{"name": "word", "type": "text", "label": "Word", "required": true}]}},
		{"ui_type": "message_action", "id": "b", "label": "Do it", "action_id": "do_it", "param_map": {"index": "$message.index"}},
		{"ui_type": "session_list_field", "key": "field", "label": "Field", "data": "title"}, {"ui_type": "composer_attachment", "key": "image", "attachment_type": "image"},
		{"ui_type": "model_picker", "key": "model", "label": "Model"}, {"ui_type": "hologram", "key": "unknown", "depth": 3}]`,
}

// elementRoutes are the routes that show what plugins offer.
var elementRoutes = []string{"/sessions/s/ui-schema", "/sessions/s/application/ui-schema", "/application/ui-schema", "/sessions/s/config"}

// withPlugins returns a configuration with the plugins of a version.
func withPlugins(t *testing.T, c contract, backendURL string) string {
	t.Helper()
	var dirs []string
	for _, name := range []string{"dice", "showcase"} {
		dir := filepath.Join(t.TempDir(), name)
		pluginOf(t, c, name, dir)
		dirs = append(dirs, dir)
	}
	return configure(backendURL, 0, dirs...)
}

// elementsOf returns what a server shows of its plugins in the session s, with the overrides of a reader. Elements are
// named by what clients find them by, because clients ignore elements that they do not know.
func elementsOf(t *testing.T, url string) map[string]object {
	t.Helper()
	binary.Call(t, http.MethodPost, url+"/sessions", `{"session_id": "s", "metadata": {"overrides": {"dice_sides": 1, "tone": "warm",
		"request_options": {"loquat_script": {"tool_calls": [{"id": "a", "name": "roll", "arguments": {"count": 3}}]}}}}}`)
	found := map[string]object{}
	for _, route := range elementRoutes {
		var answer object
		if err := json.Unmarshal([]byte(binary.Call(t, http.MethodGet, url+route, "")), &answer); err != nil {
			t.Fatal(err)
		}
		elements, _ := answer["elements"].([]any)
		for _, e := range elements {
			element := e.(object)
			answer[fmt.Sprint(element["plugin"], " ", element["ui_type"], " ", element["key"], " ", element["id"], " ", element["data"])] = element
		}
		delete(answer, "elements")
		found[route] = answer
	}
	return found
}

// The plugins of the pages and of the tests of an older version run unchanged: their elements, settings, tools,
// progress, actions and state.
func TestPluginsOfOlderVersions(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		url := serveContract(t, c)
		api := binary.NewClient(t, url)
		elements, breaks := elementsOf(t, url), map[string]string{}
		for route, was := range c.Elements {
			lost(breaks, route, was, elements[route])
		}
		reportBreaks(t, "plugin", breaks)
		sent, err := api.Send(t.Context(), "s", loquat.Send{Content: new("Roll."), StreamTools: true})
		if err != nil {
			t.Fatal(err)
		}
		var said, progress string
		for _, e := range binary.FollowRequest(t.Context(), t, api, sent.RequestID) {
			if e.Type == loquat.ToolResults {
				said = e.Messages[0].Content
			}
			if e.Type == loquat.ToolPartial {
				progress += string(binary.MustJSON(t, e.Payload))
			}
		}
		if said != "[1, 1, 1], together 3" || progress == "" {
			t.Errorf("the tool says %q, in progress %s", said, progress)
		}
		for _, call := range []struct{ path, body, want string }{
			{"/sessions/s/actions/throw_dice", `{"params": {"count": 4}}`, `{"result":{"dice":[1,1,1,1],"sum":4}}`},
			{"/sessions/s/actions/do_it", `{"element_id": "a", "plugin": "showcase", "params": {"word": "x"}}`, `{"result":{"params":{"word":"x","fixed":true},"session_id":"s","calls":1}}`},
			{"/actions/do_it", `{"params": {}}`, `{"result":{"params":{},"session_id":"","calls":2}}`},
		} {
			if got := binary.Call(t, http.MethodPost, url+call.path, call.body); !binary.SameJSON([]byte(got), []byte(call.want)) {
				t.Errorf("%s answers %s, not %s", call.path, got, call.want)
			}
		}
		checked := output(t, current(t), nil, "plugin", "check", pathOf(t, c, "dice"))
		if strings.Contains(checked, "fault") || strings.Contains(checked, "warning") {
			t.Errorf("plugin check says\n%s", checked)
		}
	})
}

func pathOf(t *testing.T, c contract, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), name)
	pluginOf(t, c, name, dir)
	return dir
}

// serveContract starts a server of this version with the plugins of an older one.
func serveContract(t *testing.T, c contract) (url string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "loquat.json")
	binary.WriteFiles(t, filepath.Dir(config), map[string]string{"loquat.json": withPlugins(t, c, binary.ScriptedBackend(t, backend.Options{}))})
	p := binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	binary.Eventually(t, "the plugins", func() bool {
		return !strings.Contains(binary.Call(t, http.MethodGet, p.URL+"/plugins", ""), `"starting"`)
	})
	return p.URL
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("there is no %s here", program)
	}
}

// The clients that the pages of an older version show work unchanged.
func TestClientsOfOlderVersions(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		url, api := binary.ServerAt(t, configure(binary.ScriptedBackend(t, backend.Options{}), 0))
		dir := t.TempDir()
		binary.WriteFiles(t, dir, map[string]string{"chat.py": c.Files["chat.py"], "follow.mjs": c.Files["follow.mjs"], "run.mjs": `
			import { call, follow } from "./follow.mjs"
			const [url, id] = process.argv.slice(2)
			await follow(url, id, (messages, draft, event) => {
				if (event?.type !== "request_completed" || messages.length < 4) return
				console.log(JSON.stringify(messages.map(({ content }) => content)), draft)
				process.exit()
			})
			await call(url, "POST", "/sessions/" + id + "/send", { content: "Good night." })`})
		if said := output(t, "python3", nil, filepath.Join(dir, "chat.py"), url, "Good morning."); said != "Good morning.\n" {
			t.Errorf("chat.py prints %q", said)
		}
		if exec.Command("node", "--experimental-eventsource", "--eval", "new EventSource('http://127.0.0.1:1').close()").Run() != nil {
			t.Skip("there is no node with an EventSource here")
		}
		list, err := api.Sessions(t.Context(), loquat.SessionQuery{Limit: 1})
		if err != nil || len(list.Sessions) != 1 {
			t.Fatalf("%d sessions, %v", len(list.Sessions), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		shown, err := exec.CommandContext(ctx, "node", "--no-warnings", "--experimental-eventsource", filepath.Join(dir, "run.mjs"), url, list.Sessions[0].SessionID).CombinedOutput()
		if want := `["Good morning.","Good morning.","Good night.","Good night."] ` + "\n"; err != nil || string(shown) != want {
			t.Errorf("follow.mjs shows %q, %v", shown, err)
		}
	})
}

// The push protocol of the bridge has for an app what it had in an older version.
func TestAppsOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		url, api := binary.ServerAt(t, configure(binary.ScriptedBackend(t, backend.Options{}), 0))
		if _, err := api.CreateSession(t.Context(), loquat.NewSession{}); err != nil {
			t.Fatal(err)
		}
		now := framesOfApp(t, url)
		for name, was := range c.Frames {
			sameFields(t, name, was, now[name])
		}
	})
}

// framesOfApp pairs an app with a server, joins its events and reads its sessions. It returns the first frame of each
// kind, without its place in the socket.
func framesOfApp(t *testing.T, url string) map[string]any {
	t.Helper()
	var made struct{ Code string }
	var app struct {
		Token     string
		ServerID  string `json:"server_id"`
		BridgeURL string `json:"bridge_url"`
	}
	claim := func() string {
		return binary.Call(t, http.MethodPost, url+"/pairing/claim", fmt.Sprintf(`{"code": %q, "device_name": "app"}`, made.Code))
	}
	if err := json.Unmarshal([]byte(binary.Call(t, http.MethodPost, url+"/pairing", `{}`)), &made); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(claim()), &app); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, app.BridgeURL+"/websocket?vsn=2.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	topic := "events:server:" + app.ServerID
	for _, frame := range [][]any{
		{"1", "1", topic, "phx_join", object{"token": app.Token, "since_id": "0000000000000000", "session": "omit"}},
		{"1", "2", topic, "get", object{"id": "g", "path": "/sessions?limit=1"}},
		{nil, "3", "phoenix", "heartbeat", object{}},
	} {
		if err := socket.Write(ctx, websocket.MessageText, binary.MustJSON(t, frame)); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]any{}
	for len(found) < 5 { // replies to the three, a part of the list, and an event
		_, text, err := socket.Read(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", slices.Collect(maps.Keys(found)), err)
		}
		var frame []any
		if err := json.Unmarshal(text, &frame); err != nil || len(frame) != 5 {
			t.Fatalf("%s: %v", text, err)
		}
		if name := fmt.Sprint(frame[3], " ", frame[1]); found[name] == nil {
			found[name] = frame[4]
		}
	}
	return found
}

// wordCount is the plugin that the pages of 3f0b70a show for compiling in, unchanged: but for its texts: it compiles.
type wordCount struct{}

func (wordCount) Name() string         { return "example.features.word_count" }
func (wordCount) Kind() string         { return plugin.KindFeature }
func (wordCount) Tools() []plugin.Tool { return []plugin.Tool{countWords{}} }

type countWords struct{}

func (countWords) Name() string { return "count_words" }

func (countWords) Schema() json.RawMessage {
	return json.RawMessage(`{"type": "function", "function": {"name": "count_words", "parameters": {"type": "object"}}}`)
}

func (countWords) Call(_ context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
	var in struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(call.Arguments, &in); err != nil {
		return plugin.ToolResult{}, err
	}
	return plugin.ToolResult{Content: strconv.Itoa(len(strings.Fields(in.Text)))}, nil
}

var _ interface {
	plugin.Plugin
	plugin.Toolbox
} = wordCount{}
