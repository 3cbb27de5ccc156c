package sqlite

import "loquat/internal/store"

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

// FindQuery returns a query of items that have all words of one of the lists.
func (writer) FindQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return findQuery(anyOf, below, limit)
}

// Index returns an error.
func (r reader) Index([]store.Indexed) error { return errReadOnly }

// Unindex returns an error.
func (r reader) Unindex([]int64) error { return errReadOnly }

// FindQuery returns a query of items that have all words of one of the lists.
func (reader) FindQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return findQuery(anyOf, below, limit)
}

// findQuery uses the language of FTS5.
func findQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return `SELECT rowid FROM search_index WHERE search_index MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?`,
		[]any{store.Expression(anyOf, `"`, "*", " AND ", " OR "), below, limit}
}
