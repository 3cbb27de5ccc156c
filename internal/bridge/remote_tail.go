package bridge

import (
	"bytes"
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

// windowEvents and windowBytes bound a window.
const (
	windowEvents = 1000
	windowBytes  = 8 << 20
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

// parseLines parses events, one per line.
func parseLines(body []byte) ([]loquat.Record, error) {
	var out []loquat.Record
	for line := range bytes.Lines(body) {
		rec, err := parseEvent(bytes.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}
