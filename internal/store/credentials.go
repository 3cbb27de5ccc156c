package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"loquat"
)

// LoadCredentials returns all credentials, oldest first, and all pairing codes.
func (s *Store) LoadCredentials(ctx context.Context) (out loquat.Credentials, err error) {
	err = s.View(ctx, func(r *Reader) (err error) {
		if out.Credentials, err = r.credentials(); err != nil {
			return err
		}
		out.Codes, err = r.pairingCodes()
		return err
	})
	return out, err
}

// ChangeCredentials writes a change in one transaction.
func (s *Store) ChangeCredentials(ctx context.Context, c loquat.CredentialChange) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.changeCredentials(c) })
}

// DecidePairing reads the pairing code with a public part (nil if there is none), calls
// decide, and writes the returned change, all in one transaction. It may call decide more than
// once.
func (s *Store) DecidePairing(ctx context.Context, public string, decide func(*loquat.PairingCode) loquat.CredentialChange) error {
	return s.Update(ctx, func(tx *Tx) error {
		code, err := tx.pairingCode(public)
		if err != nil {
			return err
		}
		return tx.changeCredentials(decide(code))
	})
}

func (tx *Tx) changeCredentials(c loquat.CredentialChange) error {
	for _, id := range c.Remove {
		if err := tx.exec(`DELETE FROM access_keys WHERE key_id = ?`, id); err != nil {
			return err
		}
	}
	for _, k := range c.Add {
		if err := tx.addCredential(k); err != nil {
			return err
		}
	}
	for _, u := range c.Used {
		if err := tx.exec(`UPDATE access_keys SET used_on = ? WHERE key_id = ?`, u.Day, u.ID); err != nil {
			return err
		}
	}
	for _, code := range c.Codes {
		if err := tx.setPairingCode(code); err != nil {
			return err
		}
	}
	for _, public := range c.Drop {
		if err := tx.exec(`DELETE FROM pairing_codes WHERE public = ?`, public); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) credentials() (out []loquat.Credential, err error) {
	rows, err := r.q.Query(`SELECT key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on
		FROM access_keys ORDER BY created_at, key_id`)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			c              loquat.Credential
			digest, bearer []byte
			created        int64
			expires        sql.NullInt64
		)
		if err := rows.Scan(&c.ID, &c.Kind, &c.Name, &c.Scope, &c.SessionID, &digest, &bearer, &created, &expires, &c.UsedOn); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		copy(c.Digest[:], digest)
		copy(c.Bearer[:], bearer)
		c.CreatedAt = fromMicros(created)
		if expires.Valid {
			c.ExpiresAt = fromMicros(expires.Int64)
		}
		out = append(out, c)
	}
	return out, asDatabaseError(rows.Err())
}

func (tx *Tx) addCredential(c loquat.Credential) error {
	expires := sql.NullInt64{Int64: micros(c.ExpiresAt), Valid: !c.ExpiresAt.IsZero()}
	err := tx.exec(`INSERT INTO access_keys (key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.ID, c.Kind, c.Name, c.Scope, c.SessionID, c.Digest[:], c.Bearer[:], micros(c.CreatedAt), expires, c.UsedOn)
	if err != nil {
		return fmt.Errorf("store a credential: %w", err)
	}
	return nil
}

const pairingCodeColumns = `SELECT public, digest, scope, expires_at, wrong FROM pairing_codes`

func scanPairingCode(scan func(...any) error) (c loquat.PairingCode, err error) {
	var digest []byte
	var expires int64
	err = scan(&c.Public, &digest, &c.Scope, &expires, &c.Wrong)
	copy(c.Digest[:], digest)
	c.ExpiresAt = fromMicros(expires)
	return c, err
}

func (r *Reader) pairingCodes() (out []loquat.PairingCode, err error) {
	rows, err := r.q.Query(pairingCodeColumns + ` ORDER BY public`)
	if err != nil {
		return nil, fmt.Errorf("read pairing codes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scanPairingCode(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read pairing codes: %w", err)
		}
		out = append(out, c)
	}
	return out, asDatabaseError(rows.Err())
}

// pairingCode returns the pairing code with a public part, or nil.
func (r *Reader) pairingCode(public string) (*loquat.PairingCode, error) {
	c, err := scanPairingCode(func(dest ...any) error {
		return one(r.q, pairingCodeColumns+` WHERE public = ?`, []any{public}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pairing code: %w", err)
	}
	return &c, nil
}

// setPairingCode adds or replaces a pairing code.
func (tx *Tx) setPairingCode(c loquat.PairingCode) error {
	err := tx.exec(`INSERT INTO pairing_codes (public, digest, scope, expires_at, wrong) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (public) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, expires_at = excluded.expires_at, wrong = excluded.wrong`,
		c.Public, c.Digest[:], c.Scope, micros(c.ExpiresAt), c.Wrong)
	if err != nil {
		return fmt.Errorf("store a pairing code: %w", err)
	}
	return nil
}
