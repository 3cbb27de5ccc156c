package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// sweepRows is how many rows one transaction of a sweep removes at the most, so that
// others do not wait for it.
const sweepRows = 500

// Sweep removes, in small transactions, what nothing can reach any more: the rows of
// deleted sessions and answers that are too old. It returns when nothing is left.
func (s *Store) Sweep(ctx context.Context) error {
	for _, step := range []func(*Tx) (bool, error){sweepDeleted, sweepAnswers} {
		for more := true; more; {
			err := s.Update(ctx, func(tx *Tx) (err error) {
				more, err = step(tx)
				return err
			})
			if err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
		}
	}
	return nil
}

// sweepDeleted removes some rows of one deleted session. What stays is the session's
// row, which keeps the id taken, and the event that tells of the deletion.
func sweepDeleted(tx *Tx) (more bool, err error) {
	var sid int64
	err = one(tx.q, `SELECT sid FROM sessions WHERE deleted = 1 ORDER BY sid LIMIT 1`, nil, &sid)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, statement := range []string{
		`DELETE FROM events WHERE event_id IN (SELECT event_id FROM events WHERE sid = ? AND type <> 'session_deleted' LIMIT ?)`,
		`DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE sid = ? LIMIT ?)`,
		`DELETE FROM descriptions WHERE sid = ? AND rev_from IN (SELECT rev_from FROM descriptions WHERE sid = ? LIMIT ?)`,
	} {
		args := []any{sid, sweepRows}
		if statement[12] == 'd' {
			args = []any{sid, sid, sweepRows}
		}
		tx.wrote = true
		n, err := tx.q.Exec(statement, args...)
		if err != nil || n > 0 {
			return n > 0, err
		}
	}
	// request_ids stay taken, like the session's.
	return true, tx.exec(`UPDATE sessions SET deleted = 2 WHERE sid = ?`, sid)
}

func sweepAnswers(tx *Tx) (more bool, err error) {
	tx.wrote = true
	n, err := tx.q.Exec(`DELETE FROM answers WHERE (idempotency_key, method, path) IN
		(SELECT idempotency_key, method, path FROM answers WHERE at <= ? LIMIT ?)`, micros(tx.Now.Add(-AnswerAge)), sweepRows)
	return n == sweepRows, err
}
