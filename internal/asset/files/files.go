// Package files stores images as files that are named by the hash of their bytes.
//
// A file at its final place is complete and on disk. One process at a time may use a
// directory.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"

	"loquat/internal/asset"
	"loquat/internal/private"
)

// Incoming is the folder of a directory for images that are being received.
const Incoming = "incoming"

// Dir is a directory of images. The names of its Store are hashes.
type Dir struct{ path string }

var _ asset.Store = (*Dir)(nil)

// Open opens a directory. It creates the directory if it is missing.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of images: %w", err)
	}
	if err := private.Restrict(path); err != nil {
		return nil, err
	}
	return &Dir{path: path}, nil
}

// Check reports whether the directory is still there.
func (d *Dir) Check(context.Context) error {
	return asset.CheckDirectory(d.path)
}

// Restrict makes all files unreadable for other users, because files that were copied by
// hand may be readable for all. It tries every file and returns the first error.
func (d *Dir) Restrict() error {
	var first error
	err := filepath.WalkDir(d.path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || asset.IsHash(entry.Name())) {
			err = private.Restrict(name)
		}
		if first == nil && !errors.Is(err, fs.ErrNotExist) { // the file may have been removed meanwhile
			first = err
		}
		return nil
	})
	return errors.Join(first, err)
}

// Put moves the file of an upload to its final place. Both must be on one file system.
func (d *Dir) Put(_ context.Context, hash string, u *asset.Upload) error {
	to := d.file(hash)
	if info, err := os.Stat(to); err == nil && info.Size() == u.Size { // a damaged file is replaced
		u.Discard()
		return nil
	}
	if err := syncFile(u.Path()); err != nil {
		return err
	}
	folder := filepath.Dir(to)
	if err := os.Mkdir(folder, 0o700); err == nil {
		err = SyncDir(d.path)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("store an image: %w", err)
	}
	if err := os.Rename(u.Path(), to); err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	return SyncDir(folder)
}

// syncFile flushes the bytes of a file to disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // Windows flushes only files that are open for writing
	if err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	return nil
}

// SyncDir flushes the names in a folder to disk. Windows neither needs nor allows that.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	return nil
}

// Open opens the file of a hash.
func (d *Dir) Open(_ context.Context, hash string, size int64) (io.ReadSeekCloser, error) {
	f, err := os.Open(d.file(hash))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = asset.SizeError(hash, info.Size(), size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Remove removes the file of a hash, if there is one.
func (d *Dir) Remove(_ context.Context, hash string) error {
	err := os.Remove(d.file(hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Hashes returns the hashes of all files at their final places.
func (d *Dir) Hashes() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		folders, err := os.ReadDir(d.path)
		if err != nil {
			yield("", err)
			return
		}
		for _, folder := range folders {
			if folder.Name() == Incoming || !folder.IsDir() {
				continue
			}
			files, err := os.ReadDir(filepath.Join(d.path, folder.Name()))
			if err != nil {
				yield("", err)
				return
			}
			for _, f := range files {
				if asset.IsHash(f.Name()) && !yield(f.Name(), nil) {
					return
				}
			}
		}
	}
}

func (d *Dir) file(hash string) string { return Path(d.path, hash) }

// Path returns the file of a hash in a directory of images.
func Path(dir, hash string) string { return filepath.Join(dir, hash[:2], hash) }

// Any reports whether a directory has images. It does not create the directory.
func Any(dir string) bool {
	for _, err := range (&Dir{path: dir}).Hashes() {
		return err == nil
	}
	return false
}
