package fullscreen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
)

// callTimeout bounds a call of the server, except those that wait for a model or a large body.
const callTimeout = 30 * time.Second

// away reports whether an error says that the server did not answer, or that it will answer later.
func away(err error) bool {
	code := loquat.CodeOf(err)
	return code == loquat.CodeUnavailable || code == loquat.CodeRateLimited || errors.Is(err, context.DeadlineExceeded)
}

// answered is what the model does with the answer of a call.
type answered func(*model) tea.Cmd

func (a answered) apply(m *model) tea.Cmd { return a(m) }

// ask returns a command that calls the server, and gives the model the answer.
func ask[T any](m *model, fn func(context.Context, *client.Client) (T, error), then func(*model, T, error) tea.Cmd) tea.Cmd {
	ctx, c := m.ctx, m.server.Client
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		v, err := fn(ctx, c)
		return answered(func(m *model) tea.Cmd { return then(m, v, err) })
	}
}

// query is ask for something to show. The answer counts only while the server is in use.
func query[T any](m *model, fn func(context.Context, *client.Client) (T, error), then func(*model, T, error) tea.Cmd) tea.Cmd {
	server := m.server.Name
	return ask(m, fn, func(m *model, v T, err error) tea.Cmd {
		if m.server.Name != server {
			return nil
		}
		return then(m, v, err)
	})
}

// load is ask for a part of the open session. The answer counts only while the session is open, and unless a newer
// one has come. what names the part in an error. What cannot be loaded is loaded again with the next connection.
func load[T any](m *model, what string, fn func(ctx context.Context, c *client.Client, id string) (T, error), then func(*model, T) tea.Cmd) tea.Cmd {
	s := m.session
	s.asked++
	number := s.asked
	return ask(m, func(ctx context.Context, c *client.Client) (T, error) { return fn(ctx, c, s.id) }, func(m *model, v T, err error) tea.Cmd {
		switch {
		case m.session != s || number <= s.answered[what]:
			return nil
		case err != nil:
			s.missed[what] = func() tea.Cmd { return load(m, what, fn, then) }
			return m.failLoad(what, err)
		}
		s.answered[what] = number
		return then(m, v)
	})
}

// failLoad says that something could not be loaded, if there is an error, unless a message that was not sent is more important.
func (m *model) failLoad(what string, err error) tea.Cmd {
	if err == nil || m.unsent() {
		return nil
	}
	return m.fail(fmt.Errorf("%s could not be loaded: %w", what, err))
}

// loadMissed loads what could not be loaded before.
func (m *model) loadMissed() tea.Cmd {
	if m.session == nil {
		return nil
	}
	var cmds []tea.Cmd
	for what, again := range m.session.missed {
		delete(m.session.missed, what)
		cmds = append(cmds, again())
	}
	return tea.Batch(cmds...)
}

// call returns a command that changes something at once. done is shown when it has succeeded.
func (m *model) call(done string, fn func(context.Context, *client.Client) error) tea.Cmd {
	return ask(m, func(ctx context.Context, c *client.Client) (bool, error) { return true, fn(ctx, c) }, func(m *model, _ bool, err error) tea.Cmd {
		return m.result(done, err)
	})
}

// loadMissing loads the older messages that the screen shows.
func (m *model) loadMissing() tea.Cmd {
	var cmds []tea.Cmd
	s := m.session
	for _, number := range m.missing() {
		cmds = append(cmds, ask(m, func(ctx context.Context, c *client.Client) (loquat.MessagePage, error) {
			return c.Messages(ctx, s.id, client.Page{From: number * pageSize, Limit: pageSize})
		}, func(m *model, page loquat.MessagePage, err error) tea.Cmd {
			if m.session != s {
				return nil
			}
			if err != nil {
				m.failLoad("older messages", err)
				return m.later(retryDelay, func(*model) tea.Cmd {
					delete(s.wanted, number) // it is asked for again if the screen still shows it
					return nil
				})
			}
			s.addPage(number, page)
			m.transcript.forget()
			return nil
		}))
	}
	return tea.Batch(cmds...)
}

// schema is what plugins show.
type schema struct {
	elements   []loquat.Object
	values     map[string]loquat.ConfigValue
	incomplete bool // a plugin has not answered
}

// maxSchemaLoads is how often the elements are loaded again because a plugin had not answered.
const maxSchemaLoads = 6

// Parts of a session that are loaded, as errors name them.
const (
	theSettings     = "the settings"
	theQueue        = "the queue"
	theAlternatives = "the alternatives"
)

// loadSchema loads the elements of plugins and the values of settings.
func (m *model) loadSchema() tea.Cmd {
	return load(m, theSettings, readSchema, (*model).setSchema)
}

func readSchema(ctx context.Context, c *client.Client, id string) (s schema, err error) {
	if s.elements, err = c.Elements(ctx, id); err != nil {
		return s, err
	}
	plugins, err := c.Plugins(ctx)
	s.incomplete = err == nil && slices.ContainsFunc(plugins, func(p loquat.Plugin) bool { // not every token may ask
		return p.State == "starting" || p.State == "running" && len(p.Problems) > 0
	})
	s.values, err = c.Config(ctx, id)
	return s, err
}

