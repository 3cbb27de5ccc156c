package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"loquat"
	"loquat/internal/search"
)

// The full-text index lists for each token the items that have it. An item is the content of a
// message, the reasoning of a message, or the title of a session. Items are numbered, newer ones
// higher, and titles above all messages.
//
// A new message waits for the index because its row has an id above the last that is indexed. Other
// changes add their items to the table search_queue, by triggers of the database. So a change costs
// little more than without the index, and no writer can forget it. A search reads items that wait
// without the index, so it sees each commit at once. IndexSome indexes them, many in one
// transaction. If more wait than a search reads, the search says that it is incomplete.
//
// Each token begins with its window: a range of items. So a search reads the newest windows first
// and can stop, and a beginning of a word, or a word that is in every message, costs no more than
// the messages of a window.

// Numbers of items.
const (
	titleItems  = int64(1) << 52 // a title is this plus sid
	windowItems = int64(1) << 14
	lowestItem  = int64(2)
)

func contentItem(message int64) int64 { return 2 * message }

// textBytes is how many bytes of a text can be found.
const textBytes = 200_000

// tagMark is the first character of the tokens that are not words of a text. Words do not have it.
const tagMark = "\uE000"

// The kinds of items, as tokens.
const (
	tagText      = tagMark + "kc" // the content of a message that is not a tool message; not in the index
	tagTool      = tagMark + "kt"
	tagReasoning = tagMark + "kr"
	tagTitle     = tagMark + "kh"
)

func tagOfRole(role string) string   { return tagMark + "r" + role }
func tagOfModel(model string) string { return tagMark + "m" + hex.EncodeToString([]byte(model)) }
func tagOfSession(sid int64) string  { return tagMark + "s" + strconv.FormatInt(sid, 36) }

func windowOf(item int64) int64 { return item / windowItems }

// windowPrefix begins the tokens of a window.
func windowPrefix(window int64) string { return strconv.FormatInt(window, 36) + "\u00B7" }

// Indexed is an item to be indexed.
type Indexed struct {
	Item   int64
	Tokens string // separated by spaces
}

// IndexWord is a token to be found, or the beginning of tokens.
type IndexWord struct {
	Text   string
	Prefix bool
}

// index is implemented by the transactions of drivers. Tokens consist of letters, digits, marks
// and other characters above U+007F.
type index interface {
	// Index adds items.
	Index(items []Indexed) error
	// Unindex removes items, which need not be there.
	Unindex(items []int64) error
	// Merge merges a little of the index, so that a search looks into fewer parts of it. It reports
	// whether there may be more to merge.
	Merge() (more bool, err error)
	// FindQuery returns a query of up to limit items below an item, the highest first. They have
	// all words of one of the lists.
	FindQuery(anyOf [][]IndexWord, below int64, limit int) (query string, args []any)
}

// Expressions returns for each list a search for items that have all its words, in the language of an
// index. The operator and stands between words, and prefix behind a word that is only a beginning. Words
// have no quotes.
func Expressions(anyOf [][]IndexWord, quote, prefix, and string) []string {
	out := make([]string, len(anyOf))
	for i, list := range anyOf {
		words := make([]string, len(list))
		for j, word := range list {
			words[j] = quote + word.Text + quote
			if word.Prefix {
				words[j] += prefix
			}
		}
		out[i] = strings.Join(words, and)
	}
	return out
}

// searchIndex returns the index of a transaction.
func searchIndex(q SQL) (index, error) {
	for {
		switch t := q.(type) {
		case *eventWriter:
			q = t.SQL
		case lastSQL:
			q = t.taggedSQL
		case *taggedSQL:
			if ix, ok := t.SQL.(index); ok {
				return ix, nil
			}
			return nil, errors.New("the driver has no full-text index")
		default:
			return nil, errors.New("the driver has no full-text index")
		}
	}
}

// maxQueued is how many items that wait a search reads. Only the indexing of existing data, or a
// server that is very busy, leaves more.
const maxQueued = 512

// IndexBatch is how many items one transaction indexes.
const IndexBatch = 128

// waiting returns the newest items that wait for the index, the highest first.
func (r *Reader) waiting(limit int) ([]int64, error) {
	fresh, err := r.integers(`SELECT id * 2 FROM messages WHERE id > (SELECT indexed_to FROM search_state) ORDER BY id DESC LIMIT ?`, limit)
	if err != nil {
		return nil, err
	}
	queued, err := r.integers(`SELECT item FROM search_queue ORDER BY item DESC LIMIT ?`, limit)
	if err != nil {
		return nil, err
	}
	all := append(fresh, queued...)
	slices.SortFunc(all, func(a, b int64) int { return cmp.Compare(b, a) })
	return all[:min(len(all), limit)], nil
}

