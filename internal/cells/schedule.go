package main

import (
	"container/heap"
	"slices"
	"time"
)

// moveRates are what a move costs.
type moveRates struct {
	EventsPerSecond float64       // of one copy
	Parallel        int           // buckets that a cell gives or takes at a time
	Switch          time.Duration // from the end of the copy until all routers know the new cell
}

// movePlan is the result of moving buckets.
type movePlan struct {
	Took         time.Duration // until the last bucket has moved
	MedianPause  time.Duration // of a bucket: its sessions refuse changes while it moves
	LongestPause time.Duration
	Sessions     float64 // that moved
	Events       float64
	Busy         map[string]int // most buckets that a cell had in moves at a time
}

// move is a move that runs.
type move struct {
	bucketMove
	ends time.Duration
}

type running []move

func (r running) Len() int           { return len(r) }
func (r running) Less(i, j int) bool { return r[i].ends < r[j].ends }
func (r running) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *running) Push(x any)        { *r = append(*r, x.(move)) }
func (r *running) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// schedule carries out moves as early as the cells allow, the largest buckets first, and
// returns how long it takes.
func schedule(moves []bucketMove, load bucketLoad, rates moveRates) movePlan {
	waiting := slices.Clone(moves)
	slices.SortStableFunc(waiting, func(a, b bucketMove) int {
		switch x, y := load.Events[a.Bucket], load.Events[b.Bucket]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	var plan movePlan
	var pauses []time.Duration
	plan.Busy = map[string]int{}
	busy := map[string]int{}
	var now time.Duration
	var current running
	start := func(m bucketMove) bool {
		if m.From != backup && busy[m.From] >= rates.Parallel || busy[m.To] >= rates.Parallel {
			return false
		}
		pause := rates.Switch + time.Duration(load.Events[m.Bucket]/rates.EventsPerSecond*float64(time.Second))
		heap.Push(&current, move{m, now + pause})
		for _, cell := range []string{m.From, m.To} {
			busy[cell]++
			plan.Busy[cell] = max(plan.Busy[cell], busy[cell])
		}
		pauses = append(pauses, pause)
		plan.Sessions += load.Sessions[m.Bucket]
		plan.Events += load.Events[m.Bucket]
		return true
	}
	for len(waiting) > 0 || len(current) > 0 {
		waiting = slices.DeleteFunc(waiting, start)
		done := heap.Pop(&current).(move)
		now = done.ends
		busy[done.From]--
		busy[done.To]--
	}
	if slices.Sort(pauses); len(pauses) > 0 {
		plan.MedianPause, plan.LongestPause = pauses[len(pauses)/2], pauses[len(pauses)-1]
	}
	plan.Took = now
	return plan
}
