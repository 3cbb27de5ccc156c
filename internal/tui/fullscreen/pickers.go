package fullscreen

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/ui"
)

// showPalette lists all commands that can be run now, and the actions of plugins.
func (m *model) showPalette() tea.Cmd {
	p := newPicker("Commands", m.paletteItems())
	p.again = (*model).paletteItems
	return m.show(p)
}

func (m *model) paletteItems() (items []item) {
	for _, c := range commands() {
		if c.when(m) && c.title != "Commands" && (!c.local || c.where == m.focus) {
			items = append(items, item{c.title, keyNames(c.keys), c.ifPossible})
		}
	}
	if m.session != nil {
		items = append(items, m.actionItems("session_action", nil)...)
	}
	return items
}

// showMessageActions lists what can be done with the selected message.
func (m *model) showMessageActions() tea.Cmd {
	if _, err := m.selectedMessage(); err != nil {
		return m.fail(err)
	}
	p := newPicker(fmt.Sprintf("Message %d", m.transcript.selected+1), m.messageItems())
	p.again = (*model).messageItems
	return m.show(p)
}

func (m *model) messageItems() (items []item) {
	msg, err := m.selectedMessage()
	if err != nil {
		return nil
	}
	for _, c := range messageCommands()[1:] {
		if c.when(m) {
			items = append(items, item{c.title[len("Message: "):], keyNames(c.keys), c.ifPossible})
		}
	}
	return append(items, m.actionItems("message_action", &msg)...)
}

// pickTheme lets the user choose a theme.
func (m *model) pickTheme() tea.Cmd {
	var items []item
	for _, name := range ThemeNames()[1:] {
		note := map[string]string{themeNone: "no colours"}[name]
		items = append(items, item{name, note, func(m *model) tea.Cmd { m.setTheme(name); return nil }})
	}
	return m.show(newPicker("Theme", items))
}

// pickServer lets the user choose a server.
func (m *model) pickServer() tea.Cmd {
	var items []item
	for _, s := range m.options.Servers {
		items = append(items, item{s.Name, "", func(m *model) tea.Cmd { return m.useServer(s) }})
	}
	return m.show(newPicker("Server", items))
}

// useServer leaves everything of one server and begins with another one.
func (m *model) useServer(s Server) tea.Cmd {
	switch {
	case s.Name == m.server.Name:
		return nil
	case m.composer.sending:
		return m.fail(errSending)
	case m.changes.unsaved():
		return m.fail(errors.New("a change is still being saved; try again in a moment"))
	}
	m.storeDraft()
	m.feed.stop()
	m.server, m.opening, m.feed, m.listed = s, "", nil, false
	m.line, m.failed, m.list = client.LineState{}, "", list{archived: loquat.ArchivedNo, hidden: m.list.hidden}
	m.composer.agent = ""
	m.close()
	m.restoreDraft("")
	return m.loadList()
}

// pickAgent lets the user choose the agent of the open session, or of the next one.
func (m *model) pickAgent() tea.Cmd {
	p := m.showLoading("Agent")
	return query(m, func(ctx context.Context, c *client.Client) ([]loquat.Agent, error) { return c.Agents(ctx) }, func(m *model, agents []loquat.Agent, err error) tea.Cmd {
		if err != nil {
			m.drop(p)
			return m.fail(fmt.Errorf("the agents could not be loaded: %w", err))
		}
		return p.fill(m.agentItems(agents))
	})
}

func (m *model) agentItems(agents []loquat.Agent) (items []item) {
	for _, agent := range agents {
		items = append(items, item{agent.AgentID, agent.Model, func(m *model) tea.Cmd { return m.setAgent(agent.AgentID) }})
	}
	return items
}

func (m *model) setAgent(id string) tea.Cmd {
	if m.session == nil {
		m.composer.agent = id
		return m.say("the next chat has the agent %s", id)
	}
	sessionID := m.session.id
	return m.inOrder(func(*model) *change {
		return patch(sessionID, "the chat has the agent "+id, loquat.SessionPatch{AgentID: &id})
	})
}

// pickModel lets the user choose the model of the open session. It needs the settings, which say what is in use.
func (m *model) pickModel() tea.Cmd {
	p, id, known := m.showLoading("Model"), m.session.id, m.session.values != nil
	var settings schema
	return query(m, func(ctx context.Context, c *client.Client) (_ []loquat.Model, err error) {
		if !known {
			if settings, err = readSchema(ctx, c, id); err != nil {
				return nil, err
			}
		}
		return c.Models(ctx, client.ModelQuery{SessionID: id})
	}, func(m *model, models []loquat.Model, err error) tea.Cmd {
		if err != nil || m.session == nil || m.session.id != id {
			m.drop(p)
			return m.failLoad("the models", err)
		}
		var cmd tea.Cmd
		if m.session.values == nil {
			cmd = m.setSchema(settings)
		}
		return tea.Batch(cmd, m.fillModels(p, models))
	})
}

func (m *model) fillModels(p *picker, models []loquat.Model) tea.Cmd {
	key := m.modelKey()
	now, _ := loquat.StringOf(m.session.values[key].Value)
	var items []item
	for _, mod := range models {
		note := mod.Name
		if mod.ID == now {
			note = "in use"
		}
		items = append(items, item{mod.ID, note, func(m *model) tea.Cmd { return m.override(key, json.RawMessage(loquat.Quote(mod.ID))) }})
	}
	if m.session.values[key].Source == ui.SourceOverride {
		items = append(items, item{"the model of the agent", "takes the choice back", func(m *model) tea.Cmd { return m.override(key, json.RawMessage("null")) }})
	}
	if len(items) == 0 { // the backend lists none
		if !m.drop(p) {
			return nil // the user has closed it
		}
		return m.show(newPrompt("Model", "the backend lists no models; type the name of one", cmp.Or(p.input.Value(), now), func(m *model, name string) tea.Cmd {
			return m.override(key, json.RawMessage(loquat.Quote(name)))
		}))
	}
	return p.fill(items)
}

// modelKey returns the setting that the choice of a model changes.
func (m *model) modelKey() string {
	for _, e := range m.session.shown("model_picker", nil) {
		if key := e.String("key"); key != "" {
			return key
		}
	}
	return "model"
}
