package images

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"loquat/internal/asset"
	"loquat/internal/store"
)

// Shared keeps images in a place that several nodes use at once, without locks: each upload is
// an object of its own, under a name that is never used again.
//
//	Add:     row "storing" → bytes → row "stored", in the update that adds the first owner
//	CleanUp: row "unused", in an update that counts the owners again → remove bytes → remove row
//
// So an object that is stored or removed late, by a node that was paused, cannot be one that a
// session owns. If the bytes of a hash are stored already, an upload uses them.
type Shared struct {
	opts SharedOptions
	log  *slog.Logger
}

// SharedOptions configure a Shared.
type SharedOptions struct {
	Store *store.Store
	Bytes asset.Store
	// External is true if the bytes are not in the database of the store. When this database
	// loses its newest changes, or is a copy of another, then the bytes stay as they are.
	External bool
	Logger   *slog.Logger
}

var _ Keeper = (*Shared)(nil)

const (
	// putTimeout is how long the bytes of an image may take to be stored.
	putTimeout = 10 * time.Minute
	// storingAge is the age at which an object counts as given up if no owner was added.
	storingAge = time.Hour
	// keepRemoved is how long external bytes are kept after their image was removed or given up: a
	// failover to a standby that lags may bring the image back, and the object store may carry out
	// a put that has failed.
	keepRemoved = 10 * time.Minute
	// maxFailures is how many objects in a row a cleanup fails to remove before it ends. Then the
	// whole place has probably failed.
	maxFailures = 10
	// maxTries is how often Add stores bytes that are given up before their owner is added.
	maxTries = 3
	// openTries is how often Open looks for an object, because one may be removed while another
	// takes its place.
	openTries = 3
)

// NewShared returns a Keeper for servers that share a database.
func NewShared(opts SharedOptions) *Shared { return &Shared{opts: opts, log: opts.Logger} }

// Add implements Keeper.
func (s *Shared) Add(ctx context.Context, u *asset.Upload, own func(func(*store.Tx) error) (bool, error)) error {
	name := ""
	for range maxTries {
		var adopted string
		owned, err := own(func(tx *store.Tx) (err error) {
			adopted, err = tx.AdoptObject(u.SHA256, name)
			return err
		})
		if name != "" && (err != nil || !owned || adopted != name) {
			s.discard(ctx, name)
		}
		if !errors.Is(err, store.ErrNoObject) {
			return err
		}
		if name, err = s.put(ctx, u); err != nil {
			return &StoreError{err}
		}
	}
	s.discard(ctx, name)
	return &StoreError{errors.New("the bytes were given up again and again while they were stored")}
}

// put stores the bytes of an upload as a new object.
func (s *Shared) put(ctx context.Context, u *asset.Upload) (name string, err error) {
	name = s.mark() + u.SHA256 + "-" + strings.ToLower(rand.Text())
	if err := s.opts.Store.Update(ctx, func(tx *store.Tx) error { return tx.StartObject(name, u.SHA256, u.Size) }); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if err := s.opts.Bytes.Put(limited, name, u); err != nil {
		s.discard(ctx, name)
		return "", err
	}
	return name, nil
}

// mark begins the names of the objects of this log.
func (s *Shared) mark() string { return s.opts.Store.ID() + "-" }

// discard removes an object, unless it was adopted. A cleanup removes it if that fails, and if the
// bytes are external: a put that failed may still be carried out after a removal.
func (s *Shared) discard(ctx context.Context, name string) {
	ctx = context.WithoutCancel(ctx)
	stored, err := store.Do(ctx, s.opts.Store, func(tx *store.Tx) (bool, error) { return tx.DropObject(name) })
	if err == nil && !stored && !s.opts.External {
		err = s.remove(ctx, name)
	}
	if err != nil {
		s.log.Warn("could not remove an image that nobody owns; a cleanup will try again", "object", name, "error", err)
	}
}

// remove removes the bytes of an object that is unused, then its row.
func (s *Shared) remove(ctx context.Context, name string) error {
	if err := s.opts.Bytes.Remove(ctx, name); err != nil {
		return err
	}
	return s.opts.Store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetObject(name) })
}

// Open implements Keeper.
func (s *Shared) Open(ctx context.Context, sha256 string, size int64) (f io.ReadSeekCloser, err error) {
	for range openTries {
		name, err := store.Read(ctx, s.opts.Store, func(r *store.Reader) (string, error) { return r.Object(sha256) })
		if err != nil {
			return nil, err
		}
		if f, err = s.opts.Bytes.Open(ctx, name, size); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("the bytes of image %s are lost: %w", sha256, fs.ErrNotExist)
}

// Start does nothing: CleanUp finds what a crash has left.
func (s *Shared) Start(context.Context) error { return nil }

// CleanUp implements Keeper. One node at a time calls it. If two do, neither does harm.
func (s *Shared) CleanUp(ctx context.Context) error {
	for more := true; more; {
		err := s.opts.Store.Update(ctx, func(tx *store.Tx) (err error) {
			if err = tx.ExpireObjects(tx.Now.Add(-storingAge)); err == nil {
				more, err = tx.FreeObjects(freedAtATime)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("find images that nobody owns: %w", err)
		}
	}
	return s.removeUnused(ctx)
}

// removeUnused removes the objects that are unused. An object that cannot be removed does not keep
// the others: the error of the first one is returned at the end, or after maxFailures in a row.
func (s *Shared) removeUnused(ctx context.Context) error {
	before := time.Now()
	if s.opts.External {
		before = before.Add(-keepRemoved)
	}
	var first error
	failures := 0 // in a row
	for after := ""; ; {
		names, err := store.Read(ctx, s.opts.Store, func(r *store.Reader) ([]string, error) { return r.UnusedObjects(before, after, freedAtATime) })
		if err != nil || len(names) == 0 {
			return cmp.Or(first, err)
		}
		for _, name := range names {
			after = name
			if err := s.removeOrForget(ctx, name); err == nil {
				failures = 0
				continue
			} else if first == nil {
				first = fmt.Errorf("remove images that nobody owns: %w", err)
			}
			if failures++; failures == maxFailures {
				return first
			}
		}
	}
}

// removeOrForget removes an object that is unused. The objects of another log, of which this
// database is a copy, are forgotten but not removed from an external place, because the other
// log may still own them.
func (s *Shared) removeOrForget(ctx context.Context, name string) error {
	if s.opts.External && !strings.HasPrefix(name, s.mark()) {
		return s.opts.Store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetObject(name) })
	}
	return s.remove(ctx, name)
}

// Check implements Keeper. A place that fails does not make the node unready: it would make all
// nodes unready, which can still do everything else.
func (s *Shared) Check(ctx context.Context) (unready bool, err error) {
	return false, s.opts.Bytes.Check(ctx)
}
