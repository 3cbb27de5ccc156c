package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"loquat/internal/store"
)

// statements runs the statements of a transaction.
type statements struct {
	ctx      context.Context
	conn     *sql.Conn
	readOnly bool
	state    store.LogState
	last     *pgx.Batch // statements to run with the COMMIT
	db       *DB        // of a transaction that writes
}

// Log returns the row of the log as the transaction found it.
func (s statements) Log() store.LogState { return s.state }

// Notify lets the commit send a text to all nodes. It does nothing while there are no others.
func (s statements) Notify(notice func(short bool) string) {
	text, ok := s.noticeText(notice)
	if !ok {
		return
	}
	s.last.Queue(`SELECT pg_notify($1, $2)`, s.db.channel, text)
}

// noticeText returns the text to send. PostgreSQL keeps notifications until every listener has them,
// also one that is stopped, and refuses to commit any when its queue is full. So texts become short,
// and then are not sent at all: all nodes look without them, too.
func (s statements) noticeText(notice func(short bool) string) (text string, ok bool) {
	h := s.db.hold.Load()
	waiting := h.waiting.Load()
	if h.alone.Load() || waiting > mostWaiting {
		return "", false
	}
	text = notice(waiting > manyWaiting)
	s.db.metrics.sending(text)
	return text, true
}

// Advance writes the row of the log with the commit, and notifies in the same statement.
func (s statements) Advance(to store.LogState, notice func(short bool) string) {
	const update = `UPDATE log SET last_event_id = $1, unsorted_entries = $2, unsorted_bytes = $3`
	text, ok := s.noticeText(notice)
	if !ok {
		s.last.Queue(update, int64(to.Last), to.UnsortedEntries, to.UnsortedBytes)
		return
	}
	s.last.Queue(update+` RETURNING pg_notify($4, $5)`, int64(to.Last), to.UnsortedEntries, to.UnsortedBytes, s.db.channel, text)
}

func (s statements) Exec(query string, args ...any) (int64, error) {
	if s.readOnly {
		return 0, errors.New("a read transaction cannot write")
	}
	values, err := encode(args)
	if err != nil {
		return 0, err
	}
	res, err := s.conn.ExecContext(s.ctx, numbered(query), values...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Finally lets the commit run a statement, which saves a round trip. The commit fails if the
// statement does. No other statement of the transaction may follow.
func (s statements) Finally(query string, args ...any) error {
	values, err := encode(args)
	if err != nil {
		return err
	}
	s.last.Queue(numbered(query), values...)
	return nil
}

func (s statements) Query(query string, args ...any) (*sql.Rows, error) {
	values, err := encode(args)
	if err != nil {
		return nil, err
	}
	return s.conn.QueryContext(s.ctx, numbered(query), values...)
}

// encode turns arguments into values that fit both TEXT and BYTEA, and BIGINT: a string
// becomes its bytes, a boolean 0 or 1.
func encode(args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, err
		}
		switch v := value.(type) {
		case string:
			value = []byte(v)
		case bool:
			value = int64(0)
			if v {
				value = int64(1)
			}
		}
		out[i] = value
	}
	return out, nil
}

// maxTranslated is how many translated queries are kept. The texts of the store are fewer, but clients choose
// some: by a limit, or by how many tags they name.
const maxTranslated = 500

var (
	translated   sync.Map     // query of the store to the query of PostgreSQL
	translations atomic.Int64 // in translated, or more
)

// numbered returns a query with $1, $2, … in place of `?`. The queries of the store have no
// `?` in literals.
func numbered(query string) string {
	if out, ok := translated.Load(query); ok {
		return out.(string)
	}
	var b strings.Builder
	rest := query
	for n := 1; ; n++ {
		before, after, found := strings.Cut(rest, "?")
		b.WriteString(before)
		if !found {
			break
		}
		b.WriteString("$" + strconv.Itoa(n))
		rest = after
	}
	translated.Store(query, b.String())
	if translations.Add(1) > maxTranslated {
		translations.Store(0) // before the map is empty, so that queries which others add meanwhile count
		translated.Clear()
	}
	return b.String()
}
