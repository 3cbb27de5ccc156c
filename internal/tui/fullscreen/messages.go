package fullscreen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// messageCommands returns the commands for the message that is selected.
func messageCommands() []command {
	always := func(*model) bool { return true }
	idle := func(m *model) bool { return m.session.run == nil }
	hasRole := func(roles ...string) func(*model) bool {
		return func(m *model) bool {
			msg, ok := m.session.message(m.transcript.selected)
			return ok && slices.Contains(roles, msg.Role)
		}
	}
	return []command{
		{title: "Message: actions", keys: []string{"enter"}, when: always, run: (*model).showMessageActions},
		{title: "Message: copy", keys: []string{"c", "y"}, when: always, run: (*model).copyMessage},
		{title: "Message: open or fold", keys: []string{"o", "space"}, when: always, run: (*model).toggleMessage},
		{title: "Message: edit", keys: []string{"e"}, when: hasRole(loquat.RoleUser, loquat.RoleAssistant, loquat.RoleSystem), run: (*model).editMessage},
		{title: "Message: write the reply again", keys: []string{"r"}, when: func(m *model) bool { return idle(m) && hasRole(loquat.RoleAssistant, loquat.RoleTool)(m) }, run: (*model).regenerate},
		{title: "Message: the alternative before", keys: []string{"[", "left"}, when: idle, run: func(m *model) tea.Cmd { return m.alternative(-1) }},
		{title: "Message: the next alternative", keys: []string{"]", "right"}, when: idle, run: func(m *model) tea.Cmd { return m.alternative(1) }},
		{title: "Message: fork from here", keys: []string{"f"}, when: always, run: (*model).forkMessage},
		{title: "Message: delete", keys: []string{"d"}, when: idle, run: (*model).deleteMessage},
	}
}

// errMoved says that a message is not where it was.
var errMoved = errors.New("the message has moved or was deleted meanwhile; select it again")

// selectedMessage returns the message on which commands act.
func (m *model) selectedMessage() (loquat.Message, error) { return m.messageAt(m.transcript.selected) }

func (m *model) messageAt(index int) (loquat.Message, error) {
	msg, ok := m.session.message(index)
	if !ok {
		return msg, errors.New("the message is still being loaded; try again in a moment")
	}
	return msg, nil
}

func (m *model) copyMessage() tea.Cmd {
	msg, err := m.selectedMessage()
	if err != nil {
		return m.fail(err)
	}
	return tea.Batch(tea.SetClipboard(msg.Content), m.say("copied message %d to the clipboard of the terminal", m.transcript.selected+1))
}

func (m *model) toggleMessage() tea.Cmd {
	msg, err := m.selectedMessage()
	if err != nil {
		return m.fail(err)
	}
	m.transcript.open[msg.ID] = !m.transcript.open[msg.ID]
	m.transcript.forget()
	return nil
}

func (m *model) toggleAll() tea.Cmd {
	m.transcript.openAll = !m.transcript.openAll
	clear(m.transcript.open)
	m.transcript.forget()
	return nil
}

// editMessage puts a message into the composer. The draft comes back afterwards.
func (m *model) editMessage() tea.Cmd {
	msg, err := m.selectedMessage()
	if err != nil {
		return m.fail(err)
	}
	if m.composer.sending {
		return nil
	}
	if e := m.composer.editing; e != nil {
		switch {
		case e.message.ID == msg.ID:
			m.setFocus(focusComposer)
			return nil
		case m.composer.edited():
			return m.fail(fmt.Errorf("message %d is being edited: save it, or leave it with Esc, before you edit another one", e.index+1))
		}
		m.composer.put(e.before)
	}
	before := m.composer.take()
	m.composer.editing = &edit{index: m.transcript.selected, message: msg, before: before}
	m.composer.put(draftOf(msg))
	m.setFocus(focusComposer)
	return nil
}

