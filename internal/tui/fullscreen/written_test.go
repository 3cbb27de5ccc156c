package fullscreen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	"loquat"
)

// odd are texts that widgets would change.
const odd = "all:\n\tgo build\n\x1b[1m\a\u0085\ufffd\r\nend\U0010ff09\U0010ffa1"

var oddText = rapid.Map(rapid.SliceOf(rapid.OneOf(rapid.SampledFrom([]rune("\t\n\r\x00\x1b\u0085\ufffd a→\U0010ff00\U0010ff09\U0010ffa0\U0010ffa1\U0010ffa2")), rapid.Rune())), func(runes []rune) string {
	return strings.ToValidUTF8(string(runes), "")
})

// A text in the composer, or in a field, is the text that was put there.
func TestTextsStayAsWritten(t *testing.T) {
	m := testModel(t, 80, 24)
	rapid.Check(t, func(t *rapid.T) {
		text, pasted := oddText.Draw(t, "text"), oddText.Draw(t, "pasted")
		m.composer.setText(text)
		m.insert(pasted)
		if got, want := m.composer.text(), text+lineFeeds(pasted); got != want {
			t.Fatalf("the composer has %q, want %q", got, want)
		}
		for _, kind := range []string{"text", "multiline"} {
			f := newDialogForm("", "", []loquat.Object{loquat.Object{}.Set("name", "x").Set("type", kind).Set("default", text)}, nil)
			f.edit(m)
			f.paste(m, pasted)
			if got, want := f.written(), text+lineFeeds(pasted); got != want {
				t.Fatalf("the %s has %q, want %q", kind, got, want)
			}
		}
	})
}

// What cannot be seen has a sign.
func TestSignsAreSeen(t *testing.T) {
	m := testModel(t, 80, 24)
	m.composer.setText("a\tb\x1b[2Jc\rd\ufffd")
	m.layout(false)
	if view := m.View().Content; !strings.Contains(view, "a→b␛[2Jc␍d\ufffd") {
		t.Errorf("the screen is\n%s", view)
	}
}

// A text with more lines than the area has keeps all of them, also when it is pasted into another one.
func TestManyLines(t *testing.T) {
	m := testModel(t, 80, 24)
	text := strings.Repeat("x\n", areaLines+2000)
	m.composer.setText("before\n")
	m.insert(text)
	m.insert(text)
	if got, want := m.composer.text(), "before\n"+text+text; got != want {
		t.Errorf("of %d line breaks %d are left", strings.Count(want, "\n"), strings.Count(got, "\n"))
	}
	m.composer.setText(text)
	if got := m.composer.text(); got != text {
		t.Errorf("of %d line breaks %d are left", strings.Count(text, "\n"), strings.Count(got, "\n"))
	}
}

// A text that is too large, or that is not one, is refused with a word, and what was there stays.
func TestRefusedText(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", maxInput), "caf\xe9"} {
		m := testModel(t, 80, 24)
		m.composer.setText("here")
		m.Update(tea.PasteMsg{Content: text})
		if got := m.composer.text(); got != "here" || !m.notice.bad {
			t.Errorf("the composer has %d bytes, the notice is %q", len(got), m.notice.text)
		}
		path := filepath.Join(t.TempDir(), "draft.md")
		if err := os.WriteFile(path, []byte(text+"x"), 0o600); err != nil {
			t.Fatal(err)
		}
		readEdited(path).apply(m)
		if _, err := os.Stat(path); err != nil || m.composer.text() != "here" || !strings.Contains(m.notice.text, path) {
			t.Errorf("the file is kept: %v, the notice is %q", err == nil, m.notice.text)
		}
	}
}

// The editor gives back what it got, but for line breaks of another system.
func TestTextOfTheEditor(t *testing.T) {
	for file, want := range map[string]string{"a\tb\r\n\n\n": "a\tb\n\n", "a": "a", "": "", "\n": ""} {
		path := filepath.Join(t.TempDir(), "draft.md")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		m := testModel(t, 80, 24)
		readEdited(path).apply(m)
		if _, err := os.Stat(path); err == nil || m.composer.text() != want {
			t.Errorf("%q became %q; the file is there: %v", file, m.composer.text(), err == nil)
		}
	}
}

// A message that was opened and not changed stays as it is stored.
func TestUnchangedEdit(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.setFocus(focusTranscript)
		m.editMessage()
		m.run(m.press(tea.KeyPressMsg{Code: tea.KeyEnter}))
		if len(c.got) != 0 || m.composer.editing != nil {
			t.Errorf("the calls are\n%s", c.changed())
		}
		m.setFocus(focusTranscript)
		m.editMessage()
		m.composer.area.InsertString("!")
		m.run(m.saveEdit(true))
		if content, _ := json.Marshal(odd + "!"); !strings.HasSuffix(c.changed(), strings.Join(strings.Fields(`{"content":`+string(content)+`}`), " ")) {
			t.Errorf("the calls are\n%s", c.changed())
		}
	}, loquat.Message{Role: "assistant", Content: odd})
}

// A message is sent as it was written, also if it begins with spaces.
func TestSentAsWritten(t *testing.T) {
	for text, want := range map[string]string{"\tcode\n": "\tcode\n", " //a//b": " /a//b"} {
		m := testModel(t, 80, 24)
		m.composer.setText(text)
		m.submit(loquat.BusyQueue)
		if got := m.composer.sent; got != want {
			t.Errorf("%q is sent as %q", text, got)
		}
	}
}

// A value that was opened and not changed makes no override.
func TestUnchangedSetting(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.setSchema(schema{elements: []loquat.Object{loquat.Object{}.Set("ui_type", "config").Set("key", "rules").Set("type", "text")},
			values: map[string]loquat.ConfigValue{"rules": {Value: json.RawMessage(loquat.Quote(odd)), Source: "config"}}})
		m.showSettings()
		f := m.top().(*form)
		f.edit(m)
		m.run(f.press(m, tea.KeyPressMsg{Code: tea.KeyEnter}))
		if len(c.changed()) > 0 || f.line != nil {
			t.Errorf("the calls are\n%s", c.changed())
		}
	})
}
