// Package phx speaks the Phoenix Channels protocol over WebSocket, both ends of it:
// many topics share one socket, a client joins a topic, pushes to it and is pushed to.
//
// It promises that unmodified Phoenix clients work with the serializers 2.0.0 and
// 1.0.0; that nothing a client sends is read past its bound or answered without one;
// that who is pushed to waits in a queue of a fixed size, which never holds up who
// pushes; and that frames of a join that is over reach nobody. It does not promise
// that a push arrives: Phoenix is at most once, and what is above has to know where to
// go on. It knows nothing of what the payloads mean.
package phx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// The events that the protocol keeps for itself, and the topic of heartbeats.
const (
	eventJoin      = "phx_join"
	eventLeave     = "phx_leave"
	eventClose     = "phx_close"
	eventReply     = "phx_reply"
	eventHeartbeat = "heartbeat"
	topicPhoenix   = "phoenix"
)

// The status of a reply.
const (
	StatusOK    = "ok"
	StatusError = "error"
)

// Version is a serializer: how frames stand in messages.
type Version int

// The serializers. V1 has objects, V2 arrays.
const (
	V1 Version = 1
	V2 Version = 2
)

// ParseVersion reads the parameter vsn of an upgrade; a missing one means 1.0.0.
func ParseVersion(vsn string) (Version, error) {
	switch vsn {
	case "", "1.0.0":
		return V1, nil
	case "2.0.0":
		return V2, nil
	}
	return 0, errors.New("the vsn is neither 1.0.0 nor 2.0.0")
}

// The bounds of the names in a frame.
const (
	maxName = 255
	maxRef  = 64
)

// Frame is one message of the protocol. An empty JoinRef or Ref is null.
type Frame struct {
	JoinRef string
	Ref     string
	Topic   string
	Event   string
	Payload json.RawMessage
}

// object is a frame as the serializer 1.0.0 writes it.
type object struct {
	Topic   string          `json:"topic"`
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
	Ref     *string         `json:"ref"`
	JoinRef *string         `json:"join_ref,omitempty"`
}

// Decode reads a frame. The Payload shares memory with data.
func (v Version) Decode(data []byte) (Frame, error) {
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
		return Frame{}, fmt.Errorf("the topic has to have 1 to %d bytes", maxName)
	case f.Event == "" || len(f.Event) > maxName:
		return Frame{}, fmt.Errorf("the event has to have 1 to %d bytes", maxName)
	case len(f.Ref) > maxRef || len(f.JoinRef) > maxRef:
		return Frame{}, fmt.Errorf("a ref has at most %d bytes", maxRef)
	case len(f.Payload) == 0:
		return Frame{}, errors.New("there is no payload")
	}
	return f, nil
}

func decodeArray(data []byte) (f Frame, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return f, errors.New("it is no JSON array")
	}
	if len(parts) != 5 {
		return f, fmt.Errorf("an array has join_ref, ref, topic, event and payload, this one %d parts", len(parts))
	}
	for i, name := range []*string{&f.JoinRef, &f.Ref, &f.Topic, &f.Event} {
		if json.Unmarshal(parts[i], name) != nil { // null leaves it empty
			return f, fmt.Errorf("part %d has to be a string", i)
		}
	}
	f.Payload = parts[4]
	return f, nil
}

func decodeObject(data []byte) (Frame, error) {
	var o *object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		return Frame{}, errors.New("it is no JSON object with strings as topic, event and ref")
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

// Append writes a frame. The payload has to be JSON.
func (v Version) Append(dst []byte, f Frame) []byte {
	p := Push{topic: f.Topic, event: f.Event, payload: f.Payload}
	return v.appendPush(dst, f.JoinRef, f.Ref, p.names(v), f.Payload)
}

// appendPush puts a frame together from parts of which all but the refs are shared.
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

// appendRef writes a ref; a client's may hold anything.
func appendRef(dst []byte, ref string) []byte {
	if ref == "" {
		return append(dst, "null"...)
	}
	for i := range len(ref) {
		if c := ref[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(dst, quote(ref)...)
		}
	}
	dst = append(append(dst, '"'), ref...) // as nearly all are: it counts, with a thousand sockets
	return append(dst, '"')
}

func quote(s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always can be
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Push is what the server says on a topic by itself. One Push goes to any number of
// sockets: its payload is encoded before, its names once for each serializer, and only
// the join_ref is each socket's own, so that clients can tell what was meant for an
// earlier join.
type Push struct {
	topic, event string
	payload      []byte

	once    [2]sync.Once // by serializer
	encoded [2][]byte    // topic and event
}

// NewPush makes a push of a payload, which has to be JSON and is not changed any more.
func NewPush(topic, event string, payload []byte) *Push {
	return &Push{topic: topic, event: event, payload: payload}
}

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

// encodeReply writes the payload of a reply; no response is an empty object.
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
