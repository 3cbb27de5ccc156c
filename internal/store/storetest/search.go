package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/search"
	"loquat/internal/store"
)

// searchesVariable is the environment variable with the number of random searches of a test.
const searchesVariable = "LOQUAT_SEARCHES"

func searches(t *testing.T) int {
	t.Helper()
	text := os.Getenv(searchesVariable)
	if text == "" && testing.Short() { // under the race detector
		return 40
	}
	if text == "" {
		return 300
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		t.Fatalf("%s=%q has to be a number from 1 to 1000000", searchesVariable, text)
	}
	return n
}

// languages are texts in 20 languages, most with common words.
var languages = []string{
	"the quick brown fox jumps over the lazy dog while the server writes the log and the client reads it again",
	"der schnelle braune Fuchs springt über den faulen Hund und die Straße führt durch die große Stadt",
	"le renard brun rapide saute par-dessus le chien paresseux; l'été à Nîmes, c'est déjà cœur et âme",
	"el zorro marrón rápido salta sobre el perro perezoso; ¿dónde está mañana el niño?",
	"a rápida raposa marrom pula sobre o cão preguiçoso e a informação não está à mão",
	"la volpe veloce salta sopra il cane pigro, perché la città è già più bella così",
	"szybki brązowy lis przeskakuje nad leniwym psem, zażółć gęślą jaźń",
	"rychlá hnědá liška skáče přes líného psa, příliš žluťoučký kůň",
	"hızlı kahverengi tilki tembel köpeğin üstünden atlar, İstanbul ılık ISPARTA",
	"con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng, tiếng Việt rất đẹp",
	"быстрая коричневая лиса прыгает через ленивую собаку, ещё ёлка и йод",
	"швидка коричнева лисиця стрибає через ледачого пса, її їжак та ґанок",
	"η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί, Οδυσσεύς ΟΔΥΣΣΕΥΣ",
	"השועל החום המהיר קופץ מעל הכלב העצלן, שָׁלוֹם עולם",
	"الثعلب البني السريع يقفز فوق الكلب الكسول، مَرْحَبًا بالعالم",
	"तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है, हिन्दी में खोज",
	"敏捷的棕色狐狸跳过懒狗,全文搜索引擎支持中文检索和Go语言",
	"素早い茶色の狐がのろまな犬を飛び越える。データベースの全文検索はﾃﾞｰﾀを探す",
	"빠른 갈색 여우가 게으른 개를 뛰어넘는다, 한국어 전문 검색 데이터베이스",
	"สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ที่นี่ค้นหาข้อความ 👍🏽 🎉",
}

// randomText returns words of one language, or two.
func randomText(r *rand.Rand) string {
	var out []string
	for range 1 + r.IntN(2) {
		words := strings.Fields(languages[r.IntN(len(languages))])
		from := r.IntN(len(words))
		out = append(out, words[from:min(len(words), from+1+r.IntN(8))]...)
		if r.IntN(3) == 0 {
			out = append(out, strconv.Itoa(r.IntN(50)))
		}
	}
	return strings.Join(out, []string{" ", "  ", "\n", ", "}[r.IntN(4)])
}

// randomSearch returns something that a person might type, often a part of a text.
func randomSearch(r *rand.Rand) string {
	words := strings.Fields(languages[r.IntN(len(languages))])
	from := r.IntN(len(words))
	some := words[from:min(len(words), from+1+r.IntN(3))]
	switch text := strings.Join(some, " "); r.IntN(8) {
	case 0:
		return `"` + text + `"`
	case 1, 2: // a beginning
		runes := []rune(some[0])
		return string(runes[:1+r.IntN(len(runes))]) + "*"
	case 3: // a part of a text without spaces
		runes := []rune(some[0])
		from := r.IntN(len(runes))
		return string(runes[from:min(len(runes), from+1+r.IntN(4))])
	case 4:
		return strings.ToUpper(text)
	case 5:
		return randomText(r)
	case 6:
		return text + []string{` "`, " AND", " -", " NEAR(", "'; --", " col:", "*", " OR \\"}[r.IntN(8)]
	default:
		return some[0]
	}
}

// librarian makes random changes, and searches.
type librarian struct {
	*testing.T
	s    *store.Store
	r    *rand.Rand
	made int
	ids  []string // of the sessions that exist
}

