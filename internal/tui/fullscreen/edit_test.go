package fullscreen

import (
	"errors"
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

// An image that comes while a message is being sent waits for the next one, and so does the text of a path that is no
// image. If the send fails, they are behind the message, which is another one then.
func TestAttachedWhileSending(t *testing.T) {
	image := imageMsg{image: attachment{name: "late.png", data: []byte("x")}}
	for _, c := range []struct {
		name, text string
		images     int
		err        error
	}{{"accepted", "/no/image.png", 2, nil}, {"lost", "hello\n\n/no/image.png", 3, errors.New("lost")}} {
		m := testModel(t, 80, 24)
		m.composer.setText("hello")
		m.composer.attachments = []attachment{{url: "https://example.org/a.png"}}
		m.submit(loquat.BusyQueue)
		id, sent := m.composer.requestID, m.composer.attachments
		image.apply(m)
		m.attach("https://example.org/late.png")
		imageMsg{text: "/no/image.png"}.apply(m)
		sentMsg{sessionID: "s", attachments: sent, err: c.err}.apply(m)
		if got := m.composer.text(); got != c.text || len(m.composer.attachments) != c.images || m.composer.requestID == id {
			t.Errorf("%s: the composer has %q and %d images, the id is the same: %v", c.name, got, len(m.composer.attachments), m.composer.requestID == id)
		}
	}
	m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"})
	m.composer.setText("before")
	m.editMessage()
	m.saveEdit(true)
	image.apply(m)
	sentMsg{sessionID: "s"}.apply(m)
	if got := m.composer.text(); got != "before" || len(m.composer.attachments) != 1 {
		t.Errorf("after an edit the composer has %q and %d images", got, len(m.composer.attachments))
	}
}

// Ctrl-S does nothing while an edit is being sent.
func TestSaveWhileSending(t *testing.T) {
	m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"})
	m.editMessage()
	m.insert("!")
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	m.Update(tea.KeyPressMsg{Code: 's', Mod: tea.ModCtrl})
	if got := m.composer.text(); got != "a question!" || m.composer.editing == nil || m.changes.unsaved() {
		t.Errorf("the composer has %q, and a change was made: %v", got, m.changes.unsaved())
	}
	m.composer.giveUp()
}