func (m *model) setSchema(s schema) tea.Cmd {
	m.session.setSchema(s.elements, s.values)
	m.session.noteUsage()
	m.transcript.forget()
	for _, d := range m.dialogs {
		switch d := d.(type) {
		case *form:
			d.take(m.session)
		case *picker:
			d.reload(m)
		}
	}
	if !s.incomplete || m.session.schemaLoads >= maxSchemaLoads {
		return nil
	}
	m.session.schemaLoads++
	id := m.session.id
	return m.later(time.Second<<m.session.schemaLoads, func(m *model) tea.Cmd {
		if m.session == nil || m.session.id != id {
			return nil
		}
		return m.loadSchema()
	})
}

// later returns a command that lets the model do something after a while.
func (m *model) later(d time.Duration, fn func(*model) tea.Cmd) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return answered(fn) })
}

func (m *model) loadAlternatives() tea.Cmd {
	return load(m, theAlternatives, func(ctx context.Context, c *client.Client, id string) ([]loquat.Alternative, error) {
		return c.Alternatives(ctx, id)
	}, func(m *model, list []loquat.Alternative) tea.Cmd {
		m.session.alternatives = groupAlternatives(list)
		m.transcript.forget()
		return nil
	})
}

// loadQueue loads a queue that was too large for an event.
func (m *model) loadQueue() tea.Cmd {
	return load(m, theQueue, func(ctx context.Context, c *client.Client, id string) ([]loquat.QueuedSend, error) {
		return c.Queue(ctx, id)
	}, func(m *model, queue []loquat.QueuedSend) tea.Cmd {
		m.session.queue = queue
		m.transcript.forget()
		return nil
	})
}

// override sets or, with null, removes the override of a setting. The form shows the value at once.
func (m *model) override(key string, value json.RawMessage) tea.Cmd {
	s := m.session
	s.saving[key] = saving{s.saving[key].changes + 1, value}
	return m.inOrder(func(*model) *change {
		return &change{func(ctx context.Context, c *client.Client) (loquat.EventID, error) {
			_, err := c.SetOverride(ctx, s.id, key, loquat.Override{Value: value})
			return 0, err
		}, func(m *model, err error) tea.Cmd { return m.settingSaved(s, key, err) }}
	})
}

// settingSaved says that a setting was saved, or why it was not. The form shows what the server has then.
func (m *model) settingSaved(s *session, key string, err error) tea.Cmd {
	s.saving[key] = saving{s.saving[key].changes - 1, s.saving[key].value}
	switch {
	case m.session == nil || m.session.id != s.id:
		if err != nil {
			return m.fail(fmt.Errorf("the setting %s of another chat was not saved: %w", key, err))
		}
		return nil
	case err == nil:
		m.say("the setting was saved")
	case !m.refused(key, err):
		m.fail(err)
	}
	s.answered[theSettings] = s.asked // what was loaded before has the old value
	return m.loadSchema()
}

// refused shows an error at its setting. It returns false if the settings are not open.
func (m *model) refused(key string, err error) bool {
	for _, d := range m.dialogs {
		if f, ok := d.(*form); ok && f.settings {
			f.refuse(key, err)
			return true
		}
	}
	return false
}

// here says where the user is.
func (m *model) here() string {
	id := m.opening
	if m.session != nil {
		id = m.session.id
	}
	return fmt.Sprint(m.server.Name, " ", id, " ", len(m.dialogs))
}

// fork copies a session and opens the copy, unless the user has gone elsewhere.
func (m *model) fork(id string) tea.Cmd {
	from := m.here()
	return m.inOrder(func(*model) *change { return forkOf(id, loquat.Fork{}, from) })
}

// forkMessage is fork up to the selected message.
func (m *model) forkMessage() tea.Cmd {
	msg, err := m.selectedMessage()
	if err != nil {
		return m.fail(err)
	}
	s, index, from := m.session, m.transcript.selected, m.here()
	return m.inOrder(func(m *model) *change {
		s := m.current(s)
		if !s.has(index, msg.ID) {
			m.fail(errMoved)
			return nil
		}
		return forkOf(s.id, loquat.Fork{UpToIndex: &index}, from, client.IfMatch(s.checkpoint))
	})
}

// forkOf copies a session. from is where the user was.
func forkOf(id string, f loquat.Fork, from string, opts ...client.Option) *change {
	var made loquat.Snapshot
	return &change{func(ctx context.Context, c *client.Client) (_ loquat.EventID, err error) {
		made, err = c.Fork(ctx, id, f, opts...)
		return 0, err
	}, func(m *model, err error) tea.Cmd {
		switch {
		case err != nil:
			return m.fail(err)
		case m.here() != from || m.composer.sending || m.composer.editing != nil:
			return m.say("the chat was copied; the list has the copy")
		}
		m.setFocus(focusComposer)
		return tea.Batch(m.open(made.SessionID), m.say("this is the copy"))
	}}
}

// export writes a session to a file, which gets its name when it is whole. It may take its time.
func (m *model) export(id, path string) tea.Cmd {
	format := "json"
	switch {
	case strings.HasSuffix(path, ".md"):
		format = "markdown"
	case strings.HasSuffix(path, ".html"):
		format = "html"
	}
	ctx, c := m.ctx, m.server.Client
	return func() tea.Msg {
		body, err := c.Export(ctx, id, format)
		if err == nil {
			defer body.Close()
			err = writeNew(path, func(w io.Writer) error { _, err := io.Copy(w, body); return err })
		}
		return answered(func(m *model) tea.Cmd {
			if err != nil {
				return m.fail(fmt.Errorf("the export failed: %w", err))
			}
			return m.say("the chat was written to %s", path)
		})
	}
}
