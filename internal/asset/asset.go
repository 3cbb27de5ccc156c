// Package asset stores images as files that are named by the hash of their bytes, and
// detects their media types.
//
// A file at its final place is complete and on disk, and equal images share one file.
// Rejected and interrupted uploads leave no file. Open removes the incomplete files of a
// crashed process. Only the headers of images are decoded.
//
// The package does not know which sessions use an image. A caller that places or removes a
// file holds the lock of its hash while it reads and updates its own records.
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

// incoming is the folder for incomplete files.
const incoming = "incoming"

// Dir is a directory of images.
type Dir struct {
	path    string
	maxSize int64
	locks   [256]sync.Mutex // by the first byte of a hash
}

// Open opens a directory for images of at most maxSize bytes. It creates the directory if
// it is missing. The caller ensures that only one process uses the directory.
func Open(path string, maxSize int64) (*Dir, error) {
	d := &Dir{path: path, maxSize: maxSize}
	uploads := filepath.Join(path, incoming)
	// The folder itself stays, because a full disk has no room for a new one.
	left, err := os.ReadDir(uploads)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove incomplete uploads: %w", err)
	}
	for _, entry := range left {
		if err := os.RemoveAll(filepath.Join(uploads, entry.Name())); err != nil {
			return nil, fmt.Errorf("remove incomplete uploads: %w", err)
		}
	}
	if err := os.MkdirAll(uploads, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of images: %w", err)
	}
	if err := private.Restrict(path); err != nil {
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

// Restrict makes all files unreadable for other users, because files that were copied by
// hand may be readable for all. It tries every file and returns the first error.
func (d *Dir) Restrict() error {
	var first error
	err := filepath.WalkDir(d.path, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || isHash(entry.Name())) {
			err = private.Restrict(name)
		}
		if first == nil && !errors.Is(err, fs.ErrNotExist) { // the file may have been removed meanwhile
			first = err
		}
		return nil
	})
	return errors.Join(first, err)
}

// Upload is an image that was received completely and is not at its final place yet.
type Upload struct {
	SHA256    string // in hexadecimal
	MediaType string
	Size      int64

	dir  *Dir
	temp string
}

// Receive reads an image to its end. claimed is the media type that the client gave, or "".
// The error is an *ImageError if Inspect would reject the image or if the image is larger
// than the directory allows. Receive stops reading at that size.
func (d *Dir) Receive(r io.Reader, claimed string) (*Upload, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	mediaType, err := detectMediaType(in, claimed) // before anything is written
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Join(d.path, incoming), "*")
	if err != nil {
		return nil, fmt.Errorf("store an image: %w", err)
	}
	u := &Upload{dir: d, temp: f.Name(), MediaType: mediaType}
	err = u.writeFile(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		u.Discard()
		return nil, err
	}
	return u, nil
}

// writeFile writes the image to f, and checks its size and its header.
func (u *Upload) writeFile(f *os.File, in io.Reader) (err error) {
	hash := sha256.New()
	u.Size, err = io.Copy(io.MultiWriter(f, hash), io.LimitReader(in, u.dir.maxSize+1))
	if err != nil {
		return err
	}
	if u.Size > u.dir.maxSize {
		return &ImageError{Code: loquat.CodeTooLarge, Clause: fmt.Sprintf("is larger than %d bytes; send a smaller one, or raise limits.max_asset_bytes", u.dir.maxSize)}
	}
	u.SHA256 = hex.EncodeToString(hash.Sum(nil))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := checkHeader(bufio.NewReader(f), u.MediaType); err != nil {
		return err
	}
	return f.Sync()
}

// Discard removes an upload that was not placed.
func (u *Upload) Discard() { _ = os.Remove(u.temp) }

// Place moves an upload to its final place, where Dir.Open finds it. The caller holds the
// lock of its hash.
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
		return fmt.Errorf("store an image: %w", err)
	}
	if err := os.Rename(u.temp, to); err != nil {
		return fmt.Errorf("store an image: %w", err)
	}
	return SyncDir(folder)
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

// Lock locks the file of a hash, so that no other goroutine places or removes it.
func (d *Dir) Lock(sha256 string) (unlock func()) {
	b, err := hex.DecodeString(sha256)
	if err != nil || len(b) == 0 {
		panic("asset: Lock: not a hash: " + sha256)
	}
	m := &d.locks[b[0]]
	m.Lock()
	return m.Unlock
}

// Open opens the file of a hash. It fails if the file does not have the given size, because
// callers announce that size before they send the bytes.
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

// Remove removes the file of a hash, if there is one. The caller holds the lock of the hash.
func (d *Dir) Remove(sha256 string) error {
	err := os.Remove(d.file(sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Files returns the hashes of all files at their final places.
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

// isHash reports whether name is the name of an image file. Other files in the folders do
// not belong to this package.
func isHash(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == name
}

func (d *Dir) file(sha256 string) string {
	return filepath.Join(d.path, sha256[:2], sha256)
}
