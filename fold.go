package loquat

import "slices"

// Fold computes the state of a session from a snapshot and the events after it, as every
// client has to. The state does not depend on how the events were split into windows, nor
// on whether the windows were compacted.
//
// A Fold may hold only the last messages of a session, for clients that page. It then skips what
// happens to the messages before them, except that it counts them.
//
// Fold expects events in the order of the log. It is not safe for concurrent use.
type Fold struct {
	session Session
	first   int            // index of the first message in session.Messages
	indices map[string]int // index of a message by its id
	cursor  EventID
	draft   *draft
	deleted bool
}

// draft is the reply that is being streamed.
type draft struct {
	requestID string
	mergedDelta
}

// Draft is the streamed part of a reply that has not become a message yet.
type Draft struct {
	RequestID string
	Content   string
	Metadata  Object
}

// NewFold returns a Fold that starts from a snapshot. It does not change the snapshot.
func NewFold(s Snapshot) *Fold {
	f := &Fold{session: s.Session, cursor: s.CursorEventID}
	f.session.Metadata = s.Metadata.Clone()
	f.session.Messages = slices.Clone(s.Messages)
	f.indexMessages()
	return f
}

// NewTailFold returns a Fold that starts from the last page of a session's messages. s has
// everything of the session but its messages, and may be newer than the page.
func NewTailFold(s Session, page MessagePage) *Fold {
	s.Messages = page.Messages
	f := NewFold(Snapshot{Session: s, CursorEventID: page.CursorEventID})
	f.first = page.Total - len(page.Messages)
	return f
}

func (f *Fold) indexMessages() {
	f.indices = make(map[string]int, len(f.session.Messages))
	for i, m := range f.session.Messages {
		f.indices[m.ID] = i
	}
}

// Apply applies the next event. It skips events of other sessions, and events that the
// snapshot contains or that were already applied.
func (f *Fold) Apply(e Event) {
	if e.SessionID != f.session.SessionID || e.EventID <= f.cursor || f.deleted {
		return
	}
	f.cursor = e.EventID
	switch e.Type {
	case MessageAppended:
		if e.Message != nil {
			f.addMessages(e.Message.AsMessage())
		}
	case Final, ToolResults:
		f.addMessages(e.Messages...)
	case MessageModified:
		f.modifyMessage(e)
	case MessagesDeleted:
		f.deleteMessages(e.Indices)
	case Partial:
		f.extendDraft(e)
	case RequestCompleted:
		if f.draft != nil && f.draft.requestID == e.RequestID {
			f.draft = nil
		}
	case Checkpoint:
		f.applyCheckpoint(e)
	case SessionDeleted:
		f.deleted, f.draft = true, nil
		f.session.Messages, f.indices = nil, nil
	}
}

// addMessages appends messages. A message with a known id replaces the one with that id.
func (f *Fold) addMessages(messages ...Message) {
	f.draft = nil
	for _, m := range messages {
		if i, ok := f.indices[m.ID]; ok && m.ID != "" {
			f.session.Messages[i] = m
			continue
		}
		f.indices[m.ID] = len(f.session.Messages)
		f.session.Messages = append(f.session.Messages, m)
	}
}

func (f *Fold) modifyMessage(e Event) {
	if e.Index == nil || *e.Index < f.first || *e.Index-f.first >= len(f.session.Messages) {
		return
	}
	i := *e.Index - f.first
	m := &f.session.Messages[i]
	switch {
	case e.Message != nil:
		delete(f.indices, m.ID)
		*m = e.Message.AsMessage()
		f.indices[m.ID] = i
	case e.Content != nil:
		m.Content = *e.Content
	}
}

func (f *Fold) deleteMessages(indices []int) {
	drop := make(map[int]bool, len(indices))
	for _, i := range indices {
		drop[i] = true
	}
	kept, before := make([]Message, 0, len(f.session.Messages)), 0
	for i, m := range f.session.Messages {
		if !drop[f.first+i] {
			kept = append(kept, m)
		}
	}
	for i := range drop {
		if i >= 0 && i < f.first {
			before++
		}
	}
	f.session.Messages, f.first = kept, f.first-before
	f.indexMessages()
}

// Trim drops all but the last keep messages, which then count as not loaded.
func (f *Fold) Trim(keep int) {
	drop := len(f.session.Messages) - keep
	if drop <= 0 {
		return
	}
	f.session.Messages = slices.Clone(f.session.Messages[drop:])
	f.first += drop
	f.indexMessages()
}

func (f *Fold) extendDraft(e Event) {
	if e.Message == nil {
		return
	}
	if f.draft == nil || f.draft.requestID != e.RequestID {
		f.draft = &draft{requestID: e.RequestID}
	}
	f.draft.add(*e.Message)
}

// applyCheckpoint applies the agent and the metadata of a checkpoint. A checkpoint that
// records a change of either carries both. If it carries the agent only, the metadata has
// become empty.
func (f *Fold) applyCheckpoint(e Event) {
	if e.AgentID != "" {
		f.session.AgentID = e.AgentID
	}
	if e.AgentID != "" || e.Metadata != nil {
		f.session.Metadata = e.Metadata.Clone()
	}
}

// Messages returns a copy of the session's messages.
func (f *Fold) Messages() []Message { return slices.Clone(f.session.Messages) }

// First returns the index of the first message that Messages returns.
func (f *Fold) First() int { return f.first }

// Draft returns the reply that is being streamed, or nil.
func (f *Fold) Draft() *Draft {
	if f.draft == nil {
		return nil
	}
	meta := f.draft.metadata()
	delete(meta, MetaStreamRestarted)
	if len(meta) == 0 {
		meta = nil
	}
	return &Draft{RequestID: f.draft.requestID, Content: f.draft.content.String(), Metadata: meta}
}

// AgentID returns the agent that the session uses.
func (f *Fold) AgentID() string { return f.session.AgentID }

// Metadata returns the metadata of the session.
func (f *Fold) Metadata() Object { return f.session.Metadata.Clone() }

// Deleted reports whether the session was deleted.
func (f *Fold) Deleted() bool { return f.deleted }

// Cursor returns the id of the last event that the state reflects.
func (f *Fold) Cursor() EventID { return f.cursor }
