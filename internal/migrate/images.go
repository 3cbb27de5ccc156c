package migrate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
)

// A data directory has the bytes of images in files. A database has them in pieces, or names their
// objects in an object store. So they are not copied as rows. Their hashes are compared while they
// are read.

// copyImages copies the images that sessions own.
func (m *mover) copyImages(ctx context.Context, q store.SQL) error {
	list, err := store.ImageFiles(q)
	if err != nil {
		return fmt.Errorf("read the images: %w", err)
	}
	all := size{rows: int64(len(list))}
	for _, f := range list {
		all.bytes += f.Size
	}
	p := m.start("copying the images", all)
	switch {
	case m.To.URL == "":
		err = m.imagesToFiles(ctx, q, list, p)
	case m.Objects != nil:
		err = m.imagesToObjects(ctx, list, p)
	default:
		err = m.imagesToPieces(ctx, list, p)
	}
	m.report.Images = len(list)
	return err
}

// imagesToObjects stores an object for each image in the object store. Objects that an interrupted
// move has left are complete, so only their sizes are checked.
func (m *mover) imagesToObjects(ctx context.Context, list []store.ImageFile, p *progress) error {
	dir := filepath.Join(m.From.Dir, "assets")
	names := make([]string, len(list))
	for i, f := range list {
		names[i] = m.objectName(f.SHA256)
		if err := m.imageToObject(ctx, dir, names[i], f); err != nil {
			return fmt.Errorf("copy the image %s: %w", f.SHA256, err)
		}
		p.add(1, f.Size)
	}
	return m.loadObjects(ctx, list, names)
}

func (m *mover) imageToObject(ctx context.Context, dir, name string, f store.ImageFile) error {
	stored := func() error {
		body, err := m.Objects.Open(ctx, name, f.Size)
		if err != nil {
			return err
		}
		return body.Close()
	}
	if err := stored(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := files.Verify(dir, f.SHA256, f.Size, true); err != nil {
		return err
	}
	if err := m.Objects.Put(ctx, name, asset.FileUpload(files.Path(dir, f.SHA256), f.SHA256, f.Size)); err != nil {
		return err
	}
	return stored()
}

// objectName returns the name of the object of an image. A repeated move has the same names, and so
// finds the objects that are there. A move to another database has other names: each database removes
// its objects without asking the others.
func (m *mover) objectName(image string) string {
	place := sha256.Sum256([]byte(m.To.String()))
	return m.id + "-" + image + "-" + hex.EncodeToString(place[:13])
}

// imagesToPieces adds an object for each image to the database, and its pieces.
func (m *mover) imagesToPieces(ctx context.Context, list []store.ImageFile, p *progress) error {
	names := make([]string, len(list))
	for i, f := range list {
		names[i] = m.id + "-" + f.SHA256 + "-" + strings.ToLower(rand.Text())
	}
	if err := m.loadObjects(ctx, list, names); err != nil {
		return err
	}
	in := &filePieces{dir: filepath.Join(m.From.Dir, "assets"), list: list, names: names, p: p}
	defer in.close()
	columns := []store.Column{{Name: "name"}, {Name: "piece"}, {Name: "body"}}
	return m.target.Load(ctx, "image_pieces", columns, func() ([]any, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return in.next()
	})
}

// loadObjects adds the rows of objects to the database.
func (m *mover) loadObjects(ctx context.Context, list []store.ImageFile, names []string) error {
	columns := []store.Column{{Name: "name"}, {Name: "sha256"}, {Name: "size"}, {Name: "state"}, {Name: "at"}}
	n := 0
	return m.target.Load(ctx, "image_objects", columns, func() ([]any, error) {
		if n == len(list) {
			return nil, nil
		}
		f := list[n]
		n++
		return []any{names[n-1], f.SHA256, f.Size, "stored", time.Now().UnixMicro()}, nil
	})
}

// filePieces reads the pieces of image files.
type filePieces struct {
	dir   string
	list  []store.ImageFile // not yet read, like names
	names []string
	p     *progress

	file  *os.File // the first of list, or nil
	piece int64
	hash  hash.Hash // of the bytes that were read
}

func (in *filePieces) close() {
	if in.file != nil {
		in.file.Close()
		in.file = nil
	}
}

// next returns the next row of image_pieces, or nil at the end.
func (in *filePieces) next() ([]any, error) {
	for len(in.list) > 0 {
		f := in.list[0]
		if in.file == nil {
			file, err := os.Open(files.Path(in.dir, f.SHA256))
			if err != nil {
				return nil, fmt.Errorf("read an image: %w", err)
			}
			in.file, in.piece, in.hash = file, 0, sha256.New()
		}
		body := make([]byte, max(0, min(postgres.PieceSize, f.Size-in.piece*postgres.PieceSize)))
		if len(body) > 0 {
			if _, err := io.ReadFull(in.file, body); err != nil {
				return nil, fmt.Errorf("read the image %s: %w", f.SHA256, err)
			}
			in.hash.Write(body)
			in.piece++
			in.p.add(0, int64(len(body)))
			return []any{in.names[0], in.piece - 1, body}, nil
		}
		if hex.EncodeToString(in.hash.Sum(nil)) != f.SHA256 {
			return nil, fmt.Errorf("the file of the image %s was damaged", f.SHA256)
		}
		in.close()
		in.list, in.names = in.list[1:], in.names[1:]
		in.p.add(1, 0)
	}
	return nil, nil
}

// imagesToFiles writes a file for each image. Files that an interrupted move has left are
// complete, and are verified.
func (m *mover) imagesToFiles(ctx context.Context, q store.SQL, list []store.ImageFile, p *progress) error {
	path := filepath.Join(m.To.Dir, "assets")
	if err := os.MkdirAll(filepath.Join(path, files.Incoming), 0o700); err != nil {
		return err
	}
	dir, err := files.Open(path)
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if files.Verify(path, f.SHA256, f.Size, true) != nil {
			if err := dir.Remove(ctx, f.SHA256); err != nil {
				return err
			}
			if err := m.imageToFile(ctx, q, dir, path, f); err != nil {
				return fmt.Errorf("copy the image %s: %w", f.SHA256, err)
			}
		}
		p.add(1, f.Size)
	}
	return nil
}

