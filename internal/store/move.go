package store

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"loquat"
)

// A store can be moved to another database, with its ids. Two databases cannot commit together,
// so both say in their log what they are: the target is incoming until it is complete, and the
// source is moved before the target is used. At every moment at most one of them can be opened.

// Move is what the log of a store says about a move. The zero Move says that servers may use the
// store.
type Move struct {
	Kind  MoveKind
	Store string // the ID of the store that is moved
	Place string // the other side: the masked URL of a database, or a data directory
}

// MoveKind says which side of a move a store is.
type MoveKind string

// The kinds of moves.
const (
	InUse    MoveKind = ""
	Incoming MoveKind = "incoming" // the store is not complete
	Moved    MoveKind = "moved"    // the store lives on in another place
)

// String returns the text of the column moving.
func (m Move) String() string {
	if m.Kind == InUse {
		return ""
	}
	return string(m.Kind) + " " + m.Store + " " + m.Place
}

// ParseMove reads the text of the column moving.
func ParseMove(text string) (Move, error) {
	if text == "" {
		return Move{}, nil
	}
	parts := strings.SplitN(text, " ", 3)
	m := Move{Kind: MoveKind(parts[0])}
	if len(parts) != 3 || m.Kind != Incoming && m.Kind != Moved {
		return Move{}, fmt.Errorf("the log says %q about a move, which this program does not know", text)
	}
	m.Store, m.Place = parts[1], parts[2]
	return m, nil
}

// ReadMove returns what the log of q says about a move, and the ID of the store.
func ReadMove(q SQL) (m Move, id string, err error) {
	var text string
	if err := one(q, `SELECT store_id, moving FROM log`, nil, &id, &text); err != nil {
		return Move{}, "", err
	}
	m, err = ParseMove(text)
	return m, id, err
}

// SetMove changes what the log of q says about a move.
func SetMove(q SQL, m Move) error {
	_, err := q.Exec(`UPDATE log SET moving = ?`, m.String())
	return err
}

// ErrMoving reports that a store cannot be used because of a move.
var ErrMoving = errors.New("the store is the side of a move that must not be used")

// movingError is an ErrMoving that says what to do.
type movingError struct{ Move }

func (e *movingError) Error() string {
	if e.Kind == Incoming {
		return fmt.Sprintf("a move from %s into this store has not finished; run the same `loquat migrate` again", e.Place)
	}
	return fmt.Sprintf("the sessions of this store were moved to %s; use them there. `loquat migrate --reopen` makes this old state usable, with a log of its own", e.Place)
}

func (e *movingError) Unwrap() error { return ErrMoving }

// Usable returns an error that is an ErrMoving if servers must not use the store.
func (m Move) Usable() error {
	if m.Kind == InUse {
		return nil
	}
	return &movingError{m}
}

// RequireInPlace returns an error if the store is a side of a move, an ErrMoving.
func RequireInPlace(q SQL) error {
	m, _, err := ReadMove(q)
	if err != nil {
		return err
	}
	return m.Usable()
}

// Reopen makes a moved store usable as a copy: the next opening gives it a log of its own, because
// the store that it was moved to continues the log.
func Reopen(q SQL) error {
	m, _, err := ReadMove(q)
	switch {
	case err != nil:
		return err
	case m.Kind == Incoming:
		return m.Usable()
	case m.Kind == InUse:
		return errors.New("the store was not moved; servers can use it")
	}
	_, err = q.Exec(`UPDATE log SET moving = '', copied = 1`)
	return err
}

// Table is a table that a move copies.
type Table struct {
	Name string
	Key  string // columns of its primary key
	// Reset are columns that the copy has with an empty text: they name processes that used the
	// source.
	Reset []string
}

