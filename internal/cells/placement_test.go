package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// someCells draws cells of different weights.
func someCells(t *rapid.T) []cell {
	n := rapid.IntRange(2, 12).Draw(t, "cells")
	all := make([]cell, n)
	for i := range all {
		all[i] = cell{Name: fmt.Sprintf("c%d-%d", i, rapid.IntRange(0, 1e6).Draw(t, "name")), Weight: float64(rapid.IntRange(1, 4).Draw(t, "weight"))}
	}
	return all
}

// A new cell only takes buckets, a lost one only gives its own away, and the order of the cells
// does not matter.
func TestPlaceMovesOnlyWhatItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := someCells(t)
		last := all[len(all)-1]
		with, without := place(all), place(all[:len(all)-1])
		var of int
		for _, m := range movesBetween(without, with) {
			if m.To != last.Name {
				t.Fatalf("adding %s moves bucket %d from %s to %s", last.Name, m.Bucket, m.From, m.To)
			}
			of++
		}
		for _, name := range with {
			if name == last.Name {
				of--
			}
		}
		if of != 0 {
			t.Fatalf("%d buckets of %s did not move to it", -of, last.Name)
		}
		for _, m := range movesBetween(with, without) {
			if m.From != last.Name {
				t.Fatalf("the loss of %s moves bucket %d from %s", last.Name, m.Bucket, m.From)
			}
		}
		slices.Reverse(all)
		if !slices.Equal(place(all), with) {
			t.Fatal("the order of the cells changes the table")
		}
	})
}

// Every cell gets buckets in proportion to its weight, within what chance explains.
func TestPlaceIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := someCells(t)
		even := make([]float64, buckets)
		for b := range even {
			even[b] = 1
		}
		var weights float64
		for _, c := range all {
			weights += c.Weight
		}
		for name, load := range place(all).loads(all, even) {
			weight := all[slices.IndexFunc(all, func(c cell) bool { return c.Name == name })].Weight
			deviation := 1 / math.Sqrt(buckets*weight/weights)
			if math.Abs(load-1) > 6*deviation {
				t.Fatalf("%s has %.3f times its share; the standard deviation is %.3f", name, load, deviation)
			}
		}
	})
}

// The keys are spread evenly over the buckets. A key always has the same bucket, because a router
// with another hash would not find the sessions. The hash of no bytes is xxHash's published value.
func TestBucket(t *testing.T) {
	for key, want := range map[string]int{"": 0xef46db3751d8e999 % buckets, "019aa000-0000-7000-8000-000000000000": 12886} {
		if got := bucket([]byte(key)); got != want {
			t.Errorf("the bucket of %q is %d, not %d", key, got, want)
		}
	}
	load := population{Seed: 7, Sessions: 200_000, SessionsPerUser: 5, EventsPerMean: 10}.bySession()
	var square float64
	mean := 200_000.0 / buckets
	for _, n := range load.Sessions {
		square += (n - mean) * (n - mean) / mean
	}
	// The sum follows a chi-squared distribution with buckets-1 degrees of freedom.
	if degrees := float64(buckets - 1); math.Abs(square-degrees) > 6*math.Sqrt(2*degrees) {
		t.Errorf("chi-squared is %.0f with %.0f degrees of freedom", square, degrees)
	}
}

// Rebalancing ends within the limit or says by its result that it could not, moves nothing when
// nothing is above the limit, and never makes the highest load higher.
func TestRebalance(t *testing.T) {
	highest := func(loads map[string]float64) (most float64) {
		for _, l := range loads {
			most = max(most, l)
		}
		return most
	}
	rapid.Check(t, func(t *rapid.T) {
		all := someCells(t)
		p := population{Seed: rapid.Uint64().Draw(t, "seed"), Sessions: 30_000, SessionsPerUser: 5, EventsPerMean: 10}
		load, table := p.byUser().Events, place(all)
		limit := 1 + float64(rapid.IntRange(1, 30).Draw(t, "percent"))/100
		before := highest(table.loads(all, load))
		after := rebalance(table, all, load, limit)
		reached := highest(after.loads(all, load))
		moved := len(movesBetween(table, after))
		switch {
		case reached > before+1e-9:
			t.Fatalf("the highest load grew from %.3f to %.3f", before, reached)
		case before <= limit && moved > 0:
			t.Fatalf("%d buckets move although the load is %.3f of at most %.3f", moved, before, limit)
		case reached > limit:
			t.Fatalf("the load is %.3f, above %.3f, although the buckets are small", reached, limit)
		}
		if !slices.Equal(rebalance(after, all, load, limit), after) {
			t.Fatal("rebalancing again moves buckets")
		}
	})
	// One bucket has all the load: nothing helps, and the call returns.
	all := []cell{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}
	load := make([]float64, buckets)
	load[3] = 1
	table := place(all)
	if after := rebalance(table, all, load, 1.1); !slices.Equal(after, table) {
		t.Error("a single bucket with all the load moved")
	}
}

