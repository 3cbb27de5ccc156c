package fullscreen

import (
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"loquat/internal/tui/markdown"
)

// place is a line of the transcript: an entry, a piece of it, a line of the piece. Entries are the
// messages, and behind them one more: what is not a message yet.
type place struct{ entry, piece, line int }

func (p place) before(q place) bool {
	if p.entry != q.entry {
		return p.entry < q.entry
	}
	if p.piece != q.piece {
		return p.piece < q.piece
	}
	return p.line < q.line
}

// layout is an entry in pieces: groups of lines, and between them the blocks of a Markdown text,
// which are rendered when they are seen.
type layout struct {
	before, after [][]string
	text          *markdown.Document // nil if there is none
}

// add appends a piece.
func (l *layout) add(lines ...string) {
	if l.text != nil {
		l.after = append(l.after, lines)
	} else {
		l.before = append(l.before, lines)
	}
}

// len returns the number of pieces.
func (l *layout) len() int {
	n := len(l.before) + len(l.after)
	if l.text != nil {
		n += l.text.Len()
	}
	return n
}

// lines returns the lines of a piece.
func (l *layout) lines(i int, md *markdown.Renderer) []string {
	if i < len(l.before) {
		return l.before[i]
	}
	if i -= len(l.before); l.text != nil && i < l.text.Len() {
		return md.Render(l.text.Block(i))
	} else if l.text != nil {
		i -= l.text.Len()
	}
	return l.after[i]
}

// transcript shows the messages of the open session. It knows no heights in all: it walks from a
// line that is shown to the lines around it, so that it never renders what nobody sees.
type transcript struct {
	cells         ansi.Method
	width, height int
	follow        bool  // the end is shown
	top           place // the first line that is shown, unless follow
	selected      int   // the entry on which commands for messages act
	stays         bool  // the user moved up to it, so it stays selected when another one comes
	open          map[string]bool
	openAll       bool

	md      *markdown.Renderer
	entries map[int]*layout // of messages that were laid out
	draft   draftText
}

func newTranscript() transcript {
	return transcript{follow: true, open: map[string]bool{}, entries: map[int]*layout{}}
}

// gutter is the number of columns in front of each line.
const gutter = 2

// resize sets the size, and forgets what was laid out for another width or theme.
func (t *transcript) resize(width, height int, style markdown.Style, cells ansi.Method, again bool) {
	t.height, t.cells = height, cells
	if width == t.width && !again {
		return
	}
	t.width = width
	t.md, _ = markdown.NewRenderer(t.content(), style, cells) // fails only for styles that do not exist
	t.forget()
	t.top.piece, t.top.line = 0, 0
}

// content returns the columns for text.
func (t *transcript) content() int { return max(t.width-gutter-1, 1) }

// forget drops the layout of all entries.
func (t *transcript) forget() { clear(t.entries) }

// laidOut returns the layout of an entry.
func (m *model) laidOut(entry int) *layout {
	if l, ok := m.transcript.entries[entry]; ok {
		return l
	}
	l := &layout{}
	if entry >= m.session.total() {
		m.layOutLive(l)
	} else if msg, ok := m.session.message(entry); ok {
		m.layOutMessage(l, entry, msg)
	} else {
		l.add("", m.theme.dim.Render("loading message "+numberOf(entry)+" …"))
		return l
	}
	m.transcript.entries[entry] = l
	return l
}

// end returns the place behind the last line.
func (m *model) end() place { return place{entry: m.session.total() + 1} }

// up returns the place n lines above another one, or the first line.
func (m *model) up(p place, n int) place {
	for n > 0 {
		if p.line >= n {
			p.line -= n
			return p
		}
		n -= p.line
		p.line = 0
		switch {
		case p.piece > 0: // the entry may have fewer pieces than when the place was found
			p.piece = min(p.piece, m.laidOut(p.entry).len()) - 1
		case p.entry > 0:
			p.entry--
			p.piece = m.laidOut(p.entry).len() - 1
		default:
			return p
		}
		if p.piece < 0 {
			p.piece = 0
			continue
		}
		p.line = len(m.laidOut(p.entry).lines(p.piece, m.transcript.md))
	}
	return p
}

// each calls fn with the lines from a place on, until fn returns false. It returns the place behind
// the last line that fn took.
func (m *model) each(p place, fn func(entry int, line string) bool) place {
	for ; p.entry <= m.session.total(); p.entry, p.piece, p.line = p.entry+1, 0, 0 {
		l := m.laidOut(p.entry)
		for n := l.len(); p.piece < n; p.piece, p.line = p.piece+1, 0 {
			lines := l.lines(p.piece, m.transcript.md)
			for ; p.line < len(lines); p.line++ {
				if !fn(p.entry, lines[p.line]) {
					return p
				}
			}
		}
	}
	return m.end()
}

