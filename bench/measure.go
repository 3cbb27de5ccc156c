package main

import (
	"io"
	"runtime"
	"slices"
	"time"
)

const (
	rounds   = 5
	minRound = 150 * time.Millisecond // for each decoder in each round
)

// contender is a decoder to compare. Only the function that prepare returns is measured. It
// returns the number of chunks.
type contender struct {
	name    string
	prepare func(body io.ReadCloser) func() (chunks int, err error)
}

// source opens the bodies of a workload. If openTimed is set, the time for opening counts
// too, because over HTTP a short body arrives together with its headers.
type source struct {
	bodies    int
	open      func(i int) (io.ReadCloser, error)
	openTimed bool
}

// result is the cost of one decoder, per chunk.
type result struct {
	nanos  []float64 // by round
	allocs float64
}

// compare measures all decoders with all bodies, in interleaved rounds.
func compare(all []contender, src source, chunks int) ([]result, error) {
	results := make([]result, len(all))
	for range rounds {
		for i, c := range all {
			nanos, allocs, err := oneRound(c, src, chunks)
			if err != nil {
				return nil, err
			}
			results[i].nanos = append(results[i].nanos, nanos)
			results[i].allocs = allocs
		}
	}
	return results, nil
}

// oneRound reads the whole workload repeatedly until minRound has passed.
func oneRound(c contender, src source, chunks int) (nanos, allocs float64, err error) {
	var spent time.Duration
	var mallocs uint64
	passes := 0
	for ; spent < minRound; passes++ {
		for i := range src.bodies {
			opening := time.Now()
			body, err := src.open(i)
			if err != nil {
				return 0, 0, err
			}
			if src.openTimed {
				spent += time.Since(opening)
			}
			run := c.prepare(body)
			var before, after runtime.MemStats
			if passes == 0 { // ReadMemStats stops the world, so do it in one pass only
				runtime.ReadMemStats(&before)
			}
			start := time.Now()
			_, err = run()
			spent += time.Since(start)
			if passes == 0 {
				runtime.ReadMemStats(&after)
				mallocs += after.Mallocs - before.Mallocs
			}
			body.Close()
			if err != nil {
				return 0, 0, err
			}
		}
	}
	return float64(spent.Nanoseconds()) / float64(passes*chunks), float64(mallocs) / float64(chunks), nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// medianRatio returns the median of the ratios of the rounds, because a disturbance affects
// both results of a round.
func medianRatio(a, b result) float64 {
	var ratios []float64
	for i := range a.nanos {
		ratios = append(ratios, a.nanos[i]/b.nanos[i])
	}
	return median(ratios)
}
