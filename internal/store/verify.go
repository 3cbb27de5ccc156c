package store

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"

	"loquat"
)

// rule is an invariant of the database. Its query returns one row per violation.
type rule struct {
	name  string
	text  string // fmt.Sprintf format of the columns of a violation
	query string
	full  bool // reads whole tables
}

// rules are invariants that the database itself cannot check: how ids, cursors, revisions and owners
// relate.
var rules = []rule{
	{name: "the log has one row", text: "%d rows", query: `SELECT count(*) FROM log HAVING count(*) <> 1`},
	{name: "no event is above the newest id given", text: "event %016d is above %016d", query: `SELECT max(event_id), (SELECT last_event_id FROM log)
		FROM events HAVING max(event_id) > (SELECT last_event_id FROM log)`},
	{name: "ids of other logs are not used", text: "event %016d", query: `SELECT e.event_id FROM foreign_ids f JOIN events e ON e.event_id > f.above AND e.event_id < f.below`},
	{name: "cursors of sessions are events that were given", text: "session %s, cursor %016d, checkpoint %016d", query: `SELECT session_id, cursor_event_id, checkpoint_event_id
		FROM sessions WHERE cursor_event_id > checkpoint_event_id OR checkpoint_event_id > (SELECT last_event_id FROM log)`},
	{name: "removed events are below the newest id given", text: "session %s", query: `SELECT session_id FROM sessions WHERE gone_event_id > (SELECT last_event_id FROM log)`},
	{name: "removed events of the log are below the newest id given", text: "event %016d", query: `SELECT gone_event_id FROM log WHERE gone_event_id > last_event_id`},
	{name: "a cursor is a checkpoint of its session", text: "session %s, event %016d", query: `SELECT s.session_id, e.event_id FROM sessions s JOIN events e ON e.event_id = s.cursor_event_id
		WHERE s.deleted = 0 AND (e.sid <> s.sid OR e.type <> 'checkpoint')`},
	{name: "sessions have as many messages as they say", text: "session %s has %d of %d", query: `SELECT s.session_id, count(m.id), s.message_count
		FROM sessions s LEFT JOIN messages m ON m.sid = s.sid AND m.rev_to IS NULL WHERE s.deleted = 0 GROUP BY s.sid HAVING count(m.id) <> s.message_count`},
	{name: "messages and revisions belong together", text: "message %s of session %s", query: `SELECT m.message_id, s.session_id FROM messages m JOIN sessions s ON s.sid = m.sid
		WHERE s.deleted = 0 AND (m.rev_from > s.rev OR m.rev_to > s.rev OR m.rev_to <= m.rev_from OR m.seq >= s.next_seq)`},
	{name: "versions of a message do not overlap", text: "message %s", full: true, query: `SELECT message_id FROM
		(SELECT message_id, rev_from, lag(coalesce(rev_to, 9223372036854775807)) OVER (PARTITION BY sid, seq ORDER BY rev_from) AS before FROM messages) v WHERE before > rev_from`},
	{name: "messages are found by their index", text: "session %s, index %d", full: true, query: `SELECT v.session_id, v.i FROM
		(SELECT s.sid, s.session_id, m.seq, row_number() OVER (PARTITION BY m.sid ORDER BY m.seq) - 1 AS i
			FROM messages m JOIN sessions s ON s.sid = m.sid WHERE m.rev_to IS NULL AND s.deleted = 0) v
		WHERE v.seq <> coalesce((SELECT r.first_seq + v.i - r.first_index FROM message_runs r WHERE r.sid = v.sid AND r.first_index <= v.i ORDER BY r.first_index DESC LIMIT 1), v.i)`},
	{name: "kept alternatives have their messages", text: "alternative %d of session row %d", query: `SELECT a.n, a.sid FROM alternatives a LEFT JOIN sessions k ON k.sid = a.kept AND k.deleted = 4
		WHERE a.kept IS NOT NULL AND (k.sid IS NULL OR k.message_count <> (SELECT count(*) FROM messages m WHERE m.sid = a.kept AND m.rev_to IS NULL))`},
	{name: "alternatives hang in messages", text: "alternative %d of session row %d", query: `SELECT n, sid FROM alternatives
		WHERE holder <> sid AND holder NOT IN (SELECT kept FROM alternatives WHERE kept IS NOT NULL)`},
	{name: "messages belong to sessions", text: "message %s", full: true, query: `SELECT message_id FROM messages WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "events belong to sessions", text: "event %016d", full: true, query: `SELECT event_id FROM events WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "events belong to requests of their session", text: "event %016d", full: true, query: `SELECT e.event_id FROM events e LEFT JOIN requests q ON q.rid = e.rid
		WHERE e.rid IS NOT NULL AND (q.rid IS NULL OR q.sid <> e.sid)`},
	{name: "revisions of events were made", text: "event %016d", full: true, query: `SELECT e.event_id FROM events e JOIN sessions s ON s.sid = e.sid WHERE s.deleted = 0 AND e.rev > s.rev`},
	{name: "increments of one request are sorted", text: "increments up to %016d", query: `SELECT last_event_id FROM increments
		WHERE (rid IS NULL) <> (last_event_id > (SELECT sorted_event_id FROM log)) OR (rid IS NULL) <> (segment = 0) OR rid IS NOT NULL AND segment < last_event_id`},
	{name: "increments belong to requests", text: "increments up to %016d", full: true, query: `SELECT last_event_id FROM increments
		WHERE rid IS NOT NULL AND rid NOT IN (SELECT rid FROM requests WHERE thinned = 0)`},
	{name: "large texts belong to messages", text: "message row %d", query: `SELECT message FROM message_texts WHERE message NOT IN (SELECT id FROM messages)`},
	{name: "messages have their large texts", text: "message %s has %d of %d bytes", full: true, query: `SELECT m.message_id, coalesce(sum(t.size), 0), m.text_bytes
		FROM messages m LEFT JOIN message_texts t ON t.message = m.id GROUP BY m.id, m.message_id, m.text_bytes HAVING coalesce(sum(t.size), 0) <> m.text_bytes`},
	{name: "large texts are whole", text: "text %d has %d of %d bytes", full: true, query: `SELECT t.text_id, coalesce(sum(octet_length(x.body)), 0), t.size
		FROM message_texts t LEFT JOIN texts x ON x.text_id = t.text_id GROUP BY t.message, t.field, t.text_id, t.size HAVING coalesce(sum(octet_length(x.body)), 0) <> t.size`},
	{name: "large texts are in use", text: "text %d", full: true, query: `SELECT DISTINCT text_id FROM texts WHERE text_id NOT IN (SELECT text_id FROM message_texts)`},
	{name: "requests belong to sessions", text: "request %s", query: `SELECT request_id FROM requests WHERE sid NOT IN (SELECT sid FROM sessions)`},
	{name: "requests have ended or run", text: "request %s is %s", query: `SELECT request_id, status FROM requests
		WHERE status NOT IN ('queued', 'running', 'completed', 'failed', 'cancelled') OR (status IN ('queued', 'running')) <> (ended_at IS NULL)`},
	{name: "a session runs one request", text: "session row %d", query: `SELECT sid FROM requests WHERE status = 'running' GROUP BY sid HAVING count(*) > 1`},
	{name: "images belong to sessions", text: "asset %s", query: `SELECT asset_id FROM assets WHERE sid NOT IN (SELECT sid FROM sessions)`},
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
		broken, err := r.violations(q)
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
		verifyReferences(q, report)
	}
}

