package main

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// buckets is the number of buckets. With 10 million sessions a bucket has about 600.
const buckets = 1 << 14

// cell is a cell and its share of the buckets, relative to the other cells.
type cell struct {
	Name   string
	Weight float64
}

// cellTable is the name of the cell of each bucket.
type cellTable []string

// bucket returns the bucket of a key: a session id, or the id of a user whose sessions stay
// together.
func bucket(key []byte) int { return int(xxhash.Sum64(key) % buckets) }

// place assigns every bucket to a cell by weighted rendezvous hashing: each cell gets a score
// for the bucket, and the highest score wins. The scores of a cell depend on no other cell, so a
// new cell only takes buckets, and a lost cell only gives its own away. The order of the cells
// does not matter.
func place(cells []cell) cellTable {
	table := make(cellTable, buckets)
	for b := range table {
		best := math.Inf(-1)
		for _, c := range cells {
			if s := score(c, b); s > best || s == best && c.Name < table[b] {
				table[b], best = c.Name, s
			}
		}
	}
	return table
}

// score returns the score of a cell for a bucket: the hash as a number between 0 and 1, in a form
// in which a cell of twice the weight wins twice as often.
func score(c cell, bucket int) float64 {
	hash := xxhash.Sum64(binary.LittleEndian.AppendUint64([]byte(c.Name), uint64(bucket)))
	return -c.Weight / math.Log((float64(hash>>11)+0.5)/(1<<53))
}

// modulo assigns every bucket by the remainder of its number. It is what place is compared with.
func modulo(cells []cell) cellTable {
	table := make(cellTable, buckets)
	for b := range table {
		table[b] = cells[b%len(cells)].Name
	}
	return table
}

// backup stands for the cell in bucketMove.From when the sessions come from a backup of a lost cell. Any
// number of cells can read a backup at a time.
const backup = "backup"

// bucketMove is a bucket that changes its cell.
type bucketMove struct {
	Bucket   int
	From, To string
}

// movesBetween returns the buckets whose cell differs between two tables.
func movesBetween(from, to cellTable) []bucketMove {
	var moves []bucketMove
	for b := range from {
		if from[b] != to[b] {
			moves = append(moves, bucketMove{b, from[b], to[b]})
		}
	}
	return moves
}

// loads returns the load of each cell, relative to its fair share by weight.
func (t cellTable) loads(cells []cell, load []float64) map[string]float64 {
	var all, weights float64
	sums := map[string]float64{}
	for b, l := range load {
		sums[t[b]] += l
		all += l
	}
	for _, c := range cells {
		weights += c.Weight
	}
	out := map[string]float64{}
	for _, c := range cells {
		out[c.Name] = sums[c.Name] / (all * c.Weight / weights)
	}
	return out
}

// rebalance returns a table in which no cell has more than limit times its fair share of the
// load, with few buckets moved. Each step moves one bucket from the cell with the highest
// relative load to the one with the lowest: the largest bucket that does not make the receiver
// worse than the sender was. It stops when no step helps, for example when one bucket alone
// exceeds the limit; then the caller finds a higher load in the result.
func rebalance(t cellTable, cells []cell, load []float64, limit float64) cellTable {
	t = slices.Clone(t)
	var all, weights float64
	sums, share := map[string]float64{}, map[string]float64{}
	for b, l := range load {
		sums[t[b]] += l
		all += l
	}
	for _, c := range cells {
		weights += c.Weight
	}
	for _, c := range cells {
		share[c.Name] = all * c.Weight / weights
	}
	relative := func(a, b cell) int {
		x, y := sums[a.Name]/share[a.Name], sums[b.Name]/share[b.Name]
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	for range buckets { // each step moves one bucket
		high, low := slices.MaxFunc(cells, relative).Name, slices.MinFunc(cells, relative).Name
		if sums[high] <= limit*share[high] {
			break
		}
		// How much the sender is above its share, and how much the receiver may take.
		room := min(sums[high]-share[high], share[low]-sums[low])
		best := -1
		for b, l := range load {
			if t[b] == high && l > 0 && l <= room && (best < 0 || l > load[best]) {
				best = b
			}
		}
		if best < 0 {
			break
		}
		t[best] = low
		sums[high] -= load[best]
		sums[low] += load[best]
	}
	return t
}
