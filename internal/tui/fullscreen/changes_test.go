package fullscreen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// calls is a server that keeps what it is asked, and answers by answer, or with an empty object.
type calls struct {
	got    []string // method, path, If-Match and body
	answer func(r *http.Request) (int, any)
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.got = append(c.got, strings.Join(strings.Fields(r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match")+" "+string(body)), " "))
	status, answer := 200, any(map[string]any{})
	if c.answer != nil {
		status, answer = c.answer(r)
	}
	if err := r.Context().Err(); err != nil { // the client has waited for too long
		return nil, err
	}
	header := http.Header{}
	if status >= 400 {
		header.Set("Content-Type", "application/problem+json")
	}
	raw, err := json.Marshal(answer)
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(string(raw))), Request: r}, err
}

// changed returns the calls that change something.
func (c *calls) changed() string {
	var list []string
	for _, call := range c.got {
		if !strings.HasPrefix(call, "GET ") {
			list = append(list, call)
		}
	}
	return strings.Join(list, "\n")
}

// onServer runs a test of a model whose time is that of the test, and whose server is c.
func onServer(t *testing.T, fn func(t *testing.T, m *model, c *calls), messages ...loquat.Message) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		m := testModel(t, 80, 24, messages...)
		var err error
		if m.server.Client, err = client.New("http://127.0.0.1:1", client.Options{HTTPClient: &http.Client{Transport: c}}); err != nil {
			t.Fatal(err)
		}
		m.now = time.Now
		fn(t, m, c)
	})
}

// run runs commands and those that follow from them, until none is left.
func (m *model) run(cmds ...tea.Cmd) {
	_, next := m.Update(nil)
	for cmds = append(cmds, next); len(cmds) > 0; cmds = cmds[1:] {
		if cmds[0] == nil {
			continue
		}
		switch msg := cmds[0]().(type) {
		case tea.BatchMsg:
			cmds = append(cmds, msg...)
		case tickMsg, nil:
		default:
			_, next := m.Update(msg)
			cmds = append(cmds, next)
		}
	}
}

func (m *model) feedEvents(events ...loquat.Event) {
	for i := range events {
		events[i].SessionID = "s"
	}
	feedMsg{feed: m.feed, events: events}.apply(m)
}

// p pressed twice pins and unpins, and a pressed twice archives and restores: the second change begins with what the
// first one has changed, also if the chat has left the list in between.
func TestLabelTwice(t *testing.T) {
	for label, id := range map[string]string{loquat.MetaPinned: "s", loquat.MetaArchived: "row"} {
		onServer(t, func(t *testing.T, m *model, c *calls) {
			m.list.rows = []loquat.SessionSummary{{SessionID: "row"}}
			event := loquat.EventID(20)
			c.answer = func(*http.Request) (int, any) {
				e := loquat.Event{EventID: event, Type: loquat.Checkpoint, SessionID: id, AgentID: "a", Metadata: loquat.Object{}.Set(label, event == 20)}
				feedMsg{feed: m.feed, events: []loquat.Event{e}}.apply(m)
				event++
				return 200, loquat.Snapshot{CursorEventID: event - 1}
			}
			m.run(m.toggleLabel(id, label), m.toggleLabel(id, label))
			want := fmt.Sprintf(`PATCH /sessions/%s {"metadata":{"%s":true}}`+"\n"+`PATCH /sessions/%s {"metadata":{"%s":false}}`, id, label, id, label)
			if c.changed() != want {
				t.Errorf("the calls are\n%s", c.changed())
			}
		})
	}
}

// A change whose events do not come, as while the connection is lost, holds up the next one for a moment only. One
// that fails does not hold it up at all. The user learns of both failures.
func TestChangesGoOn(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(*http.Request) (int, any) { return 200, loquat.Snapshot{CursorEventID: 20} }
		begun := time.Now()
		m.run(m.toggleLabel("s", loquat.MetaPinned), m.toggleLabel("s", loquat.MetaArchived))
		if took := time.Since(begun); len(c.got) != 2 || took < eventsPause || took > 3*eventsPause {
			t.Errorf("after %s there were %d calls", took, len(c.got))
		}
		c.answer = func(*http.Request) (int, any) { return 500, nil }
		m.run(m.override("level", json.RawMessage("1")), m.override("level", json.RawMessage("2")))
		want := `PUT /sessions/s/config/level {"value":1}` + "\n" + `PUT /sessions/s/config/level {"value":2}`
		if !strings.HasSuffix(c.changed(), want) || !m.notice.bad || m.changes.unsaved() {
			t.Errorf("the notice is %q, the calls are\n%s", m.notice.text, c.changed())
		}
	})
}

