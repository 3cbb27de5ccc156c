package bridge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"loquat"
)

// tail is the newest part of a remote server's log: every event above floor, up to last.
// It may exceed its bounds by one event.
type tail struct {
	history History

	floor, last loquat.EventID
	records     []loquat.Record
	bytes       int
}

func newTail(h History) *tail { return &tail{history: h} }

// reset removes all events. The next event is above last.
func (t *tail) reset(last loquat.EventID) {
	t.floor, t.last, t.records, t.bytes = last, last, nil, 0
}

func (t *tail) add(rec loquat.Record) {
	t.records = append(t.records, rec) // growing copies the slice, which frees the removed records
	t.bytes += len(rec.Body)
	t.last = rec.ID
	drop := 0
	for drop < len(t.records)-1 && (len(t.records)-drop > t.history.Events || t.bytes > t.history.Bytes) {
		t.bytes -= len(t.records[drop].Body)
		t.floor = t.records[drop].ID
		t.records[drop] = loquat.Record{}
		drop++
	}
	t.records = t.records[drop:]
}

// covers reports whether the tail has all events after since.
func (t *tail) covers(since loquat.EventID) bool { return since >= t.floor && since <= t.last }

// windowEvents and windowBytes bound a window. Each app that lags holds the window that is sent to the app, and an app may
// take long to read, so windows are small.
const (
	windowEvents = 1000
	windowBytes  = 256 << 10
)

// window returns the next events after since, up to until if until is not 0. covered is
// false if the tail begins after since.
func (t *tail) window(since, until loquat.EventID) (window []loquat.Record, covered bool) {
	if since < t.floor {
		return nil, false
	}
	from := sort.Search(len(t.records), func(i int) bool { return t.records[i].ID > since })
	to, size := from, 0
	for ; to < len(t.records) && to-from < windowEvents; to++ {
		if rec := t.records[to]; until != 0 && rec.ID > until || to > from && size+len(rec.Body) > windowBytes {
			break
		}
		size += len(t.records[to].Body)
	}
	return slices.Clone(t.records[from:to]), true
}

// parseForwarded parses an event as a server forwards it: {event, user?}, or in a line of an older server the
// event alone.
func parseForwarded(raw []byte) (loquat.Record, error) {
	var params struct {
		Event json.RawMessage `json:"event"`
		User  string          `json:"user"`
	}
	if err := json.Unmarshal(raw, &params); err != nil {
		return loquat.Record{}, err
	}
	if params.Event == nil {
		return parseEvent(raw)
	}
	rec, err := parseEvent(params.Event)
	rec.User = cmp.Or(params.User, rec.User)
	return rec, err
}

// parseLines parses events, one per line.
func parseLines(body []byte) ([]loquat.Record, error) {
	var out []loquat.Record
	for line := range bytes.Lines(body) {
		rec, err := parseForwarded(bytes.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// parseEvent parses an event in the clients' form into a record. If the event has a
// session, the record's Body contains it.
func parseEvent(raw []byte) (loquat.Record, error) {
	const prefix, digits = `{"event_id":"`, loquat.EventIDWidth
	if rest, ok := bytes.CutPrefix(raw, []byte(prefix)); ok && len(rest) > digits+3 && rest[digits] == '"' && rest[digits+1] == ',' {
		if id, err := loquat.ParseEventID(string(rest[:digits])); err == nil {
			body := append([]byte{'{'}, rest[digits+2:]...)
			if rec, err := loquat.ParseRecord(body); err == nil && json.Valid(body) {
				rec.ID = id
				return rec, nil
			}
		}
	}
	var o loquat.Object
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		return loquat.Record{}, loquat.Invalid("event", "has to be an object")
	}
	id, err := loquat.ParseEventID(o.String("event_id"))
	if err != nil {
		return loquat.Record{}, loquat.Invalid("event.event_id", "has to be 16 decimal digits")
	}
	rec, err := loquat.ParseRecord(inOrder(o))
	if err != nil {
		return loquat.Record{}, loquat.Invalid("event", "has to have a type and a session_id")
	}
	rec.ID = id
	return rec, nil
}

// leading lists the fields that a record's Body begins with.
var leading = []string{"type", "session_id", "request_id"}

// inOrder encodes the fields of an event as the Body of a record: the leading fields
// first, the session last.
func inOrder(o loquat.Object) []byte {
	o = o.Clone()
	out := []byte{'{'}
	field := func(key string) {
		value, ok := o[key]
		if !ok {
			return
		}
		delete(o, key)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(fmt.Appendf(out, "%s:", loquat.Quote(key)), value...)
	}
	delete(o, "event_id")
	for _, key := range leading {
		field(key)
	}
	session := o["session"]
	delete(o, "session")
	rest, _ := json.Marshal(o) // cannot fail: the values were decoded from JSON
	if len(rest) > 2 {
		out = append(append(out, ','), rest[1:len(rest)-1]...)
	}
	if session != nil {
		out = append(append(out, `,"session":`...), session...)
	}
	return append(out, '}')
}
