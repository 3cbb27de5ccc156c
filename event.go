package loquat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// EventID identifies an event in the log. Ids grow in the order of commits and are never
// reused. In JSON an id is a string of 16 decimal digits, so that ids sort the same as
// strings and as numbers.
type EventID int64

// EventIDWidth is the number of digits of an EventID in JSON.
const EventIDWidth = 16

// ParseEventID parses exactly 16 decimal digits.
func ParseEventID(s string) (EventID, error) {
	if len(s) != EventIDWidth {
		return 0, fmt.Errorf("an event_id has %d digits, %q has %d characters", EventIDWidth, Clip(s, Excerpt), len(s))
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("an event_id has %d decimal digits, not %q", EventIDWidth, s)
	}
	return EventID(n), nil
}

// ParseSinceID parses the cursor after which a client asks for events: any number of
// decimal digits. A number that is too large for an event_id becomes the highest id, which
// is above every event.
func ParseSinceID(s string) (EventID, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("an event_id has only decimal digits, unlike %q", Clip(s, 40))
	}
	digits := strings.TrimLeft(s, "0")
	if len(digits) > EventIDWidth {
		return maxEventID, nil
	}
	return ParseEventID(strings.Repeat("0", EventIDWidth-len(digits)) + digits)
}

const maxEventID EventID = 9999_9999_9999_9999

func (id EventID) append(dst []byte) []byte {
	var d [EventIDWidth]byte
	n := int64(id)
	for i := EventIDWidth - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, d[:]...)
}

func (id EventID) String() string { return string(id.append(nil)) }

// MarshalText returns the 16 digits.
func (id EventID) MarshalText() ([]byte, error) { return id.append(nil), nil }

// UnmarshalText parses the 16 digits.
func (id *EventID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseEventID(string(b))
	return err
}

// EventType is the type of an event. A client ignores types that it does not know.
type EventType string

// The event types: those of the specification, then those that Loquat adds.
const (
	RequestStarted   EventType = "request_started"
	RequestCancelled EventType = "request_cancelled"
	RequestCompleted EventType = "request_completed" // always the last event of its request
	ErrorEvent       EventType = "error"
	AssistantMessage EventType = "assistant_message"
	Partial          EventType = "partial"
	Final            EventType = "final"
	ToolCalls        EventType = "tool_calls"
	ToolPartial      EventType = "tool_partial"
	ToolResults      EventType = "tool_results"
	Checkpoint       EventType = "checkpoint"
	SessionCreated   EventType = "session_created"
	MessageAppended  EventType = "message_appended"
	MessageModified  EventType = "message_modified"
	MessagesDeleted  EventType = "messages_deleted"
	SessionDeleted   EventType = "session_deleted"
	RetryScheduled   EventType = "retry_scheduled"
	QueueChanged     EventType = "queue_changed"
)

// The phases of assistant_message (start, end) and tool_partial (all three).
const (
	PhaseStart  = "start"
	PhaseStream = "stream"
	PhaseEnd    = "end"
)

// The causes of retry_scheduled.
const (
	CauseRateLimit = "rate_limit"
	CauseStatus    = "status"
	CauseTimeout   = "timeout"
	CauseStream    = "stream"
)

