package store

import (
	"encoding/json"
	"fmt"

	"loquat"
)

// historyBytes is about how much of a session's later versions a History takes in.
const historyBytes = 2 << 20

// History is what a session was from one revision to another.
type History struct {
	From, To int64
	AgentID  string // as Metadata, the same at all these revisions
	Metadata loquat.Object
	Versions []Version // in the order of the messages
}

// Version is what a message was from a revision on and until it ended at another (0: it
// holds still).
type Version struct {
	From, Until int64
	Message     loquat.Message
}

// At reports whether a version holds at a revision.
func (v Version) At(rev int64) bool { return v.From <= rev && (v.Until == 0 || rev < v.Until) }

// History returns what a session was at a revision and from there on: to as late a
// revision as the memory that it takes allows. omit leaves the messages out.
func (r *Reader) History(h Head, rev int64, omit bool) (History, error) {
	out := History{From: rev, To: h.Rev}
	var metadata []byte
	var next int64
	err := one(r.q, `SELECT agent_id, metadata, (SELECT coalesce(min(rev_from), 0) FROM descriptions WHERE sid = ? AND rev_from > ?)
		FROM descriptions WHERE sid = ? AND rev_from <= ? ORDER BY rev_from DESC LIMIT 1`,
		[]any{h.SID, rev, h.SID, rev}, &out.AgentID, &metadata, &next)
	if err != nil {
		return History{}, fmt.Errorf("description of session %s at revision %d: %w", h.SessionID, rev, err)
	}
	if err := json.Unmarshal(metadata, &out.Metadata); err != nil {
		return History{}, fmt.Errorf("metadata of session %s: %w", h.SessionID, asDamage(err))
	}
	if next != 0 {
		out.To = next - 1
	}
	if omit {
		return out, nil
	}
	return out, r.versions(h, &out)
}

// versions reads the versions of a history. What holds at its first revision is taken in
// any case; the first that is too much ends the history before it.
func (r *Reader) versions(h Head, out *History) error {
	rows, err := r.q.Query(`SELECT message_id, role, content, metadata, created_at, seq, rev_from, coalesce(rev_to, 0) FROM messages
		WHERE sid = ? AND rev_from <= ? AND (rev_to IS NULL OR rev_to > ?) ORDER BY seq, rev_from`, h.SID, out.To, out.From)
	if err != nil {
		return fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	later := 0
	for before := int64(-1); rows.Next(); {
		var v Version
		var seq int64
		v.Message, err = scanMessage(func(dest ...any) error { return rows.Scan(append(dest, &seq, &v.From, &v.Until)...) })
		if err != nil {
			return err
		}
		if v.From > out.From {
			if later += len(v.Message.Content) + messageOverhead; later > historyBytes {
				out.To = min(out.To, v.From-1)
			}
		}
		if v.From <= out.To {
			out.Versions = append(out.Versions, v)
		} else if seq != before {
			break // what comes after was appended later
		}
		before = seq
	}
	return asDatabaseError(rows.Err())
}
