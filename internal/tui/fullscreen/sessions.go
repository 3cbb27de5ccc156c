package fullscreen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/tui"
	"loquat/internal/ui"
)

// rowsAtOnce is the number of rows of the list that are loaded at a time.
const rowsAtOnce = 50

// list is the list of sessions: those of the server, or those that a search has found.
type list struct {
	rows     []loquat.SessionSummary
	next     string // the token of the next page; "" if all are loaded
	loading  bool
	selected int
	hidden   bool            // it is not shown next to the transcript
	archived string          // which sessions it has
	search   string          // "": all
	fields   []loquat.Object // what plugins show in the list
	denied   bool            // the token gives access to one session only
	stale    bool            // a session that has no row has changed
	merged   time.Time       // when the newest rows were last loaded for that
}

// apply keeps the rows right by an event of the log.
func (l *list) apply(e loquat.Event) {
	at := slices.IndexFunc(l.rows, func(s loquat.SessionSummary) bool { return s.SessionID == e.SessionID })
	if at < 0 {
		if e.Type == loquat.SessionCreated && l.search == "" && l.archived != loquat.ArchivedOnly {
			row := loquat.SessionSummary{SessionID: e.SessionID, AgentID: e.AgentID}
			if e.CreatedAt != nil {
				row.CreatedAt, row.UpdatedAt = *e.CreatedAt, *e.CreatedAt
			}
			l.change(func() { l.rows = append(l.rows, row) })
		} else if e.Type == loquat.Checkpoint {
			l.stale = true // it may be of a page that is not loaded
		}
		return
	}
	row := &l.rows[at]
	switch e.Type {
	case loquat.SessionDeleted:
		l.change(func() { l.rows = slices.Delete(l.rows, at, at+1) })
	case loquat.RequestStarted:
		if e.SteeredInto == "" {
			row.ActiveRequestID = e.RequestID
		}
	case loquat.RequestCompleted:
		if row.ActiveRequestID == e.RequestID {
			row.ActiveRequestID = ""
		}
	case loquat.Checkpoint:
		l.change(func() { l.checkpoint(at, e) })
	}
}

func (l *list) checkpoint(at int, e loquat.Event) {
	row := &l.rows[at]
	if e.MessageCount != nil {
		row.MessageCount = *e.MessageCount
	}
	if changed := cmp.Or(e.UpdatedAt, e.Timestamp); changed != nil {
		row.UpdatedAt = *changed
	}
	if e.AgentID != "" {
		row.AgentID, row.Metadata = e.AgentID, e.Metadata
	}
	if archived := loquat.LabelsOf(row.Metadata).Archived; l.search == "" && archived != (l.archived == loquat.ArchivedOnly) {
		l.rows = slices.Delete(l.rows, at, at+1)
	}
}

// change changes the rows and sorts them. The selection stays on its session.
func (l *list) change(fn func()) {
	id := ""
	if l.selected < len(l.rows) {
		id = l.rows[l.selected].SessionID
	}
	fn()
	if l.search == "" {
		slices.SortStableFunc(l.rows, func(a, b loquat.SessionSummary) int {
			if pa, pb := loquat.LabelsOf(a.Metadata).Pinned, loquat.LabelsOf(b.Metadata).Pinned; pa != pb {
				if pa {
					return -1
				}
				return 1
			}
			return b.UpdatedAt.Compare(a.UpdatedAt)
		})
	}
	if at := slices.IndexFunc(l.rows, func(s loquat.SessionSummary) bool { return s.SessionID == id }); at >= 0 {
		l.selected = at
	}
	l.selected = min(l.selected, max(len(l.rows)-1, 0))
}

// loadList loads the first page of the list.
func (m *model) loadList() tea.Cmd { return m.loadRows("") }

func (m *model) loadRows(token string) tea.Cmd {
	m.list.loading = true
	q := loquat.SessionQuery{Limit: rowsAtOnce, PageToken: token, Archived: m.list.archived, Text: m.list.search}
	return query(m, func(ctx context.Context, c *client.Client) (r rows, err error) {
		if r.page, err = c.Sessions(ctx, q); err == nil && token == "" {
			r.fields, err = c.ListFields(ctx)
		}
		return r, err
	}, func(m *model, r rows, err error) tea.Cmd {
		cmd := m.setRows(q, r, err)
		return tea.Batch(cmd, m.reloadSession())
	})
}

