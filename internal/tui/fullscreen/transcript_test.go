package fullscreen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	"loquat"
)

// The message at the top of the screen becomes short while the user is far below its beginning.
func TestMessageThatShrinks(t *testing.T) {
	messages := []loquat.Message{{Role: "user", Content: "a question"}, {Role: "assistant", Content: strings.Repeat("a paragraph\n\n", 50)}}
	for range 30 {
		messages = append(messages, loquat.Message{Role: "user", Content: "more"})
	}
	m := testModel(t, 80, 24, messages...)
	m.scrollTo(1)
	m.scroll(40)
	index, short := 1, "short"
	m.feedEvents(loquat.Event{EventID: 11, Type: loquat.MessageModified, Index: &index, Content: &short})
	m.Update(tea.KeyPressMsg{Code: tea.KeyPgUp})
	if view := m.View().Content; !strings.Contains(view, "short") {
		t.Errorf("the screen is\n%s", view)
	}
}

// The user moves up to the only message while the reply to it is written. It is still the one that is edited when
// the reply is stored.
func TestSelectionStaysWhenTheReplyComes(t *testing.T) {
	for _, test := range []struct {
		keys []rune
		want int
	}{{nil, 1}, {[]rune{tea.KeyUp}, 0}, {[]rune{tea.KeyUp, tea.KeyDown}, 1}} {
		m := testModel(t, 80, 24, loquat.Message{ID: "m0", Role: "user", Content: "a question"})
		for _, key := range append([]rune{tea.KeyTab}, test.keys...) {
			m.Update(tea.KeyPressMsg{Code: key})
		}
		m.feedEvents(loquat.Event{EventID: 11, Type: loquat.Final, RequestID: "r", Messages: []loquat.Message{{ID: "m1", Role: "assistant", Content: "a reply"}}})
		if got := m.transcript.selected; m.focus != focusTranscript || got != test.want {
			t.Errorf("after %q, the message %d is selected; want %d", test.keys, got, test.want)
		}
	}
}

// Whatever happens to the messages while the user scrolls, the screen is drawn.
func TestScrollWhileMessagesChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		long := loquat.Message{Role: "assistant", Content: strings.Repeat(drawText(t)+"\n\nx\n\n", 20)}
		m := testModel(t, 80, 12, append(append(drawMessages(t), long), make([]loquat.Message, 10)...)...)
		event := loquat.EventID(11)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			e, n := loquat.Event{EventID: event, RequestID: "r"}, m.session.total()
			event++
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				m.scroll(rapid.IntRange(-60, 60).Draw(t, "lines"))
			case 1:
				m.scrollTo(rapid.IntRange(0, n).Draw(t, "entry"))
			case 2:
				m.toggleAll()
			case 3:
				e.Type, e.Messages = loquat.Final, drawMessages(t)
				for i := range e.Messages {
					e.Messages[i].ID = fmt.Sprint(event, " ", i)
				}
				m.feedEvents(e)
			default:
				if n == 0 {
					continue
				}
				index, content := min(m.transcript.top.entry+rapid.IntRange(0, 1).Draw(t, "below"), n-1), drawText(t)
				e.Type, e.Index, e.Content = loquat.MessageModified, &index, &content
				if rapid.Bool().Draw(t, "deleted") {
					e = loquat.Event{EventID: e.EventID, Type: loquat.MessagesDeleted, Indices: []int{index}}
				}
				m.feedEvents(e)
			}
			m.View()
		}
		m.scroll(-1)
		m.View()
	})
}

// A page of older messages has messages that are also at the end of the chat. When the end is cut, what has changed
// there meanwhile is not shown, or edited, as the page has it.
func TestPageFromBeforeAChange(t *testing.T) {
	var all []loquat.Message
	for i := range 300 {
		all = append(all, loquat.Message{ID: fmt.Sprint("m", i), Role: "user", Content: "old"})
	}
	page := loquat.MessagePage{Total: 300, Messages: all[:pageSize], CursorEventID: 10}
	index, content := 45, "new"
	modified := loquat.Event{EventID: 11, Type: loquat.MessageModified, SessionID: "s", Index: &index, Content: &content}
	for name, steps := range map[string]func(s *session){
		"the page is here before":   func(s *session) { s.addPage(0, page); s.apply(modified, time.Time{}) },
		"the page comes later":      func(s *session) { s.apply(modified, time.Time{}); s.refresh(true); s.addPage(0, page) },
		"the page comes in between": func(s *session) { s.apply(modified, time.Time{}); s.addPage(0, page) },
	} {
		s := newSession(loaded{head: loquat.Session{SessionID: "s"}, page: loquat.MessagePage{Total: 300, Messages: all[40:], CursorEventID: 10}}, time.Time{})
		s.wanted[0] = true
		steps(s)
		s.refresh(true)
		if s.fold.First() <= index {
			t.Fatalf("the fold begins at %d", s.fold.First())
		}
		if msg, ok := s.message(index); ok {
			t.Errorf("%s: the message has %q", name, msg.Content)
		}
		page.CursorEventID = 11
		s.addPage(0, page)
		if _, ok := s.message(index); !ok || s.wanted[0] {
			t.Errorf("%s: a newer page is not taken", name)
		}
		page.CursorEventID = 10
	}
}
