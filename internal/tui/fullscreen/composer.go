package fullscreen

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/tui/markdown"
)

// composer is where messages are written.
type composer struct {
	area        textarea.Model
	drawn       *drawnArea // nil if something about the area has changed since
	attachments []attachment
	agent       string             // of a new session
	drafts      map[string]draft   // of sessions that are not open, by id
	past        []string           // what was sent, the newest last
	recalled    int                // how far back in past the composer is; 0: not at all
	editing     *edit              // nil: a new message is written
	sending     bool               // the server has not accepted it yet
	waiting     draft              // what came meanwhile, for the next message
	giveUp      context.CancelFunc // ends the send
	requestID   string             // of the send, see draft
	sent        string             // what requestID stands for
}

// drawnArea is how the area is shown. To find it out takes the longer, the longer the text is.
type drawnArea struct {
	width  int
	lines  []string
	cursor *tea.Cursor // from the first line on; nil if there is none
}

// draft is a message that was not sent.
type draft struct {
	text        string
	attachments []attachment
	requestID   string // of the last attempt to send it, so that a repeat has no second effect
	sent        string // what requestID stands for
}

// edit is the change of a message that was sent before.
type edit struct {
	index   int
	message loquat.Message
	before  draft // what was in the composer
}

// attachment is an image for the next message: a URL, or a file that was read.
type attachment struct {
	name, media, url string
	data             []byte
	assetID          string          // once it is uploaded
	raw              json.RawMessage // of a message that is edited
}

func newComposer() composer {
	a := textarea.New()
	a.Prompt, a.ShowLineNumbers, a.CharLimit = "> ", false, 0
	a.Placeholder = ""
	a.DynamicHeight, a.MinHeight, a.MaxHeight = true, 1, 8
	a.MaxContentHeight = math.MaxInt32
	a.SetVirtualCursor(false)
	a.SetPromptFunc(2, func(p textarea.PromptInfo) string {
		if p.LineNumber == 0 {
			return "> "
		}
		return "  "
	})
	keys := textarea.DefaultKeyMap()
	keys.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	keys.LineNext.SetKeys("down")
	keys.LinePrevious.SetKeys("up")
	keys.Paste.SetEnabled(false) // the terminal pastes
	a.KeyMap = keys
	return composer{area: a, drafts: map[string]draft{}}
}

func (c *composer) setTheme(t theme) {
	styles := textarea.Styles{}
	styles.Focused.Prompt, styles.Blurred.Prompt = t.user, t.dim
	styles.Focused.Placeholder, styles.Blurred.Placeholder = t.dim, t.dim
	styles.Blurred.Text = t.dim
	c.area.SetStyles(styles)
}

func (c *composer) resize(width, rows int) {
	c.area.MaxHeight = max(1, min(rows, 8))
	if c.area.Width() != width-2 || c.area.Height() > c.area.MaxHeight {
		c.area.SetWidth(width)
		c.drawn = nil
	}
}

// update lets the area handle a message.
func (c *composer) update(msg tea.Msg) (cmd tea.Cmd) {
	c.area, cmd = c.area.Update(msg)
	c.drawn = nil
	return cmd
}

// focus gives the keys to the area, or takes them from it.
func (c *composer) focus(on bool) (cmd tea.Cmd) {
	c.drawn = nil
	if on {
		return c.area.Focus()
	}
	c.area.Blur()
	return nil
}

// draw returns how the area is shown.
func (c *composer) draw(m *model, width int) *drawnArea {
	if c.drawn == nil || c.drawn.width != width {
		c.drawn = &drawnArea{width: width, cursor: c.area.Cursor()}
		for line := range strings.SplitSeq(c.area.View(), "\n") {
			c.drawn.lines = append(c.drawn.lines, m.fit(markdown.TrimRight(visibleInput(line)), width))
		}
	}
	return c.drawn
}

// hasDraft reports whether something would be lost with the composer.
func (c *composer) hasDraft() bool {
	return strings.TrimSpace(c.text()) != "" || len(c.attachments) > 0 && c.editing == nil
}

// edited reports whether the message that is edited was changed.
func (c *composer) edited() bool {
	before := draftOf(c.editing.message)
	return c.text() != before.text || len(c.attachments) != len(before.attachments) ||
		slices.ContainsFunc(c.attachments, func(a attachment) bool { return a.raw == nil })
}

