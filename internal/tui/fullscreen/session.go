package fullscreen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/hashicorp/golang-lru/v2"

	"loquat"
	"loquat/internal/ui"
)

const (
	// tailMessages is the number of messages that are loaded when a session opens.
	tailMessages = 60
	// trimAbove is the number of loaded messages above which the oldest are dropped.
	trimAbove = 240
	// pageSize and keptPages bound the older messages in memory.
	pageSize  = 50
	keptPages = 8
)

// session is the session that is open.
type session struct {
	id       string
	head     loquat.Session // as it was loaded; the fold has its agent, metadata and messages
	fold     *loquat.Fold
	messages []loquat.Message // of the fold
	older    *lru.Cache[int, []loquat.Message]
	changed  loquat.EventID // the last event that changed messages; pages from before it are wrong
	wanted   map[int]bool   // pages that are being loaded

	queue []loquat.QueuedSend
	run   *run
	// ended is the request that had ended last when the session was loaded, and why it failed. replaying says that
	// its events come again: the cursor of what was loaded is before a request that changed no message.
	ended        loquat.LastRequest
	replaying    bool
	seen         loquat.EventID // events up to it are in what was loaded; 0 if only the cursor counts
	failure      string         // why the last request failed; it stays until the next one
	alternatives map[int][]loquat.Alternative
	thought      map[string]time.Duration // how long the model reasoned, by message

	checkpoint loquat.EventID // the newest one; a change by index names it, so that the server refuses what is too late
	alone      bool           // it is followed without the list until its request ends, see follow

	asked       int                       // the number of loads of parts
	answered    map[string]int            // the newest load that counts, by what was loaded
	missed      map[string]func() tea.Cmd // loads again what could not be loaded, by what it is
	saving      map[string]saving         // settings that are being saved, by their key
	schemaLoads int                       // because a plugin had not answered
	usage       string                    // what the status bar says about the last reply
	elements    []loquat.Object
	values      map[string]loquat.ConfigValue
	config      any // the effective config, for conditions
	known       any // the session as paths see it; nil if it has changed since
}

// saving is a setting with changes that were not answered, and its newest value.
type saving struct {
	changes int
	value   json.RawMessage
}

func newSession(l loaded, now time.Time) *session {
	older, _ := lru.New[int, []loquat.Message](keptPages) // fails only for sizes below 1
	s := &session{id: l.head.SessionID, head: l.head, fold: loquat.NewTailFold(l.head, l.page), older: older, wanted: map[int]bool{},
		queue: l.page.Queue, alternatives: groupAlternatives(l.alternatives), checkpoint: l.page.Checkpoint, thought: map[string]time.Duration{},
		answered: map[string]int{}, missed: map[string]func() tea.Cmd{}, saving: map[string]saving{}}
	s.messages = s.fold.Messages()
	if l.page.ActiveRequestID != "" {
		s.run = &run{id: l.page.ActiveRequestID, begun: now, phase: phaseWaiting}
		if last := l.page.LastRequest; last != nil && last.StartedAt != nil {
			s.run.begun = *last.StartedAt
		}
		s.alone = l.seen != 0
		return s
	}
	s.seen = l.seen
	if last := l.page.LastRequest; last != nil {
		s.ended = *last
		if last.Status == loquat.StatusFailed {
			s.failure = last.Error
		}
	}
	return s
}

func groupAlternatives(list []loquat.Alternative) map[int][]loquat.Alternative {
	groups := map[int][]loquat.Alternative{}
	for _, a := range list {
		groups[a.Index] = append(groups[a.Index], a)
	}
	return groups
}

// total returns the number of messages of the session.
func (s *session) total() int { return s.fold.First() + len(s.messages) }

// message returns the message at an index. ok is false if there is none, or if it is not loaded.
func (s *session) message(i int) (m loquat.Message, ok bool) {
	first := s.fold.First()
	if i < 0 || i >= first+len(s.messages) {
		return loquat.Message{}, false
	}
	if i >= first {
		return s.messages[i-first], true
	}
	page, ok := s.older.Get(i / pageSize)
	if !ok || i%pageSize >= len(page) {
		return loquat.Message{}, false
	}
	return page[i%pageSize], true
}

