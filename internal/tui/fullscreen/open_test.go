package fullscreen

import (
	"net/http"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"loquat"
)

// step runs a command, which may wait, and gives the model the answer.
func (m *model) step(t *testing.T, cmd tea.Cmd) tea.Cmd {
	t.Helper()
	if cmd == nil {
		t.Fatal("nothing happens next")
	}
	a, ok := cmd().(answer)
	if !ok {
		t.Fatal("it brings no answer")
	}
	return a.apply(m)
}

// awayAnswers are what a server answers that will answer later.
var awayAnswers = map[string]func(r *http.Request) (int, any){
	"no answer":   func(r *http.Request) (int, any) { <-r.Context().Done(); return 0, nil },
	"unavailable": func(*http.Request) (int, any) { return 503, nil },
	"too many":    func(*http.Request) (int, any) { return 429, nil },
}

// A server that does not answer at the start is asked again, for the list and for the chat that was asked for.
func TestServerIsAwayAtTheStart(t *testing.T) {
	for name, away := range awayAnswers {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, m *model, c *calls) {
				m.session, c.answer = nil, away
				again := m.step(t, m.open("wanted"))
				reload := m.step(t, m.loadList())
				if m.opening != "wanted" || m.failed != "" || m.notice.bad {
					t.Fatalf("opening %q, failed %q, the notice is %q", m.opening, m.failed, m.notice.text)
				}
				c.got = nil
				m.step(t, m.step(t, again))
				m.step(t, m.step(t, reload))
				if got := strings.Join(c.got, "\n"); !strings.Contains(got, "GET /sessions/wanted/messages") || !strings.Contains(got, "GET /sessions \n") && !strings.HasSuffix(got, "GET /sessions") {
					t.Errorf("the calls are\n%s", got)
				}
			})
		})
	}
}

// Of several loads of a chat only the newest is repeated: otherwise each failure would make one more.
func TestOneLoadIsRepeated(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.session, c.answer = nil, awayAnswers["unavailable"]
		first, second := m.open("wanted"), m.open("wanted")
		if m.step(t, first) != nil {
			t.Error("the first load is repeated")
		}
		again := m.step(t, second)
		third := m.open("wanted")
		if m.step(t, again) != nil {
			t.Error("the second load is repeated although a third one runs")
		}
		m.step(t, third)
	})
}

// A message that is taken out of the queue is not lost because the server answers later.
func TestTakeBackLater(t *testing.T) {
	for name, away := range awayAnswers {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, m *model, c *calls) {
				m.session.queue = []loquat.QueuedSend{{RequestID: "one", Message: loquat.Message{Content: "one"}}}
				c.answer = func(r *http.Request) (int, any) {
					if len(c.got) == 1 {
						return away(r)
					}
					return 202, loquat.CancelResult{Status: loquat.StatusCancelled}
				}
				if m.run(m.takeBack()); m.composer.text() != "one" {
					t.Errorf("the composer has %q", m.composer.text())
				}
			})
		})
	}
}

// The list is loaded in the end also if the chat is there before it.
func TestListComesAfterTheChat(t *testing.T) {
	onServer(t, func(t *testing.T, m *model, c *calls) {
		m.feed, c.answer = &feed{cancel: func() {}}, awayAnswers["unavailable"]
		again := m.step(t, m.step(t, m.step(t, m.loadList()))) // it fails twice
		c.answer = func(*http.Request) (int, any) {
			return 200, loquat.SessionList{Sessions: []loquat.SessionSummary{{SessionID: "s"}}}
		}
		m.step(t, m.step(t, again))
		if len(m.list.rows) != 1 || m.line.Err != nil {
			t.Errorf("the rows are %v, the line is %v", m.list.rows, m.line.Err)
		}
	})
}