// A schedule moves everything, keeps to the number of copies of each cell, and takes neither
// longer than one move after the other nor shorter than the busiest cell needs.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := bucketLoad{Sessions: make([]float64, buckets), Events: make([]float64, buckets)}
		var moves []bucketMove
		rates := moveRates{EventsPerSecond: 100, Parallel: rapid.IntRange(1, 3).Draw(t, "copies"), Switch: time.Second}
		var serial time.Duration
		need := map[string]time.Duration{}
		for b := range rapid.IntRange(0, 60).Draw(t, "moves") {
			load.Sessions[b], load.Events[b] = 1, float64(rapid.IntRange(0, 1000).Draw(t, "events"))
			m := bucketMove{Bucket: b, From: rapid.SampledFrom([]string{"a", "b", backup}).Draw(t, "from"), To: rapid.SampledFrom([]string{"c", "d"}).Draw(t, "to")}
			moves = append(moves, m)
			takes := time.Second + time.Duration(load.Events[b]*float64(10*time.Millisecond))
			serial += takes
			need[m.From] += takes
			need[m.To] += takes
		}
		plan := schedule(moves, load, rates)
		if int(plan.Sessions) != len(moves) {
			t.Fatalf("%v of %d sessions moved", plan.Sessions, len(moves))
		}
		if plan.Took > serial+time.Microsecond {
			t.Fatalf("it took %s; one after the other takes %s", plan.Took, serial)
		}
		for cell, busy := range plan.Busy {
			if cell == backup {
				continue
			}
			if busy > rates.Parallel {
				t.Fatalf("%s had %d copies at a time", cell, busy)
			}
			if least := need[cell] / time.Duration(rates.Parallel); plan.Took < least-time.Microsecond {
				t.Fatalf("it took %s; %s alone needs %s", plan.Took, cell, least)
			}
		}
	})
}

func small() options {
	o := defaults()
	o.Population.Sessions = 20_000
	o.Cells = 5
	return o
}

func TestSimulateRepeats(t *testing.T) {
	report := func(o options) string {
		var b bytes.Buffer
		if err := simulate(&b, o); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	o := small()
	first := report(o)
	if again := report(o); again != first {
		t.Errorf("the same seed gives\n%s\nand\n%s", first, again)
	}
	o.Population.Seed++
	if report(o) == first {
		t.Error("another seed gives the same report")
	}
}

func TestSimulateRefuses(t *testing.T) {
	for want, change := range map[string]func(*options){
		"-sessions is 0":            func(o *options) { o.Population.Sessions = 0 },
		"-copy-rate is NaN":         func(o *options) { o.Rates.EventsPerSecond = math.NaN() },
		"-limit must be above 1":    func(o *options) { o.Limit = 1 },
		"at most 1":                 func(o *options) { o.Headroom = 2 },
		"2 to 2048 cells":           func(o *options) { o.Cells = 1 },
		"not 99999":                 func(o *options) { o.Cells = 99_999 },
		"-switch must not be negat": func(o *options) { o.Rates.Switch = -1 },
	} {
		o := small()
		change(&o)
		if err := simulate(&bytes.Buffer{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// docs/cells.md shows the report of the defaults.
func TestPageHasTheReport(t *testing.T) {
	if testing.Short() {
		t.Skip("10 million sessions take seconds")
	}
	page, err := os.ReadFile("../../docs/cells.md")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := simulate(&b, defaults()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), b.String()) {
		t.Errorf("docs/cells.md lacks the report of make simulate:\n%s", &b)
	}
}
