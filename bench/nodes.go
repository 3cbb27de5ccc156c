//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// The aims of several nodes.
const (
	nodeCount    = 3
	maxOfEmbed   = 3 // times the median delay of the embedded store
	maxOfHistory = 1.2
)

// benchNodes measures the store in PostgreSQL. The section postgres measures publishing.
func benchNodes(w io.Writer) ([]verdict, error) {
	server, err := pgtest.Run("max_connections=300")
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	streams, err := compareStreams(w, server)
	if err != nil {
		return nil, err
	}
	history, err := compareHistory(w, server)
	return append(streams, history...), err
}

// compareStreams compares the delay of streams over three nodes with that of the embedded store.
// Most followers are at another node than the one that runs their request.
func compareStreams(w io.Writer, server *pgtest.Server) ([]verdict, error) {
	f, err := startFloor()
	if err != nil {
		return nil, err
	}
	defer f.stop()
	load := streamLoad{200, 50, 200, 1}
	var ratios []float64
	var embedded, nodes [][2]time.Duration
	for range floorPairs {
		one, err := f.streamOver(load, []string{fmt.Sprintf(floorConfig, f.backend.url)})
		if err != nil {
			return nil, err
		}
		name, err := server.NewDatabase()
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf(floorConfig, f.backend.url)
		config = fmt.Sprintf(`{"store": {"url": %q}, %s`, server.URL(name), config[1:])
		three, err := f.streamOver(load, slices.Repeat([]string{config}, nodeCount))
		if err != nil {
			return nil, err
		}
		embedded, nodes = append(embedded, one), append(nodes, three)
		ratios = append(ratios, float64(three[0])/float64(one[0]))
	}
	shown := func(runs [][2]time.Duration) string {
		var p50, p99 []float64
		for _, r := range runs {
			p50, p99 = append(p50, ms(r[0])), append(p99, ms(r[1]))
		}
		return fmt.Sprintf("p50 %.1f ms, p99 %.0f ms", median(p50), median(p99))
	}
	met := median(ratios) <= maxOfEmbed
	t := newTable("work", "embedded", "3 nodes on PostgreSQL", "p50, ratio", "aim", "holds")
	t.add("200 sessions × 50/s × 200", shown(embedded), shown(nodes), showRatios(ratios), fmt.Sprintf("at most %d", maxOfEmbed), yesOrNo(met))
	fmt.Fprintln(w)
	return []verdict{{fmt.Sprintf("200 sessions × 50/s: p50 over 3 nodes at most %d times that of the embedded store", maxOfEmbed), met, fmt.Sprintf("%.2f", median(ratios))}}, t.print(w)
}

// streamOver runs a load on servers and returns the median and the 99th percentile of the delays.
// The servers share their sessions.
func (f *floorBench) streamOver(load streamLoad, configs []string) (delays [2]time.Duration, err error) {
	var targets []target
	p := f.programs[theProduct]
	for _, config := range configs {
		f.runs++
		data := fmt.Sprint("run-", f.runs)
		server, err := p.serve(config, data)
		if err != nil {
			return delays, err
		}
		defer func() {
			server.stop()
			os.RemoveAll(p.data(data))
			os.Remove(filepath.Join(p.dir, data+".json"))
		}()
		t := newTarget(server.url)
		defer t.close()
		targets = append(targets, t)
	}
	for _, t := range targets {
		if err := warmUp(t); err != nil {
			return delays, err
		}
	}
	return load.over(targets)
}

// over streams at targets that share their sessions: each session is at one of them, and its
// follower at any.
func (l streamLoad) over(targets []target) (delays [2]time.Duration, err error) {
	var sessions []string
	var followers []*markFollower
	defer func() {
		for _, f := range followers {
			f.conn.Close()
		}
	}()
	for i := range l.sessions {
		id, err := targets[i%len(targets)].createSession("{}")
		if err != nil {
			return delays, err
		}
		f, err := targets[i/len(targets)%len(targets)].followMarks(id, l.chunks)
		if err != nil {
			return delays, err
		}
		sessions, followers = append(sessions, id), append(followers, f)
	}
	time.Sleep(time.Second)
	if err := l.streamAt(func(i int) target { return targets[i%len(targets)] }, sessions, followers); err != nil {
		return delays, err
	}
	var all []time.Duration
	for _, f := range followers {
		all = append(all, f.took...)
	}
	return [2]time.Duration{percentile(all, 50), percentile(all, 99)}, nil
}

// compareHistory compares polls of a small and a large store in PostgreSQL, and appends to short
// and long sessions.
func compareHistory(w io.Writer, server *pgtest.Server) ([]verdict, error) {
	places := func() (place, error) {
		name, err := server.NewDatabase()
		return place{
			open: func() (*store.Store, error) {
				quiet := slog.New(slog.DiscardHandler)
				db, err := postgres.Open(context.Background(), postgres.Options{URL: server.URL(name), Node: "bench", Logger: quiet})
				if err != nil {
					return nil, err
				}
				return store.Open(context.Background(), db, store.Options{Logger: quiet})
			},
			remove: func() {},
		}, err
	}
	fmt.Fprintln(w)
	verdicts, err := comparePolls(w, places, maxOfHistory)
	if err != nil {
		return nil, err
	}
	few, many, err := appendTimes(places)
	if err != nil {
		return nil, err
	}
	ratio := float64(many) / float64(few)
	t := newTable("append", "after 10 messages", "after 10,000 messages", "ratio", "aim", "holds")
	t.add("PostgreSQL", few.String(), many.String(), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at most %.1f", maxOfHistory), yesOrNo(ratio <= maxOfHistory))
	fmt.Fprintln(w)
	return append(verdicts, verdict{"an append after 10,000 messages costs at most 1.2 times one after 10, in PostgreSQL", ratio <= maxOfHistory, fmt.Sprintf("%.2f", ratio)}), t.print(w)
}
