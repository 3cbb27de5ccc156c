package store

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Clients name messages by index, and the database finds them by ordering key. The keys of a
// session without deletions are the indices. Otherwise the session is a list of runs of
// consecutive keys, and the table message_runs has a row for each run whose keys are not the
// indices. So any message is found in one step, and an append writes a row only after a
// deletion at the end.

// run is a part of a session's messages with consecutive ordering keys.
type run struct {
	index int   // of its first message
	seq   int64 // ordering key of its first message
}

// follows reports whether r continues the run before it.
func (r run) follows(before run) bool { return r.seq-before.seq == int64(r.index-before.index) }

// seqOf returns the ordering key of the message at an index. For the number of messages it
// returns a key that is above all others.
func (r *Reader) seqOf(h Head, index int) (int64, error) {
	if h.nextSeq == int64(h.Count) { // nothing was ever deleted
		return int64(index), nil
	}
	if index >= h.Count {
		return h.nextSeq, nil
	}
	found := run{}
	err := one(r.q, `SELECT first_index, first_seq FROM message_runs WHERE sid = ? AND first_index <= ? ORDER BY first_index DESC LIMIT 1`,
		[]any{h.SID, index}, &found.index, &found.seq)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("find message %d: %w", index, err)
	}
	return found.seq + int64(index-found.index), nil
}

// beginRun begins a run at the next message if the next ordering key does not continue the
// last run.
func (tx *Tx) beginRun(h *Head) error {
	if h.nextSeq == int64(h.Count) {
		return nil
	}
	next, last := run{h.Count, h.nextSeq}, run{-1, -1}
	if h.Count > 0 {
		seq, err := tx.seqOf(*h, h.Count-1)
		if err != nil {
			return err
		}
		last = run{h.Count - 1, seq}
	}
	if next.follows(last) {
		return nil
	}
	return tx.insertRuns(h, next)
}

// runInserts are INSERT statements for 1, 2, 4, … 64 runs. Each is prepared once.
var runInserts = func() (out []string) {
	for n := 1; n <= 64; n *= 2 {
		out = append(out, `INSERT INTO message_runs (sid, first_index, first_seq) VALUES (?, ?, ?)`+strings.Repeat(`, (?, ?, ?)`, n-1))
	}
	return out
}()

func (tx *Tx) insertRuns(h *Head, runs ...run) error {
	for i := len(runInserts) - 1; i >= 0; i-- {
		for n := 1 << i; len(runs) >= n; runs = runs[n:] {
			var args []any
			for _, r := range runs[:n] {
				args = append(args, h.SID, r.index, r.seq)
			}
			if err := tx.exec(runInserts[i], args...); err != nil {
				return fmt.Errorf("write runs of messages: %w", err)
			}
		}
	}
	return nil
}

// cutRuns removes the runs that begin at an index or after it.
func (tx *Tx) cutRuns(h *Head, index int) error {
	if h.nextSeq == int64(h.Count) {
		return nil
	}
	if err := tx.exec(`DELETE FROM message_runs WHERE sid = ? AND first_index >= ?`, h.SID, index); err != nil {
		return fmt.Errorf("remove runs of messages: %w", err)
	}
	return nil
}

// splitRuns removes messages at indices, which are ascending and unique, from the runs. The
// caller changes h.Count afterwards.
func (tx *Tx) splitRuns(h *Head, indices []int) error {
	runs, err := tx.runsFrom(h, indices[0])
	if err != nil {
		return err
	}
	if err := tx.cutRuns(h, indices[0]); err != nil {
		return err
	}
	last := run{-1, -1} // so that keys that are the indices need no row
	if indices[0] > 0 {
		seq, err := tx.seqOf(*h, indices[0]-1)
		if err != nil {
			return err
		}
		last = run{indices[0] - 1, seq}
	}
	var begun []run
	for _, r := range without(runs, indices, h.Count) {
		if !r.follows(last) {
			begun = append(begun, r)
		}
		last = r
	}
	return tx.insertRuns(h, begun...)
}

// runsFrom returns the run of the message at an index, cut off before that message, and all
// further runs.
func (tx *Tx) runsFrom(h *Head, index int) ([]run, error) {
	seq, err := tx.seqOf(*h, index)
	if err != nil {
		return nil, err
	}
	out := []run{{index, seq}}
	rows, err := tx.q.Query(`SELECT first_index, first_seq FROM message_runs WHERE sid = ? AND first_index > ? ORDER BY first_index`, h.SID, index)
	if err != nil {
		return nil, fmt.Errorf("read runs of messages: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r run
		if err := rows.Scan(&r.index, &r.seq); err != nil {
			return nil, fmt.Errorf("read run of messages: %w", err)
		}
		out = append(out, r)
	}
	return out, asDatabaseError(rows.Err())
}

// without returns runs, of count messages, after the messages at indices are removed.
func without(runs []run, indices []int, count int) (out []run) {
	removed := 0
	for i, r := range runs {
		end := count
		if i+1 < len(runs) {
			end = runs[i+1].index
		}
		begin := r.index // of the part that the next removal ends
		for ; removed < len(indices) && indices[removed] < end; removed++ {
			if indices[removed] > begin {
				out = append(out, run{begin - removed, r.seq + int64(begin-r.index)})
			}
			begin = indices[removed] + 1
		}
		if begin < end {
			out = append(out, run{begin - removed, r.seq + int64(begin-r.index)})
		}
	}
	return slices.Clip(out)
}

// copyRuns gives a copied session the runs of the messages that it has of its source.
func (tx *Tx) copyRuns(source, h Head) error {
	if source.nextSeq == int64(source.Count) {
		return nil
	}
	err := tx.exec(`INSERT INTO message_runs (sid, first_index, first_seq)
		SELECT ?, first_index, first_seq FROM message_runs WHERE sid = ? AND first_index < ?`, h.SID, source.SID, h.Count)
	if err != nil {
		return fmt.Errorf("copy runs of messages: %w", err)
	}
	return nil
}