// rows is a page of the list.
type rows struct {
	page   loquat.SessionList
	fields []loquat.Object // what plugins show; with the first page
}

func (m *model) setRows(q loquat.SessionQuery, r rows, err error) tea.Cmd {
	l := &m.list
	if q.Text != l.search || q.Archived != l.archived {
		return nil
	}
	l.loading = false
	switch {
	case err == nil:
	case loquat.CodeOf(err) == loquat.CodeForbidden:
		l.denied, l.hidden = true, true
		if m.session == nil && m.opening == "" {
			m.failed = plainError(err)
		}
		return m.follow()
	case away(err) && (m.feed == nil || !m.listed):
		return m.again(err)
	case m.feed != nil:
		return m.fail(fmt.Errorf("the list of chats could not be loaded: %w", err))
	default:
		m.failed = plainError(err)
		return nil
	}
	l.next = r.page.NextPageToken
	if q.PageToken == "" {
		l.fields = r.fields
	}
	first := len(l.rows) == 0 && l.search == ""
	l.change(func() {
		if q.PageToken == "" {
			l.rows = nil
		}
		l.add(r.page.Sessions)
	})
	if first {
		m.selectOpen()
	}
	if cursor := r.page.CursorEventID; cursor != nil && q.PageToken == "" {
		m.last, m.listed = *cursor, true // the feed begins again there, so that the rows miss nothing
		return m.follow()
	}
	return nil
}

// mergePause is the least time between two loads of the newest rows.
const mergePause = 5 * time.Second

// mergeRows loads the newest rows if a session that has none has changed, and adds what is missing.
func (m *model) mergeRows() tea.Cmd {
	l := &m.list
	if !l.stale || l.loading || l.search != "" || m.now().Sub(l.merged) < mergePause {
		return nil
	}
	l.stale, l.merged = false, m.now()
	q := loquat.SessionQuery{Limit: rowsAtOnce, Archived: l.archived}
	return query(m, func(ctx context.Context, c *client.Client) (loquat.SessionList, error) { return c.Sessions(ctx, q) },
		func(m *model, page loquat.SessionList, err error) tea.Cmd {
			if l := &m.list; err == nil && l.search == "" && l.archived == q.Archived { // without an answer the rows stay as they are
				l.change(func() { l.add(page.Sessions) })
			}
			return nil
		})
}

// add appends the rows of sessions that have none.
func (l *list) add(rows []loquat.SessionSummary) {
	for _, row := range rows {
		if !slices.ContainsFunc(l.rows, func(s loquat.SessionSummary) bool { return s.SessionID == row.SessionID }) {
			l.rows = append(l.rows, row)
		}
	}
}

// listCommands returns the commands for the session that is selected in the list.
func listCommands() []command {
	row := func(m *model) bool { return m.list.selected < len(m.list.rows) }
	id := func(m *model) string { return m.list.rows[m.list.selected].SessionID }
	on := func(title string, run func(*model) tea.Cmd, keys ...string) command {
		return command{title: "List: " + title, keys: keys, where: focusList, local: true, when: row, run: run}
	}
	return []command{
		on("open the chat", func(m *model) tea.Cmd { m.setFocus(focusComposer); return m.open(id(m)) }, "enter"),
		on("rename", func(m *model) tea.Cmd {
			return m.rename(id(m), m.list.rows[m.list.selected].Metadata.String(loquat.MetaTitle))
		}, "r"),
		on("fork", func(m *model) tea.Cmd { return m.fork(id(m)) }, "f"),
		on("pin or unpin", func(m *model) tea.Cmd { return m.toggleLabel(id(m), loquat.MetaPinned) }, "p"),
		on("archive or restore", func(m *model) tea.Cmd { return m.toggleLabel(id(m), loquat.MetaArchived) }, "a"),
		on("delete", func(m *model) tea.Cmd { return m.confirmDelete(id(m)) }, "d"),
		{title: "List: new chat", keys: []string{"n"}, where: focusList, local: true, when: func(*model) bool { return true }, run: (*model).newChat},
		{title: "List: search", keys: []string{"/"}, where: focusList, local: true, when: func(*model) bool { return true }, run: (*model).searchList},
		{title: "List: show the archive, or leave it", keys: []string{"v"}, where: focusList, local: true, when: func(*model) bool { return true }, run: (*model).toggleArchive},
	}
}

