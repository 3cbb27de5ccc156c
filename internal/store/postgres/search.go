package postgres

import (
	"strconv"
	"strings"

	"loquat/internal/store"
)

// indexBytes is the size of the tokens that one statement adds.
const indexBytes = 1 << 20

// Index adds items to the full-text index.
func (s statements) Index(items []store.Indexed) error {
	var numbers []int64
	var tokens strings.Builder
	flush := func() error {
		if len(numbers) == 0 {
			return nil
		}
		_, err := s.Exec(`INSERT INTO search_index (item, tokens)
			SELECT item, list::tsvector FROM unnest(convert_from(?, 'UTF8')::bigint[], string_to_array(convert_from(?, 'UTF8'), chr(10))) AS t (item, list)
			ON CONFLICT (item) DO UPDATE SET tokens = excluded.tokens`, array(numbers), tokens.String())
		numbers = numbers[:0]
		tokens.Reset()
		return err
	}
	for _, it := range items {
		if len(numbers) > 0 {
			tokens.WriteByte('\n')
		}
		numbers = append(numbers, it.Item)
		quote(&tokens, it.Tokens)
		if tokens.Len() >= indexBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Unindex removes items from the full-text index.
func (s statements) Unindex(items []int64) error {
	_, err := s.Exec(`DELETE FROM search_index WHERE item = ANY (convert_from(?, 'UTF8')::bigint[])`, array(items))
	return err
}

// Merge does nothing: a GIN index is one tree.
func (s statements) Merge() (more bool, err error) { return false, nil }

// array returns the text of an array.
func array(numbers []int64) string {
	b := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

// FindQuery returns a query of items that have all words of one of the lists. Each list is a search of its
// own: GIN compares each item with all words of a search, so one search with all lists would take many
// times as long. And "item + 0" keeps PostgreSQL from walking all items backwards until enough of them
// match, which takes long if few do.
func (s statements) FindQuery(anyOf [][]store.IndexWord, below int64, limit int) (string, []any) {
	return `SELECT found.item FROM unnest(string_to_array(convert_from(?, 'UTF8'), chr(10))::tsquery[]) AS list (words),
		LATERAL (SELECT item FROM search_index WHERE tokens @@ list.words AND item + 0 < ? ORDER BY item + 0 DESC LIMIT ?) AS found
		ORDER BY found.item DESC LIMIT ?`,
		[]any{strings.Join(store.Expressions(anyOf, "'", ":*", " & "), "\n"), below, limit, limit}
}

// quote writes tokens as the text of a tsvector. Tokens have no quotes and backslashes.
func quote(b *strings.Builder, tokens string) {
	for token := range strings.FieldsSeq(tokens) {
		b.WriteString("'" + token + "' ")
	}
}