// Nobody leaves a change that was not saved without a word, or takes it to another server.
func TestLeavingAChange(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, _ *calls) {
		m.toggleLabel("s", loquat.MetaPinned)
		m.useServer(Server{Name: "other"})
		if m.server.Name != "test" || !m.notice.bad {
			t.Errorf("the server is %s, the notice %q", m.server.Name, m.notice.text)
		}
		if m.leave(); !m.asked {
			t.Error("the change is left without a word")
		}
	})
}

// A change by index names the newest checkpoint, so that a repeat after a lost answer cannot hit another message.
func TestIndicesNameTheCheckpoint(t *testing.T) {
	messages := []loquat.Message{{Role: "user", Content: "a question"}, {Role: "assistant", Content: "a reply"}}
	for want, change := range map[string]func(m *model){
		`DELETE /sessions/s/messages "0000000000000015" {"indices":[1]}`: func(m *model) {
			m.deleteMessage()
			m.top().press(m, tea.KeyPressMsg{Code: 'y', Text: "y"})
		},
		`PATCH /sessions/s/messages/1 "0000000000000015" {"content":"a reply!"}`: func(m *model) {
			m.editMessage()
			m.composer.setText("a reply!")
			m.saveEdit(false)
		},
		`POST /sessions/s/send "0000000000000015" {"content":"why?"`: func(m *model) {
			m.transcript.selected = 0
			m.editMessage()
			m.composer.setText("why?")
			m.run(m.saveEdit(true))
		},
		`POST /sessions/s/send "0000000000000015" {`: func(m *model) { m.regenerate() },
	} {
		onServer(t, func(t *testing.T, m *model, c *calls) {
			m.setFocus(focusTranscript)
			m.transcript.selected = 1
			m.feedEvents(loquat.Event{EventID: 15, Type: loquat.Checkpoint})
			c.answer = func(*http.Request) (int, any) {
				return 412, map[string]any{"code": "precondition_failed", "detail": "checkpoint 16"}
			}
			change(m)
			m.run()
			if !strings.HasPrefix(c.changed(), want) || len(c.got) > 2 || !strings.Contains(m.notice.text, "the chat has changed meanwhile") {
				t.Errorf("want %s, got %s; the notice is %q", want, c.changed(), m.notice.text)
			}
		}, messages...)
	}
}

// The client repeats a request once if the session has only changed in another way, for example in its title.
func TestChangedMeanwhile(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(r *http.Request) (int, any) {
			if strings.Contains(r.Header.Get("If-Match"), "15") {
				return 202, loquat.SendResult{}
			}
			m.feedEvents(loquat.Event{EventID: 15, Type: loquat.Checkpoint, AgentID: "a"})
			return 412, map[string]any{"code": "precondition_failed"}
		}
		if m.run(m.regenerate()); strings.Count(c.changed(), "POST") != 2 || m.notice.bad {
			t.Errorf("the notice is %q, the calls are\n%s", m.notice.text, c.changed())
		}
	}, loquat.Message{Role: "assistant", Content: "a reply"})
}

// What is pressed twice by accident happens once.
func TestAskedTwice(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(*http.Request) (int, any) { // the reply is there before the second one begins
			m.feedEvents(loquat.Event{EventID: 20, Type: loquat.MessagesDeleted, Indices: []int{1}},
				loquat.Event{EventID: 21, Type: loquat.Final, Messages: []loquat.Message{{ID: "new", Role: "assistant"}}})
			return 202, loquat.SendResult{CursorEventID: 20}
		}
		m.run(m.tryAgain(), m.tryAgain())
		if n := strings.Count(c.changed(), "POST"); n != 1 {
			t.Errorf("%d calls:\n%s", n, c.changed())
		}
	}, loquat.Message{Role: "user", Content: "a question"}, loquat.Message{Role: "assistant", Content: "a reply"})
}

