package fullscreen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/tui/markdown"
	"loquat/internal/ui"
)

// The library that colours code has a clock of its own, which stops after a while.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// testModel returns a model of a size with an open session. Nothing runs its commands.
func testModel(t interface{ Fatal(...any) }, width, height int, messages ...loquat.Message) *model {
	c, err := client.New("http://127.0.0.1:1", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(context.Background(), Options{Servers: []Server{{Name: "test", Client: c}}, Theme: themeDark, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	m.now = func() time.Time { return time.Unix(1000, 0) }
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for i := range messages {
		messages[i].ID = fmt.Sprint("m", i)
	}
	m.session = newSession(loaded{head: loquat.Session{SessionID: "s"},
		page: loquat.MessagePage{Total: len(messages), Messages: messages, CursorEventID: 10}}, m.now())
	m.layout(true)
	return m
}

var text = rapid.SampledFrom([]string{"word ", "a longer piece of text ", "\n", "\n\n", "- item\n", "```\n", "漢字", "👩\u200d🚀", "e\u0301", "\x1b[2J", "| a |\n|---|\n", strings.Repeat("x", 150)})

func drawText(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(text, 0, 20).Draw(t, "text"), "")
}

func drawMessages(t *rapid.T) (messages []loquat.Message) {
	for range rapid.IntRange(1, 8).Draw(t, "messages") {
		msg := loquat.Message{Role: rapid.SampledFrom([]string{"user", "assistant", "tool", "system"}).Draw(t, "role"), Content: drawText(t)}
		if rapid.Bool().Draw(t, "reasoning") {
			msg.Metadata = msg.Metadata.Set(loquat.MetaReasoning, drawText(t))
		}
		if msg.Role == loquat.RoleAssistant && rapid.Bool().Draw(t, "calls") {
			msg.Metadata = msg.Metadata.Set(loquat.MetaToolCalls, []loquat.ToolCall{{ID: "c", Name: drawText(t), Arguments: drawText(t)}})
		}
		messages = append(messages, msg)
	}
	return messages
}

// Whatever is on the screen, it has as many lines as the terminal, none is wider, and scrolling
// down and up again leads back.
func TestScreenFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(minWidth, 130).Draw(t, "width"), rapid.IntRange(minHeight, 40).Draw(t, "height")
		m := testModel(t, width, height, drawMessages(t)...)
		m.cells = rapid.SampledFrom([]ansi.Method{ansi.WcWidth, ansi.GraphemeWidth}).Draw(t, "cells")
		m.transcript.openAll = rapid.Bool().Draw(t, "open")
		m.composer.setText(drawText(t) + "\t\a\ufffd\r")
		m.session.failure = drawText(t)
		m.composer.attachments = make([]attachment, rapid.IntRange(0, 9).Draw(t, "attachments"))
		switch rapid.IntRange(0, 4).Draw(t, "dialog") {
		case 0:
			m.showPalette()
		case 1:
			m.show(newHelp())
		case 2:
			m.show(newText("title "+drawText(t), drawText(t)))
		case 3:
			m.fail(fmt.Errorf("%s", strings.Repeat(drawText(t), 3)))
		}
		m.layout(true)
		view := strings.Split(m.View().Content, "\n")
		if len(view) != height {
			t.Fatalf("the screen has %d lines, of %d:\n%s", len(view), height, strings.Join(view, "\n"))
		}
		for _, line := range view {
			if w := m.cells.StringWidth(line); w > width {
				t.Fatalf("a line has %d columns, of %d: %q", w, width, line)
			}
		}
	})
}

func TestScrollDownAndUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testModel(t, 80, 12, drawMessages(t)...)
		m.scrollTo(0)
		from := m.start()
		n := rapid.IntRange(0, 200).Draw(t, "lines")
		m.scroll(n)
		moved := 0
		for at := from; at.before(m.start()); moved++ {
			k := 1
			at = m.each(at, func(int, string) bool { k--; return k >= 0 })
		}
		if back := m.up(m.start(), moved); m.linesFrom(back) != m.linesFrom(from) {
			t.Fatalf("%d lines down and up lead from %v to %v", moved, from, back)
		}
	})
}

