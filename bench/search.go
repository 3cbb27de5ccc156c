//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/search"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/sqlite"
)

// The section search: how many messages are searched, and its aims.
var searchedMessages int

const (
	searchesEach   = 100 // of each kind
	maxSearchP50   = 20 * time.Millisecond
	maxSearchP99   = 100 * time.Millisecond
	maxAppendRatio = 1.25
)

// benchSearch measures searches in many messages, and what the index adds to appends, in both
// databases.
func benchSearch(w io.Writer) (verdicts []verdict, err error) {
	all, stop, err := databases()
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, c := range all {
		found, err := c.search(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		appends, err := c.compareAppends(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		verdicts = append(append(verdicts, found...), appends...)
	}
	return verdicts, nil
}

// database is a kind of database to measure.
type database struct {
	name    string
	appends string // the trigger that an append runs for the index; empty: none
	open    func() (driver store.Driver, remove func(), err error)
	settle  string                            // the statement that the server runs on its own some time after many changes
	written func(store.Driver) (int64, error) // bytes so far
}

// onlyDatabase is the name of the kind of database to measure; empty: both.
var onlyDatabase string

// databases returns the kinds to measure, and starts a PostgreSQL server if it is needed.
func databases() (all []database, stop func(), err error) {
	chosen := func(name string) bool { return onlyDatabase == "" || strings.EqualFold(onlyDatabase, name) }
	stop = func() {}
	if chosen("SQLite") {
		all = append(all, database{name: "SQLite", appends: "messages_to_index", open: newFile, written: bytesToFiles})
	}
	if chosen("PostgreSQL") {
		server, err := pgtest.Run()
		if err != nil {
			return nil, nil, err
		}
		stop = server.Stop
		all = append(all, database{name: "PostgreSQL", open: func() (store.Driver, func(), error) { return newDatabase(server) }, settle: `ANALYZE`, written: bytesToLog})
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("the database %q is not known; the databases are SQLite and PostgreSQL", onlyDatabase)
	}
	return all, stop, nil
}

// newFile opens a driver in a new directory.
func newFile() (store.Driver, func(), error) {
	dir, err := os.MkdirTemp("", "loquat-bench-")
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(context.Background(), dir, slog.New(slog.DiscardHandler))
	return db, func() { os.RemoveAll(dir) }, err
}

// newDatabase opens a driver in a new database.
func newDatabase(server *pgtest.Server) (store.Driver, func(), error) {
	name, err := server.NewDatabase()
	if err != nil {
		return nil, nil, err
	}
	db, err := postgres.Open(context.Background(), postgres.Options{URL: server.URL(name), Node: "bench", Logger: slog.New(slog.DiscardHandler)})
	return db, func() {}, err
}

// store opens a new store, perhaps without what each append does for the index.
func (d database) store(indexed bool) (*store.Store, func(), error) {
	driver, remove, err := d.open()
	if err != nil {
		return nil, nil, err
	}
	if !indexed && d.appends != "" {
		err = driver.Write(context.Background(), func(q store.SQL) error {
			_, err := q.Exec(`DROP TRIGGER ` + d.appends)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return openOn(driver, remove)
}

// openOn opens the store of a driver. close also removes its data.
func openOn(driver store.Driver, remove func()) (s *store.Store, close func(), err error) {
	s, err = store.Open(context.Background(), driver, store.Options{Logger: slog.New(slog.DiscardHandler)})
	return s, func() { s.Close(); remove() }, err
}

// searchTexts makes texts whose words are as unevenly distributed as in a language.
type searchTexts struct {
	r    *rand.Rand
	zipf *rand.Zipf
}

func newSearchTexts() *searchTexts {
	r := rand.New(rand.NewPCG(1, 2))
	return &searchTexts{r, rand.NewZipf(r, 1.07, 3, 300_000)}
}

var syllables = strings.Fields("ka to mi re sha lo ven dor ith an el su pra qui ne bo ral tes um vi za go hen fe mar ci od lu wex yor")

// wordOf returns the word of a rank. The word of rank 0 is in almost every text.
func wordOf(rank uint64) string {
	out := syllables[rank%30]
	for rank /= 30; rank > 0; rank /= 30 {
		out += syllables[rank%30]
	}
	return out
}

func (s *searchTexts) word() string { return wordOf(s.zipf.Uint64()) }

// text returns a text of 20 to 140 words, sometimes with Chinese.
func (s *searchTexts) text() string {
	var b strings.Builder
	for range 20 + s.r.IntN(120) {
		b.WriteString(s.word())
		b.WriteByte(' ')
	}
	if s.r.IntN(10) == 0 {
		for range 20 {
			b.WriteRune(rune(0x4E00 + s.zipf.Uint64()%3000))
		}
	}
	return b.String()
}

// fill appends messages to sessions of 1,000.
func (s *searchTexts) fill(st *store.Store, n int) (sample []string, err error) {
	for done := 0; done < n; {
		h, err := benchSession(st, "s"+strconv.Itoa(done))
		if err != nil {
			return nil, err
		}
		texts := make([]string, min(1000, n-done))
		for i := range texts {
			texts[i] = s.text()
		}
		sample = append(sample, texts[0])
		for some := range slices.Chunk(texts, 100) {
			if err := appendTexts(st, &h, done, some); err != nil {
				return nil, err
			}
			done += len(some)
		}
	}
	return sample, nil
}

// appendTexts appends messages with texts to a session in one transaction. Their ids are numbers
// from first on.
func appendTexts(st *store.Store, h *store.Head, first int, texts []string) error {
	return st.Update(context.Background(), func(tx *store.Tx) (err error) {
		if *h, err = tx.Head(h.SessionID); err != nil {
			return err
		}
		for i, text := range texts {
			m := loquat.Message{ID: fmt.Sprint(first + i), Role: loquat.RoleUser, Content: text, CreatedAt: tx.Now}
			if _, err := tx.AppendMessage(h, m); err != nil {
				return err
			}
		}
		return tx.Checkpoint(h, nil, false)
	})
}

// searchKinds returns searches of each kind.
func (s *searchTexts) searchKinds(sample []string) map[string]func() string {
	words := func() []string { return strings.Fields(sample[s.r.IntN(len(sample))]) }
	return map[string]func() string{
		"a word":                func() string { return words()[s.r.IntN(10)] },
		"a common word":         func() string { return wordOf(uint64(s.r.IntN(5))) },
		"a rare word":           func() string { return wordOf(uint64(200_000 + s.r.IntN(100_000))) },
		"no word of any text":   func() string { return "x" + strconv.Itoa(s.r.IntN(1e9)) },
		"three words of a text": func() string { w := words(); return w[3] + " " + w[9] + " " + w[15] },
		"a phrase":              func() string { w := words(); i := s.r.IntN(15); return `"` + strings.Join(w[i:i+3], " ") + `"` },
		"a beginning, 3 letters": func() string {
			w := words()[s.r.IntN(10)]
			return w[:min(3, len(w))] + "*"
		},
		"Chinese": func() string { return string([]rune{rune(0x4E00 + s.r.IntN(50)), rune(0x4E00 + s.r.IntN(50))}) },
	}
}

// indexAll indexes what is queued.
func indexAll(s *store.Store) error {
	for {
		n, err := s.IndexSome(context.Background())
		if err != nil || n < store.IndexBatch {
			return err
		}
	}
}

// mergeAll merges the index, as the server does while nothing happens.
func mergeAll(s *store.Store) error {
	for {
		if more, err := s.MergeIndex(context.Background()); err != nil || !more {
			return err
		}
	}
}

// search measures searches.
func (d database) search(w io.Writer) (verdicts []verdict, err error) {
	s, remove, err := d.store(true)
	if err != nil {
		return nil, err
	}
	defer remove()
	texts := newSearchTexts()
	sample, err := texts.fill(s, searchedMessages)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := indexAll(s); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%s: %d messages indexed in %s, %s each\n\n", d.name, searchedMessages, time.Since(began).Round(time.Second), time.Since(began)/time.Duration(searchedMessages))
	began = time.Now()
	if err := mergeAll(s); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "Then it was merged in %s\n\n", time.Since(began).Round(time.Second))
	kinds := texts.searchKinds(sample)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "search in %s for\tp50\tp99\tof a read by key\tresults\t\n", d.name)
	var all []time.Duration
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		times, reads, results, err := searchTimes(s, kinds[kind])
		if err != nil {
			return nil, err
		}
		all = append(all, times...)
		p50, p99 := percentiles(times)
		byKey, _ := percentiles(reads)
		fmt.Fprintf(table, "%s\t%s\t%s\t%.1f\t%.1f\t\n", kind, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), float64(p50)/float64(byKey), float64(results)/searchesEach)
	}
	p50, p99 := percentiles(all)
	verdicts = append(verdicts, verdict{fmt.Sprintf("%s: searches in %d messages, p50 at most %s", d.name, searchedMessages, maxSearchP50), p50 <= maxSearchP50, p50.String()},
		verdict{fmt.Sprintf("%s: searches in %d messages, p99 at most %s", d.name, searchedMessages, maxSearchP99), p99 <= maxSearchP99, p99.String()})
	return verdicts, table.Flush()
}

func percentiles(times []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}

// searchTimes returns the times of first pages, and next to each the time of reading a message
// by its index.
func searchTimes(s *store.Store, next func() string) (times, reads []time.Duration, results int, err error) {
	for range searchesEach {
		q, err := search.Parse(next())
		if err != nil {
			return nil, nil, 0, err
		}
		began := time.Now()
		err = s.View(context.Background(), func(r *store.Reader) error {
			found, _, _, err := r.SearchMessages(store.SearchFilter{Query: q, Text: true}, store.SearchPlace{}, 20)
			results += len(found)
			return err
		})
		if err != nil {
			return nil, nil, 0, err
		}
		times, began = append(times, time.Since(began)), time.Now()
		err = s.View(context.Background(), func(r *store.Reader) error {
			h, err := r.Head("s0")
			if err == nil {
				_, err = r.Messages(h, h.Rev, 500, 1)
			}
			return err
		})
		if err != nil {
			return nil, nil, 0, err
		}
		reads = append(reads, time.Since(began))
	}
	return times, reads, results, nil
}

// compareAppends compares appends, with their indexing, with those to a store without index.
func (d database) compareAppends(w io.Writer) ([]verdict, error) {
	const each = 1000
	var stores []*store.Store
	for _, indexed := range []bool{false, true} {
		s, remove, err := d.store(indexed)
		if err != nil {
			return nil, err
		}
		defer remove()
		if err := fillSession(s, "session", fewMessages); err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	texts := newSearchTexts()
	without, with, err := interleave(growthRounds, func() (time.Duration, error) { return texts.appendTime(stores[0], each, false) },
		func() (time.Duration, error) { return texts.appendTime(stores[1], each, true) })
	if err != nil {
		return nil, err
	}
	ratio := float64(with) / float64(without)
	_, err = fmt.Fprintf(w, "\n%s: an append takes %s, and %s with its indexing: %.2f\n\n", d.name, without, with, ratio)
	return []verdict{{fmt.Sprintf("%s: appends with the index take at most %.2f times those without", d.name, maxAppendRatio), ratio <= maxAppendRatio, fmt.Sprintf("%.2f", ratio)}}, err
}

// appendTime returns the average time of an append, with the indexing of the messages and with what
// the index does afterwards.
func (s *searchTexts) appendTime(st *store.Store, n int, index bool) (time.Duration, error) {
	service, err := benchService(st)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range n {
		m := loquat.NewMessage{Role: loquat.RoleUser, Content: s.text()}
		if _, err := service.AppendMessage(context.Background(), chat.Call{}, "session", m); err != nil {
			return 0, err
		}
		if index && i%64 == 63 {
			if err := indexAll(st); err != nil {
				return 0, err
			}
		}
	}
	if index {
		err = errors.Join(indexAll(st), mergeAll(st))
	}
	return time.Since(began) / time.Duration(n), err
}
