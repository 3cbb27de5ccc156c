package fullscreen

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"loquat"
	"loquat/internal/client"
)

// focus is the part of the screen that gets the keys, while no dialog is open.
type focus int

const (
	focusComposer focus = iota
	focusTranscript
	focusList
)

// model is what the screen shows.
type model struct {
	ruler
	options Options
	ctx     context.Context
	now     func() time.Time
	server  Server

	width, height int
	theme         theme
	focus         focus
	away          bool      // the terminal has lost the focus
	typed         time.Time // when a key was last pressed that was neither a command nor for a dialog
	asked         bool      // Ctrl-C was pressed once, and a draft would be lost

	session    *session // nil: a new one
	opening    string   // the session that is being loaded; "" if none
	openings   int      // the number of loads of sessions; the answer of the newest counts
	transcript transcript
	composer   composer
	list       list
	dialogs    []dialog // the last one gets the keys
	changes    changes
	notice     notice

	feed     *feed
	last     loquat.EventID // the newest event that the list has
	listed   bool           // the list is loaded, so last counts
	line     client.LineState
	reloaded time.Time // when the list and the session were last loaded again
	// reloading says that the session is loaded again as soon as the list is.
	reloading bool
	failed    string // why the feed has ended; "" while it runs
	ticking   bool
}

// notice is a line about what has just happened.
type notice struct {
	text   string
	bad    bool      // it stays until Esc, or until another one
	unsent bool      // it says that a message was not sent; what cannot be loaded does not replace it
	at     time.Time // when it came
}

// noticeTime is how long a notice stays that is not bad.
const noticeTime = 5 * time.Second

// dialog is a form, a list or a question in front of the transcript.
type dialog interface {
	// press handles a key.
	press(m *model, key tea.KeyPressMsg) tea.Cmd
	// paste handles a pasted text.
	paste(m *model, text string) tea.Cmd
	// view returns the title and the lines, at most width columns wide.
	view(m *model, width, height int) (title string, lines []string)
}

// answer is a message that changes the model: what a command has brought.
type answer interface{ apply(m *model) tea.Cmd }

func newModel(ctx context.Context, o Options) (*model, error) {
	if len(o.Servers) == 0 {
		return nil, fmt.Errorf("the terminal client needs a server")
	}
	if !slices.Contains(ThemeNames(), o.Theme) {
		return nil, fmt.Errorf("unknown theme %q; must be one of %v", o.Theme, ThemeNames())
	}
	m := &model{options: o, ctx: ctx, now: time.Now, server: o.Servers[0], theme: newTheme(o.Theme), transcript: newTranscript(), composer: newComposer()}
	if o.Getenv("NO_COLOR") != "" {
		m.theme = newTheme(themeNone)
	}
	m.composer.setTheme(m.theme)
	m.list.archived = loquat.ArchivedNo
	return m, nil
}

// Init loads the list, and the session if one was named.
func (m *model) Init() tea.Cmd {
	cmds := []tea.Cmd{m.loadList(), m.composer.focus(true)}
	if m.theme.name == themeAuto {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	if m.options.SessionID != "" {
		cmds = append(cmds, m.open(m.options.SessionID))
	}
	return tea.Batch(cmds...)
}

// Update changes the model by a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.layout(false)
	case tea.ModeReportMsg:
		if msg.Mode == ansi.ModeUnicodeCore && (msg.Value.IsReset() || msg.Value.IsSet() || msg.Value.IsPermanentlySet()) {
			m.cells = ansi.GraphemeWidth // the renderer does the same
			m.layout(true)
		}
	case tea.BackgroundColorMsg:
		m.background(msg.IsDark())
	case tea.FocusMsg:
		m.away = false
	case tea.BlurMsg:
		m.away = true
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	case tea.PasteMsg:
		cmd = m.pasted(msg.Content)
	case answer:
		cmd = msg.apply(m)
	}
	cmd = tea.Batch(cmd, m.nextChange())
	m.layout(false)
	return m, tea.Batch(cmd, m.loadMissing(), m.tick())
}

// background chooses the theme that fits the background of the terminal.
func (m *model) background(dark bool) {
	if m.theme.name == themeAuto && !dark {
		m.setTheme(themeLight)
	}
}