// linesFrom returns the lines from a place to the end, which say where it is.
func (m *model) linesFrom(p place) string {
	var lines []string
	m.each(p, func(_ int, line string) bool { lines = append(lines, line); return true })
	return strings.Join(lines, "\n")
}

// A reply that grows has the same lines as when it has ended, at every step.
func TestGrowingReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := testModel(t, 80, 20, loquat.Message{Role: "user", Content: "x"})
		whole := ""
		for i, part := range rapid.SliceOfN(text, 1, 30).Draw(t, "parts") {
			whole += part
			e := loquat.Event{EventID: loquat.EventID(11 + i), Type: loquat.Partial, SessionID: "s", RequestID: "r", Message: &loquat.Delta{Role: "assistant", Content: part}}
			feedMsg{feed: m.feed, events: []loquat.Event{e}}.apply(m)
			m.laidOut(m.session.total()) // as each frame does
		}
		var ended markdown.Document
		ended.SetText(whole)
		if got, want := m.allLines(m.transcript.draft.grow("r", whole)), m.allLines(&ended); got != want {
			t.Fatalf("growing:\n%s\nended:\n%s", got, want)
		}
	})
}

func (m *model) allLines(doc *markdown.Document) string {
	var lines []string
	for i := range doc.Len() {
		lines = append(lines, m.transcript.md.Render(doc.Block(i))...)
	}
	return strings.Join(lines, "\n")
}

// What could not be loaded, because the connection was lost, is loaded again with the next one.
func TestMissedLoads(t *testing.T) {
	m := testModel(t, 80, 20)
	loads := 0
	var err error
	part := func() tea.Cmd {
		return load(m, "the part", func(context.Context, *client.Client, string) (int, error) { return 7, err }, func(_ *model, v int) tea.Cmd { loads += v; return nil })
	}
	err = errors.New("no answer")
	m.composer.setText("hello")
	m.notice = notice{text: "not sent", bad: true, unsent: true}
	m.Update(part()())
	if m.notice.text != "not sent" {
		t.Errorf("a load that failed replaces what the user has to know: %q", m.notice.text)
	}
	m.notice = notice{}
	m.Update(part()())
	if loads != 0 || len(m.session.missed) != 1 || !strings.Contains(m.notice.text, "the part could not be loaded") {
		t.Fatalf("%d loads, missed %v, %q", loads, m.session.missed, m.notice.text)
	}
	feedMsg{feed: m.feed, line: &client.LineState{Err: err}}.apply(m)
	if len(m.session.missed) != 1 {
		t.Fatal("it was loaded without a connection")
	}
	err = nil
	again := m.loadMissed()
	m.Update(again())
	if loads != 7 || len(m.session.missed) != 0 {
		t.Errorf("%d loads, missed %v", loads, m.session.missed)
	}
	m.session.missed["the part"] = part
	feedMsg{feed: m.feed, line: &client.LineState{Connected: true}}.apply(m)
	if len(m.session.missed) != 0 {
		t.Error("the new connection loads nothing")
	}
}

func TestList(t *testing.T) {
	at := func(n int64) *time.Time { v := time.Unix(n, 0); return &v }
	l := list{archived: loquat.ArchivedNo}
	titles := func() string {
		var out []string
		for _, r := range l.rows {
			out = append(out, r.SessionID)
		}
		return strings.Join(out, " ")
	}
	for _, step := range []struct {
		e    loquat.Event
		want string
	}{
		{loquat.Event{Type: loquat.SessionCreated, SessionID: "a", CreatedAt: at(1)}, "a"},
		{loquat.Event{Type: loquat.SessionCreated, SessionID: "b", CreatedAt: at(2)}, "b a"},
		{loquat.Event{Type: loquat.Checkpoint, SessionID: "a", Timestamp: at(3)}, "a b"},
		{loquat.Event{Type: loquat.Checkpoint, SessionID: "b", Timestamp: at(1), AgentID: "x", Metadata: loquat.Object{}.Set("pinned", true)}, "b a"},
		{loquat.Event{Type: loquat.Checkpoint, SessionID: "c", Timestamp: at(9)}, "b a"}, // of a page that is not loaded
		{loquat.Event{Type: loquat.Checkpoint, SessionID: "b", Timestamp: at(1), AgentID: "x", Metadata: loquat.Object{}.Set("archived", true)}, "a"},
		{loquat.Event{Type: loquat.SessionDeleted, SessionID: "a"}, ""},
	} {
		if l.apply(step.e); titles() != step.want {
			t.Fatalf("after %s of %s the rows are %q, want %q", step.e.Type, step.e.SessionID, titles(), step.want)
		}
	}
}