// Event is one entry of the log as clients read it. Which fields beyond the first
// five are set depends on Type; the specification's table of events says which.
type Event struct {
	EventID   EventID   `json:"event_id,omitempty"`
	Type      EventType `json:"type"`
	SessionID string    `json:"session_id"`
	RequestID string    `json:"request_id,omitempty"`
	User      string    `json:"user,omitempty" doc:"To whom the session belongs, in the events that change the list of sessions."`

	Stream      *bool  `json:"stream,omitempty"`                        // request_started
	SteeredInto string `json:"steered_into,omitempty"`                  // request_started of a request whose message another one took in
	Phase       string `json:"phase,omitempty" enum:"start,stream,end"` // assistant_message, tool_partial
	Detail      string `json:"detail,omitempty"`                        // error

	Message    *Delta     `json:"message,omitempty"`      // partial, message_appended, message_modified
	Messages   []Message  `json:"messages,omitempty"`     // final, tool_results
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // tool_calls
	ToolCallID string     `json:"tool_call_id,omitempty"` // tool_partial
	Payload    *Payload   `json:"payload,omitempty"`      // tool_partial

	Timestamp       *time.Time `json:"timestamp,omitempty"`                              // checkpoint
	UpdatedAt       *time.Time `json:"updated_at,omitempty"`                             // checkpoint of an import
	AgentID         string     `json:"agent_id,omitempty"`                               // session_created, checkpoint of a changed agent
	SourceSessionID string     `json:"source_session_id,omitempty"`                      // session_created by a fork
	CreatedAt       *time.Time `json:"created_at,omitempty"`                             // session_created
	Role            string     `json:"role,omitempty" enum:"user,assistant,system,tool"` // message_appended
	Content         *string    `json:"content,omitempty"`                                // message_appended, message_modified
	Metadata        Object     `json:"metadata,omitempty"`                               // message_appended, checkpoint of changed metadata
	Index           *int       `json:"index,omitempty"`                                  // message_modified
	Indices         []int      `json:"indices,omitempty"`                                // messages_deleted
	MessageCount    *int       `json:"message_count,omitempty"`                          // checkpoint

	Attempt      int        `json:"attempt,omitempty"`                                       // retry_scheduled: 1 for the first
	Cause        string     `json:"cause,omitempty" enum:"rate_limit,status,timeout,stream"` // retry_scheduled
	Status       int        `json:"status,omitempty"`                                        // retry_scheduled: the HTTP status, if there was one
	DelaySeconds *float64   `json:"delay_seconds,omitempty"`                                 // retry_scheduled
	ResumeAt     *time.Time `json:"resume_at,omitempty"`                                     // retry_scheduled

	Queue        []QueuedSend `json:"queue,omitzero"`          // queue_changed: the sends that wait now
	QueueOmitted bool         `json:"queue_omitted,omitempty"` // queue_changed whose queue is larger than MaxEventQueue

	Session *Session `json:"session,omitempty"` // as it was right after this event
}

// EventList answers GET /events.
type EventList struct {
	Events        []Event  `json:"events"`
	LatestEventID *EventID `json:"latest_event_id,omitempty" doc:"Where to start, when nothing was asked for."`
}

