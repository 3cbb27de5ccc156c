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

// maxWait is the longest wait of a long poll that the API allows.
const maxWait = 60 * time.Second

// Query selects events of the log.
type Query struct {
	// Since is the cursor: only later events are returned. Nil means the session's
	// cursor if SessionID is set, else before the request's first event if RequestID is
	// set, else the newest event.
	Since     *loquat.EventID
	SessionID string
	RequestID string
	List      bool // also the events that change the list of sessions

	// OmitSession leaves `session` out of the events, which makes them far smaller.
	OmitSession bool

	Limit int           // largest number of events in a window; 0: the server's default. Follow ignores it.
	Wait  time.Duration // time that a poll waits for a first event. Follow ignores it.

	// Line is called by Follow when the state of its connection changes. Nil means nobody asks.
	Line func(LineState)
}

// LineState is the state of a connection of Follow.
type LineState struct {
	Connected bool
	Err       error     // why it broke; nil while it is connected, and if the server has ended it
	Retry     time.Time // when the next connection is made; zero while it is connected
}

// Window is the result of one poll.
type Window struct {
	Events []loquat.Event
	JSON   []json.RawMessage // the events as the server sent them

	// LatestEventID is set if the query has neither Since nor a filter. Events is then
	// empty, and LatestEventID is the cursor for the next poll.
	LatestEventID loquat.EventID
}

// Events polls one window. The id of its last event is the Since of the next poll.
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
			return Window{}, undecodable(body, err)
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
	if q.List {
		v.Set("list", "true")
	}
	if q.OmitSession {
		v.Set("session", "omit")
	}
	return v
}

func undecodable(body []byte, err error) error {
	return &loquat.Error{Code: loquat.CodeInternal, Err: err,
		Detail: fmt.Sprintf("an event is not what this client knows: %s; do its version and the server's agree?", excerpt(body))}
}