// draftOf returns a message as a draft.
func draftOf(msg loquat.Message) draft {
	d := draft{text: msg.Content}
	for _, raw := range attachmentsOf(msg) {
		d.attachments = append(d.attachments, attachment{raw: raw})
	}
	return d
}

// saveEdit saves the message that is edited. If it is one of the user, and again is set, it asks
// again: what the message and the reply were stays as an alternative.
func (m *model) saveEdit(again bool) tea.Cmd {
	if m.composer.sending {
		return nil
	}
	e, text := m.composer.editing, m.composer.text()
	if !m.session.has(e.index, e.message.ID) {
		return m.fail(errors.New("the message has moved or was deleted meanwhile; copy the text, press Esc and select it again"))
	}
	if strings.TrimSpace(text) == "" && len(m.composer.attachments) == 0 {
		return m.fail(errors.New("a message has a text or an image; to delete it, press Esc, select it and press d"))
	}
	if !again || e.message.Role != loquat.RoleUser {
		return m.modify(e, text)
	}
	index := e.index
	s := loquat.Send{DeleteFrom: &index, Keep: true, Stream: &m.options.Stream, StreamTools: m.options.Stream}
	if text != "" {
		s.Content = &text
	}
	m.composer.sent, m.composer.requestID = "", ""
	return m.startSend(sendJob{sessionID: m.session.id, send: s, ifMatch: m.session.checkpoint, attachments: append([]attachment(nil), m.composer.attachments...)})
}

// modify saves the text of the message that was edited.
func (m *model) modify(e *edit, text string) tea.Cmd {
	s := m.session
	m.composer.editing = nil
	m.composer.put(e.before)
	if text == e.message.Content {
		return m.say("message %d is as it was", e.index+1)
	}
	return m.inOrder(func(m *model) *change {
		s := m.current(s)
		if !s.has(e.index, e.message.ID) {
			m.saved(s.id, e, text, errMoved)
			return nil
		}
		checkpoint := s.checkpoint
		return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
			res, err := c.ModifyMessage(ctx, s.id, e.index, text, client.IfMatch(checkpoint))
			return res.CursorEventID, err
		}, func(m *model, err error) tea.Cmd { return m.saved(s.id, e, text, err) }}
	})
}

// saved says whether an edit was saved. If not, it is opened again, or its text is kept as a draft if the user is
// doing something else by now.
func (m *model) saved(id string, e *edit, text string, err error) tea.Cmd {
	if err == nil {
		return m.say("message %d was saved", e.index+1)
	}
	d := draftOf(e.message)
	d.text = text
	c := &m.composer
	if m.session == nil || m.session.id != id || c.editing != nil || c.sending {
		c.keep(id, d)
		return m.fail(fmt.Errorf("message %d was not saved: %w; its text is a draft, which the chat shows when you open it again", e.index+1, err))
	}
	e.before = c.take()
	c.editing = e
	c.put(d)
	return m.fail(fmt.Errorf("not saved: %w; the text is still here", err))
}

// regenerate writes the reply with the selected message again, and keeps what it was.
func (m *model) regenerate() tea.Cmd {
	return m.requestAt(m.transcript.selected, false)
}

// tryAgain connects again, or asks for the last reply again.
func (m *model) tryAgain() tea.Cmd {
	if m.failed != "" {
		return m.reload()
	}
	last := m.session.total() - 1
	msg, ok := m.session.message(last)
	if last < 0 || !ok {
		return m.fail(errors.New("there is no message to answer yet"))
	}
	return m.requestAt(last, msg.Role == loquat.RoleUser || msg.Role == loquat.RoleTool && m.session.failure != "")
}

