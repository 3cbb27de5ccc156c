package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

// The sizes to compare, and the largest allowed ratios of their costs.
const (
	fewEvents, manyEvents     = 1_000, 1_000_000
	fewMessages, manyMessages = 10, 10_000
	pollRows                  = 100
	maxFullRatio              = 1.5
	maxEmptyRatio             = 1.2
	growthRounds              = 5
)

// benchGrowth compares the cost of polling a small and a large store, and the cost of
// appending to a short and a long session.
func benchGrowth(w io.Writer) ([]verdict, error) {
	polls, err := comparePolls(w, newDirectory, maxFullRatio)
	if err != nil {
		return nil, err
	}
	appends, err := compareAppends(w)
	return append(polls, appends...), err
}

// pollStore is a store of a given size and a feed of it.
type pollStore struct {
	feed   *feed.Feed
	since  loquat.EventID // pollRows events of the polled session come after it
	last   loquat.EventID // of the polled session
	remove func()
}

// comparePolls compares polls that read from the database. Polls that read from the tail
// cost the same in stores of any size.
func comparePolls(w io.Writer, places func() (place, error), mostFull float64) ([]verdict, error) {
	few, err := newPollStore(places, fewEvents)
	if err != nil {
		return nil, err
	}
	defer few.remove()
	many, err := newPollStore(places, manyEvents)
	if err != nil {
		return nil, err
	}
	defer many.remove()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "poll\t%d events\t%d events\tratio\t\n", fewEvents, manyEvents)
	var verdicts []verdict
	for _, c := range []struct {
		name  string
		polls int
		since func(*pollStore) loquat.EventID
		rows  int
		most  float64
	}{
		{fmt.Sprintf("%d rows of a session", pollRows), 500, func(p *pollStore) loquat.EventID { return p.since }, pollRows, mostFull},
		{"nothing new", 3000, func(p *pollStore) loquat.EventID { return p.last }, 0, maxEmptyRatio},
	} {
		a, b, err := interleave(growthRounds, func() (time.Duration, error) { return few.poll(c.since(few), c.polls, c.rows) },
			func() (time.Duration, error) { return many.poll(c.since(many), c.polls, c.rows) })
		if err != nil {
			return nil, err
		}
		ratio := float64(b) / float64(a)
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\t\n", c.name, a, b, ratio)
		verdicts = append(verdicts, verdict{fmt.Sprintf("a poll (%s) of %d events at most %.1f times that of %d", c.name, manyEvents, c.most, fewEvents),
			ratio <= c.most, fmt.Sprintf("%.2f", ratio)})
	}
	return verdicts, table.Flush()
}

// interleave runs a and b alternately, in so many rounds, and returns the median of each. Alternately,
// because a busy machine can take one and a half times as long from one moment to the next.
func interleave(rounds int, a, b func() (time.Duration, error)) (time.Duration, time.Duration, error) {
	var as, bs []time.Duration
	for range rounds {
		x, err := a()
		if err != nil {
			return 0, 0, err
		}
		y, err := b()
		if err != nil {
			return 0, 0, err
		}
		as, bs = append(as, x), append(bs, y)
	}
	slices.Sort(as)
	slices.Sort(bs)
	return as[len(as)/2], bs[len(bs)/2], nil
}

// poll polls n times and returns the average time of a poll.
func (p *pollStore) poll(since loquat.EventID, n, rows int) (time.Duration, error) {
	start := time.Now()
	for range n {
		w, err := p.feed.Events(context.Background(), feed.Query{SessionID: "polled", Since: &since, Limit: 1000})
		if err != nil {
			return 0, err
		}
		if len(w.Events) != rows {
			return 0, fmt.Errorf("a poll brought %d events, not %d", len(w.Events), rows)
		}
	}
	return time.Since(start) / time.Duration(n), nil
}

// newPollStore fills a store with events of several sessions, including the polled one. Then
// it opens the store again, so that the tail is empty.
func newPollStore(places func() (place, error), events int) (*pollStore, error) {
	where, err := places()
	if err != nil {
		return nil, err
	}
	s, err := where.open()
	if err != nil {
		where.remove()
		return nil, err
	}
	const sessions = 20
	var heads []store.Head
	for i := range sessions {
		name := fmt.Sprint("other", i)
		if i == 0 {
			name = "polled"
		}
		h, err := benchSession(s, name)
		if err != nil {
			return nil, err
		}
		heads = append(heads, h)
	}
	p := &pollStore{remove: where.remove}
	if err := p.fill(s, heads, events-2*pollRows); err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	if s, err = where.open(); err != nil {
		return nil, err
	}
	p.feed = feed.New(s)
	p.remove = func() { s.Close(); where.remove() }
	return p, nil
}

