package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
	"loquat/internal/ui"
)

// showcase is a server whose plugins offer every row of the table in docs/plugins.md.
type showcase struct {
	t       *testing.T
	url     string // of the server
	session string // of one of its sessions
	asset   string // that store_attachment has made
}

// Every element type and every action comes from a plugin to an HTTP answer, as the
// table in docs/plugins.md says.
func TestShowcase(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "## Everything that can be shown and run\n")
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| ([^|]+) \\| `([^`]+)` \\|$").FindAllStringSubmatch(table, -1)
	if !found || len(rows) < 20 {
		t.Fatalf("docs/plugins.md has a table of %d rows", len(rows))
	}
	s := newShowcase(t)
	for _, row := range rows {
		what, kind, route := row[1], row[2], strings.ReplaceAll(row[3], "{session_id}", s.session)
		t.Run(what+" of "+kind, func(t *testing.T) {
			s.t = t
			if strings.Contains(route, "/actions/") {
				s.acts(route)
			} else {
				s.shows(what, kind, route)
			}
		})
	}
}

// newShowcase starts a server with a core plugin and an application that offer one of
// each element.
func newShowcase(t *testing.T) *showcase {
	t.Helper()
	var core []map[string]any
	for _, kind := range ui.InputTypes() {
		e := map[string]any{"key": "setting_" + kind, "type": kind, "label": kind}
		if kind == "select" || kind == "dropdown" {
			e["options"] = []any{"a", map[string]string{"value": "b", "label": "B"}}
		}
		core = append(core, e)
	}
	for _, kind := range []string{"message_footer", "status_bar", "composer_attachment", "model_picker"} {
		core = append(core, map[string]any{"ui_type": kind, "key": "the_" + kind, "label": kind, "data": "metadata.usage", "template": "{{data}}"})
	}
	core = append(core, actionElements("do_feature")...)
	application := append(actionElements("do_application"),
		map[string]any{"ui_type": "session_list_field", "key": "field", "label": "Field", "data": "title"},
		map[string]any{"ui_type": "hologram", "key": "unknown", "depth": 3})
	config := fmt.Sprintf(`{
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}},
		"plugins": ["loquat.providers.reference_generic_compatible", "loquat.features.compact_range", %q, %q]}`,
		binary.ScriptedBackend(t, backend.Options{}),
		"path:"+showcasePlugin(t, "core_show", "feature", "do_feature", core),
		"path:"+showcasePlugin(t, "application_show", "application", "do_application", application))
	url, _ := binary.ServerAt(t, config)
	s := &showcase{t: t, url: url, session: "show"}
	s.call(http.MethodPost, "/sessions", `{"session_id": "show", "messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}`)
	binary.Eventually(t, "both plugins", func() bool {
		return strings.Count(s.call(http.MethodGet, "/plugins", ""), `"state":"running"`) == 5
	})
	return s
}

func actionElements(id string) (elements []map[string]any) {
	for _, kind := range []string{"session_action", "message_action"} {
		elements = append(elements, map[string]any{
			"ui_type": kind, "id": id + "_" + kind, "label": kind, "action_id": id,
			"fixed_params": map[string]any{"fixed": true},
			"param_map":    map[string]string{"word": "$dialog.word", "session": "$session.session_id"},
			"dialog": map[string]any{"kind": "form", "title": "Do it", "inputs": []any{
				map[string]any{"name": "word", "type": "text", "label": "Word", "required": true}}},
		})
	}
	return elements
}

