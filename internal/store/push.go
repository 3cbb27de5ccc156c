package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"loquat"
)

// Bounds of stored subscriptions.
const (
	maxOwnedSubscriptions = 10 // of one token or browser session; above, the oldest is removed
	maxSubscriptions      = 10_000
)

// PushKeys returns the key pair of the server for Web Push. If there is none it stores the one that
// generate returns. All nodes use the same.
func (s *Store) PushKeys(ctx context.Context, generate func() (loquat.PushKeys, error)) (loquat.PushKeys, error) {
	keys, err := Read(ctx, s, (*Reader).pushKeys)
	if err != nil || keys.Public != "" {
		return keys, err
	}
	made, err := generate()
	if err != nil {
		return loquat.PushKeys{}, err
	}
	return Do(ctx, s, func(tx *Tx) (loquat.PushKeys, error) {
		err := tx.exec(`INSERT INTO push_server (id, private_key, public_key, sent_event_id) VALUES (1, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			made.Private, made.Public, tx.last)
		if err != nil {
			return loquat.PushKeys{}, errors.New("store the keys for Web Push: the database refuses them") // an error may quote the values
		}
		return tx.pushKeys() // another node may have been first
	})
}

func (r *Reader) pushKeys() (k loquat.PushKeys, err error) {
	err = one(r.q, `SELECT private_key, public_key FROM push_server`, nil, &k.Private, &k.Public)
	if errors.Is(err, sql.ErrNoRows) {
		return loquat.PushKeys{}, nil
	}
	return k, err
}

// PushState returns all subscriptions, and the last event whose notifications were all sent.
func (r *Reader) PushState() (list []loquat.PushSubscription, sent loquat.EventID, err error) {
	err = one(r.q, `SELECT sent_event_id FROM push_server`, nil, &sent)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, err
	}
	err = eachRow(r.q, `SELECT subscription_id, owner, endpoint, p256dh, auth, created_at FROM push_subscriptions ORDER BY subscription_id`, nil, func(rows *sql.Rows) error {
		var p loquat.PushSubscription
		var created int64
		if err := rows.Scan(&p.ID, &p.Owner, &p.Endpoint, &p.P256dh, &p.Auth, &created); err != nil {
			return fmt.Errorf("read a push subscription: %w", err)
		}
		p.CreatedAt = fromMicros(created)
		list = append(list, p)
		return nil
	})
	return list, sent, err
}

// AddPushSubscription stores a subscription, or replaces the one with its ID. If the owner has too
// many, it removes the oldest.
func (s *Store) AddPushSubscription(ctx context.Context, p loquat.PushSubscription) error {
	return s.Update(ctx, func(tx *Tx) error {
		// A browser that subscribes again to the same still gets what ended before.
		err := tx.exec(`INSERT INTO push_subscriptions (subscription_id, owner, endpoint, p256dh, auth, created_at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (subscription_id) DO UPDATE SET owner = excluded.owner, p256dh = excluded.p256dh, auth = excluded.auth,
			created_at = CASE push_subscriptions.owner WHEN excluded.owner THEN push_subscriptions.created_at ELSE excluded.created_at END`,
			p.ID, p.Owner, p.Endpoint, p.P256dh, p.Auth, micros(tx.Now))
		if err != nil {
			return fmt.Errorf("store a push subscription: %w", err)
		}
		err = tx.exec(`DELETE FROM push_subscriptions WHERE owner = ? AND subscription_id <> ? AND subscription_id NOT IN
			(SELECT subscription_id FROM push_subscriptions WHERE owner = ? AND subscription_id <> ? ORDER BY created_at DESC, subscription_id LIMIT ?)`,
			p.Owner, p.ID, p.Owner, p.ID, maxOwnedSubscriptions-1)
		if err != nil {
			return fmt.Errorf("remove the oldest push subscription: %w", err)
		}
		var all int
		if err := one(tx.q, `SELECT count(*) FROM push_subscriptions`, nil, &all); err != nil {
			return err
		}
		if all > maxSubscriptions {
			return loquat.Errorf(loquat.CodeConflict, "there are %d push subscriptions already; revoke tokens that are not used any more", maxSubscriptions)
		}
		if all > 1 {
			return nil
		}
		return tx.SetPushSent(tx.last) // without subscriptions nobody has kept it
	})
}

// RemovePushSubscription removes a subscription of an owner.
func (s *Store) RemovePushSubscription(ctx context.Context, owner, id string) error {
	return s.Update(ctx, func(tx *Tx) error {
		removed, err := tx.execOne(`DELETE FROM push_subscriptions WHERE subscription_id = ? AND owner = ?`, id, owner)
		if err == nil && !removed {
			err = loquat.Errorf(loquat.CodeNotFound, "this token has no push subscription %q", loquat.Clip(id, loquat.Excerpt))
		}
		return err
	})
}

// DropPushSubscription removes a subscription that cannot be used any more, unless it was replaced
// since it was read.
func (s *Store) DropPushSubscription(ctx context.Context, p loquat.PushSubscription) error {
	return s.Update(ctx, func(tx *Tx) error {
		return tx.exec(`DELETE FROM push_subscriptions WHERE subscription_id = ? AND owner = ? AND created_at = ?`, p.ID, p.Owner, micros(p.CreatedAt))
	})
}

// SetPushSent stores the last event whose notifications were all sent.
func (tx *Tx) SetPushSent(id loquat.EventID) error {
	return tx.exec(`UPDATE push_server SET sent_event_id = ?`, id)
}

// HasPushSubscription reports whether a subscription is still stored as it was read.
func (r *Reader) HasPushSubscription(p loquat.PushSubscription) (stored bool, err error) {
	err = one(r.q, `SELECT EXISTS (SELECT 1 FROM push_subscriptions WHERE subscription_id = ? AND owner = ? AND created_at = ?)`,
		[]any{p.ID, p.Owner, micros(p.CreatedAt)}, &stored)
	return stored, err
}
