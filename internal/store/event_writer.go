package store

import (
	"database/sql"
	"fmt"
	"strings"

	"loquat"
)

// eventWriter is the transaction of a batch. It collects the batch's events and inserts them
// together: before the first statement that uses their tables, otherwise at the end of the
// batch.
type eventWriter struct {
	SQL
	rows       []any // eventWidth values each
	bytes      int   // size of the bodies in rows
	increments []increment

	incrementBytes int // size of all increments of the batch
	inserted       []incrementRow
	written        sizeOfIncrements
}

// sizeOfIncrements is the number of increments and the bytes that they take.
type sizeOfIncrements struct{ entries, bytes int }

// maxIncrementRow is the size from which a row of increments takes no more. It bounds what a
// reader of one increment reads.
const maxIncrementRow = 64 << 10

// The columns of an event, in the order of add's values. The body comes last.
const (
	eventInsert = `INSERT INTO events (event_id, sid, rid, type, rev, omit_messages, at, body) VALUES `
	eventValues = `(?, ?, ?, ?, ?, ?, ?, ?)`
	eventWidth  = 8
)

// eventInserts are INSERT statements for 1, 2, 4, … 64 rows. Each is prepared once.
var eventInserts = func() (out []string) {
	for n := 1; n <= 64; n *= 2 {
		out = append(out, eventInsert+strings.Repeat(eventValues+", ", n-1)+eventValues)
	}
	return out
}()

// maxInsertBytes is the size of collected bodies at which they are inserted. It bounds the
// memory of one statement, because PostgreSQL's driver copies all its values.
const maxInsertBytes = 8 << 20

func (w *eventWriter) add(body []byte, values ...any) error {
	if w.bytes > 0 && w.bytes+len(body) > maxInsertBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.rows = append(append(w.rows, values...), body)
	w.bytes += len(body)
	return nil
}

// flush inserts the collected events.
func (w *eventWriter) flush() error {
	rows := w.rows
	for i := len(eventInserts) - 1; i >= 0; i-- {
		for values := eventWidth << i; len(rows) >= values; rows = rows[values:] {
			if _, err := w.SQL.Exec(eventInserts[i], rows[:values]...); err != nil {
				return fmt.Errorf("insert events: %w", err)
			}
		}
	}
	w.rows, w.bytes = w.rows[:0], 0
	w.written.entries += len(w.increments)
	inserted, err := insertIncrements(w.SQL, w.increments, nil, 0)
	for _, row := range inserted {
		w.written.bytes += len(row.body)
	}
	w.inserted = append(w.inserted, inserted...)
	w.increments = w.increments[:0]
	return err
}

// insertIncrements inserts entries in as few rows as their size allows, and returns the rows.
func insertIncrements(q SQL, entries []increment, rid any, segment loquat.EventID) (rows []incrementRow, err error) {
	for len(entries) > 0 {
		n, size := 0, 0
		for ; n < len(entries) && (n == 0 || size < maxIncrementRow); n++ {
			size += len(entries[n].rest)
		}
		const others = 16 // approximate bytes of an entry without its rest
		body := appendIncrements(make([]byte, 0, size+n*others), entries[:n])
		last := entries[n-1].id
		_, err := q.Exec(`INSERT INTO increments (last_event_id, rid, segment, entries, body) VALUES (?, ?, ?, ?, ?)`, last, rid, segment, n, body)
		if err != nil {
			return rows, fmt.Errorf("insert increments: %w", err)
		}
		rows = append(rows, incrementRow{last: last, segment: int64(segment), body: body})
		entries = entries[n:]
	}
	return rows, nil
}

// flushFor calls flush before a statement that uses the tables of events.
func (w *eventWriter) flushFor(query string) error {
	if len(w.rows) == 0 && len(w.increments) == 0 || !strings.Contains(query, " events") && !strings.Contains(query, " increments") {
		return nil
	}
	return w.flush()
}

func (w *eventWriter) Exec(query string, args ...any) (int64, error) {
	if err := w.flushFor(query); err != nil {
		return 0, err
	}
	return w.SQL.Exec(query, args...)
}

func (w *eventWriter) Query(query string, args ...any) (*sql.Rows, error) {
	if err := w.flushFor(query); err != nil {
		return nil, err
	}
	return w.SQL.Query(query, args...)
}

// Reclaim calls the driver's Reclaim, if it has one.
func (w *eventWriter) Reclaim() (more bool, err error) {
	r, ok := w.SQL.(reclaimer)
	if !ok {
		return false, nil
	}
	return r.Reclaim()
}
