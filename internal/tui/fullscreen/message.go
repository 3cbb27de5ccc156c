package fullscreen

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"loquat"
	"loquat/internal/readable"
	"loquat/internal/tui"
	"loquat/internal/tui/markdown"
)

const (
	// foldedLines is the number of lines of a tool's output that a folded card shows.
	foldedLines = 8
	// liveLines is the same for a tool that runs, of the end of its output.
	liveLines = 6
)

func numberOf(entry int) string { return strconv.Itoa(entry + 1) }

// layOutMessage lays out the message at an index.
func (m *model) layOutMessage(l *layout, i int, msg loquat.Message) {
	switch msg.Role {
	case loquat.RoleTool:
		l.add("")
		l.add(m.resultCard(i, msg)...)
		l.add(m.imageLines(msg)...)
		return
	case loquat.RoleUser:
		l.add("", m.headLine(i, m.theme.user.Render("You")))
	case loquat.RoleAssistant:
		if !m.continuesReply(i) {
			l.add("", m.headLine(i, m.theme.assistant.Render("Assistant")))
		}
	default:
		l.add("", m.headLine(i, m.theme.strong.Render(m.oneLine(msg.Role, 20))))
	}
	if text := readable.Reasoning(msg.Metadata); text != "" {
		l.add(m.reasoningLines(msg.ID, text, m.session.thought[msg.ID], "Reasoning")...)
	}
	m.layOutContent(l, i, msg)
	l.add(m.imageLines(msg)...)
	l.add(m.openCalls(i, msg)...)
	for _, notice := range readable.EndingNotices(msg) {
		l.add(m.transcript.wrapped("! "+tui.OneLine(notice), m.theme.warning)...)
	}
	if footers := m.session.texts("message_footer", i, msg); len(footers) > 0 && msg.Role == loquat.RoleAssistant {
		l.add(m.theme.dim.Render(m.oneLine(strings.Join(footers, " · "), m.transcript.content())))
	}
}

// layOutContent lays out the content. What people wrote stays as they wrote it.
func (m *model) layOutContent(l *layout, i int, msg loquat.Message) {
	if strings.TrimSpace(msg.Content) == "" {
		return
	}
	if msg.Role != loquat.RoleAssistant {
		l.add(m.transcript.wrapped(tui.Clean(strings.TrimRight(msg.Content, "\n")), m.theme.plain)...)
		return
	}
	if m.continuesReply(i) || readable.Reasoning(msg.Metadata) != "" {
		l.add("")
	}
	l.text = &markdown.Document{}
	l.text.SetText(msg.Content)
}

// continuesReply reports whether the message before belongs to the same reply.
func (m *model) continuesReply(i int) bool {
	if i == 0 {
		return false
	}
	before, ok := m.session.message(i - 1)
	return ok && (before.Role == loquat.RoleTool || before.Role == loquat.RoleAssistant)
}

// headLine returns who wrote a message, and which of its alternatives is in place.
func (m *model) headLine(i int, who string) string {
	list := m.session.alternatives[i]
	for n, a := range list {
		if a.InPlace && len(list) > 1 {
			who += m.theme.dim.Render(fmt.Sprintf("  ‹ %d of %d ›", n+1, len(list)))
		}
	}
	return who
}

// reasoningLines returns a fold with reasoning. thought is 0 if nobody saw how long it took.
func (m *model) reasoningLines(id, text string, thought time.Duration, word string) []string {
	sign := "▸ "
	if m.isOpen(id) {
		sign = "▾ "
	}
	head := sign + word
	if thought >= time.Second/2 {
		head += " · " + seconds(thought)
	}
	lines := []string{m.theme.dim.Render(head)}
	if m.isOpen(id) {
		lines = append(lines, m.bar(tui.Clean(strings.TrimSpace(text)), m.theme.dim)...)
	}
	return lines
}

// isOpen reports whether the folds of a message are open.
func (m *model) isOpen(id string) bool { return m.transcript.openAll != m.transcript.open[id] }

