package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/search"
)

// A search reads the items from the newest down, in blocks. The items of a block that match are
// sorted by their scores. So a search for a word that is in every message reads one block, and
// its first results are the best of the newest. Pages of a block are read from the block again;
// the next block begins below it, so no result is repeated or skipped.

// Bounds of a search. A page whose reading reaches one of them ends early.
const (
	blockItems     = 100     // results of a block
	examinedItems  = 1000    // items of the index that a page compares with the search
	leftOutPerItem = 8       // items of messages that the filter leaves out count as one, because their texts are not read
	examinedBytes  = 4 << 20 // their texts
	visitedWindows = 2048    // that a page looks into
	groupWords     = 1024    // words of one look into several windows
	groupWindows   = 64
)

// SearchFilter selects what a search finds.
type SearchFilter struct {
	Query    search.Query
	Session  *Head // only items of this session
	Sessions SessionFilter

	Text, Tool, Reasoning bool // the parts of messages that are searched
	Role, Model           string
	Since, Before         time.Time // when the message was made; the zero Time means no bound
}

// tags returns tokens that all results have. The texts of messages have none of their own, because
// almost all items are such texts; each item that is found is compared with its row anyway.
func (f SearchFilter) tags() (out []string) {
	switch {
	case f.Tool && !f.Text && !f.Reasoning:
		out = append(out, tagTool)
	case f.Reasoning && !f.Text && !f.Tool:
		out = append(out, tagReasoning)
	}
	if f.Session != nil {
		out = append(out, tagOfSession(f.Session.SID))
	}
	if f.Role != "" {
		out = append(out, tagOfRole(f.Role))
	}
	if f.Model != "" {
		out = append(out, tagOfModel(f.Model))
	}
	return out
}

