package bridge

import (
	"bytes"
	"slices"
	"sort"

	"loquat"
)

// kept is the newest part of the log of a server elsewhere: every event above floor, up
// to last. Its bounds are passed by one event at the most.
type kept struct {
	history History

	floor, last loquat.EventID
	records     []loquat.Record
	bytes       int
}

func newKept(h History) *kept { return &kept{history: h} }

// reset forgets everything; what comes is above last.
func (k *kept) reset(last loquat.EventID) {
	k.floor, k.last, k.records, k.bytes = last, last, nil, 0
}

func (k *kept) add(rec loquat.Record) {
	k.records = append(k.records, rec) // a full slice grows into a new one, without what was dropped
	k.bytes += len(rec.Body)
	k.last = rec.ID
	drop := 0
	for drop < len(k.records)-1 && (len(k.records)-drop > k.history.Events || k.bytes > k.history.Bytes) {
		k.bytes -= len(k.records[drop].Body)
		k.floor = k.records[drop].ID
		k.records[drop] = loquat.Record{}
		drop++
	}
	k.records = k.records[drop:]
}

// covers reports whether what comes after an event is here.
func (k *kept) covers(since loquat.EventID) bool { return since >= k.floor && since <= k.last }

// windowEvents and windowBytes are where a window ends.
const (
	windowEvents = 1000
	windowBytes  = 8 << 20
)

// window returns the next events after since, up to until if that is not 0.
func (k *kept) window(since, until loquat.EventID) (window []loquat.Record, covered bool) {
	if since < k.floor {
		return nil, false
	}
	from := sort.Search(len(k.records), func(i int) bool { return k.records[i].ID > since })
	to, size := from, 0
	for ; to < len(k.records) && to-from < windowEvents; to++ {
		if rec := k.records[to]; until != 0 && rec.ID > until || to > from && size+len(rec.Body) > windowBytes {
			break
		}
		size += len(k.records[to].Body)
	}
	return slices.Clone(k.records[from:to]), true
}

// parseLines reads events, one a line.
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
