package loquat

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// DefaultAgent is the agent_id of a session that was created without one.
const DefaultAgent = "default"

// Session is a chat: an agent, metadata and messages indexed from 0.
type Session struct {
	SessionID string `json:"session_id"`
	AgentID   string `json:"agent_id"`
	User      string `json:"user,omitempty" doc:"The user to whom the session belongs; absent if it belongs to nobody."`
	Origin
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Metadata  Object    `json:"metadata"`
	Messages  []Message `json:"messages"`

	// MessagesOmitted is true in an event whose session would be larger than
	// MaxEventSession. Messages is then empty, and the client has to load them.
	MessagesOmitted bool `json:"messages_omitted,omitempty"`
}

// Origin is where the messages of a fork come from. It is empty in other sessions. It stays when the
// source changes or is deleted.
type Origin struct {
	SourceSessionID string `json:"source_session_id,omitempty" doc:"Of a fork: the session that it copied."`
	SourceIndex     *int   `json:"source_index,omitempty" minimum:"0" doc:"Of a fork: the index of the last message that it copied; absent if there was none."`
}

// MaxEventSession is the largest size of a session in an event, in bytes of JSON. A larger
// session comes without its messages.
const MaxEventSession = 1 << 20

// Snapshot is a session as it was right after the event CursorEventID. A client that asks
// for the events after that id gets no event that the snapshot already reflects.
type Snapshot struct {
	Waiting
	Session
	CursorEventID   EventID `json:"cursor_event_id"`
	ActiveRequestID string  `json:"active_request_id,omitempty"`

	// Checkpoint is the id of the session's newest checkpoint. The HTTP API uses it as the
	// ETag. It is not below the cursor.
	Checkpoint EventID `json:"-"`
}

// Waiting is what a client shows of a session's requests. Answers that load a session have it. It is
// in front of the messages in JSON: see writeAround.
type Waiting struct {
	Queue       []QueuedSend `json:"queue,omitzero" doc:"The sends that wait, as of the same moment. Answers to changes leave it out."`
	LastRequest *LastRequest `json:"last_request,omitempty" doc:"The request that runs, or else the one that ended last."`
}

// size returns about how many bytes of JSON it has.
func (w Waiting) size() (n int) {
	for _, q := range w.Queue {
		n += messagesSize([]Message{q.Message})
	}
	return n
}

// MessagePage is a page of the messages of one snapshot.
type MessagePage struct {
	Waiting
	SessionID       string    `json:"session_id"`
	CursorEventID   EventID   `json:"cursor_event_id"`
	ActiveRequestID string    `json:"active_request_id,omitempty"`
	Total           int       `json:"total"`
	Messages        []Message `json:"messages"`

	Checkpoint EventID `json:"-"`
}

// SessionSummary is a session in a list.
type SessionSummary struct {
	SessionID string `json:"session_id"`
	AgentID   string `json:"agent_id"`
	User      string `json:"user,omitempty" doc:"The user to whom the session belongs; absent if it belongs to nobody."`
	Origin
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	Metadata        Object    `json:"metadata"`
	MessageCount    int       `json:"message_count"`
	CursorEventID   EventID   `json:"cursor_event_id"`
	ActiveRequestID string    `json:"active_request_id,omitempty"`

	Match *SearchMatch `json:"match,omitempty" doc:"Where the session matches the search q."`
}

// SessionQuery selects and pages a list of sessions.
type SessionQuery struct {
	Limit     int      // 0 means the server's default, for a client
	PageToken string   // "" asks for the first page
	AgentID   string   // only sessions of this agent, unless empty
	User      string   // only sessions of this user, unless empty
	Tags      []string // only sessions that have all of them
	Pinned    *bool    // only pinned sessions, or only others
	Archived  string   // ArchivedNo by default
	Text      string   // only sessions whose title or texts match this search, unless empty
}

// The values of SessionQuery.Archived.
const (
	ArchivedNo   = "false"
	ArchivedOnly = "true"
	ArchivedToo  = "any"
)

// SessionList is a page of sessions: the pinned ones first, then newest change first. A session
// that changes while the pages are read keeps the place that it had on the first page. The results
// of a search are in the order of a search instead.
type SessionList struct {
	Sessions      []SessionSummary `json:"sessions"`
	NextPageToken string           `json:"next_page_token,omitempty"` // absent on the last page
	CursorEventID *EventID         `json:"cursor_event_id,omitempty" doc:"On the first page of a list: an event that the list includes. GET /events?list=true after it keeps the list up to date."`
	Incomplete    bool             `json:"incomplete,omitempty" doc:"Of a search: older messages are still being indexed, so sessions may be missing."`
}

// NewSession describes a session to create. Every field is optional.
type NewSession struct {
	SessionID string       `json:"session_id,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9_-]{0,64}$" doc:"Chosen by the server when left out or empty."`
	AgentID   string       `json:"agent_id,omitempty" doc:"The agent named default when left out."`
	User      string       `json:"user,omitempty" maxLength:"128" doc:"The user to whom the session belongs. A token of scope user may leave it out, and may name no other."`
	Metadata  Object       `json:"metadata,omitempty"`
	Messages  []NewMessage `json:"messages,omitempty"`
	Send      *Send        `json:"send,omitempty" doc:"Asks for a reply, as a call of send right after the creation does. Both happen, or neither."`
}

// SessionPatch is a JSON merge patch (RFC 7396) of a session. A field that is left out stays
// unchanged.
type SessionPatch struct {
	AgentID  *string `json:"agent_id,omitempty"`
	Metadata Object  `json:"metadata,omitempty" doc:"Null at a key removes the key."`
}

// Override is the value that a session gives one setting.
type Override struct {
	Value json.RawMessage `json:"value" doc:"The whole override: it is not merged, and a null within it stays. Null itself takes the override back."`
}

// Fork describes what a fork copies from its source.
type Fork struct {
	UpToIndex *int   `json:"up_to_index,omitempty" minimum:"0" doc:"The index of the last message to copy; all messages when left out."`
	AgentID   string `json:"agent_id,omitempty"`
	Metadata  Object `json:"metadata,omitempty" doc:"Merged over the metadata of the source."`
}

// maxUser bounds the name of a user, in characters.
const maxUser = 128

// MaxRole is the most bytes of the name of a role.
const MaxRole = 64

// CheckRole checks the name of a role at a place of the input.
func CheckRole(location, role string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	if role == "" || len(role) > MaxRole || strings.ContainsFunc(role, bad) {
		return Invalid(location, "has to have 1 to %d letters, digits, - and _", MaxRole)
	}
	return nil
}

// CheckUser checks the name of a user at a place of the input. It is chosen by whoever makes the tokens of
// the user, and may be an id, an address or anything else that can be printed.
func CheckUser(location, user string) error {
	if n := utf8.RuneCountInString(user); n == 0 || n > maxUser || !utf8.ValidString(user) || strings.ContainsFunc(user, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Invalid(location, "has to have 1 to %d characters, and no control characters", maxUser)
	}
	return nil
}
