package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ReplayAge is how long the answer to a call with an Idempotency-Key is stored.
const ReplayAge = 24 * time.Hour

// Replay is the stored answer to the first call with an Idempotency-Key.
type Replay struct {
	BodyHash [32]byte
	Result   []byte // JSON; package chat defines its form
}

// Replay returns the answer stored for a key, method and path, unless it is older than
// ReplayAge at now.
func (r *Reader) Replay(key, method, path string, now time.Time) (Replay, bool, error) {
	var a Replay
	var hash []byte
	err := one(r.q, `SELECT body_hash, result FROM answers WHERE idempotency_key = ? AND method = ? AND path = ? AND at > ?`,
		[]any{key, method, path, micros(now.Add(-ReplayAge))}, &hash, &a.Result)
	if errors.Is(err, sql.ErrNoRows) {
		return Replay{}, false, nil
	}
	copy(a.BodyHash[:], hash)
	return a, err == nil, err
}

// StoreReplay stores an answer in the transaction of the change that it answers.
func (tx *Tx) StoreReplay(key, method, path string, a Replay) error {
	err := tx.exec(`INSERT INTO answers (idempotency_key, method, path, at, body_hash, result) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (idempotency_key, method, path) DO UPDATE SET at = excluded.at, body_hash = excluded.body_hash, result = excluded.result`,
		key, method, path, micros(tx.Now), a.BodyHash[:], a.Result)
	if err != nil {
		return fmt.Errorf("store the answer of an idempotent call: %w", err)
	}
	return nil
}
