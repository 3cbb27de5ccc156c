package sqlite

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"loquat/internal/store"
)

// mergePages is how many pages of the index one call of Merge writes. mergeFrom is how many segments
// of one size are merged; FTS5 would leave 3 of each.
const (
	mergePages = 32
	mergeFrom  = 2
)

// Index adds items to the full-text index.
func (w writer) Index(items []store.Indexed) error {
	for _, it := range items {
		if _, err := w.Exec(`INSERT INTO search_index (rowid, tokens) VALUES (?, ?)`, it.Item, it.Tokens); err != nil {
			return err
		}
	}
	return nil
}

// Unindex removes items from the full-text index.
func (w writer) Unindex(items []int64) error {
	for _, item := range items {
		if _, err := w.Exec(`DELETE FROM search_index WHERE rowid = ?`, item); err != nil {
			return err
		}
	}
	return nil
}

// Merge merges segments of the full-text index: a search looks up each of its words in each segment.
func (w writer) Merge() (more bool, err error) {
	from, err := w.number(`SELECT coalesce(max(v), 0) FROM search_index_config WHERE k = 'usermerge'`)
	if err != nil {
		return false, err
	}
	if from != mergeFrom {
		if _, err := w.Exec(`INSERT INTO search_index (search_index, rank) VALUES ('usermerge', ` + strconv.Itoa(mergeFrom) + `)`); err != nil {
			return false, err
		}
	}
	before, err := w.number(`SELECT total_changes()`)
	if err != nil {
		return false, err
	}
	if _, err := w.Exec(`INSERT INTO search_index (search_index, rank) VALUES ('merge', ` + strconv.Itoa(mergePages) + `)`); err != nil {
		return false, err
	}
	after, err := w.number(`SELECT total_changes()`)
	return after-before > 1, err // as the documentation of FTS5 has it
}

// number returns the integer of a query.
func (w writer) number(query string) (n int64, err error) {
	rows, err := w.Query(query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		return 0, errors.Join(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(&n); err != nil {
		return 0, err
	}
	return n, rows.Close()
}

// FindQuery returns a query of items that have all words of one of the lists.
func (writer) FindQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return findQuery(anyOf, below, limit)
}

// Index returns an error.
func (r reader) Index([]store.Indexed) error { return errReadOnly }

// Unindex returns an error.
func (r reader) Unindex([]int64) error { return errReadOnly }

// Merge returns an error.
func (r reader) Merge() (bool, error) { return false, errReadOnly }

// FindQuery returns a query of items that have all words of one of the lists.
func (reader) FindQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return findQuery(anyOf, below, limit)
}

func findQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return `SELECT rowid FROM search_index WHERE search_index MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?`,
		[]any{strings.Join(store.Expressions(anyOf, `"`, "*", " AND "), " OR "), below, limit}
}
