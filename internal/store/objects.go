package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Several nodes keep the bytes of images in one place, where no lock excludes the others. So each
// upload stores an object of its own: a copy of the bytes under a name that is never used again.
// A row says which object has the bytes of a hash. All decisions about objects are updates, which
// follow one another over all nodes; the bytes are stored before, and removed after them.
//
//	storing → stored → unused, and storing → unused if the upload failed or took too long
//
// Only drivers that can be shared have these tables.

// ErrNoObject reports that no object has the bytes of an image.
var ErrNoObject = errors.New("no object has the bytes of this image")

// StartObject records that the bytes of an image are about to be stored as an object.
func (tx *Tx) StartObject(name, sha256 string, size int64) error {
	err := tx.exec(`INSERT INTO image_objects (name, sha256, size, state, at) VALUES (?, ?, ?, 'storing', ?)`, name, sha256, size, micros(tx.Now))
	if err != nil {
		return fmt.Errorf("start an object: %w", err)
	}
	return nil
}

// AdoptObject makes sure that an object has the bytes of an image, in the update that adds an
// owner. If there is one already, it returns its name. Otherwise the named object, which must be
// complete, becomes the one. If name is "" or the object was given up meanwhile, the error is
// ErrNoObject and nothing is changed.
func (tx *Tx) AdoptObject(sha256, name string) (adopted string, err error) {
	adopted, err = tx.Object(sha256)
	if !errors.Is(err, ErrNoObject) || name == "" {
		return adopted, err
	}
	var found int
	err = one(tx.q, `SELECT 1 FROM image_objects WHERE name = ? AND state = 'storing'`, []any{name}, &found)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrNoObject
	}
	if err != nil {
		return "", err
	}
	return name, tx.exec(`UPDATE image_objects SET state = 'stored', at = ? WHERE name = ?`, micros(tx.Now), name)
}

// DropObject makes an object unused if it was not adopted. It reports whether it was.
func (tx *Tx) DropObject(name string) (stored bool, err error) {
	var state string
	err = one(tx.q, `SELECT state FROM image_objects WHERE name = ?`, []any{name}, &state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case state != "storing":
		return state == "stored", nil
	}
	return false, tx.exec(`UPDATE image_objects SET state = 'unused', at = ? WHERE name = ?`, micros(tx.Now), name)
}

// Object returns the name of the object that has the bytes of an image, or ErrNoObject.
func (r *Reader) Object(sha256 string) (name string, err error) {
	err = one(r.q, `SELECT name FROM image_objects WHERE sha256 = ? AND state = 'stored'`, []any{sha256}, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrNoObject
	}
	return name, err
}

// FreeObjects makes the objects unused whose images lost their last owner. It does so for up to
// limit hashes that lost an owner, and reports whether there may be more.
func (tx *Tx) FreeObjects(limit int) (more bool, err error) {
	const some = `SELECT sha256 FROM freed_files ORDER BY sha256 LIMIT ?`
	err = tx.exec(`UPDATE image_objects SET state = 'unused', at = ? WHERE state = 'stored' AND sha256 IN (`+some+`)
		AND NOT EXISTS (SELECT 1 FROM assets a WHERE a.sha256 = image_objects.sha256)`, micros(tx.Now), limit)
	if err != nil {
		return false, fmt.Errorf("free objects: %w", err)
	}
	n, err := tx.q.Exec(`DELETE FROM freed_files WHERE sha256 IN (`+some+`)`, limit)
	if err != nil {
		return false, fmt.Errorf("free objects: %w", err)
	}
	return n == int64(limit), nil
}

// ExpireObjects makes the objects unused that have been started before a time and were not
// adopted since.
func (tx *Tx) ExpireObjects(before time.Time) error {
	return tx.exec(`UPDATE image_objects SET state = 'unused', at = 0 WHERE state = 'storing' AND at < ?`, micros(before))
}

// UnusedObjects returns the names of up to limit objects above after that became unused before
// a time.
func (r *Reader) UnusedObjects(before time.Time, after string, limit int) ([]string, error) {
	return r.names(`SELECT name FROM image_objects WHERE state = 'unused' AND at < ? AND name > ? ORDER BY name LIMIT ?`, micros(before), after, limit)
}

// ForgetObject removes the row of an object that is not stored.
func (tx *Tx) ForgetObject(name string) error {
	return tx.exec(`DELETE FROM image_objects WHERE name = ? AND state <> 'stored'`, name)
}

// WithoutObject returns up to limit images with a hash above after that have an owner, but no
// object.
func (r *Reader) WithoutObject(after string, limit int) ([]ImageFile, error) {
	rows, err := r.q.Query(`SELECT DISTINCT sha256, size FROM assets a WHERE sha256 > ?
		AND NOT EXISTS (SELECT 1 FROM image_objects o WHERE o.sha256 = a.sha256 AND o.state = 'stored') ORDER BY sha256 LIMIT ?`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read images without an object: %w", err)
	}
	defer rows.Close()
	var out []ImageFile
	for rows.Next() {
		var f ImageFile
		if err := rows.Scan(&f.SHA256, &f.Size); err != nil {
			return nil, fmt.Errorf("read images without an object: %w", err)
		}
		out = append(out, f)
	}
	return out, asDatabaseError(rows.Err())
}

// names returns the texts of a query's only column.
func (r *Reader) names(query string, args ...any) ([]string, error) {
	rows, err := r.q.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, asDatabaseError(rows.Err())
}