// start returns the first line that is shown.
func (m *model) start() place {
	last := m.up(m.end(), m.transcript.height)
	if m.transcript.follow || last.before(m.transcript.top) {
		return last
	}
	return m.transcript.top
}

// scroll moves the transcript by lines; up if n is negative.
func (m *model) scroll(n int) {
	if m.session == nil {
		return
	}
	at := m.start()
	if n < 0 {
		at = m.up(at, -n)
	} else {
		at = m.each(at, func(int, string) bool { n--; return n >= 0 })
	}
	m.transcript.top = at
	m.transcript.follow = !at.before(m.up(m.end(), m.transcript.height))
}

// scrollTo shows an entry from its beginning.
func (m *model) scrollTo(entry int) {
	m.transcript.top, m.transcript.follow = place{entry: entry}, false
	m.scroll(0)
}

// selectEntry moves the selection to a message and shows it.
func (m *model) selectEntry(entry int) {
	entry = min(max(entry, 0), m.session.total()-1)
	m.transcript.selected = entry
	first, last := m.visible()
	if first.entry < entry && entry < last.entry || entry < 0 {
		return
	}
	whole := m.up(place{entry: entry + 1}, m.transcript.height)
	if entry > first.entry && !(place{entry: entry}).before(whole) { // it fits: its end is at the end of the screen
		m.transcript.top, m.transcript.follow = whole, false
		m.scroll(0)
		return
	}
	m.scrollTo(entry)
}

// visible returns the places of the first line that is shown and of the one behind the last.
func (m *model) visible() (first, last place) {
	first = m.start()
	n := m.transcript.height
	return first, m.each(first, func(int, string) bool { n--; return n >= 0 })
}

// missing returns the pages of older messages that the screen, or a little more, needs.
func (m *model) missing() (pages []int) {
	if m.session == nil || m.transcript.height <= 0 {
		return nil
	}
	first, last := m.visible()
	for entry := max(first.entry-pageSize/2, 0); entry <= last.entry+pageSize/2 && entry < m.session.fold.First(); entry++ {
		page := entry / pageSize
		if _, ok := m.session.message(entry); !ok && !m.session.wanted[page] {
			m.session.wanted[page] = true
			pages = append(pages, page)
		}
	}
	return pages
}

// transcriptView returns the lines of the transcript, as many as there is room for.
func (m *model) transcriptView() []string {
	t := &m.transcript
	if m.session == nil {
		return m.welcomeView()
	}
	lines := make([]string, 0, t.height)
	m.each(m.start(), func(entry int, line string) bool {
		if len(lines) == t.height {
			return false
		}
		mark := "  "
		if m.focus == focusTranscript && entry == t.selected && m.session.total() > 0 {
			mark = m.theme.user.Render("▌") + " "
		}
		lines = append(lines, mark+line)
		return true
	})
	for len(lines) < t.height { // a short session stands at the top
		lines = append(lines, "")
	}
	return lines
}

// welcomeView fills the transcript of a session without messages.
func (m *model) welcomeView() []string {
	lines := []string{"", "  " + m.theme.title.Render("A new chat"), "",
		"  Type a message and press Enter.",
		"  Ctrl-K shows all commands, F1 the keys, Ctrl-L your chats."}
	if m.opening != "" {
		lines = []string{"", "  " + m.theme.dim.Render("loading the chat …")}
	}
	for len(lines) < m.transcript.height {
		lines = append(lines, "")
	}
	return lines[:max(m.transcript.height, 0)]
}

// draftText is the text of the reply that is being streamed. Its blocks are found once.
type draftText struct {
	requestID string
	doc       *markdown.Document
}

// grow returns the text of a request's reply, which has grown or begun again.
func (d *draftText) grow(requestID, text string) *markdown.Document {
	if d.doc == nil || d.requestID != requestID {
		*d = draftText{requestID, &markdown.Document{}}
	}
	d.doc.SetText(text)
	return d.doc
}

// wrapped returns a text as lines in a style.
func (t *transcript) wrapped(text string, style lipgloss.Style) []string {
	lines := markdown.Lines(text, t.content(), t.cells)
	for i, line := range lines {
		lines[i] = style.Render(line)
	}
	return lines
}