// Two steps through the alternatives lead to the second one from here.
func TestAlternativeTwice(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.session.alternatives = groupAlternatives([]loquat.Alternative{
			{AlternativeID: "one", InPlace: true}, {AlternativeID: "two"}, {AlternativeID: "three"},
		})
		m.run(m.alternative(1), m.alternative(1), m.alternative(1))
		want := "POST /sessions/s/alternatives/two/switch\nPOST /sessions/s/alternatives/three/switch"
		if c.changed() != want || !strings.Contains(m.notice.text, "no other version") {
			t.Errorf("the notice is %q, the calls are\n%s", m.notice.text, c.changed())
		}
	}, loquat.Message{Role: "assistant", Content: "a reply"})
}

// Messages that wait come back one by one, behind what is in the composer, and only if they do not wait now.
func TestTakeBack(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		for _, id := range []string{"one", "two", "three"} {
			m.session.queue = append(m.session.queue, loquat.QueuedSend{RequestID: id, Message: loquat.Message{Content: id}})
		}
		m.composer.setText("draft")
		c.answer = func(*http.Request) (int, any) { return 202, loquat.CancelResult{Status: loquat.StatusCancelled} }
		m.run(m.takeBack(), m.takeBack())
		if got, want := m.composer.area.Value(), "draft\n\nthree\n\ntwo"; got != want {
			t.Errorf("the composer has %q, want %q", got, want)
		}
		c.answer = func(*http.Request) (int, any) { return 202, loquat.CancelResult{Status: loquat.StatusRunning} }
		if m.run(m.takeBack()); strings.Contains(m.composer.area.Value(), "one") || !strings.Contains(m.notice.text, "had begun") {
			t.Errorf("the composer has %q, the notice is %q", m.composer.area.Value(), m.notice.text)
		}
		c.answer = func(*http.Request) (int, any) { return 404, nil }
		if m.run(m.takeBack()); strings.Contains(m.composer.area.Value(), "one") || len(m.session.queue) != 1 || !m.notice.bad {
			t.Errorf("the composer has %q, the notice is %q", m.composer.area.Value(), m.notice.text)
		}
	})
}

// A message that waited is a draft of its chat if another one is open by then.
func TestTakeBackElsewhere(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.session.queue = []loquat.QueuedSend{{RequestID: "one", Message: loquat.Message{Content: "one"}}}
		c.answer = func(*http.Request) (int, any) {
			m.newChat()
			m.feed.stop()
			return 202, loquat.CancelResult{Status: loquat.StatusCancelled}
		}
		m.run(m.takeBack())
		if m.composer.drafts["s"].text != "one" || m.composer.hasDraft() {
			t.Errorf("the drafts are %v, the composer has %q", m.composer.drafts, m.composer.area.Value())
		}
	})
}

// A setting shows its new value at once, and keeps it while older answers come.
func TestSettingThatIsSaved(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, _ *calls) {
		before := schema{elements: []loquat.Object{loquat.Object{}.Set("ui_type", "config").Set("key", "loud").Set("type", "checkbox")},
			values: map[string]loquat.ConfigValue{"loud": {Value: json.RawMessage("false")}}}
		m.setSchema(before)
		m.showSettings()
		f := m.top().(*form)
		f.edit(m)
		m.setSchema(before)
		if got := string(f.fields[0].value); got != "true" {
			t.Errorf("the value is %s", got)
		}
		f.edit(m)
		if got := string(f.fields[0].value); got != "false" || len(m.changes.waiting) != 2 {
			t.Errorf("after the second key the value is %s, and %d changes wait", got, len(m.changes.waiting))
		}
	})
}

// The fault of a setting is not shown at the settings of another chat.
func TestSettingOfAnotherChat(t *testing.T) {
	m := testModel(t, 80, 24)
	before := m.session
	m.session = newSession(loaded{head: loquat.Session{SessionID: "other"}}, m.now())
	m.session.elements = []loquat.Object{loquat.Object{}.Set("ui_type", "config").Set("key", "level").Set("type", "number")}
	m.showSettings()
	m.settingSaved(before, "level", errors.New("too high"))
	if f := m.top().(*form); f.fields[0].fault != "" || !strings.Contains(m.notice.text, "another chat") {
		t.Errorf("the fault is %q, the notice %q", f.fields[0].fault, m.notice.text)
	}
}