// fill publishes events of all sessions, then the events to poll for, then events of
// another session.
func (p *pollStore) fill(s *store.Store, heads []store.Head, before int) error {
	for done := 0; done < before; {
		if err := s.Update(context.Background(), func(tx *store.Tx) error {
			for n := 0; n < 2000 && done+n < before; n++ {
				if _, err := tx.Publish(benchAppended(n), &heads[n%len(heads)], nil); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		done += min(2000, before-done)
	}
	p.since = s.Last()
	return s.Update(context.Background(), func(tx *store.Tx) (err error) {
		for range pollRows {
			if p.last, err = tx.Publish(benchAppended(0), &heads[0], nil); err != nil {
				return err
			}
		}
		for range pollRows {
			if _, err = tx.Publish(benchAppended(0), &heads[1], nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// benchAppended returns an event that compaction does not change.
func benchAppended(int) loquat.Event {
	return loquat.Event{Type: loquat.Checkpoint, Timestamp: new(time.Time)}
}

func benchService(s *store.Store) (*chat.Service, error) {
	registry, err := plugin.NewRegistry()
	if err != nil {
		return nil, err
	}
	cfg := config.New(loquat.Object{}.Set("providers", map[string]any{"none": map[string]any{"provider": "none"}}), config.ProcessEnvironment())
	return chat.New(chat.Options{Store: s, Config: config.NewLive(cfg), Plugins: registry, Logger: slog.New(slog.DiscardHandler)}), nil
}

// compareAppends compares appending to sessions of a few and of many messages, in time
// and in bytes on disk.
func compareAppends(w io.Writer) ([]verdict, error) {
	few, many, err := appendTimes(newDirectory)
	if err != nil {
		return nil, err
	}
	fewBytes, err := appendBytes(fewMessages)
	if err != nil {
		return nil, err
	}
	manyBytes, err := appendBytes(manyMessages)
	if err != nil {
		return nil, err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nappend\tafter %d messages\tafter %d messages\tratio\t\n", fewMessages, manyMessages)
	var verdicts []verdict
	for _, c := range []struct {
		what  string
		shown [2]string
		ratio float64
	}{
		{"time", [2]string{few.String(), many.String()}, float64(many) / float64(few)},
		{"bytes", [2]string{fmt.Sprintf("%.0f", fewBytes), fmt.Sprintf("%.0f", manyBytes)}, manyBytes / fewBytes},
	} {
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\t\n", c.what, c.shown[0], c.shown[1], c.ratio)
		verdicts = append(verdicts, verdict{fmt.Sprintf("appending message %d costs at most %.1f times the %s of message %d", manyMessages, maxFullRatio, c.what, fewMessages),
			c.ratio <= maxFullRatio, fmt.Sprintf("%.2f", c.ratio)})
	}
	return verdicts, table.Flush()
}

// shortSessions is the number of short sessions. The appends are spread over them, so that
// they stay short.
const shortSessions = 20

// appendTimes measures appends to short sessions and to a long one, alternately and in the
// same store.
func appendTimes(places func() (place, error)) (few, many time.Duration, err error) {
	where, err := places()
	if err != nil {
		return 0, 0, err
	}
	defer where.remove()
	s, err := where.open()
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	if err := fillSession(s, "long", manyMessages); err != nil {
		return 0, 0, err
	}
	for i := range shortSessions {
		if err := fillSession(s, fmt.Sprint(i), fewMessages); err != nil {
			return 0, 0, err
		}
	}
	service, err := benchService(s)
	if err != nil {
		return 0, 0, err
	}
	const each = 100
	n := 0
	return interleave(growthRounds,
		func() (time.Duration, error) {
			return timeAppends(service, each, func() string { n++; return fmt.Sprint(n % shortSessions) })
		},
		func() (time.Duration, error) { return timeAppends(service, each, func() string { return "long" }) })
}

// timeAppends returns the median time of an append.
func timeAppends(service *chat.Service, n int, session func() string) (time.Duration, error) {
	var times []time.Duration
	for range n {
		id, start := session(), time.Now()
		if err := appendBench(service, id); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func appendBench(service *chat.Service, session string) error {
	m := loquat.NewMessage{Role: loquat.RoleUser, Content: benchMessage}
	_, err := service.AppendMessage(context.Background(), chat.Call{}, session, m)
	return err
}

// appendBytes returns the growth of the data directory, in bytes, per append to a session
// with the given number of messages.
func appendBytes(messages int) (float64, error) {
	const appends = 300
	s, _, dir, remove, err := scratchStore()
	if err != nil {
		return 0, err
	}
	defer remove()
	if err := fillSession(s, "session", messages); err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	before, err := dirSize(dir)
	if err != nil {
		return 0, err
	}
	if s, _, err = openStore(dir); err != nil {
		return 0, err
	}
	service, err := benchService(s)
	if err != nil {
		return 0, err
	}
	for range appends {
		if err := appendBench(service, "session"); err != nil {
			return 0, err
		}
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	after, err := dirSize(dir)
	return float64(after-before) / appends, err
}

const benchMessage = "A message of about the length that people write when they ask something, " +
	"with a second line in which they say what they have tried already."

func fillSession(s *store.Store, id string, messages int) error {
	h, err := benchSession(s, id)
	if err != nil {
		return err
	}
	return s.Update(context.Background(), func(tx *store.Tx) error {
		h, err := tx.Head(h.SessionID)
		if err != nil {
			return err
		}
		for i := range messages {
			m := loquat.Message{ID: fmt.Sprint(id, "-", i), Role: loquat.RoleUser, Content: benchMessage, CreatedAt: tx.Now}
			if _, err := tx.AppendMessage(&h, m); err != nil {
				return err
			}
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

func dirSize(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
