package store

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
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
	User     string   // unless empty
	Tags     []string // the session has all of them
	Pinned   *bool
	Archived *bool
}

func (f SessionFilter) matches(agentID, user string, l loquat.Labels) bool {
	return (f.AgentID == "" || f.AgentID == agentID) && (f.User == "" || f.User == user) &&
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
	first := after == (Place{})
	if first {
		last, err := LastEvent(r.q)
		if err != nil {
			return nil, Place{}, err
		}
		after = Place{At: last, Pinned: true, Checkpoint: last + 1}
	}
	var found []listed
	for _, pinned := range []bool{true, false} {
		if pinned && !after.Pinned || len(found) > limit {
			continue // the page begins behind this group, or ends before it
		}
		unchanged, err := r.unchanged(f, after, pinned, limit+1)
		if err != nil {
			return nil, Place{}, err
		}
		found = firstOf(append(found, unchanged...), limit+1)
	}
	if !first {
		changed, err := r.changedSince(f, after, found, limit+1)
		if err != nil {
			return nil, Place{}, err
		}
		found = firstOf(append(found, changed...), limit+1)
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

// rarestTag is the one of some tags that the fewest sessions have, as far as the count goes: the
// sessions with it are the ones to look at. It has its place in the query of a page, which saves a
// round trip, and its value does not make PostgreSQL plan the query anew.
func rarestTag(tags int) string {
	const many = 100 // sessions, after which a tag counts as common
	// The first SELECT has no rows: PostgreSQL takes the type of the others from it. It reads an index
	// because of the order; without it, it may read the whole table.
	return `(SELECT v.tag FROM (SELECT tag FROM session_tags WHERE 1 = 0` + strings.Repeat(` UNION ALL SELECT ?`, tags) + `) v
		ORDER BY (SELECT count(*) FROM (SELECT 1 FROM session_tags c WHERE c.tag = v.tag ORDER BY c.archived, c.pinned, c.checkpoint_event_id LIMIT ` + strconv.Itoa(many) + `) n) LIMIT 1)`
}

// eachOnce returns tags as arguments of a query, without repetitions.
func eachOnce(tags []string) (args []any) {
	for _, tag := range tags {
		if !slices.Contains(args, any(tag)) {
			args = append(args, tag)
		}
	}
	return args
}

// unchangedQuery reads one index in its order: that of a tag, that of a user, that of the agents
// other than the default one, or that of all sessions. Its limit is in its text, because PostgreSQL
// otherwise plans it anew for each page, which takes longer than the page.
func unchangedQuery(f SessionFilter, archived, pinned bool, below loquat.EventID, limit int) (string, []any) {
	from, order, where, args := `sessions s`, `s`, []string{`s.deleted = 0`}, []any(nil)
	if tags := eachOnce(f.Tags); len(tags) > 0 {
		from, order = `session_tags t JOIN sessions s ON s.sid = t.sid`, `t`
		tag := `?`
		if len(tags) > 1 {
			tag = rarestTag(len(tags))
			// PostgreSQL makes a join of EXISTS, which may read all sessions with a common tag.
			where = append(where, `(SELECT count(*) FROM session_tags o WHERE o.sid = t.sid AND o.tag IN (?`+strings.Repeat(`, ?`, len(tags)-1)+`)) = `+strconv.Itoa(len(tags)))
			args = append(args, tags...)
		}
		where, args = append(where, `t.tag = `+tag), append(args, tags...)
	}
	if f.AgentID != "" {
		where, args = append(where, `s.agent_id = ?`), append(args, f.AgentID)
		if f.AgentID != loquat.DefaultAgent { // the condition of the index
			where = append(where, `s.agent_id <> '`+loquat.DefaultAgent+`'`)
		}
	}
	if f.User != "" { // with the condition of the index
		where, args = append(where, `s.user_id = ?`, `s.user_id <> ''`), append(args, f.User)
	}
	where = append(where, order+`.archived = ?`, order+`.pinned = ?`, order+`.checkpoint_event_id < ?`)
	args = append(args, archived, pinned, below)
	return `SELECT ` + headColumns + ` FROM ` + from + ` WHERE ` + strings.Join(where, ` AND `) + ` ORDER BY ` + order + `.checkpoint_event_id DESC LIMIT ` + strconv.Itoa(limit), args
}

// changedCount returns how many sessions have changed since an event, but at most n, which is in
// the text of the query like the limit of unchangedQuery. PostgreSQL estimates how many sessions have
// changed since an event that is an argument, and would plan the query anew for each page. It does not
// estimate what a query of its own returns.
func (r *Reader) changedCount(since loquat.EventID, n int) (count int, err error) {
	var groups []string
	for group := range 4 {
		groups = append(groups, fmt.Sprintf(`SELECT id FROM (SELECT checkpoint_event_id AS id FROM sessions WHERE deleted = 0 AND archived = %d AND pinned = %d AND checkpoint_event_id > (SELECT at FROM place)
			ORDER BY checkpoint_event_id DESC LIMIT %d) g%d`, group/2, group%2, n, group))
	}
	err = one(r.q, `WITH place AS (SELECT CAST(? AS BIGINT) AS at) SELECT count(*) FROM (`+strings.Join(groups, ` UNION ALL `)+`) changed`, []any{since}, &count)
	if err != nil {
		return 0, fmt.Errorf("count changed sessions: %w", err)
	}
	return min(count, n), nil
}

// eventsPerChange is how many events are read in the time in which a changed session is looked up.
const eventsPerChange = 16

// changedQuery selects the sessions that have changed since the first page and may be before the
// end of the unchanged sessions of a page. It is empty if there are none. Either it looks up each
// changed session, or it reads the events of the time that the page shows, whichever are fewer.
func (r *Reader) changedQuery(after Place, unchanged []listed, limit int) (query string, args []any, err error) {
	var end loquat.EventID
	changes := 1
	if len(unchanged) == limit && unchanged[limit-1].place.Pinned == after.Pinned {
		end = unchanged[limit-1].place.Checkpoint
		for int64(changes) <= int64(after.Checkpoint-end)/eventsPerChange {
			changes *= 8 // so that there are few texts of the query
		}
	}
	count, err := r.changedCount(after.At, changes)
	if err != nil || count == 0 {
		return "", nil, err
	}
	const (
		selected   = `WITH place AS (SELECT CAST(? AS BIGINT) AS at, CAST(? AS BIGINT) AS low, CAST(? AS BIGINT) AS high) SELECT ` + headColumns + `, e.event_id, d.agent_id, d.metadata FROM `
		checkpoint = `e.event_id = (SELECT p.event_id FROM events p WHERE p.sid = s.sid AND p.event_id <= (SELECT at FROM place) AND p.type = 'checkpoint' ORDER BY p.event_id DESC LIMIT 1)`
		described  = ` LEFT JOIN descriptions d ON d.sid = s.sid AND d.rev_from = (SELECT max(v.rev_from) FROM descriptions v WHERE v.sid = s.sid AND v.rev_from <= e.rev)`
		changed    = ` WHERE s.deleted = 0 AND s.archived IN (0, 1) AND s.pinned IN (0, 1) AND s.checkpoint_event_id > (SELECT at FROM place) AND `
	)
	args = []any{after.At, end, after.Checkpoint}
	if end > 0 && count == changes {
		return selected + `events e CROSS JOIN sessions s` + described + changed + `s.sid = e.sid AND e.type = 'checkpoint'
			AND e.event_id > (SELECT low FROM place) AND e.event_id < (SELECT high FROM place) AND ` + checkpoint, args, nil
	}
	return selected + `sessions s LEFT JOIN events e ON ` + checkpoint + described + changed + `(e.event_id IS NOT NULL OR s.gone_event_id > 0)`, args, nil
}

// changedSince returns up to limit sessions behind a place that have changed since the first
// page, at the places that they had then. It may leave out those behind the unchanged sessions if
// these are limit. A session whose checkpoint of that time was removed by retention comes last.
func (r *Reader) changedSince(f SessionFilter, after Place, unchanged []listed, limit int) (out []listed, err error) {
	query, args, err := r.changedQuery(after, unchanged, limit)
	if err != nil || query == "" {
		return nil, err
	}
	var past sql.NullInt64
	var agent sql.NullString
	var metadata []byte
	err = r.eachHead(query, args, []any{&past, &agent, &metadata}, func(h Head) error {
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
		if f.matches(agent.String, h.User, labels) && after.compare(place) < 0 {
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