// words returns what the index has for each result.
func (f SearchFilter) words(tags []string) (out []IndexWord) {
	for _, tag := range tags {
		out = append(out, IndexWord{Text: tag})
	}
	for _, t := range f.Query.Terms {
		for i, word := range t.Words {
			w := IndexWord{word, t.Prefix && i == len(t.Words)-1}
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// SearchPlace is a place in the results of a search. The zero SearchPlace is the beginning of a
// new search.
type SearchPlace struct {
	Start       int64 // above all messages of the search
	Top, Bottom int64 // the items of the block; Bottom is 0 at the beginning of a block
	Score, Item int64 // the last result before the place, if Bottom is not 0
}

// Valid reports whether the place can be one of a search. A place that is not may make a search
// read the same items for ever.
func (p SearchPlace) Valid() bool {
	above := p.Top > titleItems
	return p.Start >= lowestItem && p.Start < titleItems && p.Top > lowestItem && p.Top < 2*titleItems && p.Bottom >= 0 && p.Bottom < p.Top &&
		(above || p.Top <= p.Start) && (p.Bottom == 0 || (p.Bottom >= titleItems) == above) && p.Score >= 0 && p.Item >= p.Bottom && p.Item < p.Top
}

// Found is a result of a search.
type Found struct {
	Head    Head
	Index   int // of the message; -1 if the title matches
	Message loquat.Message
	Part    string // loquat.PartText, PartTool, PartReasoning or PartTitle
	Text    string // that matches
	TextCut bool   // Text is only the beginning
	Match   search.Match

	sid, seq, item int64
}

// compare orders results: the best first, then the newest.
func (f Found) compare(g Found) int {
	return cmp.Or(cmp.Compare(g.Match.Score, f.Match.Score), cmp.Compare(g.item, f.item))
}

// finder runs one page of a search.
type finder struct {
	r        *Reader
	ix       index
	f        SearchFilter
	sessions bool // one result per session, titles too
	queue    []int64
	start    int64

	examined, bytes, windows int
}

// spent reports whether the page has to end.
func (d *finder) spent() bool {
	return d.examined >= examinedItems || d.bytes >= examinedBytes || d.windows >= visitedWindows
}

// SearchMessages returns up to limit results behind a place, and the place behind them, which is
// the zero SearchPlace at the end. There may be fewer results than limit before the end. complete
// is false if there are items that are neither indexed nor few enough to be read.
func (r *Reader) SearchMessages(f SearchFilter, after SearchPlace, limit int) (found []Found, next SearchPlace, complete bool, err error) {
	return r.search(f, false, after, limit)
}

// SearchSessions is SearchMessages with one result per session, for its title or else for its
// best message.
func (r *Reader) SearchSessions(f SearchFilter, after SearchPlace, limit int) (found []Found, next SearchPlace, complete bool, err error) {
	return r.search(f, true, after, limit)
}

func (r *Reader) search(f SearchFilter, sessions bool, after SearchPlace, limit int) (found []Found, next SearchPlace, complete bool, err error) {
	d := &finder{r: r, f: f, sessions: sessions}
	if d.ix, err = searchIndex(r.q); err != nil {
		return nil, SearchPlace{}, false, err
	}
	if d.queue, err = r.waiting(maxQueued + 1); err != nil {
		return nil, SearchPlace{}, false, err
	}
	complete = len(d.queue) <= maxQueued
	d.queue = d.queue[:min(len(d.queue), maxQueued)]
	if len(f.Query.Terms) == 0 {
		return nil, SearchPlace{}, complete, nil
	}
	if after == (SearchPlace{}) {
		if after, err = d.beginning(); err != nil {
			return nil, SearchPlace{}, false, err
		}
	}
	d.start = after.Start
	found, next, err = d.page(after, limit)
	if err != nil {
		return nil, SearchPlace{}, false, fmt.Errorf("search: %w", err)
	}
	for i := range found {
		if err := r.locate(&found[i]); err != nil {
			return nil, SearchPlace{}, false, err
		}
	}
	return found, next, complete, nil
}

// beginning returns the place before all results.
func (d *finder) beginning() (p SearchPlace, err error) {
	if err := one(d.r.q, `SELECT coalesce(max(id), 0) * 2 + 2 FROM messages`, nil, &p.Start); err != nil {
		return p, err
	}
	p.Top = p.Start
	if d.sessions {
		err = one(d.r.q, `SELECT coalesce(max(sid), 0) + ? FROM sessions`, []any{titleItems + 1}, &p.Top)
	}
	return p, err
}

// page returns the results behind a place.
func (d *finder) page(at SearchPlace, limit int) (out []Found, next SearchPlace, err error) {
	for {
		block, bottom, err := d.block(at.Top, at.Bottom)
		if err != nil {
			return nil, SearchPlace{}, err
		}
		for i, f := range block {
			if at.Bottom != 0 && f.compare(Found{item: at.Item, Match: search.Match{Score: at.Score}}) <= 0 {
				continue
			}
			if d.sessions {
				before, err := d.foundBefore(f, at.Top)
				if err != nil {
					return nil, SearchPlace{}, err
				}
				if before {
					continue
				}
			}
			if out = append(out, f); len(out) == limit && i < len(block)-1 {
				return out, SearchPlace{at.Start, at.Top, bottom, f.Match.Score, f.item}, nil
			}
		}
		if at = (SearchPlace{Start: at.Start, Top: bottom}); bottom == titleItems {
			at.Top = at.Start
		}
		if at.Top <= lowestItem {
			return out, SearchPlace{}, nil
		}
		if len(out) >= limit || d.spent() {
			return out, at, nil
		}
	}
}

// block returns the results among the items below top. If bottom is 0, the block is new, and
// ends after blockItems results; block returns its bottom.
func (d *finder) block(top, bottom int64) (out []Found, reached int64, err error) {
	lowest, enough, tags := max(bottom, lowestItem), examinedItems, d.f.tags()
	if top > titleItems {
		lowest, tags = max(bottom, titleItems), []string{tagTitle}
	}
	if bottom == 0 {
		enough = blockItems
	}
	reached = lowest
	for size, high := 1, top; high > lowest; size = min(2*size, groupWindows) {
		var windows []int64
		for w := windowOf(high - 1); len(windows) < size && w >= windowOf(lowest); w-- {
			windows = append(windows, w)
		}
		low := max(lowest, windows[len(windows)-1]*windowItems)
		found, next, err := d.scan(windows, tags, high, low, enough-len(out))
		if err != nil {
			return nil, 0, err
		}
		out, high = append(out, found...), next
		if bottom == 0 && (len(out) >= enough || d.spent()) {
			lowest = high
		}
		reached = high
	}
	slices.SortFunc(out, Found.compare)
	if d.sessions {
		out = firstOfSessions(out)
	}
	return out, reached, nil
}

// firstOfSessions returns the first result of each session.
func firstOfSessions(sorted []Found) (out []Found) {
	seen := map[int64]bool{}
	for _, f := range sorted {
		if !seen[f.sid] {
			seen[f.sid] = true
			out = append(out, f)
		}
	}
	return out
}

// scan returns results among the items from low until before high, which are in the windows. It
// ends after enough results, or when the page has to end, and returns the lowest item that it has
// compared.
func (d *finder) scan(windows []int64, tags []string, high, low int64, enough int) (out []Found, reached int64, err error) {
	words := d.f.words(tags)
	for most := d.firstItems(); high > low; most = min(2*most, mostItems) {
		items, err := d.find(windows, words, high, most)
		if err != nil {
			return nil, 0, err
		}
		until := low
		if len(items) == most {
			until = max(low, items[len(items)-1])
		}
		items = slices.DeleteFunc(append(items, d.queuedBetween(until, high)...), func(item int64) bool { return item < low })
		slices.SortFunc(items, func(a, b int64) int { return cmp.Compare(b, a) })
		for some := range slices.Chunk(slices.Compact(items), idListSize) {
			found, err := d.compare(some)
			if err != nil {
				return nil, 0, err
			}
			out = append(out, found...)
			if len(out) >= enough || d.spent() {
				return out, some[len(some)-1], nil
			}
		}
		high = until
	}
	return out, low, nil
}

// How many items the index returns at a time. If few of them match, it is asked for more.
const (
	findItems = 128
	mostItems = 1024
)

// firstItems returns how many items the index is asked for at first. It does not know where the words of an
// item are, so few of the items that it finds for a phrase match.
func (d *finder) firstItems() int {
	for _, t := range d.f.Query.Terms {
		if len(t.Words) > 1 {
			return mostItems
		}
	}
	return findItems
}

// find asks the index for the newest items of windows, at most as many as most says.
func (d *finder) find(windows []int64, words []IndexWord, below int64, most int) (out []int64, err error) {
	per := max(1, groupWords/len(words))
	for some := range slices.Chunk(windows, per) {
		var anyOf [][]IndexWord
		for _, w := range some {
			list := make([]IndexWord, len(words))
			for i, word := range words {
				list[i] = IndexWord{windowPrefix(w) + word.Text, word.Prefix}
			}
			anyOf = append(anyOf, list)
		}
		d.windows += len(some)
		query, args := d.ix.FindQuery(anyOf, below, most-len(out))
		items, err := d.r.integers(query, args...)
		if err != nil {
			return nil, err
		}
		if out = append(out, items...); len(out) == most {
			break
		}
	}
	return out, nil
}

// queuedBetween returns the queued items from low until before high. The reasoning of a message
// is queued with its content.
func (d *finder) queuedBetween(low, high int64) (out []int64) {
	add := func(item int64) {
		if item >= low && item < high {
			out = append(out, item)
		}
	}
	for _, item := range d.queue {
		add(item)
		if item < titleItems {
			add(item + 1)
		}
	}
	return out
}

// compare returns the results among items, the highest first.
func (d *finder) compare(items []int64) (out []Found, err error) {
	var ids []int64
	for _, item := range items {
		if item < titleItems {
			if d.f.Reasoning || item%2 == 0 {
				ids = append(ids, item/2)
			}
			continue
		}
		d.examined++
		title, ok, err := d.title(item)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, title)
		}
	}
	where, args := d.f.conditions()
	rows, err := d.r.textRows(`SELECT `+textColumns+` FROM messages m JOIN sessions s ON s.sid = m.sid WHERE `+where+` AND m.id IN `, slices.Compact(ids), args...)
	if err != nil {
		return nil, err
	}
	d.examined += len(rows) + max(0, len(items)-len(rows))/leftOutPerItem
	wanted := map[int64]bool{}
	for _, item := range items {
		wanted[item] = true
	}
	for _, row := range rows {
		for _, p := range row.parts() {
			if !wanted[p.item] || !d.f.allows(row.message, p) {
				continue
			}
			d.bytes += len(p.text)
			if m, ok := d.f.Query.Match(search.Tokens(p.text)); ok {
				out = append(out, Found{Message: row.message, Part: partNames[p.tags[0]], Text: p.text, TextCut: p.cut, Match: m, sid: row.sid, seq: row.seq, item: p.item})
			}
		}
	}
	return out, nil
}

var partNames = map[string]string{tagText: loquat.PartText, tagTool: loquat.PartTool, tagReasoning: loquat.PartReasoning}

// conditions returns the SQL of the filters that concern messages m and sessions s.
func (f SearchFilter) conditions() (string, []any) {
	where, args := []string{`m.rev_to IS NULL`, `s.deleted = 0`}, []any(nil)
	add := func(condition string, arg any) { where, args = append(where, condition), append(args, arg) }
	if f.Session != nil {
		add(`m.sid = ?`, f.Session.SID)
	}
	if f.Role != "" {
		add(`m.role = ?`, f.Role)
	}
	if !f.Tool {
		add(`m.role <> ?`, loquat.RoleTool)
	}
	if !f.Since.IsZero() {
		add(`m.created_at >= ?`, micros(f.Since))
	}
	if !f.Before.IsZero() {
		add(`m.created_at < ?`, micros(f.Before))
	}
	if f.Sessions.AgentID != "" {
		add(`s.agent_id = ?`, f.Sessions.AgentID)
	}
	if f.Sessions.User != "" {
		add(`s.user_id = ?`, f.Sessions.User)
	}
	if f.Sessions.Pinned != nil {
		add(`s.pinned = ?`, *f.Sessions.Pinned)
	}
	if f.Sessions.Archived != nil {
		add(`s.archived = ?`, *f.Sessions.Archived)
	}
	for _, tag := range f.Sessions.Tags {
		add(`EXISTS (SELECT 1 FROM session_tags t WHERE t.sid = s.sid AND t.tag = ?)`, tag)
	}
	return strings.Join(where, ` AND `), args
}

// allows reports whether a part of a message is searched.
func (f SearchFilter) allows(m loquat.Message, p searchPart) bool {
	if f.Model != "" && m.Metadata.String(loquat.MetaModel) != f.Model {
		return false
	}
	switch p.tags[0] {
	case tagTool:
		return f.Tool
	case tagReasoning:
		return f.Reasoning
	}
	return f.Text
}

// title returns the session of a title if the title matches.
func (d *finder) title(item int64) (Found, bool, error) {
	h, err := d.r.headOf(item - titleItems)
	if errors.Is(err, sql.ErrNoRows) {
		return Found{}, false, nil
	}
	if err != nil || !d.f.Sessions.matches(h.AgentID, h.User, loquat.LabelsOf(h.Metadata)) {
		return Found{}, false, err
	}
	f, ok := d.matchTitle(h)
	return f, ok, nil
}

func (d *finder) matchTitle(h Head) (Found, bool) {
	for _, p := range titlePart(h) {
		if m, ok := d.f.Query.Match(search.Tokens(p.text)); ok {
			return Found{Head: h, Index: -1, Part: loquat.PartTitle, Text: p.text, Match: m, sid: h.SID, item: p.item}, true
		}
	}
	return Found{}, false
}

// foundBefore reports whether an earlier block has a result of the same session.
func (d *finder) foundBefore(f Found, top int64) (bool, error) {
	if f.item > titleItems { // a session has one title
		return false, nil
	}
	h, err := d.r.headOf(f.sid)
	if err != nil {
		return false, err
	}
	if _, ok := d.matchTitle(h); ok {
		return true, nil
	}
	windows, err := d.r.integers(fmt.Sprintf(`SELECT DISTINCT id / %d AS w FROM messages WHERE sid = ? AND rev_to IS NULL AND id >= ? ORDER BY w DESC`, windowItems/2), f.sid, (top+1)/2)
	if err != nil || len(windows) == 0 {
		return false, err
	}
	limited := *d
	limited.f.Session, limited.examined, limited.bytes, limited.windows = &h, 0, 0, 0
	found, _, err := limited.scan(windows, limited.f.tags(), d.start, top, 1)
	d.examined, d.bytes = d.examined+limited.examined, d.bytes+limited.bytes
	return len(found) > 0, err
}

// locate completes a result.
func (r *Reader) locate(f *Found) (err error) {
	if f.Part == loquat.PartTitle {
		return nil
	}
	if f.Head, err = r.headOf(f.sid); err != nil {
		return err
	}
	f.Index, err = r.messageIndex(f.Head, f.seq)
	return err
}

// messageIndex returns the index of the message with an ordering key.
func (r *Reader) messageIndex(h Head, seq int64) (int, error) {
	if h.nextSeq == int64(h.Count) {
		return int(seq), nil
	}
	found := run{}
	err := one(r.q, `SELECT first_index, first_seq FROM message_runs WHERE sid = ? AND first_seq <= ? ORDER BY first_index DESC LIMIT 1`, []any{h.SID, seq}, &found.index, &found.seq)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("find the index of a message: %w", err)
	}
	return found.index + int(seq-found.seq), nil
}
