package fullscreen

import (
	"context"
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// errSending keeps the message that is being sent in front of the user, who may have to send it again.
var errSending = errors.New("the message is still being sent; try again in a moment")

// open loads a session and shows it.
func (m *model) open(id string) tea.Cmd {
	if m.composer.sending {
		return m.fail(errSending)
	}
	if m.session == nil || m.session.id != id {
		m.storeDraft()
		m.close()
	}
	m.opening = id
	return m.loadSession(id, 0)
}

// loaded is a session as the server has it.
type loaded struct {
	head         loquat.Session
	page         loquat.MessagePage
	alternatives []loquat.Alternative
	seen         loquat.EventID // an event that was seen before they were loaded; 0 if none counts
}

// loadSession loads a session: its last messages, and the rest of it without messages. seen is an event from
// which the session may be followed if its cursor is too old, else 0.
func (m *model) loadSession(id string, seen loquat.EventID) tea.Cmd {
	m.openings++
	number := m.openings
	return ask(m, func(ctx context.Context, c *client.Client) (l loaded, err error) {
		if l.page, err = c.Messages(ctx, id, client.Page{Last: tailMessages}); err != nil {
			return l, err
		}
		// The head may be newer than the page. The events between them set the same metadata again.
		if l.head, err = c.Head(ctx, id); err != nil {
			return l, err
		}
		l.alternatives, err = c.Alternatives(ctx, id)
		l.seen = seen
		return l, err
	}, func(m *model, l loaded, err error) tea.Cmd {
		if number != m.openings {
			return nil
		}
		return m.opened(id, l, err)
	})
}

// opened shows a session that was loaded.
func (m *model) opened(id string, l loaded, err error) tea.Cmd {
	if id != m.opening {
		return nil // another one was chosen meanwhile
	}
	switch number := m.openings; {
	case away(err):
		return m.later(retryDelay, func(m *model) tea.Cmd {
			if m.opening != id || m.openings != number {
				return nil
			}
			return m.loadSession(id, 0)
		})
	case loquat.CodeOf(err) == loquat.CodeNotFound:
		m.close()
		m.restoreDraft("")
	}
	m.opening = ""
	if err != nil {
		return tea.Batch(m.fail(fmt.Errorf("the chat %s could not be loaded: %w", id, err)), m.follow())
	}
	m.restoreDraft(id)
	m.session = newSession(l, m.now())
	m.session.noteUsage()
	if m.list.selected == 0 { // nothing was chosen while the session was loaded
		m.selectOpen()
	}
	m.transcript.forget()
	m.transcript.selected = min(m.transcript.selected, max(m.session.total()-1, 0))
	return tea.Batch(m.follow(), m.loadSchema())
}

// close leaves the open session, and what is about it. A text that was being edited stays.
func (m *model) close() {
	if e := m.composer.editing; e != nil {
		m.composer.editing = nil
		m.composer.keep("", e.before)
	}
	if m.focus == focusTranscript {
		m.setFocus(focusComposer)
	}
	m.session, m.dialogs = nil, nil
	m.transcript = newTranscript()
	m.layout(true)
}

// follow begins a feed of the list and of the open session, after what both have.
func (m *model) follow() tea.Cmd {
	m.feed.stop()
	id, since := "", m.last
	switch {
	case m.reloading: // what is there now is too old
		m.feed = nil
		return nil
	case m.session != nil:
		id = m.session.id
		if cursor := max(m.session.fold.Cursor(), m.session.seen); !m.listed || cursor < since {
			since = cursor
		}
	case !m.listed: // nothing is loaded yet
		m.feed = nil
		return nil
	}
	list := !m.list.denied
	if m.session != nil && m.session.alone { // with the list, the events of its reply may be gone
		since, list = m.session.fold.Cursor(), false
	}
	m.feed, m.failed = startFeed(m.ctx, m.server.Client, client.Query{Since: &since, SessionID: id, List: list}), ""
	return m.feed.next()
}

func (f feedMsg) apply(m *model) tea.Cmd {
	if f.feed != m.feed {
		return nil
	}
	var cmds []tea.Cmd
	if f.line != nil {
		m.line = *f.line
		if m.line.Connected {
			cmds = append(cmds, m.loadMissed())
		}
	}
	structural, last := false, m.session != nil && m.transcript.selected >= m.session.total()-1 && !m.transcript.stays
	for _, e := range f.events {
		m.list.apply(e)
		if f.feed == nil || !f.feed.alone || m.list.denied {
			m.last = max(m.last, e.EventID)
		}
		if m.session != nil && e.SessionID == m.session.id {
			cmds = append(cmds, m.applyEvent(e, &structural))
		}
	}
	if m.session != nil && len(f.events) > 0 {
		m.refresh(structural, last)
	}
	if m.session != nil && m.session.alone && m.session.run == nil {
		m.session.alone = false
		return tea.Batch(append(cmds, m.follow())...)
	}
	cmds = append(cmds, m.mergeRows())
	if f.err != nil {
		return tea.Batch(append(cmds, m.feedEnded(f.err))...)
	}
	return tea.Batch(append(cmds, f.feed.next())...)
}

// applyEvent changes the open session by an event.
func (m *model) applyEvent(e loquat.Event, structural *bool) tea.Cmd {
	s, running := m.session, m.session.run
	fresh := e.EventID > s.fold.Cursor()
	if s.apply(e, m.now()) {
		*structural = true
	}
	if !fresh {
		return nil
	}
	switch e.Type {
	case loquat.SessionDeleted:
		m.close()
		m.restoreDraft("")
		return tea.Batch(m.say("the chat was deleted"), m.follow())
	case loquat.MessagesDeleted:
		m.transcript.deleted(e.Indices)
		return m.loadAlternatives()
	case loquat.Checkpoint:
		if e.AgentID != "" || e.Metadata != nil {
			return m.loadSchema()
		}
	case loquat.QueueChanged:
		if e.QueueOmitted {
			return m.loadQueue()
		}
	case loquat.RequestCompleted:
		var cmds []tea.Cmd
		if len(s.alternatives) > 0 {
			cmds = append(cmds, m.loadAlternatives())
		}
		if running != nil && running.id == e.RequestID && m.away {
			cmds = append(cmds, m.notify())
		}
		return tea.Batch(cmds...)
	}
	return nil
}

// deleted keeps the place and the selection where they were when messages before them go.
func (t *transcript) deleted(indices []int) {
	top, selected := t.top, t.selected
	for _, i := range indices {
		switch {
		case i < t.top.entry:
			top.entry--
		case i == t.top.entry:
			top.piece, top.line = 0, 0
		}
		if i < t.selected {
			selected--
		}
	}
	t.top, t.selected = top, selected
}

// refresh shows the session as it is after events. last says that the last message was selected,
// so that the next one is selected when it comes.
func (m *model) refresh(structural, last bool) {
	if structural {
		m.session.refresh(m.transcript.follow && m.focus != focusTranscript)
		m.transcript.forget()
		m.transcript.selected = min(m.transcript.selected, max(m.session.total()-1, 0))
		if last && m.transcript.follow {
			m.transcript.selected = max(m.session.total()-1, 0)
		}
	}
	delete(m.transcript.entries, m.session.total())
}

// reloadPause is the time after which what the log no longer has may be loaded again at once.
const reloadPause = 10 * time.Second

// feedEnded handles the end of a feed: what the log no longer has is loaded again.
func (m *model) feedEnded(err error) tea.Cmd {
	m.feed = nil
	switch loquat.CodeOf(err) {
	case loquat.CodeGone, loquat.CodeNotFound:
		if m.now().Sub(m.reloaded) < reloadPause {
			return m.again(err)
		}
		return m.reload()
	}
	m.failed, m.line = plainError(err), client.LineState{}
	return nil
}

// reload loads the list and then the open session again, and follows them. With a list, events are gone as soon as
// the log does not have them for all sessions, so a session that nobody has used for long is followed from the
// event up to which the list is: what the session was then is loaded after it.
func (m *model) reload() tea.Cmd {
	m.listed, m.failed, m.line, m.reloaded = false, "", client.LineState{}, m.now()
	if m.session != nil {
		m.opening = m.session.id
	}
	m.reloading = m.opening != ""
	return m.loadList()
}

// reloadSession loads the session of a reload, once the list has been loaded, or was not.
func (m *model) reloadSession() tea.Cmd {
	if !m.reloading {
		return nil
	}
	m.reloading = false
	switch {
	case m.opening == "": // the user has begun a new chat meanwhile
		return m.follow()
	case m.listed:
		return m.loadSession(m.opening, m.last)
	}
	return m.loadSession(m.opening, 0)
}