// violations returns one text per row that violates the rule.
func (r rule) violations(q SQL) (out []string, err error) {
	rows, err := q.Query(r.query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]any, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf(r.text, values...))
	}
	return out, rows.Err()
}

// verifyJSON checks that all stored JSON is valid.
func verifyJSON(q SQL, report func(string)) {
	for _, c := range []struct {
		name, query string
		valid       func(id any, b []byte) error
	}{
		{"increments", `SELECT last_event_id, body FROM increments`, validIncrements},
		{"event", `SELECT event_id, body FROM events`, func(_ any, b []byte) error {
			if _, err := loquat.ParseRecord(b); err != nil {
				return err
			}
			return validJSON(nil, b)
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

// verifyReferences checks that the messages of events that are stored as references exist.
func verifyReferences(q SQL, report func(string)) {
	const name = "messages of events"
	broken := 0
	for after, more := loquat.EventID(0), true; more; {
		last, missing, err := missingMessages(q, after)
		if err != nil {
			report(fmt.Sprintf("%s: cannot be read: %v", name, err))
			return
		}
		after, more = last, last > 0
		for _, text := range missing {
			if broken++; broken <= maxViolations {
				report(name + ": " + text)
			}
		}
	}
	if broken > maxViolations {
		report(fmt.Sprintf("%s: and %d more", name, broken-maxViolations))
	}
}

// missingMessages checks the next events that are stored as references. It returns one text per
// event that lacks messages, and the last event, or 0 if there are no more.
func missingMessages(q SQL, after loquat.EventID) (last loquat.EventID, missing []string, err error) {
	rows, err := q.Query(`SELECT e.event_id, e.sid, e.body FROM events e JOIN sessions s ON s.sid = e.sid
		WHERE s.deleted = 0 AND e.type IN ('final', 'tool_results') AND octet_length(e.body) <= ? AND e.event_id > ? ORDER BY e.event_id LIMIT ?`,
		maxReference, after, pageEvents)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	var refs []storedReference
	var ids []loquat.EventID
	for rows.Next() {
		var ref storedReference
		var body []byte
		if err := rows.Scan(&last, &ref.sid, &body); err != nil {
			return 0, nil, err
		}
		rec, err := loquat.ParseRecord(body)
		if err != nil {
			continue // verifyJSON reports it
		}
		var ok bool
		if ref.messageReference, ok = referenceOf(rec); ok {
			refs, ids = append(refs, ref), append(ids, last)
		}
	}
	if err := closeRows(rows); err != nil {
		return 0, nil, err
	}
	found := make([]int, len(refs))
	err = eachReferred(q, referredKeys, refs, func(rows *sql.Rows) error {
		var i int
		var seq int64
		err := rows.Scan(&i, &seq)
		found[i]++
		return err
	})
	for i, ref := range refs {
		if found[i] != ref.Count {
			missing = append(missing, fmt.Sprintf("event %s has %d of %d", ids[i], found[i], ref.Count))
		}
	}
	return last, missing, err
}

// validIncrements checks that the entries of a row are valid events.
func validIncrements(key any, body []byte) error {
	last, ok := key.(int64)
	if !ok {
		return fmt.Errorf("the id is %T, not a number", key)
	}
	var invalid error
	err := eachIncrement(loquat.EventID(last), body, func(e increment) {
		rec := e.record("s", "r", appendHead(nil, e.kind.eventType(), "s", "r"))
		if invalid == nil && !json.Valid(rec.Body) {
			invalid = fmt.Errorf("event %s is not valid JSON", e.id)
		}
	})
	return cmp.Or(err, invalid)
}

func verifyColumn(q SQL, name, query string, valid func(id any, b []byte) error, report func(string)) error {
	rows, err := q.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	broken := 0
	for rows.Next() {
		var id any
		var b []byte
		if err := rows.Scan(&id, &b); err != nil {
			return err
		}
		err := valid(id, b)
		if err == nil {
			continue
		}
		if n, ok := id.(int64); ok {
			id = loquat.EventID(n)
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

func validJSON(_ any, b []byte) error {
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
	err = one(q, `SELECT `+lastEventID+`, (SELECT count(*) FROM sessions WHERE deleted = 0),
		(SELECT count(*) FROM messages m JOIN sessions s ON s.sid = m.sid WHERE s.deleted = 0 AND m.rev_to IS NULL),
		(SELECT count(*) FROM events) + (SELECT coalesce(sum(entries), 0) FROM increments)`,
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
