package loquat

import "time"

// RequestStatus is where a request stands.
type RequestStatus string

// The states of a request: queued → running → one of the last three.
const (
	StatusQueued    RequestStatus = "queued"
	StatusRunning   RequestStatus = "running"
	StatusCompleted RequestStatus = "completed"
	StatusFailed    RequestStatus = "failed"
	StatusCancelled RequestStatus = "cancelled"
)

// Ended reports whether nothing more will happen to the request.
func (s RequestStatus) Ended() bool { return s != StatusQueued && s != StatusRunning }

// Request is one send and all that follows from it: phases of the model, rounds
// of tools, and exactly one end.
type Request struct {
	RequestID string        `json:"request_id"`
	SessionID string        `json:"session_id"`
	Status    RequestStatus `json:"status"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	Error     string        `json:"error,omitempty"`
}