// The open session is selected in the list, also if the list comes after it. A search begins at its first find.
func TestOpenSessionIsSelected(t *testing.T) {
	for search, want := range map[string]string{"": "s", "words": "first"} {
		m := testModel(t, 80, 24)
		m.list.search = search
		m.showList()
		var page loquat.SessionList
		for _, id := range []string{"first", "s", "last"} {
			page.Sessions = append(page.Sessions, loquat.SessionSummary{SessionID: id})
		}
		m.setRows(loquat.SessionQuery{Text: search, Archived: m.list.archived}, rows{page: page}, nil)
		if got := m.list.rows[m.list.selected].SessionID; got != want {
			t.Errorf("search %q: %q is selected, want %q", search, got, want)
		}
	}
}

func TestRun(t *testing.T) {
	now := time.Unix(100, 0)
	r := &run{id: "r", begun: now, phase: phaseWaiting}
	delay := 2.5
	part := "out"
	for _, step := range []struct {
		e    loquat.Event
		want string
	}{
		{loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Metadata: loquat.Object{}.Set("reasoning", "hm")}}, "thinking · 0 s"},
		{loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Content: "x"}}, "writing · 0 s"},
		{loquat.Event{Type: loquat.RetryScheduled, Attempt: 1, Cause: "status", Status: 503, DelaySeconds: &delay}, "attempt 2 in 3 s: the backend failed (HTTP status 503)"},
		{loquat.Event{Type: loquat.RetryScheduled, Attempt: 2, Cause: "rate_limit"}, "attempt 3 in 0 s: the backend failed (rate limit)"},
		{loquat.Event{Type: loquat.ToolCalls, ToolCalls: []loquat.ToolCall{{ID: "c"}}}, "running tools · 0 s"},
		{loquat.Event{Type: loquat.ToolPartial, ToolCallID: "c", Payload: &loquat.Payload{Part: &part}}, "running tools · 0 s"},
		{loquat.Event{Type: loquat.ToolResults}, "waiting for the model · 0 s"},
	} {
		if r.apply(step.e, now); r.indicator(now) != step.want {
			t.Errorf("after %s: %q, want %q", step.e.Type, r.indicator(now), step.want)
		}
		if step.e.Type == loquat.ToolPartial && r.tools[0].output != "out" {
			t.Errorf("the output is %q", r.tools[0].output)
		}
	}
}

