// Package phx implements the Phoenix Channels protocol over WebSocket, for servers and
// clients. Many topics share one socket. A client joins a topic and pushes to it, and the
// server pushes to the topic's clients.
//
// Unmodified Phoenix clients work with the serializers 2.0.0 and 1.0.0. Frames from clients
// are bounded in size and rate. Pushes to a client wait in a queue of fixed size, so that a
// slow client never blocks the sender. Frames of an ended join are dropped.
//
// A push may get lost, because Phoenix delivers at most once. Users of the package have to
// know where to resume. The package does not interpret payloads.
package phx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// The events that the protocol reserves, and the topic of heartbeats.
const (
	eventJoin      = "phx_join"
	eventLeave     = "phx_leave"
	eventClose     = "phx_close"
	eventReply     = "phx_reply"
	eventHeartbeat = "heartbeat"
	topicPhoenix   = "phoenix"
)

// The statuses of a reply.
const (
	StatusOK    = "ok"
	StatusError = "error"
)

// Version is the version of a serializer: the encoding of frames in WebSocket messages.
type Version int

// The serializers. V1 encodes frames as JSON objects, V2 as JSON arrays.
const (
	V1 Version = 1
	V2 Version = 2
)

// parseVersion parses the parameter vsn of an upgrade. If it is missing, the version is
// 1.0.0.
func parseVersion(vsn string) (Version, error) {
	switch vsn {
	case "", "1.0.0":
		return V1, nil
	case "2.0.0":
		return V2, nil
	}
	return 0, errors.New("the vsn is neither 1.0.0 nor 2.0.0")
}

// The bounds of the names and refs in a frame, in bytes.
const (
	maxName = 255
	maxRef  = 64
)

// Frame is one message of the protocol. An empty JoinRef or Ref is null in JSON.
type Frame struct {
	JoinRef string
	Ref     string
	Topic   string
	Event   string
	Payload json.RawMessage
}

// objectFrame is a frame of the serializer 1.0.0.
type objectFrame struct {
	Topic   string          `json:"topic"`
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
	Ref     *string         `json:"ref"`
	JoinRef *string         `json:"join_ref,omitempty"`
}

// decode decodes a frame. The Payload shares memory with data.
func (v Version) decode(data []byte) (Frame, error) {
	var f Frame
	var err error
	if v == V1 {
		f, err = decodeObject(data)
	} else {
		f, err = decodeArray(data)
	}
	switch {
	case err != nil:
		return Frame{}, err
	case f.Topic == "" || len(f.Topic) > maxName:
		return Frame{}, fmt.Errorf("the topic must have 1 to %d bytes", maxName)
	case f.Event == "" || len(f.Event) > maxName:
		return Frame{}, fmt.Errorf("the event must have 1 to %d bytes", maxName)
	case len(f.Ref) > maxRef || len(f.JoinRef) > maxRef:
		return Frame{}, fmt.Errorf("a ref must have at most %d bytes", maxRef)
	case len(f.Payload) == 0:
		return Frame{}, errors.New("there is no payload")
	}
	return f, nil
}

func decodeArray(data []byte) (f Frame, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return f, errors.New("it is not a JSON array")
	}
	if len(parts) != 5 {
		return f, fmt.Errorf("an array must have the 5 items join_ref, ref, topic, event and payload; this one has %d", len(parts))
	}
	for i, name := range []*string{&f.JoinRef, &f.Ref, &f.Topic, &f.Event} {
		if json.Unmarshal(parts[i], name) != nil { // null leaves it empty
			return f, fmt.Errorf("item %d must be a string", i)
		}
	}
	f.Payload = parts[4]
	return f, nil
}

func decodeObject(data []byte) (Frame, error) {
	var o *objectFrame
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		return Frame{}, errors.New("it is not a JSON object with strings as topic, event and ref")
	}
	f := Frame{Topic: o.Topic, Event: o.Event, Payload: o.Payload}
	if o.Ref != nil {
		f.Ref = *o.Ref
	}
	if o.JoinRef != nil {
		f.JoinRef = *o.JoinRef
	}
	return f, nil
}

// Append appends a frame. The payload must be valid JSON.
func (v Version) Append(dst []byte, f Frame) []byte {
	p := Push{topic: f.Topic, event: f.Event, payload: f.Payload}
	return v.appendPush(dst, f.JoinRef, f.Ref, p.names(v), f.Payload)
}

// appendPush appends a frame. Its names and payload may be shared between sockets.
func (v Version) appendPush(dst []byte, joinRef, ref string, names, payload []byte) []byte {
	if v == V1 {
		dst = append(append(dst, '{'), names...)
		dst = appendRef(append(dst, `,"ref":`...), ref)
		if joinRef != "" {
			dst = appendRef(append(dst, `,"join_ref":`...), joinRef)
		}
		dst = append(append(dst, `,"payload":`...), payload...)
		return append(dst, '}')
	}
	dst = appendRef(append(dst, '['), joinRef)
	dst = appendRef(append(dst, ','), ref)
	dst = append(append(dst, ','), names...)
	dst = append(append(dst, ','), payload...)
	return append(dst, ']')
}

// appendRef appends a ref. A ref from a client may contain any characters.
func appendRef(dst []byte, ref string) []byte {
	if ref == "" {
		return append(dst, "null"...)
	}
	for i := range len(ref) {
		if c := ref[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(dst, quote(ref)...)
		}
	}
	dst = append(append(dst, '"'), ref...) // the usual case, which is worth a faster path with many sockets
	return append(dst, '"')
}

func quote(s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // cannot fail for a string
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Push is a frame from the server that is not a reply. One Push may be sent to any number of
// sockets. Its payload is encoded beforehand, and its names once for each serializer. Only
// the join_ref differs between sockets. With the join_ref, clients recognize frames of an
// earlier join.
type Push struct {
	topic, event string
	payload      []byte

	once    [2]sync.Once // by serializer
	encoded [2][]byte    // topic and event
}

// NewPush returns a push. The payload must be valid JSON, and must not be changed any more.
func NewPush(topic, event string, payload []byte) *Push {
	return &Push{topic: topic, event: event, payload: payload}
}

// Size returns the size of the payload in bytes.
func (p *Push) Size() int { return len(p.payload) }

func (p *Push) names(v Version) []byte {
	i := int(v) - 1
	p.once[i].Do(func() {
		topic, event := quote(p.topic), quote(p.event)
		if v == V1 {
			p.encoded[i] = fmt.Appendf(nil, `"topic":%s,"event":%s`, topic, event)
		} else {
			p.encoded[i] = fmt.Appendf(nil, `%s,%s`, topic, event)
		}
	})
	return p.encoded[i]
}

// reply is the payload of phx_reply.
type reply struct {
	Status   string `json:"status"`
	Response any    `json:"response"`
}

// encodeReply returns the payload of a reply. A nil response becomes an empty object.
func encodeReply(status string, response any) ([]byte, error) {
	if response == nil {
		response = struct{}{}
	}
	b, err := json.Marshal(reply{status, response})
	if err != nil {
		return nil, fmt.Errorf("encode a reply: %w", err)
	}
	return b, nil
}
