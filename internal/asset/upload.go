package asset

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"loquat"
	"loquat/internal/private"
)

// Spool is a directory for images that are being received. Rejected and interrupted uploads
// leave no file.
type Spool struct {
	path    string
	maxSize int64
}

// OpenSpool opens a directory for images of at most maxSize bytes. It creates the directory if
// it is missing, and removes what a crashed process left there. The caller ensures that only
// one process uses the directory.
func OpenSpool(path string, maxSize int64) (*Spool, error) {
	// The folder itself stays, because a full disk has no room for a new one.
	left, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove incomplete uploads: %w", err)
	}
	for _, entry := range left {
		if err := os.RemoveAll(filepath.Join(path, entry.Name())); err != nil {
			return nil, fmt.Errorf("remove incomplete uploads: %w", err)
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of incomplete uploads: %w", err)
	}
	if err := private.Restrict(path); err != nil {
		return nil, err
	}
	return &Spool{path: path, maxSize: maxSize}, nil
}

// Check reports whether the directory is still there.
func (s *Spool) Check() error { return CheckDirectory(s.path) }

// CheckDirectory reports whether a directory of images is still there, for the user of the server.
func CheckDirectory(path string) error {
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return errors.New("the user of the server may not use the directory of images; give the data directory back to that user: chown -R")
	case err != nil:
		return errors.New("the directory of images was removed; move it back, or restart the server")
	}
	return nil
}

// Upload is an image that was received completely.
type Upload struct {
	SHA256    string // in hexadecimal
	MediaType string
	Size      int64

	path string
}

// FileUpload returns an upload of an image that is in a file already.
func FileUpload(path, sha256 string, size int64) *Upload {
	return &Upload{SHA256: sha256, Size: size, path: path}
}

// Path returns the name of the file with the bytes. Store.Put may move the file.
func (u *Upload) Path() string { return u.path }

// Discard removes the file of an upload, if it is still there.
func (u *Upload) Discard() { _ = os.Remove(u.path) }

// Receive reads an image to its end. claimed is the media type that the client gave, or "".
// The error is an *ImageError if Inspect would reject the image or if the image is larger
// than the directory allows. Receive stops reading at that size.
func (s *Spool) Receive(r io.Reader, claimed string) (*Upload, error) {
	in := bufio.NewReaderSize(r, 32<<10)
	mediaType, err := detectMediaType(in, claimed) // before anything is written
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.path, "*")
	if err != nil {
		return nil, fmt.Errorf("store an image: %w", err)
	}
	u := &Upload{path: f.Name(), MediaType: mediaType}
	err = u.writeFile(f, in, s.maxSize)
	if err = errors.Join(err, f.Close()); err != nil {
		u.Discard()
		return nil, err
	}
	return u, nil
}

// writeFile writes the image to f, and checks its size and its header.
func (u *Upload) writeFile(f *os.File, in io.Reader, maxSize int64) (err error) {
	hash := sha256.New()
	u.Size, err = io.Copy(io.MultiWriter(f, hash), io.LimitReader(in, maxSize+1))
	if err != nil {
		return err
	}
	if u.Size > maxSize {
		return &ImageError{Code: loquat.CodeTooLarge, Clause: fmt.Sprintf("is larger than %d bytes; send a smaller one, or raise limits.max_asset_bytes", maxSize)}
	}
	u.SHA256 = hex.EncodeToString(hash.Sum(nil))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return checkHeader(bufio.NewReader(f), u.MediaType)
}

// CreateTemp creates a file in the directory, which the caller removes.
func (s *Spool) CreateTemp() (*os.File, error) {
	f, err := os.CreateTemp(s.path, "*")
	if err != nil {
		return nil, fmt.Errorf("create a file for what is being received: %w", err)
	}
	return f, nil
}