// bar returns a text with a bar in front of each line.
func (m *model) bar(text string, style lipgloss.Style) []string {
	var lines []string
	for _, line := range markdown.Lines(text, m.transcript.content()-2, m.cells) {
		lines = append(lines, m.theme.dim.Render("│ ")+style.Render(line))
	}
	return lines
}

// resultCard returns the card of a call that has ended.
func (m *model) resultCard(i int, msg loquat.Message) []string {
	id := msg.Metadata.String(loquat.MetaToolCallID)
	call, _ := m.callOf(i, id)
	name := msg.Metadata.String(loquat.MetaToolName)
	if name == "" {
		name = call.Name
	}
	sign, style := "✓ ", m.theme.tool
	if msg.Metadata.Bool(loquat.MetaIsError) {
		sign, style = "✗ failed: ", m.theme.failure
	}
	lines := m.cardHead(sign, name, call.Arguments, style, m.isOpen(msg.ID))
	output := strings.Trim(tui.Clean(readable.Displayed(msg)), "\n")
	if output == "" {
		return append(lines, m.theme.dim.Render("│ no output"))
	}
	if m.isOpen(msg.ID) {
		return append(lines, m.bar(output, m.theme.plain)...)
	}
	head, more := foldText(output, m.transcript.content())
	body := m.bar(head, m.theme.plain)
	if len(body) > foldedLines+1 {
		body, more = body[:foldedLines:foldedLines], max(more, 1)
	}
	if more > 0 {
		body = append(body, m.theme.dim.Render("│ … and more: o opens it ("+plural(strings.Count(output, "\n")+1, "line")+" in all)"))
	}
	return append(lines, body...)
}

// foldText returns the lines of a text that a folded card may show, and how many it leaves out.
func foldText(text string, width int) (head string, more int) {
	lines := strings.SplitN(text, "\n", foldedLines+2)
	if len(lines) > foldedLines+1 {
		more = strings.Count(lines[foldedLines+1], "\n") + 2
		lines = lines[:foldedLines]
	}
	for i, line := range lines {
		if most := 4 * foldedLines * max(width, 1); len(line) > most { // it fills the card alone
			lines[i], more = strings.ToValidUTF8(line[:most], ""), max(more, 1)
		}
	}
	return strings.Join(lines, "\n"), more
}

// cardHead returns the name of a call with its arguments: on one line, or pretty if it is open.
func (m *model) cardHead(sign, name, arguments string, style lipgloss.Style, open bool) []string {
	name = m.oneLine(name, m.transcript.content()/2)
	head := style.Render(sign + name)
	room := m.transcript.content() - m.cells.StringWidth(head) - 1
	if !open {
		return []string{head + " " + m.theme.dim.Render(m.oneLine(compactJSON(arguments), room))}
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, []byte(arguments), "", "  ") == nil {
		arguments = pretty.String()
	}
	return append([]string{head}, m.bar(tui.Clean(arguments), m.theme.dim)...)
}