// A request that failed before it changed a message comes again with the first events after the load. It is
// known to have ended, so the user can ask again at once.
func TestEndedRequestStaysEnded(t *testing.T) {
	m := testModel(t, 80, 24)
	m.session = newSession(loaded{head: loquat.Session{SessionID: "s"}, page: loquat.MessagePage{CursorEventID: 10,
		Waiting: loquat.Waiting{LastRequest: &loquat.LastRequest{RequestID: "r", Status: loquat.StatusFailed, Error: "broken"}}}}, m.now())
	feedMsg{feed: m.feed, events: []loquat.Event{{EventID: 11, Type: loquat.RequestStarted, SessionID: "s", RequestID: "r"}}}.apply(m)
	if m.session.run != nil || m.session.failure != "broken" {
		t.Errorf("the request runs again: %v, and the failure is %q", m.session.run != nil, m.session.failure)
	}
	// A send that waited was withdrawn meanwhile: it starts and ends while the other one runs.
	for i, e := range []loquat.Event{{Type: loquat.RequestStarted, RequestID: "w"}, {Type: loquat.RequestCompleted, RequestID: "w"},
		{Type: loquat.ErrorEvent, RequestID: "r", Detail: "broken"}, {Type: loquat.RequestCompleted, RequestID: "r"}} {
		e.EventID, e.SessionID = loquat.EventID(12+i), "s"
		feedMsg{feed: m.feed, events: []loquat.Event{e}}.apply(m)
		if m.session.run != nil || m.session.failure != "broken" {
			t.Errorf("after %s of %s the request that runs is %v, and the failure is %q", e.Type, e.RequestID, m.session.run, m.session.failure)
		}
	}
	feedMsg{feed: m.feed, events: []loquat.Event{{EventID: 20, Type: loquat.RequestStarted, SessionID: "s", RequestID: "next"}}}.apply(m)
	if m.session.run == nil || m.session.run.id != "next" || m.session.failure != "" {
		t.Error("the next request does not run")
	}
}

// The palette is open while the reply ends, or while what waited begins: the command says that it is not possible.
func TestCommandThatIsTooLate(t *testing.T) {
	for title, change := range map[string]func(s *session){
		"Stop the reply":                        func(s *session) { s.run = nil },
		"Take back the last message that waits": func(s *session) { s.queue = nil },
	} {
		m := testModel(t, 80, 24)
		m.session.run, m.session.queue = &run{id: "r"}, []loquat.QueuedSend{{RequestID: "q"}}
		m.showPalette()
		m.top().paste(m, title)
		change(m.session)
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
		if m.top() != nil || !strings.Contains(m.notice.text, "not possible now") {
			t.Errorf("%s: the notice is %q", title, m.notice.text)
		}
	}
}

// A palette whose items change keeps what is selected.
func TestPaletteKeepsItsSelection(t *testing.T) {
	m := testModel(t, 80, 24)
	m.session.run = &run{id: "r"}
	m.showPalette()
	p := m.top().(*picker)
	p.selected = slices.IndexFunc(p.items, func(it item) bool { return it.title == "Fork the chat" })
	m.session.run = nil
	p.reload(m)
	if got := p.items[p.selected].title; got != "Fork the chat" {
		t.Errorf("%q is selected", got)
	}
}

// Messages go while one of them is edited or selected.
func TestMessagesThatAreGone(t *testing.T) {
	m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"}, loquat.Message{Role: "assistant", Content: "a reply"})
	m.setFocus(focusTranscript)
	m.transcript.selected = 1
	m.editMessage()
	feedMsg{feed: m.feed, events: []loquat.Event{{EventID: 11, Type: loquat.MessagesDeleted, SessionID: "s", Indices: []int{1}}}}.apply(m)
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if !m.notice.bad || m.composer.area.Value() != "a reply" {
		t.Errorf("the notice is %q, the composer has %q", m.notice.text, m.composer.area.Value())
	}
	m.transcript.selected = 1
	m.opening = "s"
	m.opened("s", loaded{head: loquat.Session{SessionID: "s"}, page: loquat.MessagePage{Total: 1, Messages: []loquat.Message{{ID: "m0", Role: "user"}}, CursorEventID: 12}}, nil)
	m.feed.stop()
	if m.transcript.selected != 0 {
		t.Errorf("message %d is selected of one", m.transcript.selected)
	}
}