// Of two answers the one that was asked for later counts, and an event that came since counts more.
func TestOldAnswers(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		answers := 0
		c.answer = func(*http.Request) (int, any) {
			answers++
			return 200, loquat.Queue{Queue: []loquat.QueuedSend{{RequestID: fmt.Sprint("answer ", answers)}}}
		}
		queued := func() string { return m.session.queue[0].RequestID }
		first, second := m.loadQueue(), m.loadQueue()
		m.Update(second())
		m.Update(first())
		if queued() != "answer 1" {
			t.Errorf("the queue is of %q", queued())
		}
		late := m.loadQueue()
		m.feedEvents(loquat.Event{EventID: 20, Type: loquat.QueueChanged, Queue: []loquat.QueuedSend{{RequestID: "event"}}})
		m.Update(late())
		if queued() != "event" {
			t.Errorf("the queue is of %q", queued())
		}
	})
}

// What one server answers is not shown when another one is in use.
func TestAnswersOfTheServerBefore(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(r *http.Request) (int, any) {
			if r.URL.Path == "/agents" {
				return 200, map[string]any{"agents": []loquat.Agent{{AgentID: "old"}}}
			}
			return 200, loquat.SessionList{Sessions: []loquat.SessionSummary{{SessionID: "old"}}}
		}
		m.list.stale = true
		late := []tea.Cmd{m.loadList(), m.pickAgent(), m.pickModel()}
		m.list.loading = false
		late = append(late, m.mergeRows())
		m.useServer(Server{Name: "other", Client: m.server.Client})
		for _, cmd := range late {
			m.Update(cmd())
		}
		if len(m.list.rows) != 0 || m.top() != nil || m.opening != "" || m.feed != nil {
			t.Errorf("rows %v, a dialog %v, opening %q", m.list.rows, m.top(), m.opening)
		}
	})
}

// A copy does not take the user away from where they are by then.
func TestForkElsewhere(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(*http.Request) (int, any) {
			return 201, loquat.Snapshot{Session: loquat.Session{SessionID: "copy"}}
		}
		m.fork("s")
		m.newChat()
		m.feed.stop()
		if m.run(); m.opening != "" || !strings.Contains(m.notice.text, "the list has the copy") {
			t.Errorf("opening %q, the notice is %q", m.opening, m.notice.text)
		}
		c.answer = func(r *http.Request) (int, any) {
			if r.Method == http.MethodGet {
				return 404, nil
			}
			return 201, loquat.Snapshot{Session: loquat.Session{SessionID: "copy"}}
		}
		if m.run(m.fork("s")); !slices.ContainsFunc(c.got, func(call string) bool { return strings.HasPrefix(call, "GET /sessions/copy/messages") }) {
			t.Errorf("the copy is not opened:\n%s", strings.Join(c.got, "\n"))
		}
	})
}

// A chat with events that are too old for the list is followed without it while its request runs.
func TestFollowedAlone(t *testing.T) {
	m := testModel(t, 80, 24)
	m.last, m.listed = 100, true
	m.session = newSession(loaded{head: loquat.Session{SessionID: "s"}, page: loquat.MessagePage{CursorEventID: 10, ActiveRequestID: "r"}, seen: 100}, m.now())
	m.follow()
	before := m.feed
	m.feedEvents(loquat.Event{EventID: 105, Type: loquat.Partial, RequestID: "r", Message: &loquat.Delta{Content: "x"}})
	if m.feed != before || m.last != 100 {
		t.Errorf("the list has events up to %s", m.last)
	}
	m.feedEvents(loquat.Event{EventID: 110, Type: loquat.RequestCompleted, RequestID: "r"})
	if m.feed == before || m.session.alone || m.last != 100 {
		t.Errorf("after its request the chat is followed alone: %v, and the list has events up to %s", m.session.alone, m.last)
	}
	m.feed.stop()
}

// That a message was not sent stays on the screen while it is in the composer.
func TestUnsentNoticeStays(t *testing.T) {
	m := testModel(t, 80, 24)
	m.composer.setText("hello")
	m.notice = notice{text: "not sent", bad: true, unsent: true}
	m.say("the chat is pinned")
	m.acted("Sum", json.RawMessage(`"3"`))
	if m.notice.text != "not sent" {
		t.Errorf("the notice is %q", m.notice.text)
	}
	m.composer.setText("")
	if m.say("the chat is pinned"); m.notice.text == "not sent" {
		t.Error("the notice stays for a message that is not there now")
	}
}

// The result of an action does not take the keys of somebody who is typing.
func TestResultWhileTyping(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, _ *calls) {
		m.Update(tea.KeyPressMsg{Code: 'a', Text: "a"})
		cmd := m.acted("Sum", json.RawMessage(`"3"`))
		if m.top() != nil {
			t.Fatal("it opens at once")
		}
		if m.run(cmd); m.top() == nil {
			t.Error("it does not open later")
		}
	})
}

