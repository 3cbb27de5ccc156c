package fullscreen

import (
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// changes are what the user changes on the server, in order. What a change does may depend on the one before: p
// pressed twice pins and unpins. So the next one begins when the last one was answered and its events have come.
type changes struct {
	waiting []pending
	running bool           // one was sent and is not answered
	until   loquat.EventID // the newest event of the last one
	latest  time.Time      // when the next one begins even if that event has not come
}

// eventsPause is how long a change waits for the events of the one before, which a lost connection keeps back.
const eventsPause = time.Second

// pending is a change that has not begun. begin returns nil if it is not possible by then.
type pending struct {
	begin  func(*model) *change
	repeat bool // the session had changed when it was sent first
}

// change is a call that changes something on the server.
type change struct {
	call func(context.Context, *client.Client) (loquat.EventID, error) // returns its newest event; 0 if nothing has to wait for it
	then func(*model, error) tea.Cmd
}

// inOrder makes a change after those before it. begin returns it, by the state of then, or nil if it is not possible.
func (m *model) inOrder(begin func(*model) *change) tea.Cmd {
	m.changes.waiting = append(m.changes.waiting, pending{begin: begin})
	return nil // Update begins it
}

// nextChange begins the next change, if it is its time. One that the server refuses because the session has changed
// is made once more when the events of that have come, if it is possible then.
func (m *model) nextChange() tea.Cmd {
	c := &m.changes
	for len(c.waiting) > 0 && !c.running && (m.last >= c.until || !m.now().Before(c.latest)) {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		if next := p.begin(m); next != nil {
			c.running = true
			return ask(m, next.call, func(m *model, event loquat.EventID, err error) tea.Cmd { return m.changed(p, next, event, err) })
		}
	}
	return nil
}

// changed handles the answer of a change.
func (m *model) changed(p pending, made *change, event loquat.EventID, err error) tea.Cmd {
	c := &m.changes
	c.running, c.until, c.latest = false, event, m.now().Add(eventsPause)
	pause := m.later(eventsPause, func(*model) tea.Cmd { return nil })
	if loquat.CodeOf(err) == loquat.CodePreconditionFailed && !p.repeat {
		p.repeat, c.until = true, m.last+1
		c.waiting = slices.Insert(c.waiting, 0, p)
		return pause
	}
	return tea.Batch(made.then(m, err), pause)
}

// unsaved reports whether a change has not reached the server for certain.
func (c *changes) unsaved() bool { return c.running || len(c.waiting) > 0 }

// current returns the session of a change that begins: as it is now if it is open, else as it was left.
func (m *model) current(s *session) *session {
	if m.session != nil && m.session.id == s.id {
		return m.session
	}
	return s
}

// result says that a call has succeeded, by done unless that is empty, or why it has not.
func (m *model) result(done string, err error) tea.Cmd {
	switch {
	case err != nil:
		return m.fail(err)
	case done != "":
		return m.say("%s", done)
	}
	return nil
}

// patch changes a session. done is shown when it has succeeded.
func patch(id, done string, p loquat.SessionPatch) *change {
	return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
		s, err := c.UpdateSession(ctx, id, p)
		return max(s.Checkpoint, s.CursorEventID), err
	}, func(m *model, err error) tea.Cmd { return m.result(done, err) }}
}
