package loquat

import "slices"

// Fold is what a client makes of a session's events: it starts from a snapshot and
// applies what comes after it. However the events are split into windows, and
// whether or not those were compacted, it ends in the same state.
//
// It trusts the order of the log. It is not safe for concurrent use.
type Fold struct {
	session  Session
	places   map[string]int // message id to index
	position EventID
	draft    *draft
	deleted  bool
}

// draft is the reply that is being streamed.
type draft struct {
	requestID string
	increments
}

// Draft is the part of a reply that has been streamed and is not yet a message.
type Draft struct {
	RequestID string
	Content   string
	Metadata  Object
}

// NewFold starts from a snapshot, which it does not change.
func NewFold(s Snapshot) *Fold {
	f := &Fold{session: s.Session, position: s.CursorEventID}
	f.session.Metadata = s.Metadata.Clone()
	f.session.Messages = slices.Clone(s.Messages)
	f.index()
	return f
}

func (f *Fold) index() {
	f.places = make(map[string]int, len(f.session.Messages))
	for i, m := range f.session.Messages {
		f.places[m.ID] = i
	}
}

// Apply takes in the next event. It skips events of other sessions, and those that
// the snapshot or an earlier call already holds.
func (f *Fold) Apply(e Event) {
	if e.SessionID != f.session.SessionID || e.EventID <= f.position || f.deleted {
		return
	}
	f.position = e.EventID
	switch e.Type {
	case MessageAppended:
		if e.Message != nil {
			f.add(e.Message.AsMessage())
		}
	case Final, ToolResults:
		f.add(e.Messages...)
	case MessageModified:
		f.modify(e)
	case MessagesDeleted:
		f.delete(e.Indices)
	case Partial:
		f.extendDraft(e)
	case RequestCompleted:
		if f.draft != nil && f.draft.requestID == e.RequestID {
			f.draft = nil
		}
	case Checkpoint:
		f.adopt(e)
	case SessionDeleted:
		f.deleted, f.draft = true, nil
		f.session.Messages, f.places = nil, nil
	}
}

// add puts messages at the end, or in the place of the one with the same id.
func (f *Fold) add(messages ...Message) {
	f.draft = nil
	for _, m := range messages {
		if i, ok := f.places[m.ID]; ok && m.ID != "" {
			f.session.Messages[i] = m
			continue
		}
		f.places[m.ID] = len(f.session.Messages)
		f.session.Messages = append(f.session.Messages, m)
	}
}

func (f *Fold) modify(e Event) {
	if e.Index == nil || *e.Index < 0 || *e.Index >= len(f.session.Messages) {
		return
	}
	m := &f.session.Messages[*e.Index]
	switch {
	case e.Message != nil:
		delete(f.places, m.ID)
		*m = e.Message.AsMessage()
		f.places[m.ID] = *e.Index
	case e.Content != nil:
		m.Content = *e.Content
	}
}

func (f *Fold) delete(indices []int) {
	drop := make(map[int]bool, len(indices))
	for _, i := range indices {
		drop[i] = true
	}
	kept := make([]Message, 0, len(f.session.Messages))
	for i, m := range f.session.Messages {
		if !drop[i] {
			kept = append(kept, m)
		}
	}
	f.session.Messages = kept
	f.index()
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

// adopt takes agent and metadata from a checkpoint that tells of their change. It
// carries both then; metadata that has become empty is left out of its JSON.
func (f *Fold) adopt(e Event) {
	if e.AgentID != "" {
		f.session.AgentID = e.AgentID
	}
	if e.AgentID != "" || e.Metadata != nil {
		f.session.Metadata = e.Metadata.Clone()
	}
}

// Messages returns the session's messages. The slice is the caller's.
func (f *Fold) Messages() []Message { return slices.Clone(f.session.Messages) }

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

// Deleted reports whether the session is gone.
func (f *Fold) Deleted() bool { return f.deleted }

// Position returns the id of the last event that the state holds.
func (f *Fold) Position() EventID { return f.position }
