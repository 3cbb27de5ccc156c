// Package bridge pushes the events of servers to apps, over Phoenix Channels.
//
// A Hub serves the sockets of apps, which join `events:server:<server_id>`. The events
// come from a Log: either the log of the server in the same process, or the log of a
// remote server whose Forwarder has joined `server:<server_id>`.
//
// An app that joins with the id of its last event gets every later event exactly once
// and in the order of the log, across failures of either side. Events are compacted for
// an app that lags. If some events cannot be delivered, the app gets `gap`. A slow app
// delays neither the other apps nor a server. An app whose token is revoked or expires
// loses its socket at once. The package keeps nothing on disk and does not use the
// store: it reaches a server only through a Log and a Relay.
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

// Prefixes of the topics; the server_id follows.
const (
	serverTopic = "server:"
	appTopic    = "events:server:"
)

// The pushed events, each with its payload.
const (
	eventSession  = "session_event" // {event}
	eventGap      = "gap"           // {latest_event_id}: the app must reload; later events follow live
	eventGet      = "get"           // {id, path}: read a path of the server
	eventGetChunk = "get_chunk"     // {id, data, encoding?}: a part of the answer
)

// The reasons in the replies to refused joins and pushes.
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
	// Check reports whether the events after since can be read. It fails with CodeGone
	// if they were removed or since never existed, and with CodeUnavailable if that
	// cannot be determined now. Afterwards Latest is not before any event that another node
	// may have pushed until then.
	Check(ctx context.Context, since loquat.EventID) error
	// Window returns the next events after since, up to and including until if until is
	// not 0. It waits up to wait for the first event; if none comes, the window is empty.
	// The events are not compacted, because each reader compacts from its own cursor.
	// With a user, it may leave out events of sessions that are not the user's. It fails as Check does.
	Window(ctx context.Context, since, until loquat.EventID, user string, wait time.Duration) ([]loquat.Record, error)
	// AppendEvent appends the JSON of an event. omitSession leaves its session out.
	AppendEvent(ctx context.Context, dst []byte, rec loquat.Record, omitSession bool) ([]byte, error)
}

// Sight is what an app may see. The zero Sight is everything.
type Sight struct {
	SessionID string `json:"session_id,omitempty"` // the only session
	User      string `json:"user,omitempty"`       // only sessions of this user
}

// of reports whether an event may be seen.
func (s Sight) of(session, user string) bool {
	return (s.SessionID == "" || s.SessionID == session) && (s.User == "" || s.User == user)
}

// Principal is an authenticated app.
type Principal struct {
	Sight
	ExpiresAt time.Time // when the token expires; zero: never
	// During returns a context that is cancelled when the token is revoked or expires.
	During func(context.Context) (context.Context, context.CancelFunc)
}

// Authenticate returns the principal of a token that was sent from an address. It fails
// with CodeUnauthorized, CodeRateLimited or CodeUnavailable.
type Authenticate func(ctx context.Context, token string, from netip.Addr) (Principal, error)

// Get reads a path of a server with a token's rights. It passes the body to take in parts
// before it returns.
type Get func(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error)

// Part is a part of the body of an answer, at most 256 KiB. Binary data is in base64, and
// Encoding is then "base64".
type Part struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"`
}

// bytes returns the decoded data.
func (p Part) bytes() ([]byte, error) {
	if p.Encoding == encodingBase64 {
		return base64.StdEncoding.DecodeString(p.Data)
	}
	return []byte(p.Data), nil
}

const encodingBase64 = "base64"

// Answer is the status and content type of an answer. Its body is passed on in parts.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
}

// maxEventDepth bounds the nesting of a pushed event's JSON. It is above the bound for
// stored values. A deeper event was written before that bound existed and becomes a gap.
const maxEventDepth = 2 * loquat.MaxDepth

// partBytes is the size of the parts of an answer.
const partBytes = 256 << 10

// latest is the payload of gap, and part of the reply to a join.
type latest struct {
	LatestEventID loquat.EventID `json:"latest_event_id"`
}

// newGapPush returns a push that makes an app load its snapshot again.
func newGapPush(topic string, at loquat.EventID) *phx.Push {
	payload, _ := json.Marshal(latest{at}) // encoding an id cannot fail
	return phx.NewPush(topic, eventGap, payload)
}

// isGone reports whether events can no longer be read.
func isGone(err error) bool { return loquat.CodeOf(err) == loquat.CodeGone }
