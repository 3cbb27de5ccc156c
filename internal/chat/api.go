package chat

import (
	"encoding/json"

	"loquat"
)

// Call holds the parameters that every change has.
type Call struct {
	// IdempotencyKey identifies a repeat with the same Method and Path, which gets the
	// first answer. Empty means none.
	IdempotencyKey string
	Method, Path   string
	BodyHash       [32]byte // SHA-256 of the body as received

	// IfMatch is the precondition of the change; nil means none.
	IfMatch *Match
}

// Match is a precondition on the newest checkpoint of a session.
type Match struct {
	Any bool // `*`: any session that exists
	IDs []loquat.EventID
}

// Answer is the answer to a change: the body, and what HTTP puts into headers and status.
type Answer[T any] struct {
	Body       T
	Checkpoint loquat.EventID // newest checkpoint of the session, its ETag; 0 when there is none
	Accepted   bool           // of a cancel: the request had not ended
}

// answerExtra holds the fields of a stored Answer that are not in its body.
type answerExtra struct {
	Checkpoint loquat.EventID `json:"checkpoint,omitempty"`
	Accepted   bool           `json:"accepted,omitempty"`
}

// MarshalJSON writes one object: the fields of the body, checkpoint and accepted.
func (a Answer[T]) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(a.Body)
	if err != nil {
		return nil, err
	}
	extra, err := json.Marshal(answerExtra{a.Checkpoint, a.Accepted})
	if err != nil || string(extra) == "{}" {
		return body, err
	}
	body[len(body)-1] = ',' // every body has fields
	return append(body, extra[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Answer[T]) UnmarshalJSON(b []byte) error {
	var extra answerExtra
	if err := json.Unmarshal(b, &extra); err != nil {
		return err
	}
	a.Checkpoint, a.Accepted = extra.Checkpoint, extra.Accepted
	return json.Unmarshal(b, &a.Body)
}

// PageQuery chooses a part of a session's messages. Limit nil means all; At nil
// means the newest state.
type PageQuery struct {
	From  int
	Limit *int
	At    *loquat.EventID
}