// Gone is the data of the event `gone`, with which a stream ends when its events are no
// longer kept.
type Gone struct {
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Payload is the payload of a tool_partial. In the phases start and stream it holds a
// part of the output, in the phase end the final tool message.
type Payload struct {
	Part     *string  `json:"part,omitempty"`
	Progress *float64 `json:"progress,omitempty"`
	Total    *float64 `json:"total,omitempty"`
	Result   *Message `json:"result,omitempty"`
}

// Delta is the message of an event. In message_appended and message_modified it is a whole
// message. In partial it is an increment without id and time.
type Delta struct {
	ID        string     `json:"id,omitempty"`
	Role      string     `json:"role" enum:"user,assistant,system,tool"`
	Content   string     `json:"content"`
	Metadata  Object     `json:"metadata,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
}

// AsDelta returns a whole message in the form that an event carries.
func (m Message) AsDelta() *Delta {
	at := m.CreatedAt
	return &Delta{ID: m.ID, Role: m.Role, Content: m.Content, Metadata: m.Metadata, CreatedAt: &at}
}

// AsMessage returns the message that AsDelta converted.
func (d Delta) AsMessage() Message {
	m := Message{ID: d.ID, Role: d.Role, Content: d.Content, Metadata: d.Metadata}
	if d.CreatedAt != nil {
		m.CreatedAt = *d.CreatedAt
	}
	return m
}

// Record is an event as the log keeps it: the fields that filters need, and the event's
// JSON. The JSON is encoded once and shared by all readers, so Body must not be changed.
type Record struct {
	ID        EventID
	Type      EventType
	SessionID string
	RequestID string
	User      string // to whom the session belongs; "" is nobody
	Body      []byte // one JSON object without event_id and session

	// Rev is the revision of the session that the event carries as `session`. 0 means
	// that the event carries no session. OmitMessages means that the session comes
	// without its messages.
	Rev          int64
	OmitMessages bool
	At           time.Time // when the event was published

	frame *frame // nil if it is not shared
}

// Encode returns the record of the event, without the id and the Session.
func (e Event) Encode() (Record, error) {
	rec := Record{Type: e.Type, SessionID: e.SessionID, RequestID: e.RequestID, User: e.User}
	e.EventID, e.Session = 0, nil
	if e.Type == Partial && e.Message != nil {
		rec.Body = appendPartial(make([]byte, 0, 160+len(e.SessionID)+len(e.RequestID)+len(e.Message.Content)*9/8), e)
		return rec, nil
	}
	if e.isLarge() {
		body, err := e.encodeMessages()
		if err != nil {
			return Record{}, fmt.Errorf("encode %s event: %w", e.Type, err)
		}
		rec.Body = body
		return rec, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return Record{}, fmt.Errorf("encode %s event: %w", e.Type, err)
	}
	rec.Body = validRaw(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	return rec, nil
}

// AppendJSON appends the event in the form that clients read. session is the JSON of the
// event's session, or nil if it has none.
func (r Record) AppendJSON(dst, session []byte) []byte {
	dst = append(dst, `{"event_id":"`...)
	dst = r.ID.append(dst)
	dst = append(dst, `",`...)
	if session == nil {
		return append(dst, r.Body[1:]...)
	}
	dst = append(dst, r.Body[1:len(r.Body)-1]...)
	dst = append(dst, `,"session":`...)
	dst = append(dst, session...)
	return append(dst, '}')
}

// WriteJSON writes what AppendJSON appends, the body and the session from where they are.
// session writes the JSON of the session; nil leaves it out.
func (r Record) WriteJSON(w io.Writer, session func(io.Writer) error) error {
	if session == nil {
		if shared := r.sharedJSON(); shared != nil {
			_, err := w.Write(shared)
			return err
		}
	}
	var head [40]byte
	open := append(r.ID.append(append(head[:0], `{"event_id":"`...)), `",`...)
	if _, err := w.Write(open); err != nil {
		return err
	}
	if session == nil {
		_, err := w.Write(r.Body[1:])
		return err
	}
	if _, err := w.Write(r.Body[1 : len(r.Body)-1]); err != nil {
		return err
	}
	if _, err := w.Write([]byte(`,"session":`)); err != nil {
		return err
	}
	if err := session(w); err != nil {
		return err
	}
	_, err := w.Write([]byte{'}'})
	return err
}

// Decode returns the event without its session.
func (r Record) Decode() (Event, error) {
	var e Event
	if err := json.Unmarshal(r.Body, &e); err != nil {
		return Event{}, fmt.Errorf("decode event %s: %w", r.ID, err)
	}
	e.EventID = r.ID
	return e, nil
}

// ParseRecord returns the record of a body that Encode made, with the fields that filters
// need. It relies on Encode to write type, session_id and request_id first. Only the body of an
// event that changes the list of sessions has the user.
func ParseRecord(body []byte) (Record, error) {
	rec := Record{Body: body}
	kind, rest, ok := cutLeadingString(body, `{"type":"`)
	if !ok {
		return Record{}, fmt.Errorf("an event body begins with its type, not with %q", Clip(string(body), Excerpt))
	}
	rec.Type = EventType(kind)
	session, rest, ok := cutLeadingString(rest, `,"session_id":"`)
	if !ok {
		return Record{}, fmt.Errorf("the body of a %s event has its session_id after its type", rec.Type)
	}
	rec.SessionID = string(session)
	if request, after, ok := cutLeadingString(rest, `,"request_id":"`); ok {
		rec.RequestID, rest = string(request), after
	}
	if text, ok := bytes.CutPrefix(rest, []byte(`,"user":`)); ok { // it may have escapes
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&rec.User); err != nil {
			return Record{}, fmt.Errorf("the user in the body of a %s event: %w", rec.Type, err)
		}
	}
	return rec, nil
}

// cutLeadingString cuts the prefix, and the string without escapes that follows it, from b.
func cutLeadingString(b []byte, prefix string) (value, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(b, []byte(prefix))
	if !ok {
		return nil, b, false
	}
	return bytes.Cut(rest, []byte{'"'})
}