// showcasePlugin makes a plugin's directory.
func showcasePlugin(t *testing.T, name, kind, action string, elements []map[string]any) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script, err := filepath.Abs(filepath.Join("testdata", "showcase", "showcase.py"))
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]any{
		"plugin.json": map[string]any{"name": name, "kind": kind, "command": "python3", "args": []string{script},
			"ui": []string{"get_ui_elements"}, "actions": []string{action}},
		"elements.json": elements,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), binary.MustJSON(t, content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (s *showcase) call(method, path, body string) string {
	return binary.Call(s.t, method, s.url+path, body)
}

// shows looks for the element of a row in the schema that the row names.
func (s *showcase) shows(what, kind, route string) {
	s.t.Helper()
	var schema struct {
		SchemaVersion int              `json:"schema_version"`
		Elements      []map[string]any `json:"elements"`
	}
	if err := json.Unmarshal([]byte(s.call(http.MethodGet, route, "")), &schema); err != nil || schema.SchemaVersion != 1 {
		s.t.Fatalf("the schema is %+v (%v)", schema, err)
	}
	plugin, owner := "core_show", "feature"
	if kind == "application" {
		plugin, owner = "application_show", ""
	}
	shown := 0
	for _, e := range schema.Elements {
		if e["plugin"] != plugin {
			continue
		}
		uiType, _ := e["ui_type"].(string)
		words := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(what, -1)
		switch {
		case what == "the same elements without a session":
			shown++
		case strings.HasPrefix(what, "an unknown `ui_type`"):
			if uiType == "hologram" && e["depth"] == 3.0 {
				shown++
			}
		case uiType == words[0][1] && (len(words) == 1 || e["type"] == words[1][1]):
			shown++
			if got, _ := e["action_owner"].(string); strings.HasSuffix(uiType, "_action") && got != owner {
				s.t.Errorf("the action_owner is %q", got)
			}
		}
	}
	if want := map[bool]int{true: 4, false: 1}[what == "the same elements without a session"]; shown != want {
		s.t.Errorf("%d elements are shown, want %d:\n%v", shown, want, schema.Elements)
	}
}

// acts runs the action of a row and looks at what it did.
func (s *showcase) acts(route string) {
	s.t.Helper()
	action := route[strings.LastIndex(route, "/")+1:]
	element, session := "", ""
	if strings.HasPrefix(action, "do_") && strings.HasPrefix(route, "/sessions/") {
		element, session = fmt.Sprintf(`"element_id": "%s_session_action", `, action), s.session
	}
	params := map[string]string{
		"do_feature":          `{"word": "w", "fixed": false}`,
		"do_application":      `{"word": "w", "fixed": false}`,
		"store_attachment":    `{"data_url": "` + dot + `", "name": "dot.gif"}`,
		"download_attachment": `{"asset_id": "` + s.asset + `"}`,
		"delete_attachment":   `{"asset_id": "` + s.asset + `"}`,
		"compact_range":       `{"start": 0, "end": 1}`,
	}[action]
	var answer struct {
		Result struct {
			Params    map[string]any `json:"params"`
			SessionID string         `json:"session_id"`
			AssetID   string         `json:"asset_id"`
			DataURL   string         `json:"data_url"`
			Compacted int            `json:"compacted"`
			Calls     int            `json:"calls"`
		} `json:"result"`
	}
	text := s.call(http.MethodPost, route, fmt.Sprintf(`{%s"params": %s}`, element, params))
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	got, good := answer.Result, false
	switch action {
	case "do_feature":
		good = got.Params["fixed"] == true && got.Params["word"] == "w" && got.SessionID == session && got.Calls == 1
	case "do_application": // its state counts the calls: first with a session, then without
		good = got.Params["word"] == "w" && got.SessionID == session && got.Calls == map[bool]int{true: 1, false: 2}[session != ""]
	case "store_attachment":
		s.asset, good = got.AssetID, got.AssetID != ""
	case "download_attachment":
		good = got.DataURL == dot
	case "delete_attachment":
		resp, err := http.Get(s.url + "/sessions/" + s.session + "/assets/" + s.asset)
		if err != nil {
			s.t.Fatal(err)
		}
		resp.Body.Close()
		good = resp.StatusCode == http.StatusNotFound
	case "compact_range":
		good = got.Compacted == 2 && strings.Contains(s.call(http.MethodGet, "/sessions/"+s.session+"/messages", ""), `"total":1`)
	}
	if !good {
		s.t.Errorf("the action answered %s", text)
	}
}

// dot is the smallest image.
const dot = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