// compactJSON returns JSON without line breaks and indentation. What is not JSON stays.
func compactJSON(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

// callOf returns the call that the tool message at an index answers.
func (m *model) callOf(i int, id string) (loquat.ToolCall, bool) {
	for i--; i >= 0; i-- {
		msg, ok := m.session.message(i)
		if !ok || msg.Role == loquat.RoleUser {
			break
		}
		for _, c := range msg.ToolCalls() {
			if c.ID == id {
				return c, true
			}
		}
		if msg.Role == loquat.RoleAssistant {
			break
		}
	}
	return loquat.ToolCall{}, false
}

// openCalls returns cards of the calls of a message that have neither a result nor run.
func (m *model) openCalls(i int, msg loquat.Message) (lines []string) {
	calls := msg.ToolCalls()
	if len(calls) == 0 {
		return nil
	}
	answered := map[string]bool{}
	for j := i + 1; j < m.session.total(); j++ {
		result, ok := m.session.message(j)
		if !ok || result.Role != loquat.RoleTool {
			break
		}
		answered[result.Metadata.String(loquat.MetaToolCallID)] = true
	}
	running := m.session.run != nil && i == m.session.total()-1
	for _, c := range calls {
		if !answered[c.ID] && !running {
			lines = append(lines, m.cardHead("· not run: ", c.Name, c.Arguments, m.theme.warning, m.isOpen(msg.ID))...)
		}
	}
	return lines
}

// imageLines returns a line for each image of a message.
func (m *model) imageLines(msg loquat.Message) (lines []string) {
	for _, raw := range attachmentsOf(msg) {
		var a loquat.Object
		if json.Unmarshal(raw, &a) != nil {
			continue
		}
		lines = append(lines, m.transcript.wrapped("[image] "+m.imageText(a), m.theme.tool)...)
	}
	return lines
}

// imageText says where an image is.
func (m *model) imageText(a loquat.Object) string {
	switch {
	case a.String("url") != "":
		return tui.OneLine(a.String("url"))
	case a.String("asset_id") != "":
		return m.server.Client.URL("sessions", m.session.id, "assets", a.String("asset_id"))
	}
	media, data, _ := strings.Cut(strings.TrimPrefix(a.String("data_url"), "data:"), ",")
	media, _, _ = strings.Cut(media, ";")
	size := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
	return m.oneLine(media, 40) + ", in the message, " + plural(size, "byte")
}

// layOutLive lays out what is not a message yet: the draft, the tools that run, the queue, errors.
func (m *model) layOutLive(l *layout) {
	s := m.session
	if d := s.fold.Draft(); d != nil {
		m.layOutDraft(l, d)
	}
	if s.run != nil {
		for _, t := range s.run.tools {
			l.add(append([]string{""}, m.liveCard(t)...)...)
		}
		l.add("", m.theme.warning.Render(m.oneLine("… "+s.run.indicator(m.now()), m.transcript.content())))
	}
	if s.failure != "" {
		l.add(append([]string{""}, m.transcript.wrapped("✗ The reply failed: "+tui.Clean(s.failure), m.theme.failure)...)...)
		l.add(m.theme.dim.Render("  Ctrl-R tries again"))
	}
	for i, q := range s.queue {
		word := map[string]string{loquat.BusySteer: "steers the reply", loquat.BusyInterrupt: "is next"}[q.OnBusy]
		if word == "" {
			word = "waits"
		}
		head := fmt.Sprintf("%d. %s: ", i+1, word)
		l.add(append([]string{}, m.theme.dim.Render(m.oneLine(head+q.Message.Content, m.transcript.content())))...)
	}
}

// layOutDraft lays out the reply that is being streamed. The pieces in front of its text are always
// three, some of them without lines, so that a place in the text stays where it is.
func (m *model) layOutDraft(l *layout, d *loquat.Draft) {
	s, key := m.session, "draft:"+d.RequestID
	var who, reasoning, space []string
	follows := m.continuesReply(s.total())
	if !follows {
		who = []string{"", m.theme.assistant.Render("Assistant")}
	}
	text := readable.Reasoning(d.Metadata)
	if text != "" {
		word, thought := "Reasoning", time.Duration(0)
		if s.run != nil {
			thought = s.run.thought
			if s.run.phase == phaseThinking {
				word, thought = "Thinking", m.now().Sub(s.run.reasoning)
			}
		}
		reasoning = m.reasoningLines(key, text, thought, word)
	}
	if strings.TrimSpace(d.Content) != "" && (text != "" || follows) {
		space = []string{""}
	}
	l.before, l.text = [][]string{who, reasoning, space}, m.transcript.draft.grow(d.RequestID, d.Content)
}

// liveCard returns the card of a tool that runs.
func (m *model) liveCard(t *toolRun) []string {
	sign := "… "
	if t.progress != "" {
		sign = "… " + t.progress + " "
	}
	lines := m.cardHead(sign, t.call.Name, t.call.Arguments, m.theme.tool, false)
	tail := t.output[max(0, len(t.output)-4*liveLines*m.transcript.content()):]
	if output := strings.Trim(tui.Clean(strings.ToValidUTF8(tail, "")), "\n"); output != "" {
		body := m.bar(output, m.theme.plain)
		lines = append(lines, body[max(0, len(body)-liveLines):]...)
	}
	return lines
}
