package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"

	"golang.org/x/sync/errgroup"
)

// publishing lists the numbers of publishers, and of the events that they publish together
// in one round.
var publishing = []struct{ publishers, events int }{{1, 1_000}, {64, 20_000}, {512, 30_000}}

const storeRounds = 5

// countingDriver counts the commits of a driver.
type countingDriver struct {
	store.Driver
	commits atomic.Int64
}

func (d *countingDriver) Write(ctx context.Context, fn func(store.SQL) error) error {
	d.commits.Add(1)
	return d.Driver.Write(ctx, fn)
}

// scratchStore opens a store in a new directory. remove closes the store and removes the
// directory.
func scratchStore() (s *store.Store, driver *countingDriver, dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "loquat-bench-")
	if err != nil {
		return nil, nil, "", nil, err
	}
	s, driver, err = openStore(dir)
	return s, driver, dir, func() {
		if s != nil {
			s.Close()
		}
		os.RemoveAll(dir)
	}, err
}

// place is where a store is. open may be called again after Close.
type place struct {
	open   func() (*store.Store, error)
	remove func()
}

// newDirectory returns a place in a new data directory.
func newDirectory() (place, error) {
	dir, err := os.MkdirTemp("", "loquat-bench-")
	return place{
		open: func() (*store.Store, error) {
			s, _, err := openStore(dir)
			return s, err
		},
		remove: func() { os.RemoveAll(dir) },
	}, err
}

func openStore(dir string) (*store.Store, *countingDriver, error) {
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(context.Background(), dir, quiet)
	if err != nil {
		return nil, nil, err
	}
	driver := &countingDriver{Driver: db}
	s, err := store.Open(context.Background(), driver, store.Options{Logger: quiet})
	return s, driver, err
}

// publishResult is the result of one round of publishing.
type publishResult struct {
	perSecond     float64
	p50, p99      time.Duration // from the call of publish until a follower has the event
	commits       int64
	filePerSecond float64 // the baseline: a file with as many events and as many fsyncs
}

// benchStore measures publishing with one follower. The baseline is a plain file with as many
// writes and fsyncs.
func benchStore(w io.Writer) ([]verdict, error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "publishers\tevents/s\tevents/commit\tp50\tp99\tfile, same fsyncs\tratio\t")
	for _, p := range publishing {
		var rounds []publishResult
		for range storeRounds {
			r, err := publishRound(p.publishers, p.events)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, r)
		}
		slices.SortFunc(rounds, func(a, b publishResult) int { return int(a.perSecond - b.perSecond) })
		m := rounds[len(rounds)/2]
		fmt.Fprintf(table, "%d\t%.0f\t%.1f\t%s\t%s\t%.0f\t%.2f\t\n", p.publishers, m.perSecond, float64(p.events)/float64(m.commits),
			m.p50.Round(10*time.Microsecond), m.p99.Round(10*time.Microsecond), m.filePerSecond, m.filePerSecond/m.perSecond)
	}
	return nil, table.Flush()
}

// closedLoop calls publish a number of times in all. Each publisher calls it again when it has
// returned, until it fails.
func closedLoop(publishers, times int, publish func() error) (took time.Duration, err error) {
	start := time.Now()
	var left atomic.Int64
	left.Store(int64(times))
	var all errgroup.Group
	for range publishers {
		all.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := publish(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = all.Wait()
	return time.Since(start), err
}

// publishRound runs publishers and a follower. Each publisher publishes one event after
// another and waits for each commit.
func publishRound(publishers, events int) (publishResult, error) {
	s, driver, dir, remove, err := scratchStore()
	defer remove()
	if err != nil {
		return publishResult{}, err
	}
	h, err := benchSession(s, "bench")
	if err != nil {
		return publishResult{}, err
	}
	began := make([]atomic.Int64, int(s.Last())+events+1) // by event id
	followed := make(chan []time.Duration, 1)
	go func() { followed <- follow(s, began, events) }()

	driver.commits.Store(0)
	took, err := closedLoop(publishers, events, func() error {
		at := time.Now().UnixNano()
		return s.Update(context.Background(), func(tx *store.Tx) error {
			id, err := tx.Publish(benchPartial(), &h, nil)
			if err == nil {
				began[id].Store(at)
			}
			return err
		})
	})
	if err != nil {
		return publishResult{}, err
	}
	latencies := <-followed
	slices.Sort(latencies)
	out := publishResult{
		perSecond: float64(events) / took.Seconds(), commits: driver.commits.Load(),
		p50: latencies[len(latencies)/2], p99: latencies[len(latencies)*99/100],
	}
	out.filePerSecond, err = appendFile(filepath.Join(dir, "baseline"), events, int(out.commits))
	return out, err
}

// follow reads all events and returns the latency of each.
func follow(s *store.Store, began []atomic.Int64, events int) []time.Duration {
	watch := s.Watch(store.Filter{})
	defer watch.Stop()
	at := loquat.EventID(len(began) - events - 1)
	out := make([]time.Duration, 0, events)
	for len(out) < events {
		records, err := s.Events(context.Background(), at, store.Filter{}, store.Bounds{Events: 5000})
		if err != nil {
			return out
		}
		now := time.Now().UnixNano()
		for _, r := range records {
			out = append(out, time.Duration(now-began[r.ID].Load()))
			at = r.ID
		}
		if len(records) == 0 {
			<-watch.C()
		}
	}
	return out
}

// appendFile appends events to a file, with the given number of fsyncs, and returns the
// number of events per second.
func appendFile(path string, events, syncs int) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	rec, err := benchPartial().Encode()
	if err != nil {
		return 0, err
	}
	line := append(rec.Body, '\n')
	w := bufio.NewWriterSize(f, 1<<20)
	start := time.Now()
	written := 0
	for i := range syncs {
		for until := events * (i + 1) / syncs; written < until; written++ {
			if _, err := w.Write(line); err != nil {
				return 0, err
			}
		}
		if err := w.Flush(); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(events) / time.Since(start).Seconds(), nil
}

func benchPartial() loquat.Event {
	return loquat.Event{
		Type: loquat.Partial, SessionID: "019aa000-0000-7000-8000-000000000000", RequestID: "019aa000-0000-7000-8000-000000000001",
		Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: " token"},
	}
}

// benchSession creates an empty session.
func benchSession(s *store.Store, id string) (h store.Head, err error) {
	err = s.Update(context.Background(), func(tx *store.Tx) (err error) {
		h, err = addSession(tx, id, "default", nil)
		return err
	})
	return h, err
}

// addSession creates an empty session in a transaction.
func addSession(tx *store.Tx, id, agent string, metadata loquat.Object) (h store.Head, err error) {
	if h, err = tx.CreateSession(id, agent, metadata); err != nil {
		return h, err
	}
	if _, err = tx.Publish(loquat.Event{Type: loquat.SessionCreated, AgentID: agent}, &h, nil); err != nil {
		return h, err
	}
	return h, tx.Checkpoint(&h, nil, false)
}