// A picker is open while its items are loaded, so what is typed goes to it. Closed, it stays closed.
func TestPickerThatLoads(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(*http.Request) (int, any) {
			return 200, map[string]any{"agents": []loquat.Agent{{AgentID: "one"}, {AgentID: "two"}}}
		}
		load := m.pickAgent()
		m.top().paste(m, "tw")
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter}) // too early
		m.Update(load())
		if got := m.top().(*picker).matches(); len(got) != 1 || got[0].title != "two" {
			t.Errorf("the picker has %v", got)
		}
		m.closeDialog()
		load = m.pickAgent()
		m.closeDialog()
		if m.Update(load()); m.top() != nil {
			t.Error("it opens by itself")
		}
		c.answer = func(*http.Request) (int, any) { return 500, nil }
		if m.run(m.pickAgent()); m.top() != nil || !m.notice.bad {
			t.Errorf("after a failure the notice is %q", m.notice.text)
		}
	})
}

// The text of a message that waited is not lost with the answer: the client asks until it has one.
func TestTakeBackWithoutAnswer(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.session.queue = []loquat.QueuedSend{{RequestID: "one", Message: loquat.Message{Content: "one"}}}
		attempts := 0
		c.answer = func(*http.Request) (int, any) {
			if attempts++; attempts < 8 {
				m.feedEvents(loquat.Event{EventID: loquat.EventID(20 + attempts), Type: loquat.QueueChanged})
				return 503, map[string]any{"code": "unavailable"}
			}
			return 200, loquat.CancelResult{Status: loquat.StatusCancelled}
		}
		if m.run(m.takeBack()); m.composer.area.Value() != "one" {
			t.Errorf("after %d attempts the composer has %q", attempts, m.composer.area.Value())
		}
	})
}

// After a change of the server it cannot ask, and keeps the text as a draft of the chat.
func TestTakeBackFromTheServerBefore(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, _ *calls) {
		q := loquat.QueuedSend{RequestID: "one", Message: loquat.Message{Content: "one"}}
		later := withdraw(m.session, q).then(m, &loquat.Error{Code: loquat.CodeUnavailable, Detail: "no answer"})
		m.useServer(Server{Name: "other", Client: m.server.Client})
		if m.run(later); m.composer.drafts["s"].text != "one" {
			t.Errorf("the drafts are %v", m.composer.drafts)
		}
	})
}

// Steps through alternatives count also if the alternatives are loaded between them, and they stay with their message.
func TestAlternativesLoadedMeanwhile(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		list := func(in string) (all []loquat.Alternative) {
			for _, id := range []string{"one", "two", "three", "four"} {
				all = append(all, loquat.Alternative{AlternativeID: id, Index: 1, InPlace: id == in})
			}
			return all
		}
		m.session.alternatives = groupAlternatives(list("one"))
		m.transcript.selected = 1
		in := "one"
		c.answer = func(r *http.Request) (int, any) {
			if r.Method == http.MethodGet {
				return 200, map[string]any{"alternatives": list(in)}
			}
			in = strings.Split(r.URL.Path, "/")[4]
			m.session.alternatives = groupAlternatives(list(in)) // as a load does that is answered meanwhile
			m.transcript.selected = 0
			return 200, loquat.SwitchResult{}
		}
		m.run(m.alternative(1), m.alternative(1), m.alternative(1))
		want := "POST /sessions/s/alternatives/two/switch\nPOST /sessions/s/alternatives/three/switch\nPOST /sessions/s/alternatives/four/switch"
		if c.changed() != want {
			t.Errorf("the calls are\n%s", c.changed())
		}
	}, loquat.Message{Role: "user", Content: "a question"}, loquat.Message{Role: "assistant", Content: "a reply"})
}

