package store

import (
	"encoding/json"
	"fmt"

	"loquat"
)

// rule is an invariant of the database. Its query returns one text per row that violates it.
type rule struct {
	name  string
	query string
	full  bool // reads whole tables
}

// rules are invariants that SQLite itself cannot check: how ids, cursors, revisions and owners
// relate.
var rules = []rule{
	{name: "the log has one row", query: `SELECT count(*) || ' rows' FROM log HAVING count(*) <> 1`},
	{name: "no event is above the newest id given", query: `SELECT printf('event %016d is above %016d', max(event_id), (SELECT last_event_id FROM log))
		FROM events HAVING max(event_id) > (SELECT last_event_id FROM log)`},
	{name: "ids of other logs are not used", query: `SELECT printf('event %016d', e.event_id) FROM foreign_ids f JOIN events e ON e.event_id > f.above AND e.event_id < f.below`},
	{name: "cursors of sessions are events that were given", query: `SELECT printf('session %s, cursor %016d, checkpoint %016d', session_id, cursor_event_id, checkpoint_event_id)
		FROM sessions WHERE cursor_event_id > checkpoint_event_id OR checkpoint_event_id > (SELECT last_event_id FROM log)`},
	{name: "removed events are below the newest id given", query: `SELECT 'session ' || session_id FROM sessions WHERE gone_event_id > (SELECT last_event_id FROM log)
		UNION ALL SELECT 'the log' FROM log WHERE gone_event_id > last_event_id`},
	{name: "a cursor is a checkpoint of its session", query: `SELECT printf('session %s, event %016d', s.session_id, e.event_id) FROM sessions s JOIN events e ON e.event_id = s.cursor_event_id
		WHERE s.deleted = 0 AND (e.sid <> s.sid OR e.type <> 'checkpoint')`},
	{name: "sessions have as many messages as they say", query: `SELECT 'session ' || s.session_id || ' has ' || count(m.id) || ' of ' || s.message_count
		FROM sessions s LEFT JOIN messages m ON m.sid = s.sid AND m.rev_to IS NULL WHERE s.deleted = 0 GROUP BY s.sid HAVING count(m.id) <> s.message_count`},
	{name: "messages and revisions belong together", query: `SELECT 'message ' || m.message_id || ' of session ' || s.session_id FROM messages m JOIN sessions s ON s.sid = m.sid
		WHERE s.deleted = 0 AND (m.rev_from > s.rev OR m.rev_to > s.rev OR m.rev_to <= m.rev_from OR m.seq >= s.next_seq)`},
	{name: "versions of a message do not overlap", full: true, query: `SELECT 'message ' || message_id FROM
		(SELECT message_id, rev_from, lag(coalesce(rev_to, 9223372036854775807)) OVER (PARTITION BY sid, seq ORDER BY rev_from) AS before FROM messages) WHERE before > rev_from`},
	{name: "messages belong to sessions", full: true, query: `SELECT 'message ' || message_id FROM messages WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "events belong to sessions", full: true, query: `SELECT printf('event %016d', event_id) FROM events WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "events belong to requests of their session", full: true, query: `SELECT printf('event %016d', e.event_id) FROM events e LEFT JOIN requests q ON q.rid = e.rid
		WHERE e.rid IS NOT NULL AND (q.rid IS NULL OR q.sid <> e.sid)`},
	{name: "revisions of events were made", full: true, query: `SELECT printf('event %016d', e.event_id) FROM events e JOIN sessions s ON s.sid = e.sid WHERE s.deleted = 0 AND e.rev > s.rev`},
	{name: "requests belong to sessions", query: `SELECT 'request ' || request_id FROM requests WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "requests have ended or run", query: `SELECT 'request ' || request_id || ' is ' || status FROM requests
		WHERE status NOT IN ('queued', 'running', 'completed', 'failed', 'cancelled') OR (status IN ('queued', 'running')) <> (ended_at IS NULL)`},
	{name: "a session runs one request", query: `SELECT 'session ' || sid FROM requests WHERE status = 'running' GROUP BY sid HAVING count(*) > 1`},
	{name: "images belong to sessions", query: `SELECT 'asset ' || asset_id FROM assets WHERE sid NOT IN (SELECT sid FROM sessions)`},
}

// maxViolations is how many violations of one rule are listed.
const maxViolations = 3

// Verify reports violations in the database of q. A full check also parses every event and all
// metadata. Unreadable parts are reported, and the rest is still verified.
func Verify(q SQL, full bool, report func(string)) {
	for _, r := range rules {
		if r.full && !full {
			continue
		}
		broken, err := queryTexts(q, r.query)
		if err != nil {
			report(fmt.Sprintf("%s: cannot be verified: %v", r.name, err))
		}
		for i, text := range broken {
			if i == maxViolations {
				report(fmt.Sprintf("%s: and %d more", r.name, len(broken)-i))
				break
			}
			report(r.name + ": " + text)
		}
	}
	if full {
		verifyJSON(q, report)
	}
}

func queryTexts(q SQL, query string) (out []string, err error) {
	rows, err := q.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return out, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

// verifyJSON checks that all stored JSON is valid.
func verifyJSON(q SQL, report func(string)) {
	for _, c := range []struct {
		name, query string
		valid       func([]byte) error
	}{
		{"event", `SELECT printf('%016d', event_id), body FROM events`, func(b []byte) error {
			if _, err := loquat.ParseRecord(b); err != nil {
				return err
			}
			return validJSON(b)
		}},
		{"message", `SELECT message_id, metadata FROM messages WHERE metadata IS NOT NULL`, validJSON},
		{"session", `SELECT session_id, metadata FROM sessions`, validJSON},
		{"state of plugin", `SELECT plugin, state FROM plugin_states`, validJSON},
	} {
		if err := verifyColumn(q, c.name, c.query, c.valid, report); err != nil {
			report(fmt.Sprintf("%s: cannot be read: %v", c.name, err))
		}
	}
}

func verifyColumn(q SQL, name, query string, valid func([]byte) error, report func(string)) error {
	rows, err := q.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	broken := 0
	for rows.Next() {
		var id string
		var b []byte
		if err := rows.Scan(&id, &b); err != nil {
			return err
		}
		err := valid(b)
		if err == nil {
			continue
		}
		if broken++; broken <= maxViolations {
			report(fmt.Sprintf("%s %s: %v", name, id, err))
		}
	}
	if broken > maxViolations {
		report(fmt.Sprintf("%s: and %d more", name, broken-maxViolations))
	}
	return rows.Err()
}

func validJSON(b []byte) error {
	if !json.Valid(b) {
		return fmt.Errorf("is not valid JSON")
	}
	return nil
}

// Totals are the numbers of rows of a database.
type Totals struct {
	Last                       loquat.EventID
	Sessions, Messages, Events int
}

// Count returns the totals of the database of q.
func Count(q SQL) (t Totals, err error) {
	err = one(q, `SELECT (SELECT last_event_id FROM log), (SELECT count(*) FROM sessions WHERE deleted = 0),
		(SELECT count(*) FROM messages m JOIN sessions s ON s.sid = m.sid WHERE s.deleted = 0 AND m.rev_to IS NULL), (SELECT count(*) FROM events)`,
		nil, &t.Last, &t.Sessions, &t.Messages, &t.Events)
	return t, err
}

// ImageFile is an image file that at least one session owns.
type ImageFile struct {
	SHA256 string
	Size   int64
}

// ImageFiles returns the image files that the sessions in the database of q own.
func ImageFiles(q SQL) (out []ImageFile, err error) {
	rows, err := q.Query(`SELECT sha256, max(size) FROM assets GROUP BY sha256 ORDER BY sha256`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var f ImageFile
		if err := rows.Scan(&f.SHA256, &f.Size); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, rows.Err()
}