// Tables are the tables that a move copies, apart from the log.
var Tables = []Table{
	{Name: "foreign_ids", Key: "above"},
	{Name: "sessions", Key: "sid"},
	{Name: "descriptions", Key: "sid, rev_from"},
	{Name: "session_tags", Key: "tag, archived, pinned, checkpoint_event_id, sid"},
	{Name: "messages", Key: "id"},
	{Name: "message_texts", Key: "message, field"},
	{Name: "texts", Key: "text_id, piece"},
	{Name: "message_runs", Key: "sid, first_index"},
	{Name: "alternatives", Key: "sid, n"},
	{Name: "requests", Key: "rid", Reset: []string{"owner"}},
	{Name: "events", Key: "event_id"},
	{Name: "increments", Key: "last_event_id"},
	{Name: "answers", Key: "idempotency_key, method, path"},
	{Name: "assets", Key: "sid, asset_id"},
	{Name: "asset_uses", Key: "sid, asset_id, seq"},
	{Name: "unattached", Key: "sid, asset_id"},
	{Name: "freed_files", Key: "sha256"},
	{Name: "access_keys", Key: "key_id"},
	{Name: "pairing_codes", Key: "public"},
	{Name: "plugin_states", Key: "plugin"},
	{Name: "webhooks", Key: "webhook_id"},
	{Name: "webhook_log", Key: "id"},
	{Name: "webhook_deliveries", Key: "webhook_id, event_id"},
	{Name: "audit", Key: "audit_id"},
	{Name: "meter_seconds", Key: "meter, second"},
	{Name: "meter_days", Key: "meter, day"},
	{Name: "usage", Key: "day, user_id, agent_id, provider_id, model"},
	{Name: "push_server", Key: "id"},
	{Name: "push_subscriptions", Key: "subscription_id"},
}

// LogColumns are the columns of the log that a move copies. The others belong to the database.
var LogColumns = []string{"store_id", "server_id", "copied", "last_event_id", "gone_event_id", "sorted_event_id"}

// LogRow is what a move copies of the log.
type LogRow struct {
	id, server         string
	copied             bool
	last, gone, sorted loquat.EventID
}

// ReadLog returns what a move copies of the log of q.
func ReadLog(q SQL) (l LogRow, err error) {
	err = one(q, `SELECT store_id, server_id, copied, `+lastEventID+`, gone_event_id, sorted_event_id FROM log`, nil, &l.id, &l.server, &l.copied, &l.last, &l.gone, &l.sorted)
	return l, err
}

// Write writes the row to the log of q, which then is that of a store that can be used.
func (l LogRow) Write(q SQL) error {
	if err := queueAll(q); err != nil {
		return err
	}
	_, err := q.Exec(`UPDATE log SET moving = '', `+strings.Join(LogColumns, " = ?, ")+` = ?`, l.id, l.server, l.copied, l.last, l.gone, l.sorted)
	return err
}

// NotEmpty returns the name of a table that has rows, or "" if the store of q has never been used.
func NotEmpty(q SQL) (table string, err error) {
	for _, t := range Tables {
		var found bool
		if err := one(q, `SELECT EXISTS (SELECT 1 FROM `+t.Name+`)`, nil, &found); err != nil {
			return "", err
		}
		if found {
			return t.Name, nil
		}
	}
	return "", nil
}

// Column is a column of a table.
type Column struct {
	Name string
	Type ColumnType
}

// ColumnType is what a column holds, apart from NULL.
type ColumnType string

// The types of columns.
const (
	Integer ColumnType = "number"
	Text    ColumnType = "text"
	Bytes   ColumnType = "bytes"
)

// Columns reads the columns of a table with a driver's query for their names and types. types has
// the driver's names of the types.
func Columns(q SQL, query, table string, types map[string]ColumnType) (columns []Column, err error) {
	err = eachRow(q, query, []any{table}, func(rows *sql.Rows) error {
		var c Column
		var kind string
		if err := rows.Scan(&c.Name, &kind); err != nil {
			return err
		}
		if c.Type = types[kind]; c.Type == "" {
			return fmt.Errorf("the column %s of %s has the type %s, which this program does not move", c.Name, table, kind)
		}
		columns = append(columns, c)
		return nil
	})
	return columns, err
}

// Convert returns a value of a database as the type of a column of another: int64, string or
// []byte, or nil. It does not copy.
func (t ColumnType) Convert(value any) (any, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case int64:
		if t == Integer {
			return v, nil
		}
	case string:
		switch t {
		case Text:
			return v, nil
		case Bytes:
			return []byte(v), nil
		}
	case []byte:
		switch t {
		case Text:
			return string(v), nil
		case Bytes:
			if v == nil { // drivers would write NULL
				v = []byte{}
			}
			return v, nil
		}
	}
	return nil, fmt.Errorf("it has a value of the type %T, not %s", value, t)
}

// RowSize returns about how many bytes a row has.
func RowSize(row []any) (n int) {
	for _, value := range row {
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		default:
			n += 8
		}
	}
	return n
}