// An edit that waits is saved also if its chat is loaded again, or another one is open by then.
func TestEditElsewhere(t *testing.T) {
	for name, leave := range map[string]func(m *model){
		"loaded again": func(m *model) {
			page := loquat.MessagePage{Total: 1, Messages: []loquat.Message{{ID: "m0", Role: "user", Content: "a question"}}, CursorEventID: 30, Checkpoint: 31}
			m.session = newSession(loaded{head: loquat.Session{SessionID: "s"}, page: page}, m.now())
		},
		"another chat": func(m *model) { m.newChat(); m.feed.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, m *model, c *calls) {
				m.editMessage()
				m.composer.setText("a better question")
				m.saveEdit(false)
				leave(m)
				m.run()
				checkpoint := map[string]string{"loaded again": "31", "another chat": "00"}[name]
				if got := c.changed(); !strings.HasPrefix(got, "PATCH /sessions/s/messages/0") || !strings.Contains(got, checkpoint+`" {`) {
					t.Errorf("the calls are\n%s", got)
				}
			}, loquat.Message{Role: "user", Content: "a question"})
		})
	}
}

// A copy and an action go by the message, not by the place that it had.
func TestMessageThatMoves(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.setFocus(focusTranscript)
		m.transcript.selected = 1
		m.feedEvents(loquat.Event{EventID: 15, Type: loquat.Checkpoint})
		c.answer = func(*http.Request) (int, any) { return 403, nil }
		m.run(m.forkMessage())
		if got := c.changed(); got != `POST /sessions/s/fork "0000000000000015" {"up_to_index":1}` {
			t.Errorf("the calls are\n%s", got)
		}
		m.forkMessage()
		msg, _ := m.session.message(1)
		m.session.elements = []loquat.Object{loquat.Object{}.Set("ui_type", "message_action").Set("id", "count").Set("action_id", "count")}
		act := m.actionItems("message_action", &msg)[0].run
		m.feedEvents(loquat.Event{EventID: 20, Type: loquat.MessagesDeleted, Indices: []int{0}})
		c.got = nil
		m.run()
		m.run(act(m))
		if c.changed() != "" || !strings.Contains(m.notice.text, "has moved") {
			t.Errorf("the notice is %q, the calls are\n%s", m.notice.text, c.changed())
		}
	}, loquat.Message{Role: "user", Content: "a question"}, loquat.Message{Role: "user", Content: "another one"})
}

// A value that the server refuses stays in the form, so that it can be corrected.
func TestRefusedSettingStays(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		now := schema{elements: []loquat.Object{loquat.Object{}.Set("ui_type", "config").Set("key", "rules").Set("type", "text")},
			values: map[string]loquat.ConfigValue{"rules": {Value: json.RawMessage(`"old"`)}}}
		m.setSchema(now)
		m.showSettings()
		c.answer = func(*http.Request) (int, any) {
			return 422, map[string]any{"code": "validation_error", "detail": "too long"}
		}
		f := m.top().(*form)
		m.run(f.set(m, json.RawMessage(`"new"`)))
		m.setSchema(now)
		if x := f.fields[0]; string(x.value) != `"new"` || x.fault == "" {
			t.Errorf("the value is %s, the fault %q", x.value, x.fault)
		}
		m.closeDialog()
		m.showSettings()
		if x := m.top().(*form).fields[0]; string(x.value) != `"old"` {
			t.Errorf("in a new form the value is %s", x.value)
		}
	})
}

// A text that is not allowed stays open.
func TestTextThatIsNotAllowed(t *testing.T) {
	m := testModel(t, 80, 24)
	f := newDialogForm("", "", []loquat.Object{loquat.Object{}.Set("name", "x").Set("type", "multiline").Set("format", "json").Set("required", true)}, nil)
	f.edit(m)
	f.paste(m, "{}")
	f.press(m, tea.KeyPressMsg{Code: 's', Mod: tea.ModCtrl})
	if f.fields[0].fault == "" || f.area == nil {
		t.Errorf("the fault is %q, and the text is open: %v", f.fields[0].fault, f.area != nil)
	}
}

// The models of one chat are not offered in another chat. A picker stops loading also if newer settings have come.
func TestModelPicker(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		c.answer = func(r *http.Request) (int, any) {
			return 200, map[string]any{"models": []loquat.Model{{ID: "large"}}, "elements": []any{}, "values": map[string]any{}}
		}
		load := m.pickModel()
		m.session.answered[theSettings] = 99 // newer settings have come
		m.Update(load())
		if p, ok := m.top().(*picker); !ok || p.loading || p.items[0].title != "large" {
			t.Fatalf("the dialog is %+v", m.top())
		}
		m.dialogs = nil
		load = m.pickModel()
		m.session = newSession(loaded{head: loquat.Session{SessionID: "other"}}, m.now())
		if m.Update(load()); m.top() != nil {
			t.Error("it is open in another chat")
		}
	})
}