// take returns the draft and empties the composer.
func (c *composer) take() draft {
	d := draft{c.text(), c.attachments, c.requestID, c.sent}
	c.put(draft{})
	return d
}

// keep keeps a draft for a session. What is kept there already was not shown meanwhile, so it stays, too.
func (c *composer) keep(id string, d draft) {
	if d.empty() {
		return
	}
	if old, ok := c.drafts[id]; ok {
		d = old.with(d)
	}
	c.drafts[id] = d
}

// empty reports whether nothing was written.
func (d draft) empty() bool { return strings.TrimSpace(d.text) == "" && len(d.attachments) == 0 }

// with returns a draft with another one after it, which makes it another message.
func (d draft) with(other draft) draft {
	switch {
	case other.empty():
		return d
	case d.empty():
		return other
	}
	text := d.text + "\n\n" + other.text
	if strings.TrimSpace(d.text) == "" || strings.TrimSpace(other.text) == "" {
		text = d.text + other.text
	}
	return draft{text: text, attachments: slices.Concat(d.attachments, other.attachments)}
}

// text returns what was written.
func (c *composer) text() string { return writtenText(c.area.Value()) }

// setText replaces the text. The cursor is at its end, and is seen.
func (c *composer) setText(text string) {
	setArea(&c.area, text)
	c.area.MoveToEnd()
	c.update(nil)
}

func (c *composer) put(d draft) {
	c.setText(d.text)
	c.attachments, c.requestID, c.sent, c.recalled = d.attachments, d.requestID, d.sent, 0
}

// view returns the lines of the composer: a rule with a hint, attachments, the text.
func (c *composer) view(m *model, width int) []string {
	lines := []string{m.rule(c.hint(m), width)}
	for i, a := range c.attachments {
		if room := c.above(m) - len(lines); room == 1 && i < len(c.attachments)-1 {
			lines = append(lines, m.theme.tool.Render(fmt.Sprintf("  … and %s", plural(len(c.attachments)-i, "more image"))))
			break
		}
		lines = append(lines, m.theme.tool.Render(m.oneLine(fmt.Sprintf("  [image %d] %s", i+1, a.label()), width)))
	}
	return append(lines, c.draw(m, width).lines...)
}

// above returns the number of lines above the text.
func (c *composer) above(m *model) int { return 1 + min(len(c.attachments), m.extraLines()) }

// hint says what Enter does.
func (c *composer) hint(m *model) string {
	switch {
	case c.sending:
		return "sending … · Esc gives up"
	case c.editing != nil && c.editing.message.Role == loquat.RoleUser:
		return fmt.Sprintf("message %d: Enter saves and asks again · Ctrl-S only saves · Esc leaves it", c.editing.index+1)
	case c.editing != nil:
		return fmt.Sprintf("message %d: Enter saves · Esc leaves it", c.editing.index+1)
	case m.session != nil && m.session.run != nil:
		return "Enter queues · Alt-S steers · Alt-I interrupts · Esc stops the reply"
	case m.focus != focusComposer:
		return "Tab comes back to the message"
	}
	return "Enter sends · Alt-Enter new line · Ctrl-K commands · F1 help"
}

// rule returns a line with a text in it.
func (m *model) rule(text string, width int) string {
	text = m.oneLine(text, width-6)
	line := "── " + text + " "
	return m.theme.dim.Render(line + strings.Repeat("─", max(0, width-m.cells.StringWidth(line))))
}

func (a attachment) label() string {
	switch {
	case a.raw != nil:
		return "of the message"
	case a.url != "":
		return a.url
	}
	return fmt.Sprintf("%s (%s)", a.name, plural(len(a.data), "byte"))
}

// json returns the attachment as the API takes it.
func (a attachment) json() json.RawMessage {
	if a.raw != nil {
		return a.raw
	}
	o := map[string]string{"type": "image", "url": a.url}
	if a.url == "" {
		o = map[string]string{"type": "image", "asset_id": a.assetID}
	}
	raw, _ := json.Marshal(o) // strings can be encoded
	return raw
}