// pressList moves the selection of the list.
func (m *model) pressList(name string) tea.Cmd {
	l := &m.list
	switch name {
	case "up", "k":
		l.selected--
	case "down", "j":
		l.selected++
	case "home", "g":
		l.selected = 0
	case "end", "G":
		l.selected = len(l.rows) - 1
	}
	l.selected = min(max(l.selected, 0), max(len(l.rows)-1, 0))
	if l.next != "" && !l.loading && l.selected >= len(l.rows)-5 {
		return m.loadRows(l.next)
	}
	return nil
}

// listView returns the lines of the list.
func (m *model) listView(width, height int) []string {
	l := &m.list
	head := "Chats"
	switch {
	case l.search != "":
		head = "Found: " + m.oneLine(l.search, width)
	case l.archived == loquat.ArchivedOnly:
		head = "Archive"
	}
	lines := []string{m.theme.title.Render(m.oneLine(head, width))}
	foot := "n new · / search · Enter opens"
	if width > 2*listWidth {
		foot = "Enter open · n new · / search · r rename · f fork · p pin · a archive · d delete"
	}
	room := height - 2
	from := min(max(0, l.selected-room/2), max(0, len(l.rows)-room))
	for i := from; i < min(len(l.rows), from+room); i++ {
		lines = append(lines, m.rowView(l.rows[i], i == l.selected && m.focus == focusList, width))
	}
	if len(l.rows) == 0 {
		empty := map[bool]string{true: "loading …", false: "no chats here"}[l.loading]
		lines = append(lines, m.theme.dim.Render(empty))
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines[:height-1], m.theme.dim.Render(m.oneLine(foot, width)))
}

// rowView returns the line of a session.
func (m *model) rowView(s loquat.SessionSummary, selected bool, width int) string {
	labels := loquat.LabelsOf(s.Metadata)
	mark := "  "
	if m.session != nil && m.session.id == s.SessionID {
		mark = "• "
	}
	if selected {
		mark = "> "
	}
	title := cmp.Or(s.Metadata.String(loquat.MetaTitle), "(no title)")
	right := ""
	if width > 2*listWidth {
		right = m.fieldsOf(s)
	}
	if labels.Pinned {
		right += "⚑"
	}
	if s.SourceSessionID != "" {
		right += "⑂"
	}
	if s.ActiveRequestID != "" {
		right += "…"
	}
	if s.Match != nil && s.Match.Part != loquat.PartTitle && width > 2*listWidth {
		var snippet strings.Builder
		for _, p := range s.Match.Snippet.Parts {
			snippet.WriteString(p.Text)
		}
		title += " — " + snippet.String()
	}
	line := m.sides(mark+m.oneLine(tui.OneLine(title), width), right, width)
	if selected {
		return m.theme.selected.Render(line)
	}
	return line
}

// fieldsOf returns what plugins show about a session in the list.
func (m *model) fieldsOf(s loquat.SessionSummary) (text string) {
	in := ui.Context{Session: ui.Decode(s)}
	for _, e := range m.list.fields {
		data, ok := ui.Lookup(e.String("data"), ui.DataRootOf("session_list_field"), in)
		if shown, err := ui.Visible(e["condition"], ui.RootOf("session_list_field"), in); ok && data != nil && shown && err == nil {
			text += m.oneLine(ui.Render(e.String("template"), data), 30) + " "
		}
	}
	return text
}

func (m *model) showList() tea.Cmd {
	m.list.hidden = false
	m.setFocus(focusList)
	m.selectOpen()
	return nil
}

// selectOpen selects the open session in the list, if it has it.
func (m *model) selectOpen() {
	if m.session == nil {
		return
	}
	if at := slices.IndexFunc(m.list.rows, func(s loquat.SessionSummary) bool { return s.SessionID == m.session.id }); at >= 0 {
		m.list.selected = at
	}
}