// has reports whether the message at an index has an id.
func (s *session) has(i int, id string) bool {
	msg, ok := s.message(i)
	return ok && msg.ID == id
}

// apply changes the session by an event. It reports whether more than the draft has changed.
func (s *session) apply(e loquat.Event, now time.Time) (structural bool) {
	if e.SessionID != s.id || e.EventID <= s.fold.Cursor() {
		return false
	}
	first := s.fold.First()
	s.fold.Apply(e)
	if s.run != nil && e.RequestID == s.run.id {
		s.run.apply(e, now)
	}
	switch e.Type {
	case loquat.Partial, loquat.ToolPartial, loquat.AssistantMessage:
		return false
	}
	s.known = nil
	switch e.Type {
	case loquat.RequestStarted:
		s.replaying = s.replaying || e.RequestID == s.ended.RequestID
		if e.SteeredInto == "" && s.run == nil && !s.replaying { // while one runs, it is a send that was taken out of the queue
			s.run, s.failure = &run{id: e.RequestID, begun: now, phase: phaseWaiting}, ""
		}
	case loquat.Final:
		s.noteReasoning(e)
	case loquat.ErrorEvent:
		if s.run != nil && s.run.id == e.RequestID { // else one from before what was loaded
			s.failure = e.Detail
		}
	case loquat.RequestCompleted:
		if e.RequestID == s.ended.RequestID {
			s.replaying, s.failure = false, ""
			if s.ended.Status == loquat.StatusFailed {
				s.failure = s.ended.Error
			}
		}
		if s.run != nil && s.run.id == e.RequestID {
			s.run = nil
		}
	case loquat.Checkpoint:
		s.checkpoint = max(s.checkpoint, e.EventID)
		if changed := cmp.Or(e.UpdatedAt, e.Timestamp); changed != nil {
			s.head.UpdatedAt = *changed
		}
	case loquat.QueueChanged:
		if !e.QueueOmitted {
			s.queue, s.answered[theQueue] = e.Queue, s.asked
		}
	case loquat.MessageModified:
		s.changedAt(e.EventID, e.Index != nil && *e.Index < first)
	case loquat.MessagesDeleted:
		s.changedAt(e.EventID, slices.ContainsFunc(e.Indices, func(i int) bool { return i < first }))
	}
	return true
}

// noteReasoning keeps how long the model reasoned before it wrote a message.
func (s *session) noteReasoning(e loquat.Event) {
	if s.run == nil || s.run.thought == 0 {
		return
	}
	for _, m := range e.Messages {
		if m.Role == loquat.RoleAssistant {
			s.thought[m.ID] = s.run.thought
		}
	}
}

// changedAt makes the pages from before a change wrong: those that are being loaded, and if the change is of a message
// before the fold's first one, those that are there.
func (s *session) changedAt(event loquat.EventID, older bool) {
	s.changed = event
	if older {
		s.older.Purge()
		s.wanted = map[int]bool{}
	}
}

// refresh takes the messages of the fold. If tail is set, the screen shows only the last ones, so
// others are dropped.
func (s *session) refresh(tail bool) {
	if tail && len(s.fold.Messages()) > trimAbove {
		s.fold.Trim(tailMessages)
	}
	s.messages, s.known = s.fold.Messages(), nil
	s.noteUsage()
}

// addPage keeps a page of older messages, unless a message was changed after the page was read. Messages that the fold
// also has are left out, because only the fold follows their changes.
func (s *session) addPage(number int, p loquat.MessagePage) {
	delete(s.wanted, number)
	if p.CursorEventID >= s.changed {
		older := max(s.fold.First()-number*pageSize, 0)
		s.older.Add(number, p.Messages[:min(older, len(p.Messages))])
	}
}

// title returns the title of the session as others wrote it.
func (s *session) title() string { return s.fold.Metadata().String(loquat.MetaTitle) }

// setSchema takes the elements and values that plugins show.
func (s *session) setSchema(elements []loquat.Object, values map[string]loquat.ConfigValue) {
	s.elements, s.values = elements, values
	s.config = ui.Decode(effectiveConfig(elements, values))
}