func (m *mover) imageToFile(ctx context.Context, q store.SQL, dir *files.Dir, path string, f store.ImageFile) error {
	out, err := os.CreateTemp(filepath.Join(path, files.Incoming), "*")
	if err != nil {
		return err
	}
	sum := sha256.New()
	if m.Objects != nil {
		err = m.readObject(ctx, io.MultiWriter(out, sum), q, f)
	} else {
		err = writePieces(io.MultiWriter(out, sum), q, f.SHA256)
	}
	if err = errors.Join(err, out.Close()); err == nil && hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		err = errors.New("its stored bytes are damaged")
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return dir.Put(ctx, f.SHA256, asset.FileUpload(out.Name(), f.SHA256, f.Size))
}

// readObject writes the object of an image to out.
func (m *mover) readObject(ctx context.Context, out io.Writer, q store.SQL, f store.ImageFile) error {
	rows, err := q.Query(`SELECT name FROM image_objects WHERE sha256 = ? AND state = 'stored'`, f.SHA256)
	if err != nil {
		return err
	}
	values, err := one(rows, 1)
	if err != nil {
		return fmt.Errorf("the database names no object of it: %w", err)
	}
	name, ok := values[0].(string)
	if !ok {
		return fmt.Errorf("the name of its object is a %T", values[0])
	}
	body, err := m.Objects.Open(ctx, name, f.Size)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; --assets must be the assets.url of the servers", err)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, body)
	return errors.Join(err, body.Close())
}

// writePieces writes the pieces of an image in a database, one at a time.
func writePieces(out io.Writer, q store.SQL, name string) error {
	rows, err := q.Query(`SELECT p.body FROM image_objects o JOIN image_pieces p ON p.name = o.name
		WHERE o.sha256 = ? AND o.state = 'stored' ORDER BY p.piece`, name)
	if err != nil {
		return err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		found = true
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return err
		}
		if _, err := out.Write(body); err != nil {
			return err
		}
	}
	if !found {
		err = fmt.Errorf("its bytes are not in the database: %w; if the servers have assets.url, name it with --assets; if a server of an earlier version has left images in its data directory, start a server with this directory once", fs.ErrNotExist)
	}
	return errors.Join(rows.Err(), err)
}
