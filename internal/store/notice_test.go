package store

import (
	"encoding/json"
	"testing"

	"loquat"
)

// A commit that a notification brings is added to the tail only where it follows on it, and only if
// the log has not lost events since.
func TestReceivedCommits(t *testing.T) {
	commit := func(base, last loquat.EventID) *smallCommit {
		c := &smallCommit{Base: base, Last: last, Cuts: 1, Sorted: base}
		for id := base + 1; id <= last; id++ {
			c.Events = append(c.Events, smallEvent{ID: id, Body: []byte(`{"type":"request_started","session_id":"s"}`)})
		}
		return c
	}
	increments := func(base loquat.EventID, rid int64) *smallCommit {
		body := appendIncrements(nil, []increment{{id: base + 1, rid: rid, kind: plainText, rest: []byte("text")}})
		return &smallCommit{Base: base, Last: base + 1, Cuts: 1, Increments: []smallRow{{base + 1, body}}}
	}
	damaged := commit(10, 11)
	damaged.Events[0].Body = []byte(`{`)
	outside := commit(10, 12)
	outside.Last = 11
	row := increments(10, 7)
	row.Increments[0].Body = row.Increments[0].Body[1:]
	cut := commit(10, 12)
	cut.Cuts = 2
	for _, c := range []struct {
		name    string
		commits []*smallCommit
		last    loquat.EventID // of the tail afterwards
		left    bool           // some commits wait
	}{
		{"follow on each other", []*smallCommit{commit(10, 12), commit(12, 13)}, 13, false},
		{"are known", []*smallCommit{commit(7, 9), commit(9, 10), commit(10, 11)}, 11, false},
		{"come too early", []*smallCommit{commit(11, 12)}, 10, true},
		{"overlap what is known", []*smallCommit{commit(9, 11)}, 10, true},
		{"come after a gap", []*smallCommit{commit(10, 11), commit(12, 13)}, 11, true},
		{"increments", []*smallCommit{increments(10, 7)}, 11, false},
		{"increments that are not shown", []*smallCommit{increments(10, 8)}, 11, false},
		{"increments of an unknown request", []*smallCommit{increments(10, 9)}, 10, true},
		{"another history", []*smallCommit{cut, commit(10, 11)}, 10, false},
		{"damaged event", []*smallCommit{damaged}, 10, true},
		{"damaged increments", []*smallCommit{row}, 10, true},
		{"id above the last", []*smallCommit{outside}, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Store{tail: newTail(10, 0)}
			s.feeder.init()
			s.feeder.cuts = 1
			s.feeder.names[7] = requestName{request: "r", session: "s", visible: true}
			s.feeder.names[8] = requestName{request: "q", session: "s"}
			for _, commit := range c.commits {
				s.feeder.received.put(commit)
			}
			s.addReceived()
			if s.Last() != c.last || s.feeder.received.isEmpty() == c.left {
				t.Errorf("the tail ends at %s, and commits wait: %t", s.Last(), !s.feeder.received.isEmpty())
			}
		})
	}
}

// However many commits come, a bounded number waits, and each notification is small.
func TestReceivedCommitsAreBounded(t *testing.T) {
	var r received
	for i := range loquat.EventID(10 * maxReceived) {
		r.put(&smallCommit{Base: i, Last: i + 1})
		if len(r.commits) > maxReceived {
			t.Fatalf("%d commits wait", len(r.commits))
		}
	}
	for size := 0; size < 3*maxNotice; size += 97 {
		tx := &Tx{log: &eventWriter{}, last: 1, published: []loquat.Record{{ID: 1, Type: loquat.Partial, Body: make([]byte, size)}}, others: []int{0}}
		text := tx.notice()
		var n notice
		if err := json.Unmarshal([]byte(text), &n); err != nil || len(text) > maxNotice || n.Last != 1 {
			t.Fatalf("%d bytes: a notice of %d bytes, %v", size, len(text), err)
		}
		if hasCommit := n.Commit != nil; hasCommit && size > 6000 || !hasCommit && size < 5500 {
			t.Errorf("%d bytes: the notice has the commit: %t", size, hasCommit)
		}
	}
}
