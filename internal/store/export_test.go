package store

import (
	"math"

	"loquat"
)

// RuleNames returns the names of the rules that Verify checks.
func RuleNames() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// DatabaseEvents reads events from the database, past the tail.
func (r *Reader) DatabaseEvents(since loquat.EventID, f Filter, limit int) ([]loquat.Record, error) {
	return r.events(since, f, bound{events: limit, bytes: WindowBytes}, heldIncrements{from: math.MaxInt64, to: math.MaxInt64})
}

// SortIncrements sorts the increments as the committer does when there are many.
func (tx *Tx) SortIncrements() error { return tx.sortIncrements() }

// SharedRows returns how many rows of increments are not sorted.
func (r *Reader) SharedRows() (n int, err error) {
	err = one(r.q, `SELECT count(*) FROM increments WHERE rid IS NULL`, nil, &n)
	return n, err
}
