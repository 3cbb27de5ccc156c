package fullscreen

import (
	"encoding/json"
	"net/http"
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
