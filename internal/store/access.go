package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Key is the row of something that opens the service. What it means is package
// auth's business.
type Key struct {
	ID        string
	Kind      string
	Name      string
	Scope     string
	SessionID string
	Digest    [32]byte
	Bearer    [32]byte
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedOn    string
}

// Code is the row of a pairing code.
type Code struct {
	Public    string
	Digest    [32]byte
	Scope     string
	ExpiresAt time.Time
	Wrong     int
}

// Keys returns all keys, in the order of their making.
func (r *Reader) Keys() (out []Key, err error) {
	rows, err := r.q.Query(`SELECT key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on
		FROM access_keys ORDER BY created_at, key_id`)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			k              Key
			digest, bearer []byte
			created        int64
			expires        sql.NullInt64
		)
		if err := rows.Scan(&k.ID, &k.Kind, &k.Name, &k.Scope, &k.SessionID, &digest, &bearer, &created, &expires, &k.UsedOn); err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		copy(k.Digest[:], digest)
		copy(k.Bearer[:], bearer)
		k.CreatedAt = fromMicros(created)
		if expires.Valid {
			k.ExpiresAt = fromMicros(expires.Int64)
		}
		out = append(out, k)
	}
	return out, ofDatabase(rows.Err())
}

// AddKey keeps a new key.
func (tx *Tx) AddKey(k Key) error {
	expires := sql.NullInt64{Int64: micros(k.ExpiresAt), Valid: !k.ExpiresAt.IsZero()}
	err := tx.exec(`INSERT INTO access_keys (key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		k.ID, k.Kind, k.Name, k.Scope, k.SessionID, k.Digest[:], k.Bearer[:], micros(k.CreatedAt), expires, k.UsedOn)
	if err != nil {
		return fmt.Errorf("keep a key: %w", err)
	}
	return nil
}

// RemoveKey removes a key, if it is there.
func (tx *Tx) RemoveKey(id string) error {
	return tx.exec(`DELETE FROM access_keys WHERE key_id = ?`, id)
}

// UseKey notes the day on which a key was used.
func (tx *Tx) UseKey(id, day string) error {
	return tx.exec(`UPDATE access_keys SET used_on = ? WHERE key_id = ?`, day, id)
}

const codeColumns = `SELECT public, digest, scope, expires_at, wrong FROM pairing_codes`

func scanCode(scan func(...any) error) (c Code, err error) {
	var digest []byte
	var expires int64
	err = scan(&c.Public, &digest, &c.Scope, &expires, &c.Wrong)
	copy(c.Digest[:], digest)
	c.ExpiresAt = fromMicros(expires)
	return c, err
}

// Codes returns all pairing codes.
func (r *Reader) Codes() (out []Code, err error) {
	rows, err := r.q.Query(codeColumns + ` ORDER BY public`)
	if err != nil {
		return nil, fmt.Errorf("read pairing codes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scanCode(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read pairing codes: %w", err)
		}
		out = append(out, c)
	}
	return out, ofDatabase(rows.Err())
}

// Code returns the pairing code with that public part.
func (r *Reader) Code(public string) (c Code, ok bool, err error) {
	c, err = scanCode(func(dest ...any) error {
		return one(r.q, codeColumns+` WHERE public = ?`, []any{public}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Code{}, false, nil
	}
	return c, err == nil, err
}

// SetCode keeps a pairing code, in place of one with that public part.
func (tx *Tx) SetCode(c Code) error {
	err := tx.exec(`INSERT INTO pairing_codes (public, digest, scope, expires_at, wrong) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (public) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, expires_at = excluded.expires_at, wrong = excluded.wrong`,
		c.Public, c.Digest[:], c.Scope, micros(c.ExpiresAt), c.Wrong)
	if err != nil {
		return fmt.Errorf("keep a pairing code: %w", err)
	}
	return nil
}

// DropCode removes a pairing code, if it is there.
func (tx *Tx) DropCode(public string) error {
	return tx.exec(`DELETE FROM pairing_codes WHERE public = ?`, public)
}
