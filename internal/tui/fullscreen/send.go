package fullscreen

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// send sends the message in the composer. The composer keeps it until the server has accepted it.
func (m *model) send(text, onBusy string) tea.Cmd {
	c := &m.composer
	if c.sending {
		return nil
	}
	if c.requestID == "" || c.sent != text { // the repeat of a lost send has the same id
		c.requestID, c.sent = strings.ToLower(rand.Text()), text
	}
	m.notice = notice{}
	s := loquat.Send{Stream: &m.options.Stream, StreamTools: m.options.Stream, RequestID: c.requestID, OnBusy: onBusy}
	if text != "" {
		s.Content = &text
	}
	job := sendJob{send: s, attachments: append([]attachment(nil), c.attachments...), agent: cmp.Or(c.agent, m.options.AgentID)}
	job.sessionID = m.opening // which is "" unless a session is being loaded
	if m.session != nil {
		job.sessionID = m.session.id
	}
	return m.startSend(job)
}

// startSend starts a send. It can be given up, and repeated without a second effect.
func (m *model) startSend(job sendJob) tea.Cmd {
	ctx, cancel := context.WithTimeout(m.ctx, time.Duration(1+len(job.attachments))*callTimeout)
	m.composer.sending, m.composer.giveUp = true, cancel
	return job.command(ctx, m.server.Client)
}

// sendJob is a send with all that has to be done before it.
type sendJob struct {
	sessionID   string // empty: a new session
	agent       string
	send        loquat.Send
	ifMatch     loquat.EventID // the checkpoint with which the indices of the send are right; 0 if it has none
	attachments []attachment
}

func (j sendJob) command(ctx context.Context, c *client.Client) tea.Cmd {
	return func() tea.Msg {
		msg := sentMsg{sessionID: j.sessionID, attachments: j.attachments}
		if msg.sessionID == "" {
			s, err := c.CreateSession(ctx, loquat.NewSession{AgentID: j.agent})
			if err != nil {
				msg.err = err
				return msg
			}
			msg.sessionID, msg.created = s.SessionID, true
		}
		for i, a := range j.attachments {
			if a.data != nil && a.assetID == "" {
				asset, err := c.Upload(ctx, msg.sessionID, a.name, a.media, a.data)
				if err != nil {
					msg.err = fmt.Errorf("upload %s: %w", a.name, err)
					return msg
				}
				j.attachments[i].assetID = asset.AssetID
			}
			j.send.Attachments = append(j.send.Attachments, j.attachments[i].json())
		}
		var opts []client.Option
		if j.ifMatch != 0 {
			opts = append(opts, client.IfMatch(j.ifMatch))
		}
		_, msg.err = c.Send(ctx, msg.sessionID, j.send, opts...)
		return msg
	}
}

// sentMsg says whether the server has accepted a send.
type sentMsg struct {
	sessionID   string
	created     bool
	attachments []attachment // with the uploads that were made
	err         error
}

func (s sentMsg) apply(m *model) tea.Cmd {
	c := &m.composer
	c.giveUp()
	waiting := c.waiting
	c.sending, c.waiting = false, draft{}
	if e := c.editing; e != nil {
		e.before, waiting = e.before.with(waiting), draft{}
	}
	if errors.Is(s.err, context.Canceled) {
		s.err = errors.New("you gave it up; the server may have taken it all the same")
	}
	var cmd tea.Cmd
	if s.created {
		m.opening = s.sessionID
		cmd = m.loadSession(s.sessionID, 0)
	}
	if s.err != nil {
		c.attachments = s.attachments
		if !waiting.empty() {
			c.put(c.take().with(waiting))
		}
		m.fail(fmt.Errorf("not sent: %w; the message is still here, Enter tries again", s.err))
		m.notice.unsent = true
		return cmd
	}
	if c.sent != "" {
		c.past = append(c.past, c.sent)
	}
	m.asked = false
	if e := c.editing; e != nil {
		c.editing = nil
		c.put(e.before)
	} else {
		c.put(waiting)
	}
	m.transcript.follow = true
	return cmd
}

// requestAt asks for a reply without a message of the composer: after the message at an index, or else instead of the
// reply with it, which stays as an alternative.
func (m *model) requestAt(index int, after bool) tea.Cmd {
	msg, err := m.messageAt(index)
	if err != nil {
		return m.fail(err)
	}
	s, send := m.session, loquat.Send{Stream: &m.options.Stream, StreamTools: m.options.Stream, RequestID: strings.ToLower(rand.Text())}
	return m.inOrder(func(m *model) *change {
		s := m.current(s)
		if s.run != nil || !s.has(index, msg.ID) {
			return nil // it was asked for twice
		}
		var opts []client.Option
		if from := s.replyStart(index); !after {
			send.DeleteFrom, send.Keep = &from, true
			opts = append(opts, client.IfMatch(s.checkpoint))
		}
		m.transcript.follow = true
		return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
			res, err := c.Send(ctx, s.id, send, opts...)
			return res.CursorEventID, err
		}, func(m *model, err error) tea.Cmd { return m.result("", err) }}
	})
}
