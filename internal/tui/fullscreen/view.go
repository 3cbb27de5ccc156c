package fullscreen

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"loquat/internal/tui/markdown"
)

// The smallest terminal that the client uses.
const (
	minWidth  = 60
	minHeight = 10
)

const (
	listWidth = 32  // of the list next to the transcript
	wideWidth = 100 // from this width on, the list is next to the transcript
	boxWidth  = 76  // of dialogs, at most
)

// layout computes the sizes of the parts. again is set if everything has to be rendered again.
func (m *model) layout(again bool) {
	width := m.mainWidth()
	if again {
		m.composer.drawn = nil
	}
	m.composer.resize(width, max(1, m.height/3))
	m.transcript.resize(width, max(0, m.height-1-len(m.composer.view(m, width))-len(m.statusView(width))), m.theme.markdown, m.cells, again)
}

// listShown reports whether the list is next to the transcript.
func (m *model) listShown() bool { return m.width >= wideWidth && !m.list.hidden }

func (m *model) mainWidth() int {
	if m.listShown() {
		return m.width - listWidth - 1
	}
	return m.width
}

// View returns the screen.
func (m *model) View() tea.View {
	v := tea.NewView("")
	v.AltScreen, v.ReportFocus = true, true
	v.WindowTitle = "Loquat"
	if m.session != nil {
		v.WindowTitle = "Loquat: " + m.oneLine(m.session.title(), 60)
	}
	if m.width < minWidth || m.height < minHeight {
		text := fmt.Sprintf("The terminal has %d columns and %d rows.\nLoquat needs at least %d and %d.\nMake it larger, or use --plain.", m.width, m.height, minWidth, minHeight)
		lines := strings.Split(text, "\n")
		v.Content = strings.Join(lines[:min(len(lines), max(m.height, 1))], "\n")
		return v
	}
	width := m.mainWidth()
	lines, status := []string{m.headerView(width)}, m.statusView(width)
	room := m.height - 1 - len(status)
	switch d := m.top(); {
	case d != nil:
		lines = append(lines, m.dialogView(d, width, room)...)
	case m.focus == focusList && !m.listShown():
		lines = append(lines, m.listView(width, room)...)
	default:
		lines = append(lines, m.transcriptView()...)
		v.Cursor = m.cursor(len(lines))
		lines = append(lines, m.composer.view(m, width)...)
	}
	lines = append(lines, status...)
	if m.listShown() {
		lines = m.besideList(lines)
		if v.Cursor != nil {
			v.Cursor.X += listWidth + 1
		}
	}
	v.Content = strings.Join(lines, "\n")
	return v
}

// besideList puts the list to the left of lines.
func (m *model) besideList(lines []string) []string {
	left := m.listView(listWidth, len(lines))
	for i := range lines {
		lines[i] = m.fit(left[i], listWidth) + m.theme.dim.Render("│") + lines[i]
	}
	return lines
}

// cursor returns where the cursor of the composer is. above is the number of lines above it.
func (m *model) cursor(above int) *tea.Cursor {
	at := m.composer.draw(m, m.mainWidth()).cursor
	if at == nil || m.focus != focusComposer {
		return nil
	}
	c := *at
	c.Y += above + m.composer.above(m)
	return &c
}

// headerView is the first line: the title, the agent and the model.
func (m *model) headerView(width int) string {
	title, agent := "New chat", m.composer.agent
	if m.session != nil {
		title, agent = m.session.title(), m.session.fold.AgentID()
		if title == "" {
			title = m.session.id
		}
	}
	right := m.oneLine(agent, width/3)
	if len(m.options.Servers) > 1 {
		right += " @ " + m.oneLine(m.server.Name, width/3)
	}
	return m.sides(m.theme.title.Render(m.oneLine(title, width)), m.theme.dim.Render(right), width)
}

// extraLines is the number of lines that an error, or the list of attachments, may take. What is
// longer is cut, with a sign.
func (m *model) extraLines() int { return min(max(1, m.height/5), 4) }

// statusView is the last line: the state of the line, and what plugins say about the last reply. A
// notice takes its place, and an error as many lines as it needs.
func (m *model) statusView(width int) []string {
	usage := ""
	if m.session != nil {
		usage = m.session.usage
	}
	switch {
	case m.notice.text == "":
		return []string{m.sides(m.lineView(width), m.theme.dim.Render(m.oneLine(usage, width*2/3)), width)}
	case !m.notice.bad:
		return []string{m.fit(m.oneLine(m.notice.text, width), width)}
	}
	most := m.extraLines()
	text := "✗ " + m.oneLine(m.notice.text, most*(width-1)-8) + " (Esc)"
	lines := markdown.Lines(text, width, m.cells)
	if len(lines) > most { // long words leave gaps
		lines = append(lines[:most-1], m.cut(strings.Join(lines[most-1:], " "), width-7)+" (Esc)")
	}
	for i, line := range lines {
		lines[i] = m.theme.failure.Render(line)
	}
	return lines
}

// lineView says how the connection is.
func (m *model) lineView(width int) string {
	switch {
	case m.failed != "":
		return m.theme.failure.Render("✗ Ctrl-R connects again: " + m.oneLine(m.failed, width))
	case m.line.Connected:
		return m.theme.success.Render("● connected")
	case m.line.Retry.IsZero():
		return m.theme.dim.Render("○ connecting …")
	case m.feed == nil && m.line.Err != nil:
		return m.theme.warning.Render(m.oneLine(fmt.Sprintf("○ next attempt in %d s: %s", secondsUntil(m.line.Retry, m.now()), plainError(m.line.Err)), width))
	}
	return m.theme.warning.Render(fmt.Sprintf("○ connection lost · next attempt in %d s", secondsUntil(m.line.Retry, m.now())))
}

// dialogView puts a dialog into a box, in the middle of a part of the screen.
func (m *model) dialogView(d dialog, width, height int) []string {
	inner := min(width, boxWidth) - 4
	title, body := d.view(m, inner, height-2)
	body = body[:min(len(body), height-2)]
	edge := lipgloss.RoundedBorder()
	head := edge.TopLeft + "─ " + m.theme.title.Render(m.oneLine(title, inner-4)) + " "
	head += strings.Repeat(edge.Top, max(0, inner+3-m.cells.StringWidth(head))) + edge.TopRight
	lines := []string{head}
	for _, line := range body {
		lines = append(lines, edge.Left+" "+m.fit(line, inner)+" "+edge.Right)
	}
	lines = append(lines, edge.BottomLeft+strings.Repeat(edge.Bottom, inner+2)+edge.BottomRight)
	pad := strings.Repeat(" ", (width-inner-4)/2)
	for i := range lines {
		lines[i] = pad + lines[i]
	}
	for top := (height - len(lines)) / 3; top > 0; top-- {
		lines = append([]string{""}, lines...)
	}
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:height]
}
