package fullscreen

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"loquat/internal/tui"
	"loquat/internal/tui/markdown"
)

// newInput returns a line for a text.
func newInput(value string) textinput.Model {
	in := textinput.New()
	in.Prompt = "> "
	styles := in.Styles()
	styles.Cursor.Blink = false
	in.SetStyles(styles)
	in.SetValue(value)
	in.Focus()
	return in
}

// inputView returns the line of an input, without characters that turn it around or are signs.
func inputView(in *textinput.Model, width int) string {
	in.SetWidth(max(1, width-4))
	return markdown.TrimRight(visibleInput(in.View()))
}

// prompt asks for a line of text.
type prompt struct {
	title, hint string
	input       textinput.Model
	done        func(*model, string) tea.Cmd
}

func newPrompt(title, hint, value string, done func(*model, string) tea.Cmd) *prompt {
	return &prompt{title: title, hint: hint, input: newInput(value), done: done}
}

func (p *prompt) press(m *model, key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "esc":
		m.closeDialog()
		return nil
	case "enter":
		m.closeDialog()
		return p.done(m, strings.TrimSpace(p.input.Value()))
	}
	p.input, _ = p.input.Update(key)
	return nil
}

func (p *prompt) paste(_ *model, text string) tea.Cmd {
	p.input, _ = p.input.Update(tea.PasteMsg{Content: text})
	return nil
}

func (p *prompt) view(m *model, width, _ int) (string, []string) {
	lines := []string{""}
	if p.hint != "" {
		lines = append(lines, markdown.Lines(p.hint, width, m.cells)...)
	}
	return p.title, append(lines, inputView(&p.input, width), "", m.theme.dim.Render("Enter · Esc leaves it"))
}

// confirm asks a question that is answered by y or n.
type confirm struct {
	title, question string
	yes             func(*model) tea.Cmd
}

func newConfirm(title, question string, yes func(*model) tea.Cmd) *confirm {
	return &confirm{title, question, yes}
}

func (c *confirm) press(m *model, key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "y", "Y":
		m.closeDialog()
		return c.yes(m)
	case "n", "N", "esc":
		m.closeDialog()
	}
	return nil
}

func (c *confirm) paste(*model, string) tea.Cmd { return nil }

func (c *confirm) view(m *model, width, _ int) (string, []string) {
	lines := append([]string{""}, markdown.Lines(tui.Clean(c.question), width, m.cells)...)
	return c.title, append(lines, "", m.theme.strong.Render("y")+" yes · "+m.theme.strong.Render("n")+" no")
}

// page shows lines that can be scrolled.
type page struct {
	title string
	text  func(m *model, width int) []string
	top   int
	most  int // the last value of top, by the last view
}

func (p *page) press(m *model, key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "esc", "q", "enter", "f1":
		m.closeDialog()
	case "up", "k":
		p.top--
	case "down", "j":
		p.top++
	case "pgup":
		p.top -= 10
	case "pgdown", "space":
		p.top += 10
	}
	p.top = min(max(p.top, 0), p.most)
	return nil
}

func (p *page) paste(*model, string) tea.Cmd { return nil }

func (p *page) view(m *model, width, height int) (string, []string) {
	lines := p.text(m, width)
	room := max(height-1, 1)
	p.most = max(0, len(lines)-room)
	top := min(p.top, p.most)
	lines = lines[top:min(len(lines), top+room)]
	return p.title, append(lines[:len(lines):len(lines)], m.theme.dim.Render("↑ ↓ scroll · Esc closes"))
}

// newHelp lists the keys.
func newHelp() *page {
	return &page{title: "Keys", text: func(m *model, width int) []string {
		row := func(key, title string) string { return m.fit("  "+key, 24) + m.oneLine(title, width-24) }
		lines := []string{m.theme.strong.Render("In the message")}
		for _, r := range [][2]string{
			{"Enter", "sends; while a reply runs, the message waits"}, {"Alt-Enter, Ctrl-J", "starts a new line"},
			{"Up, Down", "earlier messages, if the message is empty"}, {"Esc", "stops the reply"},
			{"PageUp, PageDown", "scroll the chat"}, {"Tab", "to the messages, to the list, and back"},
			{"/attach PATH, //text", "attaches an image; sends /text"},
		} {
			lines = append(lines, row(r[0], r[1]))
		}
		parts := map[focus]string{focusComposer: "Everywhere", focusTranscript: "On a message (Tab)", focusList: "In the list (Ctrl-L)"}
		for _, part := range []focus{focusComposer, focusTranscript, focusList} {
			lines = append(lines, "", m.theme.strong.Render(parts[part]))
			for _, c := range commands() {
				if (c.where == part) && len(c.keys) > 0 && c.local == (part != focusComposer) {
					_, title, ok := strings.Cut(c.title, ": ")
					if !ok {
						title = c.title
					}
					lines = append(lines, row(keyNames(c.keys), title))
				}
			}
		}
		return lines
	}}
}

