package fullscreen

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"loquat"
)

// What was changed in a message is a draft of its chat if the user goes elsewhere, behind the draft from before.
func TestEditThatIsLeft(t *testing.T) {
	for name, leave := range map[string]func(m *model){
		"another chat":   func(m *model) { m.open("other") },
		"a new chat":     func(m *model) { m.newChat() },
		"another server": func(m *model) { m.useServer(Server{Name: "other", Client: m.server.Client}) },
	} {
		t.Run(name, func(t *testing.T) {
			for change, want := range map[string]string{"": "before", "!": "before\n\na question!"} {
				m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"})
				m.composer.setText("before")
				m.setFocus(focusTranscript)
				m.editMessage()
				m.insert(change)
				leave(m)
				m.feed.stop()
				if got := m.composer.drafts["s"].text; got != want || m.composer.editing != nil || m.composer.hasDraft() {
					t.Errorf("after %q the draft is %q, and the composer has %q", change, got, m.composer.text())
				}
			}
		})
	}
}

// A second message is edited only if nothing was changed in the first one.
func TestSecondEdit(t *testing.T) {
	m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "one"}, loquat.Message{Role: "user", Content: "two"})
	m.composer.setText("before")
	edit := func(index int) {
		m.setFocus(focusTranscript)
		m.transcript.selected = index
		m.Update(tea.KeyPressMsg{Code: 'e', Text: "e"})
	}
	edit(0)
	edit(1)
	if got := m.composer.text(); got != "two" {
		t.Errorf("the composer has %q", got)
	}
	m.insert("!")
	edit(0)
	if got := m.composer.text(); got != "two!" || !strings.Contains(m.notice.text, "message 2") {
		t.Errorf("the composer has %q, the notice is %q", got, m.notice.text)
	}
	m.notice = notice{}
	edit(1)
	if got := m.composer.text(); got != "two!" || m.notice.bad || m.focus != focusComposer {
		t.Errorf("the composer has %q, the notice is %q", got, m.notice.text)
	}
	m.escape()
	if got := m.composer.text(); got != "before" {
		t.Errorf("then the composer has %q", got)
	}
}