func (m *model) searchList() tea.Cmd {
	return m.show(newPrompt("Search the chats", "words, \"phrases\", beginnings*; empty shows all chats", m.list.search, func(m *model, text string) tea.Cmd {
		m.list.search, m.list.rows, m.list.selected = text, nil, 0
		m.list.hidden = false
		m.setFocus(focusList)
		return m.loadList()
	}))
}

func (m *model) toggleArchive() tea.Cmd {
	l := &m.list
	if l.archived == loquat.ArchivedOnly {
		l.archived = loquat.ArchivedNo
	} else {
		l.archived = loquat.ArchivedOnly
	}
	l.rows, l.selected, l.search = nil, 0, ""
	return m.loadList()
}

// newChat begins a new session with the next message.
func (m *model) newChat() tea.Cmd {
	if m.composer.sending {
		return m.fail(errSending)
	}
	m.storeDraft()
	m.opening = ""
	m.close()
	m.restoreDraft("")
	m.setFocus(focusComposer)
	return m.follow()
}

// storeDraft keeps the draft of the session that is open, or that is being loaded, and what was changed in a message.
func (m *model) storeDraft() {
	id := m.opening
	if m.session != nil {
		id = m.session.id
	}
	c := &m.composer
	if e := c.editing; e != nil {
		if c.edited() {
			c.keep(id, e.before)
		} else {
			c.put(e.before)
		}
		c.editing = nil
	}
	c.keep(id, c.take())
}

// restoreDraft brings back the draft of a session that opens, unless it is open already.
func (m *model) restoreDraft(id string) {
	if m.session != nil && m.session.id == id {
		return
	}
	if d, ok := m.composer.drafts[id]; ok && !m.composer.hasDraft() {
		m.composer.put(d)
		delete(m.composer.drafts, id)
	}
}

func (m *model) rename(id, title string) tea.Cmd {
	return m.show(newPrompt("Rename the chat", "", m.oneLine(title, 1000), func(m *model, text string) tea.Cmd {
		if strings.TrimSpace(text) == "" {
			return m.fail(errors.New("a title has at least one character; the old one stays"))
		}
		return m.inOrder(func(*model) *change {
			return patch(id, "", loquat.SessionPatch{Metadata: loquat.Object{}.Set(loquat.MetaTitle, text)})
		})
	}))
}

// toggleLabel pins or archives a session, or takes that back.
func (m *model) toggleLabel(id, label string) tea.Cmd {
	return m.inOrder(func(m *model) *change {
		on := !m.label(id, label)
		return patch(id, labelSaved(label, on), loquat.SessionPatch{Metadata: loquat.Object{}.Set(label, on)})
	})
}

// label reports whether a session has a label. One that was in the list, and is not, was archived or restored.
func (m *model) label(id, label string) bool {
	if m.session != nil && m.session.id == id {
		return m.session.fold.Metadata().Bool(label)
	}
	if at := slices.IndexFunc(m.list.rows, func(s loquat.SessionSummary) bool { return s.SessionID == id }); at >= 0 {
		return m.list.rows[at].Metadata.Bool(label)
	}
	return label == loquat.MetaArchived && m.list.archived != loquat.ArchivedOnly
}

func labelSaved(label string, on bool) string {
	return map[string]string{
		loquat.MetaPinned + "true": "the chat is pinned", loquat.MetaPinned + "false": "the chat is not pinned any more",
		loquat.MetaArchived + "true": "the chat is in the archive; v in the list shows it", loquat.MetaArchived + "false": "the chat is in the list again",
	}[label+fmt.Sprint(on)]
}

func (m *model) confirmDelete(id string) tea.Cmd {
	title := id
	if m.session != nil && m.session.id == id {
		title = cmp.Or(m.session.title(), id)
	}
	for _, s := range m.list.rows {
		if s.SessionID == id {
			title = cmp.Or(s.Metadata.String(loquat.MetaTitle), id)
		}
	}
	question := fmt.Sprintf("Delete the chat “%s” with all its messages? This cannot be undone.", m.oneLine(title, 120))
	return m.show(newConfirm("Delete a chat", question, func(m *model) tea.Cmd {
		return m.call("the chat was deleted", func(ctx context.Context, c *client.Client) error { return c.DeleteSession(ctx, id) })
	}))
}