// Waiting returns how many items wait for the index, or more than upTo.
func (r *Reader) Waiting(upTo int) (n int, err error) {
	err = one(r.q, `SELECT (SELECT count(*) FROM (SELECT 1 FROM messages WHERE id > (SELECT indexed_to FROM search_state) ORDER BY id LIMIT ?) m)
		+ (SELECT count(*) FROM (SELECT 1 FROM search_queue LIMIT ?) q)`, []any{upTo + 1, upTo + 1}, &n)
	return n, err
}

// queueAll lets everything wait for the index.
func queueAll(q SQL) error {
	for _, statement := range []string{
		`INSERT INTO search_queue (item) SELECT id * 2 FROM messages WHERE rev_to IS NULL ON CONFLICT DO NOTHING`,
		fmt.Sprintf(`INSERT INTO search_queue (item) SELECT sid + %d FROM sessions WHERE deleted = 0 ON CONFLICT DO NOTHING`, titleItems),
		`UPDATE search_state SET indexed_to = (SELECT coalesce(max(id), 0) FROM messages)`,
	} {
		if _, err := q.Exec(statement); err != nil {
			return fmt.Errorf("fill the queue of the search index: %w", err)
		}
	}
	return nil
}

// IndexSome indexes new messages, the oldest first, then the newest of the queue. It returns how many
// items it has read: fewer than IndexBatch if none are left then.
func (s *Store) IndexSome(ctx context.Context) (int, error) {
	b, err := Read(ctx, s, func(r *Reader) (indexBatch, error) { return r.nextBatch(IndexBatch) })
	if err != nil || len(b.items) == 0 {
		return 0, err
	}
	for i := range b.items {
		b.items[i].tokenize()
	}
	return len(b.items), s.Update(ctx, func(tx *Tx) error { return tx.index(b) })
}

// MergeIndex merges a little of the index in one transaction, so that later searches take less time.
// It reports whether there may be more to merge.
func (s *Store) MergeIndex(ctx context.Context) (more bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		ix, err := searchIndex(tx.q)
		if err != nil {
			return err
		}
		if more, err = ix.Merge(); err != nil {
			return fmt.Errorf("merge the search index: %w", asDatabaseError(err))
		}
		return nil
	})
	return more, err
}

// indexBatch has what one transaction indexes.
type indexBatch struct {
	from, to int64 // the new messages have ids above from, up to to
	items    []waitingItem
}

func (b indexBatch) isNew(item int64) bool { return item > contentItem(b.from) && item < titleItems }

// waitingItem is an item that waits, with what the index needs of it.
type waitingItem struct {
	item   int64
	parts  []searchPart // none if the item must not be found
	tokens []Indexed

	row   rowVersion // of a message
	title string     // of a session
}

// rowVersion tells the rows of messages apart that have the same id one after the other. It is zero
// for messages that are deleted or replaced.
type rowVersion struct {
	messageID string
	from      int64
}

// searchPart is a text that can be found.
type searchPart struct {
	item int64
	text string
	tags []string
	cut  bool // text is only the beginning
}

// nextBatch returns what is to be indexed next.
func (r *Reader) nextBatch(limit int) (b indexBatch, err error) {
	if err := one(r.q, `SELECT indexed_to FROM search_state`, nil, &b.from); err != nil {
		return b, err
	}
	items, err := r.integers(`SELECT id * 2 FROM messages WHERE id > ? ORDER BY id LIMIT ?`, b.from, limit)
	if err != nil {
		return b, err
	}
	if b.to = b.from; len(items) > 0 {
		b.to = items[len(items)-1] / 2
	}
	queued, err := r.integers(`SELECT item FROM search_queue ORDER BY item DESC LIMIT ?`, limit-len(items))
	if err != nil {
		return b, err
	}
	b.items, err = r.waitingItems(append(items, queued...))
	return b, err
}

func (r *Reader) waitingItems(items []int64) ([]waitingItem, error) {
	messages, err := r.currentMessages(items)
	if err != nil {
		return nil, err
	}
	out := make([]waitingItem, len(items))
	for i, item := range items {
		out[i].item = item
		if item < titleItems {
			row := messages[item]
			out[i].parts, out[i].row = row.parts(), row.version()
		} else if out[i].parts, err = r.titleParts(item); err != nil {
			return nil, err
		}
		out[i].title = titleIn(out[i].parts)
	}
	return out, nil
}

// currentMessages returns those of the messages with these contents that are not deleted or
// replaced.
func (r *Reader) currentMessages(items []int64) (map[int64]textRow, error) {
	var ids []int64
	for _, item := range items {
		if item < titleItems {
			ids = append(ids, item/2)
		}
	}
	rows, err := r.textRows(`SELECT `+textColumns+` FROM messages m WHERE m.rev_to IS NULL AND m.id IN `, ids)
	out := make(map[int64]textRow, len(rows))
	for _, row := range rows {
		out[contentItem(row.id)] = row
	}
	return out, err
}

