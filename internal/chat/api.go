package chat

import (
	"context"
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

// Answer is what a change answers: a body, and what HTTP puts elsewhere.
type Answer[T any] struct {
	Body       T
	Checkpoint loquat.EventID // newest checkpoint of the session, its ETag; 0 when there is none
	Accepted   bool           // of a cancel: the request had not ended
}

// answerExtra are the fields of a stored Answer besides those of its body.
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
	Bytes       int           // of event bodies, at which the window ends; 0 means 8 MiB
	Push        bool          // the events go out one by one, and the reader may be cut off between any two

	// Reserve is called before events of so many bytes are read from the database, and with 0
	// when a read found none. Its error ends the call. Nil reserves nothing.
	Reserve func(ctx context.Context, bytes int) error
}

// Window is a compacted part of the log. It belongs to the caller.
type Window struct {
	Events    []loquat.Record
	Bootstrap bool           // neither a position nor a filter was given: Events is empty
	Latest    loquat.EventID // with Bootstrap, the newest event; else the position after this window
}
