package main

import (
	"io"
	"runtime"
	"slices"
	"time"
)

const (
	rounds   = 5
	minRound = 150 * time.Millisecond // of each contender in each round
)

// contender reads bodies. What prepare does is not measured, what it returns is; it
// reports how many chunks it saw.
type contender struct {
	name    string
	prepare func(body io.ReadCloser) func() (chunks int, err error)
}

// source opens the bodies of a workload, one after the other. Where opening is part
// of reading, as over HTTP, where a short body is here with its headers, it counts.
type source struct {
	bodies    int
	open      func(i int) (io.ReadCloser, error)
	openTimed bool
}

// result is what one contender showed, per chunk.
type result struct {
	nanos  []float64 // by round
	allocs float64
}

// compare lets all contenders read all bodies, in interleaved rounds.
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

// oneRound reads the whole workload until minRound has gone by.
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
			if passes == 0 { // reading these stops the world: once is enough
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

// medianRatio compares round by round: what disturbs a round disturbs both.
func medianRatio(a, b result) float64 {
	var ratios []float64
	for i := range a.nanos {
		ratios = append(ratios, a.nanos[i]/b.nanos[i])
	}
	return median(ratios)
}
