package store

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"loquat"
)

// A list of sessions shows pinned sessions first, then the newest change first. Its pages show
// the order that held when the first page was read, so no session is skipped or repeated when
// sessions change between two pages. A session that changed is looked up by its last checkpoint
// before the first page.

// SessionFilter selects the sessions of a list. The zero SessionFilter selects all.
type SessionFilter struct {
	AgentID  string   // unless empty
	Tags     []string // the session has all of them
	Pinned   *bool
	Archived *bool
}

func (f SessionFilter) matches(agentID string, l loquat.Labels) bool {
	return (f.AgentID == "" || f.AgentID == agentID) &&
		(f.Pinned == nil || *f.Pinned == l.Pinned) && (f.Archived == nil || *f.Archived == l.Archived) &&
		!slices.ContainsFunc(f.Tags, func(tag string) bool { return !slices.Contains(l.Tags, tag) })
}

// Place is a place in a list of sessions. The zero Place is the beginning of a new list.
type Place struct {
	At         loquat.EventID // the end of the log when the first page was read
	Pinned     bool
	Checkpoint loquat.EventID // newest checkpoint at that time; negative if retention has removed it
}

// compare orders the places of one list.
func (p Place) compare(q Place) int {
	if p.Pinned != q.Pinned {
		if p.Pinned {
			return -1
		}
		return 1
	}
	return cmp.Compare(q.Checkpoint, p.Checkpoint)
}

// listed is a session in a list.
type listed struct {
	head  Head
	place Place
}

// firstOf sorts the entries and returns at most n of them.
func firstOf(entries []listed, n int) []listed {
	slices.SortFunc(entries, func(a, b listed) int { return a.place.compare(b.place) })
	return entries[:min(n, len(entries))]
}

// Heads returns up to limit sessions of a list, beginning behind a place. next is where the next
// page begins; it is the zero Place after the last page.
func (r *Reader) Heads(f SessionFilter, after Place, limit int) (heads []Head, next Place, err error) {
	var found []listed
	if after == (Place{}) {
		last, err := r.last()
		if err != nil {
			return nil, Place{}, err
		}
		after = Place{At: last, Pinned: true, Checkpoint: last + 1}
	} else if found, err = r.changedSince(f, after, limit+1); err != nil {
		return nil, Place{}, err
	}
	for _, pinned := range []bool{true, false} {
		if pinned && !after.Pinned || !pinned && len(found) > limit && found[limit].place.Pinned {
			continue // the page begins behind this group, or ends before it
		}
		unchanged, err := r.unchanged(f, after, pinned, limit+1)
		if err != nil {
			return nil, Place{}, err
		}
		found = firstOf(append(found, unchanged...), limit+1)
	}
	if len(found) > limit {
		found, next = found[:limit], found[limit-1].place
	}
	for _, l := range found {
		heads = append(heads, l.head)
	}
	return heads, next, nil
}

