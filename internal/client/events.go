package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"loquat"
)

// maxWait is the longest long poll that the API knows.
const maxWait = 60 * time.Second

// Query chooses events of the log.
type Query struct {
	// Since is the position after which events are wanted. Nil means the session's
	// cursor, else the request's first event, else the newest event.
	Since     *loquat.EventID
	SessionID string
	RequestID string

	// OmitSession leaves `session` out of the events, which makes them far smaller.
	OmitSession bool

	Limit int           // events of one window; 0 leaves it to the server. Not for Follow.
	Wait  time.Duration // how long one poll may wait for a first event. Not for Follow.
}

// Window is a part of the log.
type Window struct {
	Events []loquat.Event
	JSON   []json.RawMessage // the same events, byte by byte as they came

	// LatestEventID is set when neither a position nor a filter was given: there
	// are no Events then, and this is where to go on from.
	LatestEventID loquat.EventID
}

// Events returns one window. The id of its last event is the Since of the next.
func (c *Client) Events(ctx context.Context, q Query) (Window, error) {
	query := q.values()
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Wait > 0 {
		query.Set("wait", strconv.FormatFloat(q.Wait.Seconds(), 'f', -1, 64))
	}
	var answer struct {
		Events        []json.RawMessage `json:"events"`
		LatestEventID loquat.EventID    `json:"latest_event_id"`
	}
	if _, err := c.do(ctx, get(query, "events"), &answer); err != nil {
		return Window{}, err
	}
	w := Window{JSON: answer.Events, LatestEventID: answer.LatestEventID, Events: make([]loquat.Event, len(answer.Events))}
	for i, body := range answer.Events {
		if err := json.Unmarshal(body, &w.Events[i]); err != nil {
			return Window{}, unreadable(body, err)
		}
	}
	return w, nil
}

func (q Query) values() url.Values {
	v := url.Values{}
	if q.Since != nil {
		v.Set("since_id", q.Since.String())
	}
	if q.SessionID != "" {
		v.Set("session_id", q.SessionID)
	}
	if q.RequestID != "" {
		v.Set("request_id", q.RequestID)
	}
	if q.OmitSession {
		v.Set("session", "omit")
	}
	return v
}

func unreadable(body []byte, err error) error {
	return &loquat.Error{Code: loquat.CodeInternal, Err: err,
		Detail: fmt.Sprintf("an event is not what this client knows: %s; do its version and the server's agree?", excerpt(body))}
}
