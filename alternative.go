package loquat

import "time"

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