// unchanged returns up to limit sessions behind a place, of those that are pinned or not, that
// have not changed since the first page.
func (r *Reader) unchanged(f SessionFilter, after Place, pinned bool, limit int) (out []listed, err error) {
	if f.Pinned != nil && *f.Pinned != pinned {
		return nil, nil
	}
	below := after.At + 1
	if pinned == after.Pinned {
		below = after.Checkpoint
	}
	for _, archived := range []bool{false, true} {
		if f.Archived != nil && *f.Archived != archived {
			continue
		}
		query, args := unchangedQuery(f, archived, pinned, below, limit)
		err := r.eachHead(query, args, nil, func(h Head) error {
			out = append(out, listed{h, Place{after.At, pinned, h.Checkpoint}})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
	}
	return out, nil
}

// unchangedQuery reads one index in its order: that of the first tag, that of the agents other
// than the default one, or that of all sessions.
func unchangedQuery(f SessionFilter, archived, pinned bool, below loquat.EventID, limit int) (string, []any) {
	from, order, where, args := `sessions s`, `s`, []string{`s.deleted = 0`}, []any(nil)
	for i, tag := range f.Tags {
		if i == 0 {
			from, order = `session_tags t JOIN sessions s ON s.sid = t.sid`, `t`
			where, args = append(where, `t.tag = ?`), append(args, tag)
			continue
		}
		where, args = append(where, `EXISTS (SELECT 1 FROM session_tags o WHERE o.sid = s.sid AND o.tag = ?)`), append(args, tag)
	}
	if f.AgentID != "" {
		where, args = append(where, `s.agent_id = ?`), append(args, f.AgentID)
		if f.AgentID != loquat.DefaultAgent { // the condition of the index
			where = append(where, `s.agent_id <> '`+loquat.DefaultAgent+`'`)
		}
	}
	where = append(where, order+`.archived = ?`, order+`.pinned = ?`, order+`.checkpoint_event_id < ?`)
	args = append(args, archived, pinned, below, limit)
	return `SELECT ` + headColumns + ` FROM ` + from + ` WHERE ` + strings.Join(where, ` AND `) + ` ORDER BY ` + order + `.checkpoint_event_id DESC LIMIT ?`, args
}

// changedSince returns up to limit sessions behind a place that have changed since the first
// page, at the places that they had then. A session whose checkpoint of that time was removed by
// retention comes last.
func (r *Reader) changedSince(f SessionFilter, after Place, limit int) (out []listed, err error) {
	var past sql.NullInt64
	var agent sql.NullString
	var metadata []byte
	query := `SELECT ` + headColumns + `, e.event_id, d.agent_id, d.metadata FROM sessions s
		LEFT JOIN events e ON e.event_id = (SELECT p.event_id FROM events p WHERE p.sid = s.sid AND p.event_id <= ? AND p.type = 'checkpoint' ORDER BY p.event_id DESC LIMIT 1)
		LEFT JOIN descriptions d ON d.sid = s.sid AND d.rev_from = (SELECT max(v.rev_from) FROM descriptions v WHERE v.sid = s.sid AND v.rev_from <= e.rev)
		WHERE s.deleted = 0 AND s.archived IN (?, ?) AND s.pinned IN (?, ?) AND s.checkpoint_event_id > ? AND (e.event_id IS NOT NULL OR s.gone_event_id > 0)`
	err = r.eachHead(query, []any{after.At, false, true, false, true, after.At}, []any{&past, &agent, &metadata}, func(h Head) error {
		then := h.Metadata
		if agent.Valid {
			then = nil
			if err := json.Unmarshal(metadata, &then); err != nil {
				return fmt.Errorf("metadata of session %s: %w", h.SessionID, asDamage(err))
			}
		} else {
			agent.String = h.AgentID
		}
		labels := loquat.LabelsOf(then)
		place := Place{after.At, labels.Pinned, loquat.EventID(past.Int64)}
		if !past.Valid {
			place.Checkpoint = loquat.EventID(-h.SID) // no other session has the same place
		}
		if f.matches(agent.String, labels) && after.compare(place) < 0 {
			out = append(out, listed{h, place})
		}
		if len(out) > 4*limit { // bounds the memory
			out = firstOf(out, limit)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list changed sessions: %w", err)
	}
	return firstOf(out, limit), nil
}

// eachHead calls fn for each session of a query, which selects headColumns and then more.
func (r *Reader) eachHead(query string, args, more []any, fn func(Head) error) error {
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		h, err := scanHead(func(dest ...any) error { return rows.Scan(append(dest, more...)...) })
		if err != nil {
			return err
		}
		if err := fn(h); err != nil {
			return err
		}
	}
	return closeRows(rows)
}

// writeLabels writes the labels of a session's metadata to the indexes of the lists.
func (tx *Tx) writeLabels(h *Head) error {
	l := loquat.LabelsOf(h.Metadata)
	if err := tx.exec(`DELETE FROM session_tags WHERE sid = ?`, h.SID); err != nil {
		return err
	}
	for _, tag := range l.Tags {
		err := tx.exec(`INSERT INTO session_tags (tag, archived, pinned, checkpoint_event_id, sid) VALUES (?, ?, ?, ?, ?)`, tag, l.Archived, l.Pinned, h.Checkpoint, h.SID)
		if err != nil {
			return err
		}
	}
	return tx.exec(`UPDATE sessions SET archived = ?, pinned = ? WHERE sid = ?`, l.Archived, l.Pinned, h.SID)
}

// moveTags moves a session in the lists of its tags to its new checkpoint.
func (tx *Tx) moveTags(h *Head) error {
	if _, tagged := h.Metadata[loquat.MetaTags]; !tagged {
		return nil
	}
	return tx.exec(`UPDATE session_tags SET checkpoint_event_id = ? WHERE sid = ?`, h.Checkpoint, h.SID)
}
