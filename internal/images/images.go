// Package images keeps the bytes of images consistent with the rows of the store that say which
// sessions own them: a session never owns an image whose bytes are missing, and bytes without
// an owner are removed.
//
// Local is for a server that alone uses its data directory. Shared is for servers that share a
// database.
package images

import (
	"context"
	"io"

	"loquat/internal/asset"
	"loquat/internal/store"
)

// Keeper keeps the bytes of images.
type Keeper interface {
	// Add stores the bytes of an upload and calls own, which makes a session their owner in an
	// update of the store. This update must call adopt before it adds the owner, and fail if
	// adopt fails. own reports whether the session is an owner now. Add may call own again
	// after a failed adopt, and returns the error of its last call. Other errors concern the
	// bytes and are a *StoreError.
	Add(ctx context.Context, u *asset.Upload, own func(adopt func(*store.Tx) error) (bool, error)) error
	// Open returns the bytes of an image that has an owner.
	Open(ctx context.Context, sha256 string, size int64) (io.ReadSeekCloser, error)
	// Start removes what a crash may have left. It runs once, before the first CleanUp and
	// while images are already added.
	Start(ctx context.Context) error
	// CleanUp removes bytes that have lost their last owner.
	CleanUp(ctx context.Context) error
	// Check returns what is wrong with the place of the images. unready reports that the server
	// can do nothing useful until this is repaired.
	Check(ctx context.Context) (unready bool, err error)
}

// StoreError is an error of Keeper.Add that concerns the bytes of the image.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "store the bytes of an image: " + e.Err.Error() }
func (e *StoreError) Unwrap() error { return e.Err }

// freedAtATime is how many hashes a cleanup reads at once.
const freedAtATime = 100
