package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"loquat"
)

// Selection selects the events of several sessions, and with List also those events of all other
// sessions that change the list of sessions. A reader of a Selection does no work for increments of
// other sessions.
type Selection struct {
	Sessions []string // sorted, each once
	List     bool
	User     string // if not empty, the list is that of this user's sessions
}

// NewSelection returns a Selection of the sessions, in any order.
func NewSelection(sessions []string, list bool) *Selection {
	sorted := slices.Clone(sessions)
	slices.Sort(sorted)
	return &Selection{Sessions: slices.Compact(sorted), List: list}
}

func (s *Selection) matches(r *loquat.Record) bool {
	if s.List && ChangesList(r.Type) && (s.User == "" || s.User == r.User) {
		return true
	}
	return s.Has(r.SessionID)
}

// Has reports whether a session is one of the Selection.
func (s *Selection) Has(sessionID string) bool {
	_, has := slices.BinarySearch(s.Sessions, sessionID)
	return has
}

// listTypes are the types of the events after which a list of sessions shows something else.
var listTypes = []loquat.EventType{loquat.SessionCreated, loquat.SessionDeleted, loquat.Checkpoint, loquat.RequestStarted, loquat.RequestCompleted}

// ChangesList reports whether a list of sessions shows something else after an event of a type. Bodies of such
// events have the user of the session.
func ChangesList(t loquat.EventType) bool { return slices.Contains(listTypes, t) }

// listTypesSQL is listTypes as a list in SQL.
var listTypesSQL = func() string {
	quoted := make([]string, len(listTypes))
	for i, t := range listTypes {
		quoted[i] = `'` + string(t) + `'`
	}
	return `(` + strings.Join(quoted, `, `) + `)`
}()

// eventsAmong is Events for a Selection. It follows the sessions during the read, so that the tail
// has a part for each of them: an event may be added between the looks at two parts.
func (s *Store) eventsAmong(ctx context.Context, since loquat.EventID, among *Selection, bounds Bounds) ([]loquat.Record, error) {
	w := s.Watch(Filter{Among: among})
	defer w.Stop()
	return w.Events(ctx, nil, since, "", bounds)
}

// sinceAmong is since for several parts. It merges their events; an event of a session may also be
// one of the list.
func (t *tail) sinceAmong(parts []*part, since loquat.EventID, f Filter, b bound, out []loquat.Record) ([]loquat.Record, bool) {
	last := t.end() // before the parts, which then have every event up to it
	floors := make([]int64, len(parts))
	var sources [][]*loquat.Record
	for i, p := range parts {
		records := p.load() // before the floor, see drop
		if floors[i] = p.floor.Load(); int64(since) < floors[i] {
			return out, false
		}
		if records = records[indexAfter(records, since):]; len(records) > 0 {
			sources = append(sources, records)
		}
	}
	for r := nextOf(sources); r != nil && r.ID <= last; r = nextOf(sources) {
		if t.hides(r) {
			continue
		}
		if r.Body == nil {
			return nil, false
		}
		if !b.admits(len(r.Body)) {
			break
		}
		out = append(out, *r)
	}
	for i, p := range parts {
		if p.floor.Load() != floors[i] { // see hides
			return out, false
		}
	}
	return out, true
}

// nextOf removes the first record from sources and returns it, or nil at the end.
func nextOf(sources [][]*loquat.Record) (first *loquat.Record) {
	for _, s := range sources {
		if len(s) > 0 && (first == nil || s[0].ID < first.ID) {
			first = s[0]
		}
	}
	for i, s := range sources {
		if len(s) > 0 && s[0].ID == first.ID {
			sources[i] = s[1:]
		}
	}
	return first
}

// incrementsAmong is increments for several parts.
func (t *tail) incrementsAmong(parts []*part) heldIncrements {
	held := heldIncrements{to: t.end(), tail: t} // the end before the parts, which have every event up to it
	for _, p := range parts {
		if p.isList() {
			continue
		}
		records := p.load() // before the floor, see drop
		floor := loquat.EventID(p.floor.Load())
		held.from = max(held.from, floor)
		held.parts, held.floors = append(held.parts, p), append(held.floors, floor)
		held.records = append(held.records, records[:indexAfter(records, held.to)]...)
	}
	if len(held.parts) == 0 {
		held.from = held.to
	}
	slices.SortFunc(held.records, func(a, b *loquat.Record) int { return cmp.Compare(a.ID, b.ID) })
	return held
}

// selectionQuery returns the query for the events of a Selection. Each session, and the list, is
// read by its index up to the limit of the page, and then the ids are merged: a query with a list of
// sessions would sort all of their events.
func (r *Reader) selectionQuery(among *Selection) (query string, bind func(since loquat.EventID, limit int) []any, err error) {
	const ids, upTo = `SELECT * FROM (SELECT event_id FROM events WHERE `, ` AND event_id > ? ORDER BY event_id LIMIT ?) p`
	var terms []string
	var sids []int64
	if len(among.Sessions) > 0 {
		rows, err := r.q.Query(`SELECT sid, deleted <> 0 FROM sessions WHERE session_id IN `+places(len(among.Sessions)), anys(among.Sessions)...)
		if err != nil {
			return "", nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var sid int64
			var gone bool
			if err := rows.Scan(&sid, &gone); err != nil {
				return "", nil, err
			}
			term := `sid = ?`
			if gone {
				term += ` AND type = 'session_deleted'`
			}
			terms, sids = append(terms, ids+term+upTo), append(sids, sid)
		}
		if err := closeRows(rows); err != nil {
			return "", nil, err
		}
	}
	list := ids + `type IN ` + listTypesSQL + ` AND (type = 'session_deleted' OR sid NOT IN (SELECT sid FROM sessions WHERE deleted = 1))`
	switch {
	case among.List && among.User != "":
		terms = append(terms, list+` AND sid IN (SELECT sid FROM sessions WHERE user_id = ? AND user_id <> '')`+upTo)
	case among.List:
		terms = append(terms, list+upTo)
	}
	if len(terms) == 0 {
		return "", nil, nil
	}
	bind = func(since loquat.EventID, limit int) (args []any) {
		for i := range terms {
			switch {
			case i < len(sids):
				args = append(args, sids[i])
			case among.User != "":
				args = append(args, among.User)
			}
			args = append(args, since, limit)
		}
		return append(args, limit)
	}
	return `SELECT ` + eventColumns + ` FROM events e WHERE e.event_id IN (` + strings.Join(terms, ` UNION ALL `) + `) ORDER BY e.event_id LIMIT ?`, bind, nil
}

// places returns a list of n parameters in SQL.
func places(n int) string { return `(?` + strings.Repeat(`, ?`, n-1) + `)` }

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}
