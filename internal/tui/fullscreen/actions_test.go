package fullscreen

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
)

func objectOf(t testing.TB, text string) (o loquat.Object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

const exportAction = `{"ui_type":"session_action","id":"export","label":"Export","action_id":"export","plugin":"x",
	"param_map":{"to":"$dialog.path","session":"$session.session_id"},
	"dialog":{"kind":"form","inputs":[{"name":"format","type":"text","default":"md"},{"name":"path","type":"text"}]}}`

// refusals are what a server says about the dialog of exportAction.
func refusals(*http.Request) (int, any) {
	return 422, map[string]any{"code": "invalid", "detail": "body.params.to does not exist; in all 2 faults", "errors": []loquat.FieldError{
		{Location: "body.params.to.name", Message: "does not exist"}, {Location: "body.params.to", Message: "is too long"}, {Location: "body.params.session", Message: "is odd"},
	}}
}

// submitExport fills the dialog and runs the action. The answer is not there yet.
func submitExport(t *testing.T, m *model) (*form, tea.Cmd) {
	t.Helper()
	m.act(objectOf(t, exportAction), target{})
	f := m.top().(*form)
	f.fields[1].value = json.RawMessage(`"/nowhere"`)
	cmd := f.run(m)
	if m.top() != nil {
		t.Fatal("the dialog is still open")
	}
	return f, cmd
}

// The dialog of an action that the server refuses opens again, with its values and with each fault at its input.
func TestRefusedAction(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = refusals
		f, cmd := submitExport(t, m)
		m.run(cmd)
		if m.top() != f || string(f.fields[1].value) != `"/nowhere"` || f.fields[1].fault != "does not exist is too long" || f.fields[0].fault != "" || f.selected != 1 {
			t.Errorf("the dialog is %+v, the fault %q", m.top(), f.fields[1].fault)
		}
		if !m.notice.bad || !strings.Contains(m.notice.text, "Export: ") {
			t.Errorf("the notice is %q", m.notice.text)
		}
		c.answer = nil
		m.run(f.run(m))
		if m.top() != nil || f.fields[1].fault != "" || strings.Count(c.changed(), `"to":"/nowhere"`) != 2 {
			t.Errorf("the dialog is %+v, the calls are\n%s", m.top(), c.changed())
		}
	})
}

// It does not open while the user types, and not in another chat.
func TestRefusedActionWaits(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = refusals
		f, cmd := submitExport(t, m)
		m.Update(tea.KeyPressMsg{Code: 'a', Text: "a"})
		begun := time.Now()
		m.run(cmd)
		if m.top() != f || time.Since(begun) < typingPause {
			t.Errorf("after %s the dialog is %+v", time.Since(begun), m.top())
		}
		m.closeDialog()
		_, cmd = submitExport(t, m)
		m.newChat()
		m.feed.stop()
		if m.run(cmd); m.top() != nil || !m.notice.bad {
			t.Errorf("the dialog is %+v, the notice is %q", m.top(), m.notice.text)
		}
	})
}

// Paths may start at the session, the message and the config, in conditions, data and the params of actions.
func TestRoots(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		head := loquat.Session{SessionID: "s", AgentID: "a", User: "ada", Metadata: loquat.Object{}.Set("title", "First")}
		c.answer = func(r *http.Request) (int, any) {
			return 200, loquat.MessagePage{Total: 10, Messages: make([]loquat.Message, 10), CursorEventID: 20}
		}
		messages := []loquat.Message{{ID: "m8", Role: "user"}, {ID: "m9", Role: "assistant", Metadata: loquat.Object{}.Set("model", "large")}}
		m.session = newSession(loaded{head: head, page: loquat.MessagePage{Total: 10, Messages: messages, CursorEventID: 10}}, m.now())
		element := func(uiType, condition, data string) loquat.Object {
			return objectOf(t, `{"ui_type":"`+uiType+`","id":"x","action_id":"x","condition":`+condition+`,"data":"`+data+`","param_map":{
				"agent":"$session.agent_id","user":"$session.user","title":"$session.metadata.title","role":"$session.messages.9.role","first":"$session.messages.0.role",
				"at":"$message.index","id":"$message.id","model":"$message.metadata.model","level":"$config.level","plain":"title","key":"$config.deep.level"}}`)
		}
		m.setSchema(schema{elements: []loquat.Object{
			objectOf(t, `{"ui_type":"config","key":"level","type":"number","config_path":"deep.level"}`),
			objectOf(t, `{"ui_type":"config","key":"tone","type":"text","config_path":"deep.tone"}`),
			element("message_footer", `{"path":"$session.metadata.title","eq":"First"}`, "$session.user"),
			element("message_footer", `{"path":"$message.index","eq":8}`, "role"),
			element("status_bar", `{"path":"$config.tone","exists":true}`, "$session.agent_id"),
			element("status_bar", `{}`, "$session.metadata.title"),
			element("message_action", `{"path":"$session.messages.9.role","eq":"assistant"}`, ""),
		}, values: map[string]loquat.ConfigValue{
			"level": {Value: json.RawMessage("3"), Source: "config"}, "tone": {Value: json.RawMessage(`"dry"`), Source: "ui_default"},
		}})
		if got := m.session.texts("message_footer", 8, messages[0]); !slices.Equal(got, []string{"ada", "user"}) || m.session.usage != "First" {
			t.Errorf("the footers are %q, the status %q", got, m.session.usage)
		}
		m.transcript.selected = 9
		items := m.actionItems("message_action", &messages[1])
		if len(items) != 1 {
			t.Fatalf("%d actions", len(items))
		}
		m.run(items[0].run(m))
		want := `"params":{"agent":"a","at":9,"id":"m9","key":3,"level":3,"model":"large","role":"assistant","title":"First","user":"ada"}`
		if !strings.Contains(c.changed(), want) {
			t.Errorf("the calls are\n%s", c.changed())
		}
		m.feedEvents(loquat.Event{EventID: 11, Type: loquat.Checkpoint, AgentID: "b", Metadata: loquat.Object{}.Set("title", "Second")})
		if m.session.usage != "Second" {
			t.Errorf("after a change the status is %q", m.session.usage)
		}
	})
}

// The effective config has what the session or the configuration says, at each key and config_path. A default is only shown.
func TestEffectiveConfig(t *testing.T) {
	elements := []loquat.Object{objectOf(t, `{"ui_type":"config","key":"a","config_path":"x.a"}`), objectOf(t, `{"ui_type":"config","key":"b","config_path":"x.a"}`),
		objectOf(t, `{"ui_type":"config","key":"c","config_path":"x.c"}`)}
	values := map[string]loquat.ConfigValue{"a": {Value: json.RawMessage("1"), Source: "override"}, "b": {Value: json.RawMessage("2"), Source: "config"},
		"c": {Value: json.RawMessage("3"), Source: "ui_default"}, "d": {Value: json.RawMessage("4"), Source: "schema_default"}, "e": {Value: json.RawMessage("null"), Source: "none"}}
	if got, err := json.Marshal(effectiveConfig(elements, values)); string(got) != `{"a":1,"b":2,"x":{"a":1}}` {
		t.Errorf("got %s (%v)", got, err)
	}
}
