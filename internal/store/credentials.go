package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"loquat"
)

// kindCredentials is the kind of shared state of credentials and pairing codes.
const kindCredentials = "credentials"

// OnCredentials calls fn within a second after another node changed credentials or pairing
// codes, and again if fn fails. It must be called before the first update.
func (s *Store) OnCredentials(fn func(context.Context) error) { s.OnChanged(kindCredentials, fn) }

// CredentialsRevision returns the revision of the stored credentials and pairing codes.
func (s *Store) CredentialsRevision(ctx context.Context) (int64, error) {
	return Read(ctx, s, func(r *Reader) (int64, error) { return r.revision(kindCredentials) })
}

// LoadCredentials returns all credentials, oldest first, and all pairing codes.
func (s *Store) LoadCredentials(ctx context.Context) (loquat.Credentials, error) {
	return Read(ctx, s, func(r *Reader) (out loquat.Credentials, err error) {
		if out.Credentials, err = r.credentials(); err != nil {
			return out, err
		}
		if out.Codes, err = r.pairingCodes(); err != nil {
			return out, err
		}
		out.Revision, err = r.revision(kindCredentials)
		return out, err
	})
}

// ChangeCredentials writes a change in one transaction and returns the new revision. It writes
// nothing and returns false if the stored credentials have another revision than the change.
func (s *Store) ChangeCredentials(ctx context.Context, c loquat.CredentialChange) (revision int64, stored bool, err error) {
	err = s.Update(ctx, func(tx *Tx) (err error) {
		revision, err = tx.revision(kindCredentials)
		if stored = revision == c.Revision; !stored || err != nil {
			return err
		}
		if err := tx.changeCredentials(c); err != nil {
			return err
		}
		tx.MarkChanged(kindCredentials)
		if tx.several {
			revision++ // at the commit, once for all updates of the batch
		}
		return nil
	})
	return revision, stored && err == nil, err
}

// UseCredential stores the day on which a credential was used.
func (s *Store) UseCredential(ctx context.Context, u loquat.CredentialUse) error {
	return s.Update(ctx, func(tx *Tx) error {
		tx.MarkChanged(kindCredentials)
		return tx.exec(`UPDATE access_keys SET used_on = ? WHERE key_id = ?`, u.Day, u.ID)
	})
}

func (tx *Tx) changeCredentials(c loquat.CredentialChange) error {
	for _, id := range c.Remove {
		if err := tx.exec(`DELETE FROM access_keys WHERE key_id = ?`, id); err != nil {
			return err
		}
		if err := tx.exec(`DELETE FROM push_subscriptions WHERE owner = ?`, id); err != nil {
			return err
		}
	}
	for _, k := range c.Add {
		if err := tx.addCredential(k); err != nil {
			return err
		}
	}
	for _, code := range c.Codes {
		if err := tx.setPairingCode(code); err != nil {
			return err
		}
	}
	for _, e := range c.Audit {
		if err := tx.Audit(e); err != nil {
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

// HasTokensQuery is a query of whether a store has access tokens.
const HasTokensQuery = `SELECT EXISTS (SELECT 1 FROM access_keys WHERE kind = '` + loquat.CredentialToken + `')`

func (r *Reader) credentials() (out []loquat.Credential, err error) {
	rows, err := r.q.Query(`SELECT key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on, user_id, role
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
		if err := rows.Scan(&c.ID, &c.Kind, &c.Name, &c.Scope, &c.SessionID, &digest, &bearer, &created, &expires, &c.UsedOn, &c.User, &c.Role); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		if c.User != "" {
			c.SessionID = ""
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
	err := tx.exec(`INSERT INTO access_keys (key_id, kind, name, scope, session_id, digest, bearer, created_at, expires_at, used_on, user_id, role)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.ID, c.Kind, c.Name, c.Scope, cmp.Or(c.SessionID, noSessionOf(c)), c.Digest[:], c.Bearer[:], micros(c.CreatedAt), expires, c.UsedOn, c.User, c.Role)
	if err != nil {
		return fmt.Errorf("store a credential: %w", err)
	}
	return nil
}

// noSessionOf returns what is stored as the session of a user's credential: an id that no session can have.
// Programs older than users take the credential for one of that session, and show it nothing.
func noSessionOf(c loquat.Credential) string {
	if c.User == "" {
		return ""
	}
	return "~"
}

func (r *Reader) pairingCodes() (out []loquat.PairingCode, err error) {
	rows, err := r.q.Query(`SELECT public, digest, scope, expires_at, wrong, user_id, role FROM pairing_codes ORDER BY public`)
	if err != nil {
		return nil, fmt.Errorf("read pairing codes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			c       loquat.PairingCode
			digest  []byte
			expires int64
		)
		if err := rows.Scan(&c.Public, &digest, &c.Scope, &expires, &c.Wrong, &c.User, &c.Role); err != nil {
			return nil, fmt.Errorf("read pairing codes: %w", err)
		}
		copy(c.Digest[:], digest)
		c.ExpiresAt = fromMicros(expires)
		out = append(out, c)
	}
	return out, asDatabaseError(rows.Err())
}

// setPairingCode adds or replaces a pairing code.
func (tx *Tx) setPairingCode(c loquat.PairingCode) error {
	err := tx.exec(`INSERT INTO pairing_codes (public, digest, scope, expires_at, wrong, user_id, role) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (public) DO UPDATE SET digest = excluded.digest, scope = excluded.scope, expires_at = excluded.expires_at, wrong = excluded.wrong, user_id = excluded.user_id, role = excluded.role`,
		c.Public, c.Digest[:], c.Scope, micros(c.ExpiresAt), c.Wrong, c.User, c.Role)
	if err != nil {
		return fmt.Errorf("store a pairing code: %w", err)
	}
	return nil
}
