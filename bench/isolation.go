package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/faultproxy"
)

// The parameters of the run: pairs of rounds without and with neighbours. A faulty network
// connects the neighbours' backend.
const (
	isolationPairs      = 5
	isolationRound      = 6 * time.Second
	isolationUsers      = 10
	isolationNeighbours = 30
	isolationPause      = 20 * time.Millisecond // between two sends of a user
	maxIsolationRatio   = 3
)

// benchIsolation measures the time from a send until an SSE client receives its events,
// while the backend of other users stalls, breaks off and is slow.
func benchIsolation(w io.Writer) ([]verdict, error) {
	b, stop, err := startIsolation()
	if err != nil {
		return nil, err
	}
	defer stop()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "sends\tp50 alone\tp99 alone\tp50 with neighbours\tp99 with neighbours\tratio of p99\t")
	var ratios []float64
	for pair := range isolationPairs {
		var rounds [2]latencies // alone, with neighbours
		for turn := range 2 {
			kind := (pair + turn) % 2 // pairs begin with each kind in turn
			if rounds[kind], err = b.round(kind == 1); err != nil {
				return nil, err
			}
		}
		ratio := float64(rounds[1].p(99)) / float64(rounds[0].p(99))
		ratios = append(ratios, ratio)
		fmt.Fprintf(table, "%d + %d\t%s\t%s\t%s\t%s\t%.2f\t\n", len(rounds[0])/2, len(rounds[1])/2,
			rounds[0].p(50), rounds[0].p(99), rounds[1].p(50), rounds[1].p(99), ratio)
	}
	if err := table.Flush(); err != nil {
		return nil, err
	}
	s := b.proxy.Stats()
	fmt.Fprintf(w, "\nneighbours: %d sessions; %d connections to their backend, %d cut, %d stalls, %d slow\n\n", isolationNeighbours, s.Connections, s.Cuts, s.Stalls, s.Slowed)
	if s.Cuts == 0 || s.Stalls == 0 {
		return nil, fmt.Errorf("the neighbours had no faults: %+v", s)
	}
	return []verdict{{
		fmt.Sprintf("p99 from send to SSE client at most %d times as long with neighbours whose backend is faulty", maxIsolationRatio),
		median(ratios) <= maxIsolationRatio, fmt.Sprintf("median ratio %.2f", median(ratios)),
	}}, nil
}

// latencies are the times from a call of send until a client received an event.
type latencies []time.Duration

func (l latencies) p(percent int) time.Duration {
	l = slices.Sorted(slices.Values(l))
	return l[min(len(l)*percent/100, len(l)-1)].Round(10 * time.Microsecond)
}

// isolation is a server with two providers. The second one is behind a fault proxy.
type isolation struct {
	client *client.Client
	proxy  *faultproxy.Proxy
}

func startIsolation() (b *isolation, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	p, err := buildProgram()
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, p.remove)
	backend, err := p.start("backend", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, backend.stop)
	proxy, err := faultproxy.Start(faultproxy.Options{
		Target: strings.TrimPrefix(backend.url, "http://"), Seed: 1,
		Cut: 0.5, Stall: 0.5, Slow: 0.5, Within: 16 << 10, StallFor: 2 * time.Second, Rate: 4 << 10,
	})
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, func() { proxy.Close() })
	server, err := p.serve(fmt.Sprintf(`{"providers": {
		"near": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1", "request_options": {"loquat_script": {"rate": 0}}},
		"far": {"provider": "reference_generic_compatible", "model": "lorem", "base_url": "http://%s/v1", "timeout": 1,
			"retry_on_timeout": [0.1, 0.1], "stream_recovery": {"mode": "aggressive"}, "request_options": {"loquat_script": {"chunks": 100, "rate": 50}}}},
		"agents": {"default": {"provider": "near"}, "neighbour": {"provider": "far"}}}`, backend.url, proxy.Addr()), "isolation")
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, server.stop)
	c, err := client.New(server.url, client.Options{})
	return &isolation{client: c, proxy: proxy}, stop, err
}

// round measures one round, with or without neighbours.
func (b *isolation) round(neighbours bool) (latencies, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if neighbours {
		stop, err := b.startNeighbours(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	var all sync.WaitGroup
	var failed errorOnce
	measured := make([]latencies, isolationUsers)
	for i := range isolationUsers {
		all.Go(func() {
			took, err := b.sendAndMeasure(ctx)
			failed.note(err)
			measured[i] = took
		})
	}
	all.Wait()
	return slices.Concat(measured...), failed.get()
}

// sendAndMeasure sends to a session of its own, one request after another. For each request
// it measures the time until its stream contains request_started, and until the final.
func (b *isolation) sendAndMeasure(ctx context.Context) (took latencies, err error) {
	events, id, stop, err := b.followNew(ctx, "default")
	if err != nil {
		return nil, err
	}
	defer stop()
	content := "a question of some words"
	for end := time.Now().Add(isolationRound); time.Now().Before(end); time.Sleep(isolationPause) {
		began := time.Now()
		var sent loquat.SendResult
		answered := make(chan error, 1)
		go func() {
			var err error
			sent, err = b.client.Send(ctx, id, loquat.Send{Content: &content, Stream: new(true)})
			answered <- err
		}()
		received := 0
		for e := range events {
			if e.Type == loquat.RequestStarted || e.Type == loquat.Final {
				took = append(took, time.Since(began))
				received++
			}
			if e.Type == loquat.RequestCompleted {
				break
			}
		}
		if err := <-answered; err != nil {
			return nil, err
		}
		if received != 2 {
			return nil, fmt.Errorf("request %s ended without a reply", sent.RequestID)
		}
	}
	return took, nil
}

// followNew creates a session and follows it by Server-Sent Events. The events end when the
// context ends or stop is called.
func (b *isolation) followNew(ctx context.Context, agent string) (events <-chan loquat.Event, id string, stop func(), err error) {
	s, err := b.client.CreateSession(ctx, loquat.NewSession{AgentID: agent})
	if err != nil {
		return nil, "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan loquat.Event)
	go func() {
		defer close(out)
		for e, err := range b.client.Follow(ctx, client.Query{SessionID: s.SessionID, Since: &s.CursorEventID, OmitSession: true}) {
			if err != nil {
				return
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, s.SessionID, cancel, nil
}

// startNeighbours starts neighbours that send all the time until stop is called.
func (b *isolation) startNeighbours(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range isolationNeighbours {
		events, id, stop, err := b.followNew(ctx, "neighbour")
		if err != nil {
			cancel()
			return nil, err
		}
		all.Go(func() {
			defer stop()
			content := "and another"
			for ctx.Err() == nil {
				sent, err := b.client.Send(ctx, id, loquat.Send{Content: &content, Stream: new(true)})
				if err != nil {
					return // the round is over
				}
				for e := range events {
					if e.Type == loquat.RequestCompleted {
						break
					}
				}
				if ctx.Err() != nil {
					_, _ = b.client.Cancel(context.Background(), sent.RequestID) // the next round may be without neighbours
				}
			}
		})
	}
	time.Sleep(time.Second) // until their requests are running
	return func() { cancel(); all.Wait() }, nil
}
