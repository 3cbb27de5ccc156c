package fullscreen

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"loquat"
)

// command is something that a user can do. The palette lists all of them, and the help their keys.
type command struct {
	title string
	keys  []string // the first is shown
	where focus    // for keys without Ctrl or Alt: the part of the screen that must have the focus
	local bool     // the keys work only there
	when  func(*model) bool
	run   func(*model) tea.Cmd
}

// ifPossible runs a command that was possible when it was listed.
func (c command) ifPossible(m *model) tea.Cmd {
	if !c.when(m) {
		return m.say("this is not possible now: %s", c.title)
	}
	return c.run(m)
}

// commands returns all commands of the client itself, in the order of the palette.
func commands() []command {
	always := func(*model) bool { return true }
	listed := func(m *model) bool { return !m.list.denied }
	open := func(m *model) bool { return m.session != nil }
	running := func(m *model) bool { return m.session != nil && m.session.run != nil }
	idle := func(m *model) bool { return m.session != nil && m.session.run == nil }
	writing := func(m *model) bool { return running(m) && m.composer.hasDraft() && m.composer.editing == nil }
	on := func(where focus, title string, when func(*model) bool, run func(*model) tea.Cmd, keys ...string) command {
		return command{title: title, keys: keys, where: where, local: true, when: when, run: run}
	}
	everywhere := func(title string, when func(*model) bool, run func(*model) tea.Cmd, keys ...string) command {
		return command{title: title, keys: keys, when: when, run: run}
	}
	list := []command{
		everywhere("New chat", always, (*model).newChat, "ctrl+n"),
		everywhere("Chats", listed, (*model).showList, "ctrl+l"),
		everywhere("Search the chats", listed, (*model).searchList, "ctrl+f"),
		everywhere("Stop the reply", running, (*model).stop),
		everywhere("Steer the reply with the message", writing, func(m *model) tea.Cmd { return m.submit(loquat.BusySteer) }, "alt+s"),
		everywhere("Interrupt the reply and send the message", writing, func(m *model) tea.Cmd { return m.submit(loquat.BusyInterrupt) }, "alt+i"),
		everywhere("Take back the last message that waits", func(m *model) bool { return open(m) && len(m.session.queue) > 0 }, (*model).takeBack, "alt+z"),
		everywhere("Try again", func(m *model) bool { return m.failed != "" || idle(m) }, (*model).tryAgain, "ctrl+r"),
		everywhere("Write the message in an editor", always, (*model).editOutside, "ctrl+e"),
		everywhere("Attach an image", always, func(m *model) tea.Cmd { return m.attach("") }),
		everywhere("Model", open, (*model).pickModel, "alt+m"),
		everywhere("Agent", always, (*model).pickAgent, "alt+a"),
		everywhere("Settings of the chat", open, (*model).showSettings, "alt+o"),
		everywhere("Rename the chat", open, func(m *model) tea.Cmd { return m.rename(m.session.id, m.session.title()) }),
		everywhere("Fork the chat", open, func(m *model) tea.Cmd { return m.fork(m.session.id) }),
		everywhere("Export the chat to a file", open, func(m *model) tea.Cmd { return m.exportTo("") }),
		everywhere("Pin or unpin the chat", open, func(m *model) tea.Cmd { return m.toggleLabel(m.session.id, loquat.MetaPinned) }),
		everywhere("Archive or restore the chat", open, func(m *model) tea.Cmd { return m.toggleLabel(m.session.id, loquat.MetaArchived) }),
		everywhere("Delete the chat", open, func(m *model) tea.Cmd { return m.confirmDelete(m.session.id) }),
		everywhere("Open or fold all reasoning and tools", open, (*model).toggleAll, "ctrl+t"),
		everywhere("Go to the first message", open, func(m *model) tea.Cmd { m.scrollTo(0); return nil }, "ctrl+home"),
		everywhere("Go to the end", open, func(m *model) tea.Cmd { m.transcript.follow = true; return nil }, "ctrl+end"),
		everywhere("Show or hide the list of chats", listed, func(m *model) tea.Cmd { m.list.hidden = !m.list.hidden; return nil }, "ctrl+b"),
		everywhere("Theme", always, (*model).pickTheme),
		everywhere("Server", func(m *model) bool { return len(m.options.Servers) > 1 }, (*model).pickServer),
		everywhere("Keys and help", always, func(m *model) tea.Cmd { return m.show(newHelp()) }, "f1"),
		everywhere("Commands", always, (*model).showPalette, "ctrl+k", "ctrl+p"),
		everywhere("Suspend", always, func(*model) tea.Cmd { return tea.Suspend }, "ctrl+z"),
		everywhere("Leave", always, (*model).leave, "ctrl+c"),
	}
	message := func(m *model) bool { return open(m) && m.session.total() > 0 }
	for _, a := range messageCommands() {
		when := a.when
		list = append(list, on(focusTranscript, a.title, func(m *model) bool { return message(m) && when(m) }, a.run, a.keys...))
	}
	return append(list, listCommands()...)
}

