package postgres

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"

	"loquat/internal/asset"
	"loquat/internal/store"
)

// PieceSize is the number of bytes of a piece of an image in image_pieces.
const PieceSize = pieceSize

// pieceSize is the number of bytes of a piece of an image. The last piece may have fewer.
const pieceSize = 512 << 10

// pieces stores the bytes of images in the database. The names are those of rows of
// image_objects. Each piece is written and read in a transaction of its own, on a connection of
// the pool, so that neither the committer nor a slow client delays the other.
type pieces struct{ db *DB }

// Images returns the store of images in this database. Names must have been given to
// store.StartObject.
func (db *DB) Images() asset.Store { return pieces{db} }

// Put implements asset.Store.
func (p pieces) Put(ctx context.Context, name string, u *asset.Upload) error {
	f, err := os.Open(u.Path())
	if err != nil {
		return err
	}
	defer f.Close()
	buffer := make([]byte, pieceSize)
	for i := int64(0); i*pieceSize < u.Size; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(f, buffer[:min(pieceSize, u.Size-i*pieceSize)])
		if err != nil {
			return fmt.Errorf("read piece %d after %d bytes: %w", i, n, err)
		}
		err = p.exec(ctx, `INSERT INTO image_pieces (name, piece, body) VALUES ($1, $2, $3) ON CONFLICT (name, piece) DO NOTHING`, name, i, buffer[:n])
		if err != nil {
			return p.failed(fmt.Errorf("write piece %d: %w", i, err))
		}
	}
	return nil
}

// Open implements asset.Store. While pieces are missing, the object does not exist.
func (p pieces) Open(ctx context.Context, name string, size int64) (io.ReadSeekCloser, error) {
	var whole, found int64
	err := p.one(ctx, `SELECT size, (SELECT coalesce(sum(octet_length(body)), 0) FROM image_pieces p WHERE p.name = o.name)
		FROM image_objects o WHERE name = ?`, []any{name}, &whole, &found)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && found < whole:
		return nil, fmt.Errorf("image %s: %w", name, fs.ErrNotExist)
	case err != nil:
		return nil, p.failed(err)
	case found != size:
		return nil, asset.SizeError(name, found, size)
	}
	return asset.NewReader(ctx, size, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		var body []byte
		err := p.one(ctx, `SELECT body FROM image_pieces WHERE name = ? AND piece = ?`, []any{name, offset / pieceSize}, &body)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("piece %d of image %s: %w", offset/pieceSize, name, fs.ErrNotExist)
		}
		if err != nil {
			return nil, p.failed(err)
		}
		rest := bytes.NewReader(body[min(int64(len(body)), offset%pieceSize):])
		return io.NopCloser(rest), nil
	}), nil
}

// Remove implements asset.Store.
func (p pieces) Remove(ctx context.Context, name string) error {
	if err := p.exec(ctx, `DELETE FROM image_pieces WHERE name = $1`, name); err != nil {
		return p.failed(fmt.Errorf("remove the pieces of an image: %w", err))
	}
	return nil
}

// Check returns nil, because the store reports the state of the database itself.
func (p pieces) Check(context.Context) error { return nil }

// one scans the only row of a query.
func (p pieces) one(ctx context.Context, query string, args []any, dest ...any) error {
	return p.db.Read(ctx, func(q store.SQL) error {
		rows, err := q.Query(query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		if !rows.Next() {
			return cmp.Or(rows.Err(), sql.ErrNoRows)
		}
		return errors.Join(rows.Scan(dest...), rows.Close())
	})
}

// exec runs a statement in a transaction of its own. Cancelling ctx ends the wait for a
// connection, and not the statement.
func (p pieces) exec(ctx context.Context, query string, args ...any) error {
	conn, raw, err := p.db.connect(ctx)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer p.db.watch(raw)()
	var b pgx.Batch
	p.db.begin(&b, toWrite)
	b.Queue(query, args...)
	err = commit(context.WithoutCancel(ctx), raw, &b)
	usable = err == nil || !broken(raw, err) && rollback(raw)
	return err
}

// failed returns an error of the database as one of a store of images.
func (p pieces) failed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &asset.UnavailableError{Text: explain(err).Text, Err: err}
}
