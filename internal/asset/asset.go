// Package asset keeps images as files, by the hash of their bytes, and tells what an
// image is.
//
// It promises that a file in its place is whole and on disk, that the same bytes are
// kept once, that nothing is kept of what is refused or did not arrive, and that what a
// crash left half written is gone at the next start. Only headers are decoded.
//
// It does not know who owns an image: who places and removes files holds the lock of
// their hash while it asks and tells its own records.
package asset

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"loquat"
	"loquat/internal/private"
)

// incoming is the folder of files that are not whole yet.
const incoming = "incoming"

// Dir is a directory of images.
type Dir struct {
	path    string
	maxSize int64
	locks   [256]sync.Mutex // by the first byte of a hash
}

// Open opens a directory, which is made when it is missing, for images of at most
// maxSize bytes. One process uses it at a time: that is the caller's to see to.
func Open(path string, maxSize int64) (*Dir, error) {
	d := &Dir{path: path, maxSize: maxSize}
	arriving := filepath.Join(path, incoming)
	if err := os.RemoveAll(arriving); err != nil {
		return nil, fmt.Errorf("remove what uploads have left: %w", err)
	}
	if err := os.MkdirAll(arriving, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of images: %w", err)
	}
	if err := private.Restrict(path); err != nil { // so that nobody else reaches what is in there
		return nil, err
	}
	return d, nil
}

// Check reports whether the directory is still there.
func (d *Dir) Check() error {
	if _, err := os.Stat(filepath.Join(d.path, incoming)); err != nil {
		return errors.New("the directory of images was removed; move it back, or restart the server")
	}
	return nil
}

// Restrict takes all files from other users: copies that were made by hand may be
// readable by all. It returns the first failure after it has tried every file.
func (d *Dir) Restrict() error {
	var first error
	err := filepath.WalkDir(d.path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || isHash(entry.Name())) {
			err = private.Restrict(name)
		}
		if first == nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed meanwhile
			first = err
		}
		return nil
	})
	return errors.Join(first, err)
}

// Upload is an image that has arrived whole and is not in its place yet.
type Upload struct {
	SHA256    string // in hexadecimal
	MediaType string
	Size      int64

	dir  *Dir
	temp string
}

// Receive reads an image to its end. It refuses what Inspect refuses, and what is
// larger than the directory allows before it is read whole.
func (d *Dir) Receive(r io.Reader, claimed string) (*Upload, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	mediaType, err := sniff(in, claimed) // before anything is written
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Join(d.path, incoming), "*")
	if err != nil {
		return nil, fmt.Errorf("keep an image: %w", err)
	}
	u := &Upload{dir: d, temp: f.Name(), MediaType: mediaType}
	err = u.fill(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		u.Discard()
		return nil, err
	}
	return u, nil
}

// fill writes the file, and looks at it once it is whole.
func (u *Upload) fill(f *os.File, in io.Reader) (err error) {
	hash := sha256.New()
	u.Size, err = io.Copy(io.MultiWriter(f, hash), io.LimitReader(in, u.dir.maxSize+1))
	if err != nil {
		return err
	}
	if u.Size > u.dir.maxSize {
		return &Refusal{Code: loquat.CodeTooLarge, Clause: fmt.Sprintf("is larger than %d bytes; send a smaller one, or raise limits.max_asset_bytes", u.dir.maxSize)}
	}
	u.SHA256 = hex.EncodeToString(hash.Sum(nil))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := measure(bufio.NewReader(f), u.MediaType); err != nil {
		return err
	}
	return f.Sync()
}

// Discard gives an upload up, if it was not placed.
func (u *Upload) Discard() { _ = os.Remove(u.temp) }

// Place puts an upload where Open finds it. The lock of its hash is held.
func (u *Upload) Place() error {
	to := u.dir.file(u.SHA256)
	if _, err := os.Stat(to); err == nil {
		u.Discard()
		return nil
	}
	folder := filepath.Dir(to)
	if err := os.Mkdir(folder, 0o700); err == nil {
		err = SyncDir(u.dir.path)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep an image: %w", err)
	}
	if err := os.Rename(u.temp, to); err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	return SyncDir(folder)
}

// SyncDir brings the names in a folder to disk, where systems want to be told.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keep an image: %w", err)
	}
	return nil
}

// Lock excludes others who place or remove the file of a hash.
func (d *Dir) Lock(sha256 string) (unlock func()) {
	b, err := hex.DecodeString(sha256)
	if err != nil || len(b) == 0 {
		panic("asset: lock of no hash: " + sha256)
	}
	m := &d.locks[b[0]]
	m.Lock()
	return m.Unlock
}

// Open opens the file of a hash, which has to have its size still: who reads it has
// promised that many bytes to others.
func (d *Dir) Open(sha256 string, size int64) (*os.File, error) {
	f, err := os.Open(d.file(sha256))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = fmt.Errorf("the file of image %s has %d bytes, not %d: it was damaged", sha256, info.Size(), size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Remove removes the file of a hash, if there is one. The lock of the hash is held.
func (d *Dir) Remove(sha256 string) error {
	err := os.Remove(d.file(sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Files returns the hashes of all files that are in their place.
func (d *Dir) Files() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		folders, err := os.ReadDir(d.path)
		if err != nil {
			yield("", err)
			return
		}
		for _, folder := range folders {
			if folder.Name() == incoming || !folder.IsDir() {
				continue
			}
			files, err := os.ReadDir(filepath.Join(d.path, folder.Name()))
			if err != nil {
				yield("", err)
				return
			}
			for _, f := range files {
				if isHash(f.Name()) && !yield(f.Name(), nil) {
					return
				}
			}
		}
	}
}

// isHash tells the files of this package from what somebody else left beside them.
func isHash(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == name
}

func (d *Dir) file(sha256 string) string {
	return filepath.Join(d.path, sha256[:2], sha256)
}
