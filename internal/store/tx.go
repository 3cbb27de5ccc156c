package store

import (
	"fmt"
	"runtime/debug"
	"time"

	"loquat"
)

// Reader reads one state of the store.
type Reader struct {
	q      SQL
	shared *shared
	owner  string // see Store.Owner
	writes bool   // it is the Reader of a Tx

	several bool // several nodes may write the log
}

// Tx reads and writes within a batch. Its reads see what earlier updates of the batch wrote.
type Tx struct {
	Reader
	Now time.Time // UTC, whole milliseconds; equal for all updates of a batch

	last      loquat.EventID
	log       *eventWriter
	published []loquat.Record
	wrote     bool

	statements *taggedSQL // of the whole batch

	attempt      uint64
	committed    []func() // see AfterCommit
	fences       fences   // after the last commit
	fenceChanges fences   // by this transaction; an empty owner means that the request ended or was cancelled

	// Of a shared log; see nodes.go.
	sharedLog sharedSQL // nil if the log is not shared
	noticeKey *noticeKey
	state     LogState       // before the transaction
	base      loquat.EventID // the highest id before its own events
	cut       *idRange       // the ids that it skips
	changed   []string
	signals   [][2]string
	revisions map[string]int64 // of changed

	others []int  // the events in published that are not increments
	sorted bool   // sortIncrements ran
	head   []byte // reused by Publish

	shown *func(loquat.Object) loquat.Object // what events show of metadata; nil means all
}

// spare is memory of the last transaction, which the next one uses again. It belongs to the
// committer.
type spare struct {
	published  []loquat.Record
	increments []increment
}

// maxSpare is the most events for which memory is kept.
const maxSpare = 1024

// keep takes the memory of a committed transaction, which is no longer used.
func (s *spare) keep(tx *Tx) {
	*s = spare{}
	if cap(tx.published) <= maxSpare {
		clear(tx.published)
		s.published = tx.published[:0]
	}
	if increments := tx.log.increments; cap(increments) <= maxSpare {
		clear(increments[:cap(increments)])
		s.increments = increments[:0]
	}
}

// runAll runs the updates of a batch in order. An update spoils the transaction if it fails
// after it wrote, or if one of its statements fails: PostgreSQL then accepts no further
// statement. An update that ignores the error of a statement fails with this error.
func (tx *Tx) runAll(batch []*update) error {
	before := tx.last
	for i, u := range batch {
		tx.wrote = false
		u.err = u.run(tx)
		failed := tx.statements.failed
		if u.err == nil {
			u.err = failed
		}
		if u.err != nil && (tx.wrote || failed != nil) {
			return &spoiledError{index: i, err: u.err}
		}
	}
	if tx.last != before {
		tx.log.SQL = lastSQL{tx.statements}
		if err := tx.log.flush(); err != nil {
			return err
		}
	}
	if tx.sharedLog != nil {
		return tx.finishShared(before)
	}
	if len(tx.others) == 0 { // the rows of the increments name their ids; see lastEventID
		return nil
	}
	return tx.keepLastID()
}

// run turns a panic into an error, so one faulty update does not end the others.
func (u *update) run(tx *Tx) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			tx.wrote = true
			err = fmt.Errorf("panic in an update: %v\n%s", fault, debug.Stack())
		}
	}()
	return u.fn(tx)
}

func (tx *Tx) exec(query string, args ...any) error {
	tx.wrote = true
	_, err := tx.q.Exec(query, args...)
	return err
}

// execOne is exec for a statement that changes at most one row. It reports whether it changed
// one.
func (tx *Tx) execOne(query string, args ...any) (bool, error) {
	tx.wrote = true
	n, err := tx.q.Exec(query, args...)
	return n == 1, err
}

// insert runs an INSERT … RETURNING of one integer.
func (tx *Tx) insert(query string, args ...any) (id int64, err error) {
	tx.wrote = true
	err = one(tx.q, query, args, &id)
	return id, err
}