// effectiveConfig puts each value of the session or of the configuration at its key and at its config_path. Defaults are
// only for display.
func effectiveConfig(elements []loquat.Object, values map[string]loquat.ConfigValue) loquat.Object {
	config := loquat.Object{}
	for key, v := range values {
		if v.Source == ui.SourceOverride || v.Source == ui.SourceConfig {
			config[key] = v.Value
		}
	}
	return ui.WriteThrough(config, elements, values)
}

// shown returns the elements of a type whose condition holds. message is the decoded message for
// conditions about one; nil for others.
func (s *session) shown(uiType string, message any) (list []loquat.Object) {
	for _, e := range s.elements {
		if e.String("ui_type") != uiType {
			continue
		}
		if ok, err := ui.Visible(e["condition"], ui.RootOf(uiType), s.roots(e, message)); ok && err == nil {
			list = append(list, e)
		}
	}
	return list
}

// roots returns where the paths of an element start. The session is decoded only if one of them starts there.
func (s *session) roots(e loquat.Object, message any) ui.Context {
	in := ui.Context{Message: message, Config: s.config}
	named := func(path json.RawMessage) bool { return bytes.Contains(path, []byte("$session.")) }
	if ui.RootOf(e.String("ui_type")) == ui.RootSession || named(e["condition"]) || named(e["data"]) {
		in.Session = s.decoded()
	}
	return in
}

// decoded returns the session as paths see it. The messages before the fold's first one are null.
func (s *session) decoded() any {
	if s.known != nil {
		return s.known
	}
	now := s.head
	now.AgentID, now.Metadata, now.Messages = s.fold.AgentID(), s.fold.Metadata(), s.messages
	s.known = ui.Decode(now)
	if object, ok := s.known.(map[string]any); ok {
		loaded, _ := object["messages"].([]any)
		object["messages"] = append(make([]any, s.fold.First()), loaded...)
	}
	return s.known
}

// decodedMessage returns a message as paths see it.
func decodedMessage(index int, m loquat.Message) any {
	message := ui.Decode(m)
	if object, ok := message.(map[string]any); ok {
		object["index"] = json.Number(strconv.Itoa(index))
	}
	return message
}

// texts returns what the elements of a type say about the message at an index.
func (s *session) texts(uiType string, index int, m loquat.Message) (list []string) {
	if !slices.ContainsFunc(s.elements, func(e loquat.Object) bool { return e.String("ui_type") == uiType }) {
		return nil
	}
	message := decodedMessage(index, m)
	for _, e := range s.shown(uiType, message) {
		data, ok := ui.Lookup(e.String("data"), ui.DataRootOf(uiType), s.roots(e, message))
		if text := ui.Render(e.String("template"), data); ok && data != nil && text != "" {
			list = append(list, text)
		}
	}
	return list
}

// noteUsage computes what the status bar says about the last reply.
func (s *session) noteUsage() {
	index, reply, ok := s.lastReply()
	if !ok {
		s.usage = ""
		return
	}
	s.usage = strings.Join(s.texts("status_bar", index, reply), " · ")
	if s.usage == "" {
		s.usage = reply.Metadata.String(loquat.MetaModel)
	}
}

// lastReply returns the last message of the assistant, with its index.
func (s *session) lastReply() (index int, m loquat.Message, ok bool) {
	for i, m := range slices.Backward(s.messages) {
		if m.Role == loquat.RoleAssistant {
			return s.fold.First() + i, m, true
		}
	}
	return 0, loquat.Message{}, false
}

// replyStart returns the index at which the reply with the message i begins: after the last message
// of the user before it.
func (s *session) replyStart(i int) int {
	for ; i > 0; i-- {
		if m, ok := s.message(i - 1); !ok || m.Role == loquat.RoleUser {
			return i
		}
	}
	return i
}

// attachmentsOf returns the attachments of a message as the API takes them.
func attachmentsOf(m loquat.Message) (list []json.RawMessage) {
	if json.Unmarshal(m.Metadata[loquat.MetaAttachments], &list) != nil {
		return nil
	}
	return list
}
