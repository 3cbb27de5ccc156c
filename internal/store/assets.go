package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// The store has one row per asset and session. The image file is named by its hash and
// kept by package asset; the store only knows which hashes have an owner.

// AddAsset adds an asset to a session. Its file must already be stored.
func (tx *Tx) AddAsset(h Head, a loquat.Asset) error {
	err := tx.exec(`INSERT INTO assets (sid, asset_id, sha256, media_type, size, name, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		h.SID, a.AssetID, a.SHA256, a.MediaType, a.Size, a.Name, micros(tx.Now))
	if err == nil {
		err = tx.exec(`INSERT INTO unattached (sid, asset_id, created_at) VALUES (?, ?, ?)`, h.SID, a.AssetID, micros(tx.Now))
	}
	if err != nil {
		return fmt.Errorf("add asset: %w", err)
	}
	return nil
}

// CountUnattached returns the number of a session's assets that no message has ever used.
func (r *Reader) CountUnattached(h Head) (n int, err error) {
	err = one(r.q, `SELECT count(*) FROM unattached WHERE sid = ?`, []any{h.SID}, &n)
	return n, err
}

// OwnedAsset names an asset and its session.
type OwnedAsset struct{ SessionID, AssetID string }

// Unattached returns up to limit assets that no message has ever used and that were added
// before a time. It skips the first skip of them. The oldest come first.
func (r *Reader) Unattached(before time.Time, skip, limit int) ([]OwnedAsset, error) {
	rows, err := r.q.Query(`SELECT s.session_id, u.asset_id FROM unattached u JOIN sessions s ON s.sid = u.sid
		WHERE u.created_at < ? AND s.deleted = 0 ORDER BY u.created_at, u.sid, u.asset_id LIMIT ? OFFSET ?`, micros(before), limit, skip)
	if err != nil {
		return nil, fmt.Errorf("read unattached assets: %w", err)
	}
	defer rows.Close()
	var out []OwnedAsset
	for rows.Next() {
		var a OwnedAsset
		if err := rows.Scan(&a.SessionID, &a.AssetID); err != nil {
			return nil, fmt.Errorf("read unattached assets: %w", err)
		}
		out = append(out, a)
	}
	return out, asDatabaseError(rows.Err())
}

// markAttached removes an asset from the unattached assets.
func (tx *Tx) markAttached(h Head, assetID string) error {
	return tx.exec(`DELETE FROM unattached WHERE sid = ? AND asset_id = ?`, h.SID, assetID)
}

// Asset returns an asset of a session, or a not_found error.
func (r *Reader) Asset(h Head, assetID string) (loquat.Asset, error) {
	a := loquat.Asset{AssetID: assetID}
	err := one(r.q, `SELECT sha256, media_type, size, name FROM assets WHERE sid = ? AND asset_id = ?`, []any{h.SID, assetID},
		&a.SHA256, &a.MediaType, &a.Size, &a.Name)
	if errors.Is(err, sql.ErrNoRows) {
		return loquat.Asset{}, loquat.Errorf(loquat.CodeNotFound, "session %s has no asset %q", h.SessionID, loquat.Clip(assetID, loquat.Excerpt))
	}
	return a, err
}

// AssetUse returns the index of the first message that uses an asset.
func (r *Reader) AssetUse(h Head, assetID string) (index int, used bool, err error) {
	var seq int64
	err = one(r.q, `SELECT m.seq FROM asset_uses u JOIN messages m ON m.sid = u.sid AND m.seq = u.seq AND m.rev_to IS NULL
		WHERE u.sid = ? AND u.asset_id = ? ORDER BY u.seq LIMIT 1`, []any{h.SID, assetID}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	err = one(r.q, `SELECT count(*) FROM messages WHERE sid = ? AND rev_to IS NULL AND seq < ?`, []any{h.SID, seq}, &index)
	return index, true, err
}

// RemoveAsset removes an asset from a session and queues its file for removal.
func (tx *Tx) RemoveAsset(h Head, a loquat.Asset) error {
	if err := tx.exec(`DELETE FROM assets WHERE sid = ? AND asset_id = ?`, h.SID, a.AssetID); err != nil {
		return fmt.Errorf("remove asset: %w", err)
	}
	if err := tx.markAttached(h, a.AssetID); err != nil {
		return fmt.Errorf("remove asset: %w", err)
	}
	return tx.exec(`INSERT INTO freed_files (sha256) VALUES (?) ON CONFLICT (sha256) DO NOTHING`, a.SHA256)
}

// useAssets records the assets that a message uses. seq is the message's ordering key.
func (tx *Tx) useAssets(h *Head, seq int64, m loquat.Message) error {
	for _, id := range m.AssetIDs() {
		err := tx.exec(`INSERT INTO asset_uses (sid, asset_id, seq) VALUES (?, ?, ?) ON CONFLICT (sid, asset_id, seq) DO NOTHING`, h.SID, id, seq)
		if err == nil {
			err = tx.markAttached(*h, id)
		}
		if err != nil {
			return fmt.Errorf("record the use of an asset: %w", err)
		}
	}
	return nil
}

// copyAssets copies to a session those assets of another that its messages use. The messages
// are copies and have the same ordering keys as the originals.
func (tx *Tx) copyAssets(from, to Head) error {
	err := tx.exec(`INSERT INTO asset_uses (sid, asset_id, seq) SELECT ?, asset_id, seq FROM asset_uses u
		WHERE u.sid = ? AND EXISTS (SELECT 1 FROM messages m WHERE m.sid = ? AND m.seq = u.seq)`, to.SID, from.SID, to.SID)
	if err == nil {
		err = tx.exec(`INSERT INTO assets (sid, asset_id, sha256, media_type, size, name, created_at)
			SELECT ?, asset_id, sha256, media_type, size, name, created_at FROM assets
			WHERE sid = ? AND asset_id IN (SELECT asset_id FROM asset_uses WHERE sid = ?)`, to.SID, from.SID, to.SID)
	}
	if err != nil {
		return fmt.Errorf("copy assets: %w", err)
	}
	return nil
}

// Owned reports whether any session has an asset with this hash.
func (r *Reader) Owned(sha256 string) (bool, error) {
	var n int
	err := one(r.q, `SELECT 1 FROM assets WHERE sha256 = ? LIMIT 1`, []any{sha256}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// FreedFiles returns up to limit hashes above after that have lost an owner since SettleFile
// was last called for them.
func (r *Reader) FreedFiles(after string, limit int) ([]string, error) {
	return r.names(`SELECT sha256 FROM freed_files WHERE sha256 > ? ORDER BY sha256 LIMIT ?`, after, limit)
}

// SettleFile records that the file of a hash was kept (owned) or removed. If the last owner
// went since the caller looked, the hash stays in FreedFiles.
func (tx *Tx) SettleFile(sha256 string, owned bool) error {
	still, err := tx.Owned(sha256)
	if err != nil || owned && !still {
		return err
	}
	return tx.exec(`DELETE FROM freed_files WHERE sha256 = ?`, sha256)
}