// searching compares searches with a scan of all messages, between random changes of sessions,
// of which some are indexed and some are not.
func searching(t *testing.T, open Open) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := &librarian{T: t, s: start(t, open), r: rand.New(rand.NewPCG(seed, 1))}
	const rounds = 10
	for round := range rounds {
		for range 30 {
			l.change()
		}
		if round == rounds/2 {
			l.skipWindow()
		}
		l.index(l.r.IntN(4))
		l.merge(l.r.IntN(3))
		for range searches(t) / rounds {
			l.search()
		}
	}
	l.index(1 << 20)
	l.search()
	l.merge(1 << 20)
	l.search()
	view(t, l.s, func(r *store.Reader) error {
		if n, err := r.Waiting(10); n != 0 || err != nil {
			t.Errorf("%d items wait after all were indexed, %v", n, err)
		}
		return nil
	})
}

// merge merges parts of the index up to a number of times.
func (l *librarian) merge(times int) {
	for more := true; more && times > 0; times-- {
		var err error
		if more, err = l.s.MergeIndex(l.Context()); err != nil {
			l.Fatal(err)
		}
	}
}

// index indexes up to a number of times.
func (l *librarian) index(times int) {
	for range times {
		if n, err := l.s.IndexSome(l.Context()); err != nil {
			l.Fatal(err)
		} else if n == 0 {
			return
		}
	}
}

// skipWindow makes the next messages belong to another window of the index.
func (l *librarian) skipWindow() {
	create(l.T, l.s, "blank", 0)
	update(l.T, l.s, func(tx *store.Tx) error {
		h, err := tx.Head("blank")
		for range 500 {
			if err == nil {
				_, err = tx.AppendMessage(&h, message(tx, ""))
			}
		}
		if err != nil {
			return err
		}
		for i := range 17 {
			if err := l.copyTo(tx, h, fmt.Sprint("blank-", i), nil); err != nil {
				return err
			}
		}
		return tx.Checkpoint(&h, nil, false)
	})
	l.index(1 << 20)
}

