package sqlite

import (
	"database/sql"
	"strings"

	"loquat/internal/store"
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

// Find returns items that have all words of one of the lists.
func (w writer) Find(anyOf [][]store.IndexWord, below int64, limit int) ([]int64, error) {
	return find(w.Query, anyOf, below, limit)
}

// Index, Unindex and Find make the transaction one with a full-text index.
func (r reader) Index([]store.Indexed) error { return errReadOnly }

// Unindex returns an error.
func (r reader) Unindex([]int64) error { return errReadOnly }

// Find returns items that have all words of one of the lists.
func (r reader) Find(anyOf [][]store.IndexWord, below int64, limit int) ([]int64, error) {
	return find(r.Query, anyOf, below, limit)
}

func find(query func(string, ...any) (*sql.Rows, error), anyOf [][]store.IndexWord, below int64, limit int) (out []int64, err error) {
	rows, err := query(`SELECT rowid FROM search_index WHERE search_index MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?`, expression(anyOf), below, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var item int64
		if err := rows.Scan(&item); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, rows.Err()
}

// expression returns a search in the language of FTS5. Words have no quotes.
func expression(anyOf [][]store.IndexWord) string {
	var b strings.Builder
	for i, list := range anyOf {
		if i > 0 {
			b.WriteString(" OR ")
		}
		for j, word := range list {
			if j > 0 {
				b.WriteString(" AND ")
			}
			b.WriteString(`"` + word.Text + `"`)
			if word.Prefix {
				b.WriteByte('*')
			}
		}
	}
	return b.String()
}
