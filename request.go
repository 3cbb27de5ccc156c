package loquat

import (
	"encoding/json"
	"time"
)

// RequestStatus is the state of a request.
type RequestStatus string

// The states of a request: queued → running → one of the last three.
const (
	StatusQueued    RequestStatus = "queued"
	StatusRunning   RequestStatus = "running"
	StatusCompleted RequestStatus = "completed"
	StatusFailed    RequestStatus = "failed"
	StatusCancelled RequestStatus = "cancelled"
)

// Ended reports whether the state is final.
func (s RequestStatus) Ended() bool { return s != StatusQueued && s != StatusRunning }

// Request is one send and everything that follows from it: phases, tool rounds, and
// exactly one end.
type Request struct {
	RequestID string        `json:"request_id"`
	SessionID string        `json:"session_id"`
	Status    RequestStatus `json:"status"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	Error     string        `json:"error,omitempty"`

	Usage *Usage `json:"usage,omitempty" doc:"What the request has used; while it runs, in its steps that have ended."`

	SteeredInto string `json:"steered_into,omitempty" doc:"The request that took in the message of this one, which then had no reply of its own."`
}

// The values of Send.OnBusy.
const (
	BusyReject    = "reject" // the default
	BusyQueue     = "queue"
	BusyInterrupt = "interrupt"
	BusySteer     = "steer"
	BusyRollback  = "rollback"
)

// Send asks for a reply. A Send without content and attachments appends no message.
type Send struct {
	Content     *string           `json:"content,omitempty" doc:"The content of the user message. Without content and attachments no message is appended, and the request runs on the existing messages."`
	Attachments []json.RawMessage `json:"attachments,omitempty" doc:"Images: {type, url}, {type, data_url} or {type, asset_id}."`
	Metadata    Object            `json:"metadata,omitempty" doc:"The metadata of the user message."`
	Stream      *bool             `json:"stream,omitempty" default:"true"`
	StreamTools bool              `json:"stream_tools,omitempty" default:"false"`
	RequestID   string            `json:"request_id,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9_-]{0,64}$" doc:"Chosen by the server when left out or empty. A repeat answers what the first answered."`
	DeleteFrom  *int              `json:"delete_from,omitempty" minimum:"0" doc:"Deletes the messages from this index on first."`
	Keep        bool              `json:"keep,omitempty" default:"false" doc:"Keeps the messages that delete_from deletes as an alternative."`
	OnBusy      string            `json:"on_busy,omitempty" enum:"reject,queue,interrupt,steer,rollback" default:"reject"`
}

// Streams reports whether the reply is streamed, which is the default.
func (s Send) Streams() bool { return s.Stream == nil || *s.Stream }

// SendResult answers a send. The request is running or queued.
type SendResult struct {
	RequestID     string        `json:"request_id"`
	SessionID     string        `json:"session_id"`
	Status        RequestStatus `json:"status"`
	CursorEventID EventID       `json:"cursor_event_id"`
}

// QueuedSend is a send that waits on a session.
type QueuedSend struct {
	RequestID   string  `json:"request_id"`
	OnBusy      string  `json:"on_busy" enum:"queue,interrupt,steer,rollback"`
	Message     Message `json:"message" doc:"The user message that is appended when the send leaves the queue."`
	Stream      bool    `json:"stream"`
	StreamTools bool    `json:"stream_tools"`
}

// Queue is the queue of a session, in the order in which its sends start.
type Queue struct {
	SessionID string       `json:"session_id"`
	Queue     []QueuedSend `json:"queue"`
}

// MaxEventQueue is the largest queue in an event, in bytes of its messages. A larger queue is left out,
// and the client has to load it.
const MaxEventQueue = 64 << 10

// LastRequest is the newest request of a session that has started: the one that runs, or else the
// one that ended last. Requests whose message another one took in do not count.
type LastRequest struct {
	RequestID string        `json:"request_id"`
	Status    RequestStatus `json:"status"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	Error     string        `json:"error,omitempty"`
}

// QueueOrder gives the queue of a session another order.
type QueueOrder struct {
	RequestIDs []string `json:"request_ids" doc:"All requests of the queue, in their new order."`
}

// QueuedPatch changes a queued send. Fields that are left out stay as they are.
type QueuedPatch struct {
	Content     *string           `json:"content,omitempty"`
	Attachments []json.RawMessage `json:"attachments,omitempty" doc:"Replace all attachments; [] removes them."`
	Metadata    Object            `json:"metadata,omitempty" doc:"Is merged into the metadata of the message; null removes a key."`
	Stream      *bool             `json:"stream,omitempty"`
	StreamTools *bool             `json:"stream_tools,omitempty"`
	OnBusy      string            `json:"on_busy,omitempty" enum:"queue,steer" doc:"steer also moves the send in front of those that queue."`
}

// CancelResult answers a call that cancels a request.
type CancelResult struct {
	RequestID string        `json:"request_id"`
	Status    RequestStatus `json:"status"`
}
