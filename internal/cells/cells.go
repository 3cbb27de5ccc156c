// Package cells places sessions in cells and simulates what placement costs. A cell is a
// database with its nodes. No cell knows another, so cells multiply what one primary can do.
//
// A key is hashed to one of a fixed number of buckets, and a table names the cell of each
// bucket. A router needs only the table, and a bucket is the unit that moves.
package cells

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Buckets is the number of buckets. With 10 million sessions a bucket has about 600.
const Buckets = 1 << 14

// Cell is a cell and its share of the buckets, relative to the other cells.
type Cell struct {
	Name   string
	Weight float64
}

// Table is the name of the cell of each bucket.
type Table []string

// Bucket returns the bucket of a key: a session id, or the id of a user whose sessions stay
// together.
func Bucket(key []byte) int { return int(xxhash.Sum64(key) % Buckets) }

// Place assigns every bucket to a cell by weighted rendezvous hashing: each cell gets a score
// for the bucket, and the highest score wins. The scores of a cell depend on no other cell, so a
// new cell only takes buckets, and a lost cell only gives its own away. The order of the cells
// does not matter.
func Place(cells []Cell) Table {
	table := make(Table, Buckets)
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
func score(c Cell, bucket int) float64 {
	hash := xxhash.Sum64(binary.LittleEndian.AppendUint64([]byte(c.Name), uint64(bucket)))
	return -c.Weight / math.Log((float64(hash>>11)+0.5)/(1<<53))
}

// Modulo assigns every bucket by the remainder of its number. It is what Place is compared with.
func Modulo(cells []Cell) Table {
	table := make(Table, Buckets)
	for b := range table {
		table[b] = cells[b%len(cells)].Name
	}
	return table
}

// Backup stands for the cell in Move.From when the sessions come from a backup of a lost cell. Any
// number of cells can read a backup at a time.
const Backup = "backup"

// Move is a bucket that changes its cell.
type Move struct {
	Bucket   int
	From, To string
}

// Moves returns the buckets whose cell differs between two tables.
func Moves(from, to Table) []Move {
	var moves []Move
	for b := range from {
		if from[b] != to[b] {
			moves = append(moves, Move{b, from[b], to[b]})
		}
	}
	return moves
}

// Loads returns the load of each cell, relative to its fair share by weight.
func (t Table) Loads(cells []Cell, load []float64) map[string]float64 {
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

// Rebalance returns a table in which no cell has more than limit times its fair share of the
// load, with few buckets moved. Each step moves one bucket from the cell with the highest
// relative load to the one with the lowest: the largest bucket that does not make the receiver
// worse than the sender was. It stops when no step helps, for example when one bucket alone
// exceeds the limit; then the caller finds a higher load in the result.
func Rebalance(t Table, cells []Cell, load []float64, limit float64) Table {
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
	relative := func(a, b Cell) int {
		x, y := sums[a.Name]/share[a.Name], sums[b.Name]/share[b.Name]
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	for range Buckets { // each step moves one bucket
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
