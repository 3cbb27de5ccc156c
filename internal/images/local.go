package images

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/store"
)

// Local keeps images in files that no other process uses. A file is written before its first
// owner is recorded, and removed after its last owner is removed. Both happen under the lock of
// its hash, so that no owner is added while the file is removed. Owners are read from committed
// data only, because a batch that fails restores the owners that it had removed.
type Local struct {
	store *store.Store
	dir   *files.Dir
	log   *slog.Logger
	locks [256]sync.Mutex // by the first byte of a hash
}

var _ Keeper = (*Local)(nil)

// NewLocal returns a Keeper of the files in a directory.
func NewLocal(s *store.Store, dir *files.Dir, log *slog.Logger) *Local {
	return &Local{store: s, dir: dir, log: log}
}

// Add implements Keeper.
func (l *Local) Add(ctx context.Context, u *asset.Upload, own func(func(*store.Tx) error) (bool, error)) error {
	defer l.lock(u.SHA256)()
	if err := l.dir.Put(ctx, u.SHA256, u); err != nil {
		return &StoreError{err}
	}
	owned, err := own(func(*store.Tx) error { return nil })
	if err != nil || !owned {
		l.removeIfUnowned(ctx, u.SHA256)
	}
	return err
}

// Open implements Keeper.
func (l *Local) Open(ctx context.Context, sha256 string, size int64) (io.ReadSeekCloser, error) {
	return l.dir.Open(ctx, sha256, size)
}

// lock locks the file of a hash.
func (l *Local) lock(sha256 string) (unlock func()) {
	b, err := hex.DecodeString(sha256)
	if err != nil || len(b) == 0 {
		panic("images: not a hash: " + sha256)
	}
	m := &l.locks[b[0]]
	m.Lock()
	return m.Unlock
}

// removeIfUnowned removes the file of a hash unless a session owns it, and reports whether
// one does. The lock of the hash is held. If the removal fails, the next start repeats it.
func (l *Local) removeIfUnowned(ctx context.Context, hash string) (owned bool) {
	ctx = context.WithoutCancel(ctx)
	owned, err := store.Read(ctx, l.store, func(r *store.Reader) (bool, error) { return r.Owned(hash) })
	if err == nil && !owned {
		err = l.dir.Remove(ctx, hash)
	}
	if err != nil {
		l.log.Warn("could not remove an image that nobody owns", "sha256", hash, "error", err)
	}
	return owned
}

// CleanUp implements Keeper.
func (l *Local) CleanUp(ctx context.Context) error {
	for after := ""; ; {
		freed, err := store.Read(ctx, l.store, func(r *store.Reader) ([]string, error) { return r.FreedFiles(after, freedAtATime) })
		if err != nil || len(freed) == 0 {
			return err
		}
		for _, hash := range freed {
			if err := l.removeFreedFile(ctx, hash); err != nil {
				return fmt.Errorf("remove the files of images: %w", err)
			}
			after = hash
		}
	}
}

func (l *Local) removeFreedFile(ctx context.Context, hash string) error {
	defer l.lock(hash)()
	owned := l.removeIfUnowned(ctx, hash)
	return l.store.Update(ctx, func(tx *store.Tx) error { return tx.SettleFile(hash, owned) })
}

// Start makes the files private, and removes files without an owner: a crash may have happened
// after a file was placed and before a session owned it.
func (l *Local) Start(ctx context.Context) error {
	readable := l.dir.Restrict()
	if readable != nil {
		readable = fmt.Errorf("other users of the machine may read images; make the user of the server the owner of the files: %w", readable)
	}
	for hash, err := range l.dir.Hashes() {
		if err != nil {
			return errors.Join(readable, fmt.Errorf("remove images that nobody owns: %w", err))
		}
		if ctx.Err() != nil {
			break
		}
		unlock := l.lock(hash)
		l.removeIfUnowned(ctx, hash)
		unlock()
	}
	return readable
}

// Check implements Keeper.
func (l *Local) Check(ctx context.Context) (unready bool, err error) {
	err = l.dir.Check(ctx)
	return err != nil, err
}