// idListSize is the greatest number of ids in a query.
const idListSize = 64

// Lists of ids have one of two lengths, so that few statements are prepared.
var (
	idList      = `(` + strings.Repeat(`?, `, idListSize-1) + `?)`
	shortIDList = `(?, ?, ?, ?, ?, ?, ?, ?)`
)

// eachIDs calls fn with lists for queries and their arguments until it has had all ids.
func eachIDs(ids []int64, fn func(list string, args []any) error) error {
	for some := range slices.Chunk(ids, idListSize) {
		list := idList
		if len(some) <= strings.Count(shortIDList, `?`) {
			list = shortIDList
		}
		args := make([]any, strings.Count(list, `?`))
		for i := range args {
			args[i] = some[min(i, len(some)-1)]
		}
		if err := fn(list, args); err != nil {
			return err
		}
	}
	return nil
}

// textRows returns the rows of a query that ends before a list of ids.
func (r *Reader) textRows(query string, ids []int64, more ...any) (out []textRow, err error) {
	err = eachIDs(ids, func(list string, args []any) error {
		rows, err := r.q.Query(query+list, append(slices.Clip(more), args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			t, err := scanText(rows.Scan)
			if err != nil {
				return err
			}
			out = append(out, t)
		}
		return closeRows(rows)
	})
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	for i := range out {
		if err := r.addLargeText(&out[i]); err != nil {
			return nil, fmt.Errorf("read text: %w", err)
		}
	}
	return out, nil
}

// headOf returns a session by its row. The error is sql.ErrNoRows if it is deleted.
func (r *Reader) headOf(sid int64) (Head, error) {
	return scanHead(func(dest ...any) error {
		return one(r.q, `SELECT `+headColumns+` FROM sessions s WHERE s.sid = ? AND s.deleted = 0`, []any{sid}, dest...)
	})
}

func (r *Reader) titleParts(item int64) ([]searchPart, error) {
	h, err := r.headOf(item - titleItems)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return titlePart(h), err
}

// titleIn returns the text of the first part.
func titleIn(parts []searchPart) string {
	if len(parts) == 0 {
		return ""
	}
	return parts[0].text
}

func titlePart(h Head) []searchPart {
	title := h.Metadata.String(loquat.MetaTitle)
	if title == "" {
		return nil
	}
	return []searchPart{{item: titleItems + h.SID, text: clipText(title), tags: []string{tagTitle, tagOfSession(h.SID)}}}
}

// textRow is a message with the beginning of its texts.
type textRow struct {
	id, sid, seq, from int64
	message            loquat.Message
	large              int64
}

func (t textRow) version() rowVersion { return rowVersion{t.message.ID, t.from} }

// textColumns are what scanText scans, of messages m.
var textColumns = fmt.Sprintf(`m.id, m.sid, m.seq, m.rev_from, m.message_id, m.role, substr(m.content, 1, %d), m.metadata, m.created_at, m.text_bytes`, textBytes)

func scanText(scan func(...any) error) (t textRow, err error) {
	var metadata, content []byte
	var created int64
	m := &t.message
	if err := scan(&t.id, &t.sid, &t.seq, &t.from, &m.ID, &m.Role, &content, &metadata, &created, &t.large); err != nil {
		return t, fmt.Errorf("read message: %w", err)
	}
	m.Content, m.CreatedAt = string(content), fromMicros(created)
	return t, decodeMetadata(m, metadata)
}

// addLargeText adds the beginning of a content that is stored in pieces.
func (r *Reader) addLargeText(t *textRow) error {
	if t.large == 0 || t.message.Content != "" {
		return nil
	}
	var piece []byte
	err := one(r.q, `SELECT x.body FROM message_texts t JOIN texts x ON x.text_id = t.text_id AND x.piece = 0 WHERE t.message = ? AND t.field = ''`, []any{t.id}, &piece)
	if errors.Is(err, sql.ErrNoRows) { // a value of the metadata is large
		return nil
	}
	t.message.Content = string(piece)
	return err
}

// parts returns the texts of a message that can be found.
func (t textRow) parts() (out []searchPart) {
	m := t.message
	kind := tagText
	if m.Role == loquat.RoleTool {
		kind = tagTool
	}
	add := func(item int64, text, kind string) {
		if text == "" {
			return
		}
		p := searchPart{item: item, text: clipText(text), tags: []string{kind, tagOfRole(m.Role), tagOfSession(t.sid)}}
		p.cut = len(text) > len(p.text) || kind != tagReasoning && len(text) >= textBytes
		if model := m.Metadata.String(loquat.MetaModel); model != "" && len(model) <= search.MaxToken {
			p.tags = append(p.tags, tagOfModel(model))
		}
		out = append(out, p)
	}
	add(contentItem(t.id), m.Content, kind)
	add(contentItem(t.id)+1, reasoningOf(m), tagReasoning)
	return out
}

// reasoningOf returns the reasoning of a message as text.
func reasoningOf(m loquat.Message) string {
	for _, key := range []string{loquat.MetaReasoningContent, loquat.MetaReasoning} {
		var text string
		if raw, ok := m.Metadata[key]; ok && json.Unmarshal(raw, &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

// clipText returns the part of a text that can be found.
func clipText(text string) string {
	if len(text) <= textBytes {
		return text
	}
	end := textBytes
	for end > textBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// tokenize sets the tokens of the parts.
func (q *waitingItem) tokenize() {
	for _, p := range q.parts {
		prefix := windowPrefix(windowOf(p.item))
		var b strings.Builder
		seen := map[string]bool{}
		add := func(token string) {
			if !seen[token] {
				seen[token] = true
				b.WriteString(prefix)
				b.WriteString(token)
				b.WriteByte(' ')
			}
		}
		for _, tag := range p.tags {
			if tag != tagText {
				add(tag)
			}
		}
		for _, t := range search.Tokens(p.text) {
			add(t.Text)
		}
		q.tokens = append(q.tokens, Indexed{p.item, b.String()})
	}
	q.parts = nil
}

// index adds a batch to the index. Queued items that have changed since they were read stay queued,
// and new ones are queued.
func (tx *Tx) index(b indexBatch) error {
	ix, err := searchIndex(tx.q)
	if err != nil {
		return err
	}
	var from int64
	if err := one(tx.q, `SELECT indexed_to FROM search_state`, nil, &from); err != nil || from != b.from {
		return err // another node has indexed meanwhile
	}
	rows, err := tx.versionsOf(b)
	if err != nil {
		return err
	}
	var done, remove []int64 // of the queue, and of the index
	var add []Indexed
	for _, w := range b.items {
		same, err := tx.unchanged(w, rows)
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		delete(rows, w.item)
		add = append(add, w.tokens...)
		if b.isNew(w.item) {
			continue
		}
		done, remove = append(done, w.item), append(remove, w.item)
		if w.item < titleItems {
			remove = append(remove, w.item+1)
		}
	}
	if err := tx.endBatch(b, done, rows); err != nil {
		return fmt.Errorf("take from the queue of the search index: %w", err)
	}
	if err := ix.Unindex(remove); err != nil {
		return fmt.Errorf("remove from the search index: %w", asDatabaseError(err))
	}
	if err := ix.Index(add); err != nil {
		return fmt.Errorf("add to the search index: %w", asDatabaseError(err))
	}
	return nil
}

// versionsOf returns the current rows of a batch's messages, by item.
func (tx *Tx) versionsOf(b indexBatch) (map[int64]rowVersion, error) {
	out := map[int64]rowVersion{}
	const columns = `SELECT id, message_id, rev_from FROM messages WHERE rev_to IS NULL AND `
	read := func(where string, args ...any) error {
		rows, err := tx.q.Query(columns+where, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			var v rowVersion
			if err := rows.Scan(&id, &v.messageID, &v.from); err != nil {
				return err
			}
			out[contentItem(id)] = v
		}
		return closeRows(rows)
	}
	var queued []int64
	for _, w := range b.items {
		if w.item < titleItems && !b.isNew(w.item) {
			queued = append(queued, w.item/2)
		}
	}
	if err := read(`id > ? AND id <= ?`, b.from, b.to); err != nil {
		return nil, err
	}
	return out, eachIDs(queued, func(list string, args []any) error { return read(`id IN `+list, args...) })
}

// unchanged reports whether an item is as it was when it was read.
func (tx *Tx) unchanged(w waitingItem, rows map[int64]rowVersion) (bool, error) {
	if w.item < titleItems {
		return rows[w.item] == w.row, nil
	}
	parts, err := tx.titleParts(w.item)
	return titleIn(parts) == w.title, err
}

// endBatch takes items from the queue, and adds the new ones of the rows that are left.
func (tx *Tx) endBatch(b indexBatch, done []int64, left map[int64]rowVersion) error {
	err := eachIDs(done, func(list string, args []any) error {
		return tx.exec(`DELETE FROM search_queue WHERE item IN `+list, args...)
	})
	if err != nil || b.to == b.from {
		return err
	}
	for item := range left {
		if b.isNew(item) {
			if err := tx.exec(`INSERT INTO search_queue (item) VALUES (?) ON CONFLICT DO NOTHING`, item); err != nil {
				return err
			}
		}
	}
	return tx.exec(`UPDATE search_state SET indexed_to = ?`, b.to)
}

// integers returns the rows of a query of one integer.
func (r *Reader) integers(query string, args ...any) (out []int64, err error) {
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, closeRows(rows)
}
