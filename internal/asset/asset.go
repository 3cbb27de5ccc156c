// Package asset receives images, detects their media types, and defines how their bytes are
// stored. Packages below it store them: as files, or as objects of an S3-compatible store. The
// PostgreSQL driver stores them in a database. All of them must pass package assettest.
//
// Only the headers of images are decoded. The package does not know which sessions use an
// image; package images does.
package asset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// Store keeps the bytes of images under names. The caller never gives a name to other bytes,
// and names consist of lower-case letters, digits and hyphens.
//
// An error for which a retry may help is an *UnavailableError.
type Store interface {
	// Put stores an upload. When it returns nil, the bytes survive a crash and Open finds them.
	// Until then Open finds nothing or all bytes. If the name exists, Put succeeds. A remote store
	// may still carry out a Put that has failed, even after Remove.
	Put(ctx context.Context, name string, u *Upload) error
	// Open returns the bytes of a name, which the caller closes. It fails if there are not
	// exactly size bytes, because callers announce that size before they send the bytes. If the
	// name does not exist, the error wraps fs.ErrNotExist. The bytes are read while ctx lasts.
	Open(ctx context.Context, name string, size int64) (io.ReadSeekCloser, error)
	// Remove removes the bytes of a name, also those of a Put that failed. It succeeds if there
	// are none.
	Remove(ctx context.Context, name string) error
	// Check returns an error if images cannot be stored or read at present.
	Check(ctx context.Context) error
}

// UnavailableError reports that the bytes of images cannot be stored or read at present. Text
// says what is wrong and what to do, for clients and operators.
type UnavailableError struct {
	Text string
	Err  error
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("%s: %v", e.Text, e.Err) }
func (e *UnavailableError) Unwrap() error { return e.Err }

// SizeError returns the error of a Store whose bytes of a name do not have the expected size.
func SizeError(name string, got, want int64) error {
	return fmt.Errorf("the bytes of image %s are damaged: there are %d and not %d", name, got, want)
}

// IsHash reports whether name is a SHA-256 in hexadecimal.
func IsHash(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == name
}
