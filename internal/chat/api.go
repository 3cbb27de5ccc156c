package chat

import (
	"encoding/json"
	"time"

	"loquat"
)

// Call is what a change carries beside its own parameters.
type Call struct {
	// IdempotencyKey makes a repeat with the same Method and Path answer what the
	// first answered. Empty means none.
	IdempotencyKey string
	Method, Path   string
	BodyHash       [32]byte // SHA-256 of the body as it came

	// IfMatch is the precondition of the change; nil means none.
	IfMatch *Match
}

// Match is a precondition on the newest checkpoint of a session.
type Match struct {
	Any bool // `*`: any session that exists
	IDs []loquat.EventID
}

// NewSession is what a client may say of a session that it creates.
type NewSession struct {
	SessionID string
	AgentID   string
	Metadata  loquat.Object
	Messages  []NewMessage
}

// NewMessage is a message as a client gives it.
type NewMessage struct {
	Role        string
	Content     string
	Metadata    loquat.Object
	Attachments []json.RawMessage
}

// SessionPatch is a JSON merge patch of a session: nil leaves a field as it is.
type SessionPatch struct {
	AgentID  *string
	Metadata loquat.Object // RFC 7396, null removes
}

// Fork says what a fork takes over from its source.
type Fork struct {
	UpToIndex *int // nil: all messages
	AgentID   string
	Metadata  loquat.Object // merged over the source's
}

// PageQuery chooses a part of a session's messages. Limit nil means all; At nil
// means the newest state.
type PageQuery struct {
	From  int
	Limit *int
	At    *loquat.EventID
}

// MessageResult answers an append and a modification.
type MessageResult struct {
	Index         int            `json:"index"`
	Message       loquat.Message `json:"message"`
	CursorEventID loquat.EventID `json:"cursor_event_id"`
	Checkpoint    loquat.EventID `json:"checkpoint"` // for the ETag; not part of the answer's body
}

// DeleteResult answers a deletion of messages.
type DeleteResult struct {
	Indices       []int          `json:"indices"`
	CursorEventID loquat.EventID `json:"cursor_event_id"`
	Checkpoint    loquat.EventID `json:"checkpoint"`
}

// The values of Send.OnBusy.
const (
	BusyReject    = "reject"
	BusyQueue     = "queue"
	BusyInterrupt = "interrupt"
)

// Send asks for a reply.
type Send struct {
	RequestID   string
	Content     *string // nil: run on the messages as they stand
	Attachments []json.RawMessage
	Metadata    loquat.Object // of the user message
	Stream      bool
	StreamTools bool
	DeleteFrom  *int
	OnBusy      string // "" means reject
}

// SendResult answers a send.
type SendResult struct {
	RequestID     string               `json:"request_id"`
	SessionID     string               `json:"session_id"`
	Status        loquat.RequestStatus `json:"status"`
	CursorEventID loquat.EventID       `json:"cursor_event_id"`
	Checkpoint    loquat.EventID       `json:"checkpoint"`
}

// CancelResult answers a cancel. Accepted tells that the request had not ended.
type CancelResult struct {
	RequestID string               `json:"request_id"`
	Status    loquat.RequestStatus `json:"status"`
	Accepted  bool                 `json:"accepted"`
}

// SessionList is a page of sessions, newest change first.
type SessionList struct {
	Sessions      []loquat.SessionSummary `json:"sessions"`
	NextPageToken string                  `json:"next_page_token,omitempty"`
}

// Agent is an agent that a session may use.
type Agent struct {
	AgentID    string `json:"agent_id"`
	ProviderID string `json:"provider"`
	Model      string `json:"model"`
}

// EventQuery chooses events of the log.
type EventQuery struct {
	Since       *loquat.EventID
	Until       loquat.EventID // nothing after this one; 0 is no bound
	SessionID   string
	RequestID   string
	Limit       int           // events that match, before compaction; 0 means 1000
	Wait        time.Duration // answer as soon as one event matches; 0 answers at once
	OmitSession bool          // events come without `session`
	Raw         bool          // the events come as they are stored; who reads them compacts
	Push        bool          // the events go out one by one, and the reader may be cut off between any two
}

// Window is a compacted part of the log.
type Window struct {
	Events    []loquat.Record
	Bootstrap bool           // neither a position nor a filter was given: Events is empty
	Latest    loquat.EventID // with Bootstrap, the newest event; else the position after this window
}