func keyNames(keys []string) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = keyName(k)
	}
	return strings.Join(names, ", ")
}

// newText shows a text of a plugin. Its lines are kept, because it may be long.
func newText(title, text string) *page {
	var lines []string
	var of struct {
		width int
		cells ansi.Method
	}
	return &page{title: title, text: func(m *model, width int) []string {
		if lines == nil || of.width != width || of.cells != m.cells {
			of.width, of.cells = width, m.cells
			lines = markdown.Lines(tui.Clean(text), width, m.cells)
		}
		return lines
	}}
}

// picker lets the user choose from a list, which typing narrows.
type picker struct {
	title    string
	items    []item
	loading  bool
	again    func(*model) []item // what the items are when plugins have answered; nil: the same
	input    textinput.Model
	selected int
}

// reload loads the items again. The same one stays selected.
func (p *picker) reload(m *model) {
	if p.again == nil {
		return
	}
	title := ""
	if list := p.matches(); p.selected < len(list) {
		title = list[p.selected].title
	}
	p.items = p.again(m)
	p.selected = max(slices.IndexFunc(p.matches(), func(it item) bool { return it.title == title }), 0)
}

// item is a choice of a picker.
type item struct {
	title, note string // of others, or of the client
	run         func(*model) tea.Cmd
}

func newPicker(title string, items []item) *picker {
	return &picker{title: title, items: items, input: newInput("")}
}

// showLoading opens a picker whose items are not known yet, so that what is typed meanwhile narrows them.
func (m *model) showLoading(title string) *picker {
	p := newPicker(title, nil)
	p.loading = true
	m.show(p)
	return p
}

// fill gives a picker its items.
func (p *picker) fill(items []item) tea.Cmd {
	p.items, p.loading = items, false
	return nil
}

// matches returns the items that have all words of the input.
func (p *picker) matches() (list []item) {
	words := strings.Fields(strings.ToLower(p.input.Value()))
	for _, it := range p.items {
		text, ok := strings.ToLower(it.title+" "+it.note), true
		for _, w := range words {
			ok = ok && strings.Contains(text, w)
		}
		if ok {
			list = append(list, it)
		}
	}
	return list
}

func (p *picker) press(m *model, key tea.KeyPressMsg) tea.Cmd {
	list := p.matches()
	switch key.String() {
	case "esc":
		m.closeDialog()
		return nil
	case "enter":
		if p.selected < len(list) {
			m.closeDialog()
			return list[p.selected].run(m)
		}
		return nil
	case "up", "ctrl+p":
		p.selected--
	case "down", "ctrl+n":
		p.selected++
	case "pgup":
		p.selected -= 10
	case "pgdown":
		p.selected += 10
	default:
		p.input, _ = p.input.Update(key)
		p.selected = 0
	}
	p.selected = min(max(p.selected, 0), max(len(p.matches())-1, 0))
	return nil
}

func (p *picker) paste(_ *model, text string) tea.Cmd {
	p.input, _ = p.input.Update(tea.PasteMsg{Content: text})
	p.selected = 0
	return nil
}

func (p *picker) view(m *model, width, height int) (string, []string) {
	list := p.matches()
	lines := []string{inputView(&p.input, width), ""}
	room := max(height-len(lines)-1, 1)
	from := min(max(0, p.selected-room/2), max(0, len(list)-room))
	for i := from; i < min(len(list), from+room); i++ {
		mark := "  "
		if i == p.selected {
			mark = "> "
		}
		line := m.sides(mark+m.oneLine(list[i].title, width), m.oneLine(list[i].note, width/2), width)
		if i == p.selected {
			line = m.theme.selected.Render(line)
		}
		lines = append(lines, line)
	}
	switch {
	case p.loading:
		return p.title, append(lines, m.theme.dim.Render("  loading … · Esc closes"))
	case len(list) == 0:
		lines = append(lines, m.theme.dim.Render("  nothing fits"))
	}
	return p.title, append(lines, m.theme.dim.Render(fmt.Sprintf("%d of %d · Enter chooses · Esc closes", len(list), len(p.items))))
}
