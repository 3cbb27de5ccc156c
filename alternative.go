package loquat

import "time"

// MaxAlternatives is how many alternatives a session has, at most.
const MaxAlternatives = 1000

// Alternative is one of the ends at an index of a session's messages: what a regenerated or edited
// message was, or is now.
type Alternative struct {
	AlternativeID string    `json:"alternative_id"`
	Index         int       `json:"index" doc:"The index of its first message."`
	InPlace       bool      `json:"in_place" doc:"Whether its messages are those of the session from index on."`
	CreatedAt     time.Time `json:"created_at"`
	MessageCount  int       `json:"message_count"`
	Preview       string    `json:"preview" doc:"The beginning of its first message."`
}

// AlternativeNode is an alternative among all those of a session. They form a tree: each hangs in the
// messages of the session, or in those of a kept alternative.
type AlternativeNode struct {
	Index     int // of its first message in the session, when it is in place
	Within    int // place in the list of the alternative in whose messages it hangs, or OfSession
	CreatedAt time.Time
	InPlace   bool      // its messages are those where it hangs, from Index on
	Messages  []Message // of a kept alternative
}

// OfSession as AlternativeNode.Within says that an alternative hangs in the messages of the session.
const OfSession = -1

// AlternativeList is the alternatives at the messages of a session, by index and then in the order in
// which they came.
type AlternativeList struct {
	SessionID    string        `json:"session_id"`
	Alternatives []Alternative `json:"alternatives"`
}

// AlternativeMessages is an alternative with its messages.
type AlternativeMessages struct {
	Alternative
	SessionID string    `json:"session_id"`
	Messages  []Message `json:"messages"`
}

// SwitchResult answers a call that puts an alternative in place.
type SwitchResult struct {
	AlternativeID string  `json:"alternative_id"`
	Index         int     `json:"index"`
	Total         int     `json:"total" doc:"The number of messages of the session now."`
	CursorEventID EventID `json:"cursor_event_id"`
}
