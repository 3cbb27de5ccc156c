package store

import (
	"encoding/json"
	"fmt"
	"strconv"

	"loquat"
)

// Bytes returns about how many bytes the session's messages have as JSON.
func (h Head) Bytes() int64 { return h.bytes }

// Version returns a text that stays equal as long as the messages of the session are not
// changed or removed, but only appended.
func (h Head) Version() string {
	return strconv.FormatInt(h.SID, 36) + "." + strconv.FormatInt(h.edited, 36)
}

// historyBytes is about how many bytes of later versions one History holds.
const historyBytes = 2 << 20

// History describes a session at all revisions from From to To.
type History struct {
	From, To int64
	AgentID  string // like Metadata, equal at all these revisions
	Metadata loquat.Object
	Versions []Version // in the order of the messages
}

// Version is a message from revision From until before revision Until. Until is 0 for a
// current version.
type Version struct {
	From, Until int64
	Message     loquat.Message
}

// At reports whether a revision includes the version.
func (v Version) At(rev int64) bool { return v.From <= rev && (v.Until == 0 || rev < v.Until) }

// History returns a session from revision rev up to the latest revision that historyBytes
// allows. If omit is true it leaves out the messages.
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

// versions reads the versions of a history. It includes all versions of the first revision.
// The first later version that exceeds historyBytes ends the history before it.
func (r *Reader) versions(h Head, out *History) error {
	rows, err := r.q.Query(`SELECT `+messageColumns+`, seq, rev_from, coalesce(rev_to, 0) FROM messages
		WHERE sid = ? AND rev_from <= ? AND (rev_to IS NULL OR rev_to > ?) ORDER BY seq, rev_from`, h.SID, out.To, out.From)
	if err != nil {
		return fmt.Errorf("read messages: %w", err)
	}
	defer rows.Close()
	later := 0
	var found []messageRow // of out.Versions
	for before := int64(-1); rows.Next(); {
		var v Version
		var seq int64
		row, err := scanMessage(func(dest ...any) error { return rows.Scan(append(dest, &seq, &v.From, &v.Until)...) })
		if err != nil {
			return err
		}
		if v.From > out.From {
			if later += len(row.message.Content) + int(row.textBytes) + messageOverhead; later > historyBytes {
				out.To = min(out.To, v.From-1)
			}
		}
		if v.From <= out.To {
			found = append(found, row)
			out.Versions = append(out.Versions, v)
		} else if seq != before {
			break // all further messages were appended later
		}
		before = seq
	}
	if err := closeRows(rows); err != nil {
		return err
	}
	for i := range found {
		if err := r.complete(&found[i]); err != nil {
			return err
		}
		out.Versions[i].Message = found[i].message
	}
	return nil
}