// An edit whose save fails after the user has gone elsewhere waits in its chat as a draft, with its images.
func TestFailedEditElsewhere(t *testing.T) {
	m := testModel(t, 80, 24)
	m.newChat()
	m.composer.setText("a new message")
	image := loquat.Object{}.Set("attachments", []any{map[string]any{"url": "https://example.org/a.png"}})
	m.saved("s", &edit{message: loquat.Message{Role: "user", Metadata: image}}, "edited", errors.New("lost"))
	if d := m.composer.drafts["s"]; d.text != "edited" || len(d.attachments) != 1 || m.composer.editing != nil || m.composer.area.Value() != "a new message" {
		t.Errorf("the draft is %+v, the composer has %q", d, m.composer.area.Value())
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
}

// No draft goes because another chat is opened, is still loading, or is deleted.
func TestDraftsStay(t *testing.T) {
	m := testModel(t, 80, 24)
	m.newChat()
	m.composer.setText("for a new chat")
	m.open("a")
	m.composer.setText("for a")
	m.open("b") // while a is loading
	m.newChat()
	if got := m.composer.area.Value(); got != "for a new chat" {
		t.Errorf("the new chat has %q", got)
	}
	m.open("a")
	m.composer.setText("more for a") // before its draft is back
	m.open("b")
	if got := m.composer.drafts["a"].text; got != "for a\n\nmore for a" {
		t.Errorf("the draft of a is %q", got)
	}
	m.opening = "b"
	m.opened("b", loaded{}, &loquat.Error{Code: loquat.CodeNotFound, Err: errors.New("gone")})
	if got := m.composer.area.Value(); got != "for a new chat" {
		t.Errorf("after a chat that is not there, the new chat has %q", got)
	}
	m.composer.setText("")
	if m.leave(); !m.asked {
		t.Error("the draft of another chat is left without a word")
	}
}

// The failure of an older request is not shown next to the reply of a newer one.
func TestFailureOfAnotherRequest(t *testing.T) {
	m := testModel(t, 80, 24)
	m.session.run = &run{id: "r2"}
	for i, e := range []loquat.Event{{Type: loquat.RequestStarted, RequestID: "r1"}, {Type: loquat.ErrorEvent, RequestID: "r1", Detail: "broken"}, {Type: loquat.RequestCompleted, RequestID: "r1"}} {
		e.EventID, e.SessionID = loquat.EventID(11+i), "s"
		feedMsg{feed: m.feed, events: []loquat.Event{e}}.apply(m)
	}
	if m.session.failure != "" || m.session.run == nil {
		t.Errorf("the failure is %q", m.session.failure)
	}
}

// A new chat that begins while the open one is loaded again is followed all the same.
func TestNewChatDuringReload(t *testing.T) {
	m := testModel(t, 80, 24)
	m.reload()
	m.newChat()
	cursor := loquat.EventID(20)
	m.setRows(loquat.SessionQuery{Archived: loquat.ArchivedNo}, rows{page: loquat.SessionList{CursorEventID: &cursor}}, nil)
	m.reloadSession()
	if m.feed == nil || m.reloading {
		t.Error("nothing is followed")
	}
	m.feed.stop()
}

// Older messages that could not be loaded are not asked for again at once.
func TestOlderMessagesThatFail(t *testing.T) {
	m := testModel(t, 80, 24)
	m.session = newSession(loaded{head: loquat.Session{SessionID: "s"}, page: loquat.MessagePage{Total: 2, Messages: []loquat.Message{{ID: "m1", Role: "user"}}}}, m.now())
	load := m.loadMissing()
	if load == nil {
		t.Fatal("the older message is not loaded")
	}
	if later := load().(answer).apply(m); later == nil || m.loadMissing() != nil {
		t.Error("it is asked for again at once, or never")
	}
}

// A picker that could not be loaded does not open by itself when the connection is back.
func TestPickerThatFails(t *testing.T) {
	m := testModel(t, 80, 24)
	m.pickModel()().(answer).apply(m)
	if !m.notice.bad || m.loadMissed() != nil {
		t.Errorf("it is loaded again; the notice is %q", m.notice.text)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ element, text, want, fault string }{
		{`{"type":"text"}`, "a", `"a"`, ""},
		{`{"type":"text"}`, "", `null`, ""},
		{`{"type":"number"}`, " 1.5 ", `1.5`, ""},
		{`{"type":"number"}`, "x", ``, "is not a number"},
		{`{"type":"text","format":"json"}`, `{"a":1}`, `{"a":1}`, ""},
		{`{"type":"multiline","format":"json"}`, `{`, ``, "is not JSON"},
		{`{"type":"multiline","format":"json"}`, ` `, `null`, ""},
	} {
		var e loquat.Object
		if err := json.Unmarshal([]byte(c.element), &e); err != nil {
			t.Fatal(err)
		}
		got, err := (&field{element: e}).parse(c.text)
		if string(got) != c.want || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s %q: %s, %v", c.element, c.text, got, err)
		}
	}
}