// press handles a key: the dialog that is open, a command, or the part with the focus.
func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	if name != "ctrl+c" {
		m.asked = false
	}
	if d := m.top(); d != nil {
		if name == "ctrl+c" {
			m.closeDialog()
			return nil
		}
		return d.press(m, key)
	}
	for _, c := range commands() {
		if slices.Contains(c.keys, name) && (!c.local || m.focus == c.where) && c.when(m) {
			return c.run(m)
		}
	}
	switch name {
	case "esc":
		return m.escape()
	case "tab":
		m.moveFocus(1)
		return nil
	case "shift+tab":
		m.moveFocus(-1)
		return nil
	case "pgup", "shift+pgup":
		m.scroll(-max(1, m.transcript.height-2))
		return nil
	case "pgdown", "shift+pgdown":
		m.scroll(max(1, m.transcript.height-2))
		return nil
	case "?":
		if m.focus != focusComposer {
			return m.show(newHelp())
		}
	case "ctrl+s":
		if m.composer.editing != nil {
			return m.saveEdit(false)
		}
		return nil
	}
	m.typed = m.now()
	switch m.focus {
	case focusComposer:
		return m.pressComposer(key)
	case focusTranscript:
		return m.pressTranscript(name)
	}
	return m.pressList(name)
}

// escape leaves what is open, and else stops the reply.
func (m *model) escape() tea.Cmd {
	switch {
	case m.notice.bad:
		m.notice = notice{}
	case m.focus != focusComposer:
		m.setFocus(focusComposer)
	case m.composer.sending:
		m.composer.giveUp()
	case m.composer.editing != nil:
		m.composer.put(m.composer.editing.before)
		m.composer.editing = nil
	case m.session != nil && m.session.run != nil:
		return m.stop()
	}
	return nil
}

// moveFocus gives the keys to the next part of the screen that is shown.
func (m *model) moveFocus(step int) {
	parts := []focus{focusComposer}
	if m.session != nil && m.session.total() > 0 {
		parts = append(parts, focusTranscript)
	}
	if m.listShown() || m.focus == focusList {
		parts = append(parts, focusList)
	}
	at := slices.Index(parts, m.focus)
	m.setFocus(parts[(at+step+len(parts))%len(parts)])
}

// pressTranscript moves the selection.
func (m *model) pressTranscript(name string) tea.Cmd {
	if m.session == nil || m.session.total() == 0 {
		return nil
	}
	t := &m.transcript
	switch name {
	case "up", "k":
		t.stays = true
		m.selectEntry(t.selected - 1)
	case "down", "j":
		t.stays = false
		if t.selected >= m.session.total()-1 {
			t.follow = true
			return nil
		}
		m.selectEntry(t.selected + 1)
	case "home", "g":
		t.stays = true
		m.selectEntry(0)
	case "end", "G":
		m.selectEntry(m.session.total() - 1)
		t.follow, t.stays = true, false
	case "shift+up":
		m.scroll(-1)
	case "shift+down":
		m.scroll(1)
	}
	return nil
}

// keyName returns a key as people write it.
func keyName(key string) string {
	parts := strings.Split(key, "+")
	for i, p := range parts {
		switch {
		case len(p) > 1:
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		case len(parts) > 1:
			parts[i] = strings.ToUpper(p)
		}
	}
	return strings.Join(parts, "-")
}
