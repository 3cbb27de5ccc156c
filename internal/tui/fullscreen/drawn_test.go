package fullscreen

import (
	"strings"
	"testing"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"

	"loquat"
)

// A message that is being written costs nothing while it does not change: a frame draws it as it was drawn. What
// changes it is seen at once.
func TestComposerIsDrawnOnce(t *testing.T) {
	m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"})
	m.setFocus(focusComposer)
	m.composer.setText("one\ntwo")
	lines := 0
	m.composer.area.SetPromptFunc(2, func(textarea.PromptInfo) string { lines++; return "> " })
	m.layout(true)
	before := lines
	for range 5 {
		m.Update(tickMsg{})
		m.View()
	}
	if lines != before {
		t.Errorf("%d lines were drawn again", lines-before)
	}
	view := m.View()
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"a key", func() { m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"}) }},
		{"a paste", func() { m.Update(tea.PasteMsg{Content: "pasted"}) }},
		{"cursor", func() { m.Update(tea.KeyPressMsg{Code: tea.KeyUp}) }},
		{"text", func() { m.composer.setText("other"); m.layout(false) }},
		{"width", func() { m.Update(tea.WindowSizeMsg{Width: 70, Height: 24}) }},
		{"theme", func() { m.setTheme(themeNone) }},
		{"focus", func() { m.setFocus(focusTranscript); m.setTheme(themeDark) }},
		{"draft", func() { m.setFocus(focusComposer); m.composer.put(draft{}); m.layout(false) }},
	} {
		c.change()
		next := m.View()
		if next.Content == view.Content && (next.Cursor == nil) == (view.Cursor == nil) && (next.Cursor == nil || next.Cursor.Position == view.Cursor.Position) {
			t.Errorf("after %s the screen is the same", c.name)
		}
		if got, want := m.composer.draw(m, m.mainWidth()).lines, strings.Count(m.composer.area.View(), "\n")+1; len(got) != want {
			t.Errorf("after %s there are %d lines, want %d", c.name, len(got), want)
		}
		view = next
	}
}

// The text of a plugin is wrapped again only for another width.
func TestTextIsWrappedOnce(t *testing.T) {
	m := testModel(t, 80, 24)
	p := newText("title", strings.Repeat("word ", 100))
	first, again, narrow := p.text(m, 70), p.text(m, 70), p.text(m, 30)
	if &first[0] != &again[0] || len(narrow) <= len(first) {
		t.Errorf("it was wrapped again: %v; it has %d lines, and %d if it is narrow", &first[0] != &again[0], len(first), len(narrow))
	}
}