// alternative puts the next alternative at the selected message in place.
func (m *model) alternative(step int) tea.Cmd {
	s, at := m.session, m.transcript.selected
	if len(s.alternatives[at]) == 0 {
		at = s.replyStart(at)
	}
	return m.inOrder(func(m *model) *change {
		s := m.current(s)
		list := s.alternatives[at]
		now := slices.IndexFunc(list, func(a loquat.Alternative) bool { return a.InPlace })
		to := now + step
		if now < 0 || to < 0 || to >= len(list) {
			m.say("this message has no other version in that direction")
			return nil
		}
		return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
			res, err := c.Switch(ctx, s.id, list[to].AlternativeID)
			return res.CursorEventID, err
		}, func(m *model, err error) tea.Cmd {
			if err != nil || m.session != s {
				return m.result("", err)
			}
			for i, a := range s.alternatives[at] { // they are also loaded again, which takes a moment
				s.alternatives[at][i].InPlace = a.AlternativeID == list[to].AlternativeID
			}
			s.answered[theAlternatives] = s.asked
			return m.loadAlternatives()
		}}
	})
}

func (m *model) deleteMessage() tea.Cmd {
	msg, err := m.selectedMessage()
	if err != nil {
		return m.fail(err)
	}
	s, index := m.session, m.transcript.selected
	begin := func(m *model) *change {
		s := m.current(s)
		if !s.has(index, msg.ID) {
			m.fail(errMoved)
			return nil
		}
		checkpoint := s.checkpoint
		return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
			res, err := c.DeleteMessages(ctx, s.id, []int{index}, client.IfMatch(checkpoint))
			return res.CursorEventID, err
		}, func(m *model, err error) tea.Cmd {
			return m.result(fmt.Sprintf("message %d was deleted", index+1), err)
		}}
	}
	question := fmt.Sprintf("Delete message %d? It begins: %s", index+1, m.oneLine(msg.Content, 120))
	return m.show(newConfirm("Delete a message", question, func(m *model) tea.Cmd { return m.inOrder(begin) }))
}

// stop stops the reply. Its text so far stays.
func (m *model) stop() tea.Cmd {
	id := m.session.run.id
	return m.call("", func(ctx context.Context, c *client.Client) error {
		_, err := c.Cancel(ctx, id)
		return err
	})
}

// takeBack takes the last message that waits out of the queue. The message comes back
// into the composer.
func (m *model) takeBack() tea.Cmd {
	s := m.session
	return m.inOrder(func(m *model) *change {
		s := m.current(s)
		if len(s.queue) == 0 {
			return nil
		}
		return withdraw(s, s.queue[len(s.queue)-1])
	})
}

// withdraw takes a message out of the queue. Without an answer, which may be lost, it tries again: else the text
// could be nowhere.
func withdraw(s *session, q loquat.QueuedSend) *change {
	var status loquat.RequestStatus
	return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
		res, err := c.Cancel(ctx, q.RequestID)
		status = res.Status
		return 0, err
	}, func(m *model, err error) tea.Cmd {
		switch {
		case away(err):
			server := m.server.Name
			return tea.Batch(m.fail(err), m.later(retryDelay, func(m *model) tea.Cmd {
				if m.server.Name != server {
					m.composer.keep(s.id, draftOf(q.Message))
					return nil
				}
				return m.inOrder(func(*model) *change { return withdraw(s, q) })
			}))
		case err != nil:
			return m.fail(err)
		case status != loquat.StatusCancelled:
			return m.say("the reply to the message had begun, so it was stopped; the message stays")
		}
		s := m.current(s)
		s.queue = slices.DeleteFunc(slices.Clone(s.queue), func(x loquat.QueuedSend) bool { return x.RequestID == q.RequestID })
		s.answered[theQueue] = s.asked
		return m.tookBack(s.id, draftOf(q.Message))
	}}
}

// tookBack puts a message that waited into the composer, behind what is there, or keeps it as a draft if the user is
// doing something else by now.
func (m *model) tookBack(id string, d draft) tea.Cmd {
	m.transcript.forget()
	c := &m.composer
	if m.session == nil || m.session.id != id || c.editing != nil || c.sending {
		c.keep(id, d)
		return m.say("the message does not wait now; it is a draft, which the chat shows when you open it again")
	}
	c.put(c.take().with(d))
	return m.say("the message does not wait now")
}
