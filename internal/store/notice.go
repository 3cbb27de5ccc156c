package store

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"loquat"
)

// maxNotice is the size of a notification; PostgreSQL allows less than 8000 bytes.
const maxNotice = 7900

// notice is the notification of a commit.
type notice struct {
	Owner   string         `json:"n"` // first; see isOf
	Last    loquat.EventID `json:"last"`
	Changed []string       `json:"changed,omitempty"`
	Signals [][2]string    `json:"signals,omitempty"` // topic and payload
	Commit  *smallCommit   `json:"commit,omitempty"`  // nil if it has no events, or is too large
	Look    bool           `json:"look,omitempty"`    // Changed and Signals were too long
}

// smallCommit is what a commit added to the log, and the row of the log before. A node whose tail
// ends at Base adds it without reading the database.
//
// A database that lost transactions counts a cut before its next commit. So two commits with the
// same Cuts and Base have the same events before them.
type smallCommit struct {
	Base   loquat.EventID `json:"base"` // the highest id before
	Last   loquat.EventID `json:"-"`    // the highest id after, as in the notice
	Cuts   int64          `json:"cuts"`
	Gone   loquat.EventID `json:"gone"`
	Sorted loquat.EventID `json:"sorted"`
	At     int64          `json:"at"` // of all Events, in microseconds

	Increments []smallRow   `json:"increments,omitempty"`
	Events     []smallEvent `json:"events,omitempty"`
}

// smallRow is a row of the increments table. JSON has bytes as base64, which any encoding of the
// database can store.
type smallRow struct {
	Last loquat.EventID `json:"last"`
	Body []byte         `json:"body"`
}

// smallEvent is an event that is not in the increments table.
type smallEvent struct {
	ID           loquat.EventID `json:"id"`
	Rev          int64          `json:"rev,omitempty"`
	OmitMessages bool           `json:"omit_messages,omitempty"`
	Body         []byte         `json:"body"`
}

// finishShared writes what a transaction of a shared log changed besides its rows: the state of
// the log, the revisions of shared state, and the notification. before is the highest id before
// the updates.
func (tx *Tx) finishShared(before loquat.EventID) error {
	tx.revisions = map[string]int64{}
	for _, kind := range tx.changed {
		revision, err := tx.insert(`INSERT INTO revisions (kind, revision) VALUES (?, 1)
			ON CONFLICT (kind) DO UPDATE SET revision = revisions.revision + 1 RETURNING revision`, kind)
		if err != nil {
			return fmt.Errorf("mark %s as changed: %w", kind, err)
		}
		tx.revisions[kind] = revision
	}
	if tx.last == before && !tx.sorted {
		if len(tx.changed)+len(tx.signals) > 0 {
			tx.sharedLog.Notify(tx.notice)
		}
		return nil
	}
	unsorted := tx.unsorted()
	_, err := lastSQL{tx.statements}.Exec(`UPDATE log SET last_event_id = ?, unsorted_entries = ?, unsorted_bytes = ?`, tx.last, unsorted.entries, unsorted.bytes)
	tx.sharedLog.Notify(tx.notice)
	return err
}

// notice returns the text of the transaction's notification. It leaves out what is too long.
func (tx *Tx) notice() string {
	n := notice{Owner: tx.owner, Last: tx.last, Changed: tx.changed, Signals: tx.signals, Commit: tx.smallCommit()}
	text, err := json.Marshal(n)
	if n.Commit != nil && len(text) > maxNotice {
		n.Commit = nil
		text, err = json.Marshal(n)
	}
	if err != nil || len(text) > maxNotice {
		text, _ = json.Marshal(notice{Owner: n.Owner, Last: n.Last, Look: true})
	}
	return string(text)
}

// smallCommit returns what the transaction adds to the log. It is nil if that is too large for a
// notification or not only an addition.
func (tx *Tx) smallCommit() *smallCommit {
	if len(tx.published) == 0 || tx.sorted || tx.cut != nil {
		return nil
	}
	c := &smallCommit{Base: tx.base, Cuts: tx.state.Cuts, Gone: tx.state.Gone, Sorted: tx.state.Sorted, At: micros(tx.Now)}
	size := 0
	for _, row := range tx.log.inserted {
		size += base64.StdEncoding.EncodedLen(len(row.body))
		c.Increments = append(c.Increments, smallRow{row.last, row.body})
	}
	for _, i := range tx.others {
		rec := &tx.published[i]
		if size += base64.StdEncoding.EncodedLen(len(rec.Body)); size > maxNotice {
			return nil
		}
		c.Events = append(c.Events, smallEvent{rec.ID, rec.Rev, rec.OmitMessages, rec.Body})
	}
	if size > maxNotice {
		return nil
	}
	return c
}

// isOf reports whether a notification is of an owner.
func isOf(text, owner string) bool {
	rest, ok := strings.CutPrefix(text, `{"n":"`)
	return ok && strings.HasPrefix(rest, owner+`"`)
}

// notified is called with the notification of a commit.
func (s *Store) notified(text string) {
	if isOf(text, s.Owner()) {
		return
	}
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		s.log.Warn("a notification of the database cannot be read", "error", err)
		return
	}
	s.nodes.newest.Store(max(s.nodes.newest.Load(), int64(n.Last))) // only this goroutine stores it
	for _, signal := range n.Signals {
		s.nodes.mu.Lock()
		fns := s.nodes.onSignal[signal[0]]
		s.nodes.mu.Unlock()
		for _, fn := range fns {
			fn(signal[1])
		}
	}
	if n.Commit != nil {
		n.Commit.Last = n.Last
		s.feeder.received.put(n.Commit)
	}
	if n.Look {
		s.nodes.look.Store(true)
	}
	if n.Last > s.Last() || n.Look {
		poke(s.nodes.wake)
	}
	if len(n.Changed) > 0 || n.Look {
		poke(s.nodes.recall)
	}
}

// records returns the events of the commit, in order. ok is false if the name of one of their
// requests is not known, or the commit is not one that this program makes.
func (c *smallCommit) records(names map[int64]requestName) (out []loquat.Record, ok bool) {
	heads := map[incrementHead][]byte{}
	ok = true
	for _, row := range c.Increments {
		err := eachIncrement(row.Last, row.Body, func(e increment) {
			name, known := names[e.rid]
			ok = ok && known
			if !name.visible {
				return
			}
			key := incrementHead{e.rid, e.kind.eventType()}
			if heads[key] == nil {
				heads[key] = appendHead(nil, key.kind, name.session, name.request)
			}
			out = append(out, e.record(name.session, name.request, heads[key]))
		})
		if err != nil || !ok {
			return nil, false
		}
	}
	for _, e := range c.Events {
		rec, err := loquat.ParseRecord(e.Body)
		if err != nil {
			return nil, false
		}
		rec.ID, rec.Rev, rec.OmitMessages, rec.At = e.ID, e.Rev, e.OmitMessages, fromMicros(c.At)
		out = append(out, rec)
	}
	slices.SortFunc(out, func(a, b loquat.Record) int { return int(a.ID - b.ID) })
	return out, len(out) == 0 || c.Base < out[0].ID && out[len(out)-1].ID <= c.Last
}