// A user can give an input of every type a value: with the arrows, with Enter, or as a text.
func TestInputTypes(t *testing.T) {
	for _, kind := range ui.InputTypes() {
		m := testModel(t, 80, 24)
		f := newDialogForm("", "", []loquat.Object{loquat.Object{}.Set("name", "x").Set("type", kind).Set("options", []string{"a", "b"})}, nil)
		press := func(code rune) { f.press(m, tea.KeyPressMsg{Code: code}) }
		x := f.fields[0]
		press(tea.KeyRight)
		if isNull(x.value) {
			press(tea.KeyEnter)
		}
		if isNull(x.value) {
			f.paste(m, "1")
			f.pressText(m, tea.KeyPressMsg{Code: 's', Mod: tea.ModCtrl})
		}
		if isNull(x.value) || x.fault != "" {
			t.Errorf("no value can be given to a %s (%s); edit, parse and optionsOf in form.go say how its value is given", kind, x.fault)
		}
	}
}

// Each type of element is drawn somewhere.
func TestElementsAreDrawn(t *testing.T) {
	m := testModel(t, 100, 24, loquat.Message{Role: "user", Content: "a question"}, loquat.Message{Role: "assistant", Content: "a reply"})
	m.transcript.selected = 1
	screen := func(open func() tea.Cmd) func() string {
		return func() string {
			open()
			m.layout(true)
			defer func() { m.dialogs = nil }()
			return m.View().Content
		}
	}
	nothing := func() tea.Cmd { return nil }
	drawn := map[string]func() string{
		"config":         screen(m.showSettings),
		"message_footer": screen(nothing),
		"status_bar":     screen(nothing),
		"session_action": screen(func() tea.Cmd {
			cmd := m.showPalette()
			m.Update(tea.PasteMsg{Content: "mark"})
			return cmd
		}),
		"message_action":     screen(m.showMessageActions),
		"session_list_field": func() string { return m.fieldsOf(loquat.SessionSummary{Metadata: loquat.Object{}.Set("role", "x")}) },
		"model_picker":       m.modelKey,
		// What /attach attaches is checked by the server, which says what the agent takes.
		"composer_attachment": nil,
	}
	for uiType := range ui.Attributes {
		draw, known := drawn[uiType]
		if !known {
			t.Errorf("%s: add to the table of this test where the terminal draws it, or nil and why it does not", uiType)
		}
		if draw == nil {
			continue
		}
		e := objectOf(t, `{"ui_type":"`+uiType+`","key":"the mark","id":"a","action_id":"a","label":"the mark","type":"text","data":"role","template":"the mark"}`)
		for _, elements := range [][]loquat.Object{nil, {e}} {
			m.setSchema(schema{elements: elements})
			m.list.fields = elements
			if got := draw(); strings.Contains(got, "the mark") != (elements != nil) {
				t.Errorf("%d elements of type %s are drawn as\n%s", len(elements), uiType, got)
			}
		}
	}
}

func TestActionParams(t *testing.T) {
	m := testModel(t, 80, 24)
	var e, values loquat.Object
	for text, o := range map[string]*loquat.Object{
		`{"param_map":{"id":"$session.session_id","at":"$message.index","who":"$dialog.name","other":"$dialog.missing"},"fixed_params":{"format":"text"}}`: &e,
		`{"name":"Ada","loud":true}`: &values,
	} {
		if err := json.Unmarshal([]byte(text), o); err != nil {
			t.Fatal(err)
		}
	}
	got, err := json.Marshal(m.actionParams(e, decodedMessage(7, loquat.Message{}), values))
	if want := `{"at":7,"format":"text","id":"s","loud":true,"who":"Ada"}`; err != nil || string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestImagePath(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("there is no home:", err)
	}
	for text, want := range map[string]string{
		"/a/b.png": "/a/b.png", "'/a/b c.JPG'": "/a/b c.JPG", `/a/b\ c.webp `: "/a/b c.webp", "file:///a/b.gif": "/a/b.gif", "~/b.png": filepath.Join(home, "b.png"),
		"b.png": "", "/a/b.txt": "", "/a/b.png\n/a/c.png": "", "look at /a/b.png": "",
	} {
		if got, ok := imagePath(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q (%v), want %q", text, got, ok, want)
		}
	}
}