// pressComposer handles a key that no command has taken.
func (m *model) pressComposer(key tea.KeyPressMsg) tea.Cmd {
	c := &m.composer
	switch name := key.String(); {
	case c.sending:
		return nil // what is being sent stays as it is
	case name == "enter":
		return m.submit(loquat.BusyQueue)
	case name == "up" && (c.area.Value() == "" || c.recalled > 0):
		return m.recall(1)
	case name == "down" && c.recalled > 0:
		return m.recall(-1)
	case name == "backspace" && c.area.Value() == "" && len(c.attachments) > 0:
		c.attachments = c.attachments[:len(c.attachments)-1]
		return nil
	}
	m.asked, c.recalled = false, 0
	return c.update(key)
}

// recall puts an earlier message into the composer.
func (m *model) recall(step int) tea.Cmd {
	c, past := &m.composer, m.pastMessages()
	at := c.recalled + step
	if at > len(past) {
		return nil
	}
	c.recalled = at
	if at == 0 {
		c.setText("")
		return nil
	}
	c.setText(past[len(past)-at])
	return nil
}

// pastMessages returns what the user wrote in the open session, and then elsewhere.
func (m *model) pastMessages() (past []string) {
	if m.session != nil {
		for _, msg := range m.session.messages {
			if msg.Role == loquat.RoleUser && !slices.Contains(m.composer.past, msg.Content) {
				past = append(past, msg.Content)
			}
		}
	}
	return append(past, m.composer.past...)
}

// submit does what Enter means: runs a command, saves an edit, or sends the message.
func (m *model) submit(onBusy string) tea.Cmd {
	text := m.composer.text()
	if m.composer.editing != nil {
		return m.saveEdit(true)
	}
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "" && len(m.composer.attachments) == 0:
		return nil
	case strings.HasPrefix(trimmed, "//"):
		text = strings.Replace(text, "//", "/", 1)
	case strings.HasPrefix(trimmed, "/"):
		return m.slash(trimmed)
	case trimmed == "":
		text = ""
	}
	return m.send(text, onBusy)
}

// slash runs a command that was typed.
func (m *model) slash(text string) tea.Cmd {
	name, argument, _ := strings.Cut(strings.TrimPrefix(text, "/"), " ")
	argument = strings.TrimSpace(argument)
	run := map[string]func() tea.Cmd{
		"new":    m.newChat,
		"quit":   m.leave,
		"help":   func() tea.Cmd { return m.show(newHelp()) },
		"attach": func() tea.Cmd { return m.attach(argument) },
		"export": func() tea.Cmd { return m.exportTo(argument) },
	}[name]
	if run == nil {
		return m.fail(fmt.Errorf("there is no command /%s; there are /new, /attach PATH, /export PATH, /help and /quit; to send a text that begins with /, type //", name))
	}
	m.composer.setText("")
	return run()
}

// pasted handles a pasted text: an image file becomes an attachment.
func (m *model) pasted(text string) tea.Cmd {
	if d := m.top(); d != nil {
		return d.paste(m, text)
	}
	if m.composer.sending {
		return nil
	}
	m.setFocus(focusComposer)
	if path, ok := imagePath(text); ok {
		return m.attachPasted(path, text)
	}
	return m.insert(text)
}

// insert puts a text where the cursor is.
func (m *model) insert(text string) tea.Cmd {
	c := &m.composer
	if err := insertInto(&c.area, text); err != nil {
		return m.fail(err)
	}
	c.update(nil) // so that the cursor is seen
	c.recalled = 0
	return nil
}

// imagePath returns the path in a text that may be the path of an image, as terminals paste a file
// that was dragged onto them: quoted, with escaped spaces, or as a URL.
func imagePath(text string) (string, bool) {
	path := strings.TrimSpace(text)
	if strings.ContainsAny(path, "\n\r") || len(path) > 4096 {
		return "", false
	}
	if n := len(path); n > 1 && (path[0] == '\'' || path[0] == '"') && path[n-1] == path[0] {
		path = path[1 : n-1]
	}
	path = strings.TrimPrefix(path, "file://")
	path = strings.ReplaceAll(path, `\ `, " ")
	path = expandHome(path)
	return path, filepath.IsAbs(path) && mediaOf(path) != ""
}

// expandHome replaces the ~ in front of a path, as shells do.
func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// mediaOf returns the type of an image by the name of its file, or "".
func mediaOf(path string) string {
	return map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}[strings.ToLower(filepath.Ext(path))]
}
