// Package bridge pushes the events of servers to apps, over Phoenix Channels.
//
// A Hub serves the sockets of apps, which join `events:server:<server_id>`. What they
// are pushed comes from a Log: the one of the server in the same process, or that of a
// server elsewhere whose Forwarder has joined `server:<server_id>`.
//
// It promises that an app that says what it had last gets every event after that, in
// the order of the log and once, compacted where it is behind, over any failure of
// either side; that it is told `gap` when that cannot be; that one app that reads
// slowly or not at all holds up neither the others nor a server; and that who loses
// its token loses its socket at once. It keeps nothing on disk and sees no store:
// what it needs of a server are the functions of a Log and a Relay.
package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"time"

	"loquat"
	"loquat/internal/phx"
)

// The topics, up to the server_id.
const (
	serverTopic = "server:"
	appTopic    = "events:server:"
)

// What is pushed.
const (
	eventSession  = "session_event" // {event}
	eventGap      = "gap"           // {latest_event_id}: load everything again, what follows is live
	eventGet      = "get"           // {id, path}: read something of the server
	eventGetChunk = "get_chunk"     // {id, data, encoding?}: a part of it
)

// The reasons for which joins and pushes are refused.
const (
	reasonInvalid      = "invalid"
	reasonUnauthorized = "unauthorized"
	reasonRateLimited  = "rate_limited"
	reasonUnavailable  = "unavailable" // the server is not connected to this bridge
	reasonUnknown      = "unknown event"
	reasonBusy         = "busy"
)

// Log is the events of one server. Its events reach Window in the order of their ids.
type Log interface {
	// Latest is the newest event.
	Latest() loquat.EventID
	// Check fails with CodeGone when what comes after an event is not to be had, or
	// there never was such an event, and with CodeUnavailable when that cannot be told.
	Check(ctx context.Context, since loquat.EventID) error
	// Window returns the next events after since, up to and with until, if that is not 0.
	// It waits for the first one; an empty window is the end of the wait. They are not
	// compacted: what is joined from where one reader is would repeat to another.
	// It fails as Check does.
	Window(ctx context.Context, since, until loquat.EventID, wait time.Duration) ([]loquat.Record, error)
	// AppendEvent appends the JSON of an event, without its session if so wanted.
	AppendEvent(ctx context.Context, dst []byte, rec loquat.Record, omitSession bool) ([]byte, error)
}

// Guest is somebody whose token was good.
type Guest struct {
	// SessionID is the only session whose events the guest may see; "" is all.
	SessionID string
	// During returns a context that ends when the token is no longer good.
	During func(context.Context) (context.Context, context.CancelFunc)
}

// Admit says who shows a token, from an address. It fails with CodeUnauthorized,
// CodeRateLimited or CodeUnavailable.
type Admit func(ctx context.Context, token string, from netip.Addr) (Guest, error)

// Get reads a path of a server with a token's rights. It hands out the answer in parts
// before it returns.
type Get func(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error)

// Part is a part of the body of an answer, of 256 KiB at most. Bytes that are no text
// are in base64, and Encoding says so.
type Part struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
}

// bytes is what the part stands for.
func (p Part) bytes() ([]byte, error) {
	if p.Encoding == encodingBase64 {
		return base64.StdEncoding.DecodeString(p.Data)
	}
	return []byte(p.Data), nil
}

const encodingBase64 = "base64"

// Answer is what came of a Get, beside its body.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
}

// maxEventDepth is how deep the JSON of an event nests at most that is pushed. It leaves
// room around what may be stored; a deeper event is from a log that was written before
// that had a bound, and becomes a gap.
const maxEventDepth = 2 * loquat.MaxDepth

// partBytes is the size of the parts of an answer.
const partBytes = 256 << 10

// latest is the payload of gap, and part of the reply to a join.
type latest struct {
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// newGap tells an app to load its snapshot again.
func newGap(topic string, at loquat.EventID) *phx.Push {
	payload, _ := json.Marshal(latest{at}) // an id always can be
	return phx.NewPush(topic, eventGap, payload)
}

// isGone reports whether events are not to be had any more.
func isGone(err error) bool { return loquat.CodeOf(err) == loquat.CodeGone }

// pause waits between two attempts; false is the end of ctx.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