// A send that failed is repeated under its id, also after a visit to another chat. Its text and its
// images stay.
func TestRepeatedSend(t *testing.T) {
	m := testModel(t, 80, 24)
	try := func(text string) string {
		t.Helper()
		m.composer.setText(text)
		m.composer.attachments = []attachment{{url: "https://example.org/a.png"}}
		m.submit(loquat.BusyQueue)
		id := m.composer.requestID
		sentMsg{sessionID: "s", attachments: m.composer.attachments, err: errors.New("lost")}.apply(m)
		if got := m.composer.area.Value(); got != text || len(m.composer.attachments) != 1 || m.composer.sending || !m.notice.bad {
			t.Fatalf("after a failure the composer has %q and %d images", got, len(m.composer.attachments))
		}
		return id
	}
	first := try("hello")
	if again := try("hello"); again != first {
		t.Errorf("the repeat has the id %q, the first send had %q", again, first)
	}
	m.open("other")
	if m.composer.hasDraft() {
		t.Error("the draft is in the other chat, too")
	}
	m.opening = ""
	m.session = nil
	m.restoreDraft("s")
	if again := try("hello"); again != first {
		t.Errorf("after another chat the repeat has the id %q, the first send had %q", again, first)
	}
	if other := try("other words"); other == first {
		t.Error("another message has the same id")
	}
}

// The session is deleted elsewhere while its user does something with it: nothing breaks, and the
// text that was being edited stays.
func TestDeletedWhileInUse(t *testing.T) {
	for name, use := range map[string]func(m *model){
		"edit":      func(m *model) { m.setFocus(focusTranscript); m.editMessage() },
		"selection": func(m *model) { m.setFocus(focusTranscript) },
		"delete":    func(m *model) { m.setFocus(focusTranscript); m.deleteMessage() },
		"settings":  func(m *model) { m.showSettings() },
		"palette":   func(m *model) { m.showPalette() },
		"actions":   func(m *model) { m.setFocus(focusTranscript); m.showMessageActions() },
	} {
		t.Run(name, func(t *testing.T) {
			m := testModel(t, 80, 24, loquat.Message{Role: "user", Content: "a question"})
			use(m)
			feedMsg{feed: m.feed, events: []loquat.Event{{EventID: 11, Type: loquat.SessionDeleted, SessionID: "s"}}}.apply(m)
			for _, key := range []tea.KeyPressMsg{{Code: tea.KeyEnter}, {Text: "y", Code: 'y'}, {Code: tea.KeyUp}, {Code: 's', Mod: tea.ModCtrl}, {Code: tea.KeyTab}, {Code: tea.KeyEscape}} {
				m.Update(key)
				m.View()
			}
			if m.session != nil {
				t.Error("the session is still open")
			}
			if got := m.composer.area.Value(); name == "edit" && !strings.HasPrefix(got, "a question") && m.composer.sent == "" {
				t.Errorf("the text that was edited became %q", got)
			}
		})
	}
}

// Each key has one meaning in each part of the screen.
func TestKeysAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, c := range commands() {
		for _, key := range c.keys {
			for _, place := range []focus{focusComposer, focusTranscript, focusList} {
				if c.local && c.where != place {
					continue
				}
				id := fmt.Sprint(key, " ", place)
				if before := seen[id]; before != "" {
					t.Errorf("%s is both %q and %q", keyName(key), before, c.title)
				}
				seen[id] = c.title
			}
		}
	}
}