func (l *librarian) copyTo(tx *store.Tx, source store.Head, id string, upTo *int) error {
	h, err := tx.FinishCopy(source, store.Draft{}, id, source.AgentID, source.Metadata, upTo)
	if err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// change makes a random change of a random session.
func (l *librarian) change() {
	if len(l.ids) == 0 || l.r.IntN(6) == 0 {
		l.made++
		l.ids = append(l.ids, fmt.Sprint("s", l.made))
		describe(l.T, l.s, l.ids[len(l.ids)-1], []string{loquat.DefaultAgent, "other"}[l.r.IntN(2)], l.metadata())
		return
	}
	i := l.r.IntN(len(l.ids))
	update(l.T, l.s, func(tx *store.Tx) error {
		h, err := tx.Head(l.ids[i])
		if err != nil {
			return err
		}
		switch at := l.r.IntN(max(1, h.Count)); {
		case l.r.IntN(40) == 0:
			defer func() { l.ids = slices.Delete(slices.Clone(l.ids), i, i+1) }()
			return tx.DeleteSession(&h)
		case l.r.IntN(12) == 0 && h.Count > 0:
			l.made++
			l.ids = append(l.ids, fmt.Sprint("s", l.made))
			return l.copyTo(tx, h, l.ids[len(l.ids)-1], &at)
		case l.r.IntN(8) == 0:
			tx.Describe(&h, h.AgentID, l.metadata())
		case l.r.IntN(8) == 0 && h.Count > 0:
			_, err = tx.ModifyMessage(&h, at, "", randomText(l.r))
		case l.r.IntN(12) == 0 && h.Count > 0:
			err = tx.DeleteMessages(&h, []int{at})
		case l.r.IntN(20) == 0 && h.Count > 0:
			_, err = tx.DeleteFrom(&h, at)
		default:
			for range 1 + l.r.IntN(6) {
				if _, err = tx.AppendMessage(&h, l.message(tx)); err != nil {
					return err
				}
			}
		}
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

func (l *librarian) metadata() loquat.Object {
	words := []string{"", "pinned", "archived", "tag:a", "tag:a tag:b"}[l.r.IntN(5)]
	return labelled(words).Set(loquat.MetaTitle, []string{"", randomText(l.r)}[l.r.IntN(2)])
}

func (l *librarian) message(tx *store.Tx) loquat.Message {
	l.made++
	m := loquat.Message{ID: fmt.Sprint("m", l.made), Content: randomText(l.r), CreatedAt: tx.Now.Add(-time.Duration(l.r.IntN(1000)) * time.Hour)}
	m.Role = []string{loquat.RoleUser, loquat.RoleAssistant, loquat.RoleTool, loquat.RoleSystem}[l.r.IntN(4)]
	if m.Role == loquat.RoleAssistant {
		m.Metadata = loquat.Object{}.Set(loquat.MetaModel, []string{"gpt-4o", "模型"}[l.r.IntN(2)]).Set(loquat.MetaReasoningContent, randomText(l.r))
	}
	return m
}

// search compares a random search with a scan.
func (l *librarian) search() {
	l.Helper()
	text := randomSearch(l.r)
	q, err := search.Parse(text)
	if err != nil { // too many words
		return
	}
	f := store.SearchFilter{Query: q, Text: true}
	if yes := l.r.IntN(2) == 0; l.r.IntN(2) == 0 {
		f.Sessions.Archived = &yes
	}
	if l.r.IntN(4) == 0 {
		f.Sessions.AgentID = "other"
	}
	if l.r.IntN(4) == 0 {
		f.Sessions.Tags = []string{"a", "b"}[:1+l.r.IntN(2)]
	}
	sessions := l.r.IntN(3) == 0
	if !sessions {
		l.filterMessages(&f)
	}
	want, got := l.expected(f, sessions), l.found(f, sessions)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.Fatalf("search %q (%+v), sessions %v:\n got %q\nwant %q", text, f, sessions, got, want)
	}
}

func (l *librarian) filterMessages(f *store.SearchFilter) {
	f.Text, f.Tool, f.Reasoning = l.r.IntN(2) == 0, l.r.IntN(2) == 0, l.r.IntN(2) == 0
	if l.r.IntN(4) == 0 {
		f.Role = loquat.RoleAssistant
	}
	if l.r.IntN(4) == 0 {
		f.Model = "模型"
	}
	now := time.Now()
	if l.r.IntN(4) == 0 {
		f.Since = now.Add(-time.Duration(l.r.IntN(1000)) * time.Hour)
	}
	if l.r.IntN(4) == 0 {
		f.Before = now.Add(-time.Duration(l.r.IntN(1000)) * time.Hour)
	}
	if l.r.IntN(4) == 0 && len(l.ids) > 0 {
		view(l.T, l.s, func(r *store.Reader) error {
			h, err := r.Head(l.ids[l.r.IntN(len(l.ids))])
			f.Session = &h
			return err
		})
	}
}

// found returns the results of all pages.
func (l *librarian) found(f store.SearchFilter, sessions bool) (out []string) {
	limit := 1 + l.r.IntN(20)
	for at, pages := (store.SearchPlace{}), 0; ; pages++ {
		view(l.T, l.s, func(r *store.Reader) error {
			read := r.SearchMessages
			if sessions {
				read = r.SearchSessions
			}
			found, next, complete, err := read(f, at, limit)
			if err == nil && (!complete || len(found) > limit) {
				l.Fatalf("a page of %d has %d results; complete %v", limit, len(found), complete)
			}
			for _, found := range found {
				if sessions {
					out = append(out, found.Head.SessionID)
				} else {
					out = append(out, fmt.Sprintf("%s %d %s %s %d", found.Head.SessionID, found.Index, found.Message.ID, found.Part, found.Match.Score))
				}
			}
			at = next
			return err
		})
		if at == (store.SearchPlace{}) {
			return out
		}
		if pages > 10000 {
			l.Fatal("the search has no end")
		}
	}
}

// expected scans all sessions.
func (l *librarian) expected(f store.SearchFilter, sessions bool) (out []string) {
	view(l.T, l.s, func(r *store.Reader) error {
		for _, id := range l.ids {
			h, err := r.Head(id)
			if err != nil {
				return err
			}
			labels := loquat.LabelsOf(h.Metadata)
			if f.Sessions.AgentID != "" && h.AgentID != f.Sessions.AgentID || f.Sessions.Archived != nil && *f.Sessions.Archived != labels.Archived ||
				slices.ContainsFunc(f.Sessions.Tags, func(tag string) bool { return !slices.Contains(labels.Tags, tag) }) ||
				f.Session != nil && f.Session.SessionID != id {
				continue
			}
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil {
				return err
			}
			matches := scan(f, messages)
			_, title := f.Query.Match(search.Tokens(h.Metadata.String(loquat.MetaTitle)))
			switch {
			case sessions && (title || len(matches) > 0):
				out = append(out, id)
			case !sessions:
				for _, m := range matches {
					out = append(out, id+" "+m)
				}
			}
		}
		return nil
	})
	return out
}

func scan(f store.SearchFilter, messages []loquat.Message) (out []string) {
	for i, m := range messages {
		if f.Role != "" && m.Role != f.Role || f.Model != "" && m.Metadata.String(loquat.MetaModel) != f.Model ||
			!f.Since.IsZero() && m.CreatedAt.Before(f.Since.Truncate(time.Microsecond)) || !f.Before.IsZero() && !m.CreatedAt.Before(f.Before.Truncate(time.Microsecond)) {
			continue
		}
		add := func(part, text string, wanted bool) {
			if match, ok := f.Query.Match(search.Tokens(text)); ok && wanted {
				out = append(out, fmt.Sprintf("%d %s %s %d", i, m.ID, part, match.Score))
			}
		}
		if m.Role == loquat.RoleTool {
			add(loquat.PartTool, m.Content, f.Tool)
		} else {
			add(loquat.PartText, m.Content, f.Text)
		}
		add(loquat.PartReasoning, m.Metadata.String(loquat.MetaReasoningContent), f.Reasoning)
	}
	return out
}

// manyResults finds a word that is in more messages than a page compares, and each result once.
func manyResults(t *testing.T, open Open) {
	s := start(t, open)
	const n = 1500
	for session := range 3 {
		id := fmt.Sprint("s", session)
		create(t, s, id, 0)
		update(t, s, func(tx *store.Tx) error {
			h, err := tx.Head(id)
			for i := range n / 3 {
				if err == nil {
					_, err = tx.AppendMessage(&h, message(tx, "common"+strings.Repeat(" other", i%5)))
				}
			}
			if err != nil {
				return err
			}
			return tx.Checkpoint(&h, nil, false)
		})
	}
	l := &librarian{T: t, s: s, r: rand.New(rand.NewPCG(1, 1)), ids: []string{"s0", "s1", "s2"}}
	q, err := search.Parse("comm*")
	if err != nil {
		t.Fatal(err)
	}
	l.incomplete(q)
	l.index(1 << 20)
	for _, sessions := range []bool{false, true} {
		f := store.SearchFilter{Query: q, Text: true}
		got, want := l.found(f, sessions), l.expected(f, sessions)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("sessions %v: %d results, want %d", sessions, len(got), len(want))
		}
	}
	rare := store.SearchFilter{Query: q, Text: true, Sessions: store.SessionFilter{AgentID: "nobody"}}
	if got := l.found(rare, false); len(got) != 0 {
		t.Errorf("a filter that nothing passes finds %q", got)
	}
}

// incomplete checks that a search says so while more items are queued than it reads.
func (l *librarian) incomplete(q search.Query) {
	l.Helper()
	view(l.T, l.s, func(r *store.Reader) error {
		found, _, complete, err := r.SearchMessages(store.SearchFilter{Query: q, Text: true}, store.SearchPlace{}, 10)
		if err == nil && (complete || len(found) != 10) {
			l.Errorf("before indexing: complete %v, %d results", complete, len(found))
		}
		return err
	})
}

// searchLongText finds the beginning of a text that is stored in pieces.
func searchLongText(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("a")
		if err != nil {
			return err
		}
		m := message(tx, "needle "+strings.Repeat("é ", 2<<20)+"haystack")
		if _, err := tx.AppendMessage(&h, m); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	l := &librarian{T: t, s: s, r: rand.New(rand.NewPCG(1, 1))}
	for range 2 {
		for text, want := range map[string]int{"needle": 1, "haystack": 0} {
			q, err := search.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.found(store.SearchFilter{Query: q, Text: true}, false); len(got) != want {
				t.Errorf("%q finds %q", text, got)
			}
		}
		l.index(1)
	}
}