func (m *model) setTheme(name string) {
	m.theme = newTheme(name)
	m.composer.setTheme(m.theme)
	m.layout(true)
}

// top returns the dialog that gets the keys, or nil.
func (m *model) top() dialog {
	if len(m.dialogs) == 0 {
		return nil
	}
	return m.dialogs[len(m.dialogs)-1]
}

func (m *model) show(d dialog) tea.Cmd {
	m.dialogs = append(m.dialogs, d)
	return nil
}

// drop closes a dialog, wherever it is. It returns false if it was closed before.
func (m *model) drop(d dialog) bool {
	before := len(m.dialogs)
	m.dialogs = slices.DeleteFunc(m.dialogs, func(x dialog) bool { return x == d })
	return len(m.dialogs) < before
}

// closeDialog closes the last dialog.
func (m *model) closeDialog() {
	m.dialogs = m.dialogs[:max(0, len(m.dialogs)-1)]
}

// say shows a notice for a while. That a message was not sent is more important.
func (m *model) say(format string, args ...any) tea.Cmd {
	if !m.unsent() {
		m.notice = notice{text: fmt.Sprintf(format, args...), at: m.now()}
	}
	return nil
}

// unsent reports whether the notice says that the message in the composer was not sent.
func (m *model) unsent() bool { return m.notice.unsent && m.composer.hasDraft() }

// fail shows an error until somebody has seen it.
func (m *model) fail(err error) tea.Cmd {
	m.notice = notice{text: plainError(err), bad: true, at: m.now()}
	return nil
}

// tickMsg lets times on the screen move on.
type tickMsg struct{}

// tick returns a command for the next second if something on the screen changes by itself.
func (m *model) tick() tea.Cmd {
	moves := m.session != nil && m.session.run != nil || !m.line.Retry.IsZero() || m.notice.text != "" && !m.notice.bad
	if m.ticking || !moves {
		return nil
	}
	m.ticking = true
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} })
}

func (tickMsg) apply(m *model) tea.Cmd {
	m.ticking = false
	if !m.notice.bad && m.now().Sub(m.notice.at) >= noticeTime {
		m.notice = notice{}
	}
	if m.session != nil {
		delete(m.transcript.entries, m.session.total())
	}
	return nil
}

// retryDelay is the time between attempts to reach a server that did not answer at the start.
const retryDelay = 3 * time.Second

// again returns a command that starts the client again after a failure, and shows it until then. If the session is
// followed by then, only the list is missing.
func (m *model) again(err error) tea.Cmd {
	if m.feed == nil {
		m.line = client.LineState{Err: err, Retry: m.now().Add(retryDelay)}
	}
	server := m.server.Name
	return m.later(retryDelay, func(m *model) tea.Cmd {
		switch {
		case m.server.Name != server || m.feed != nil && m.listed:
			return nil
		case m.feed != nil:
			return m.loadList()
		}
		return m.reload()
	})
}

// setFocus gives the keys to a part of the screen.
func (m *model) setFocus(f focus) {
	m.focus = f
	m.composer.focus(f == focusComposer)
	if f == focusTranscript && m.session != nil {
		first, last := m.visible()
		if at := m.transcript.selected; m.transcript.follow || at < first.entry || at >= last.entry {
			m.transcript.selected, m.transcript.stays = max(min(last.entry, m.session.total())-1, 0), false
		}
	}
}

// leave ends the client. A draft is not dropped without a word.
func (m *model) leave() tea.Cmd {
	lost := ""
	switch {
	case m.asked:
	case m.composer.hasDraft():
		lost = "the draft was not sent; press Ctrl-C again to leave it"
	case m.changes.unsaved():
		lost = "a change is still being saved; press Ctrl-C again to leave"
	case len(m.composer.drafts) > 0:
		lost = "the draft of another chat was not sent; press Ctrl-C again to leave it"
	}
	if lost == "" {
		return tea.Quit
	}
	m.asked, m.notice = true, notice{}
	return m.say("%s", lost)
}

// environment returns a variable of the environment.
func (m *model) environment(name string) string {
	if m.options.Getenv == nil {
		return os.Getenv(name)
	}
	return m.options.Getenv(name)
}
