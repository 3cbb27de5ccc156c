package chat

import (
	"context"
	"fmt"
	"time"

	"loquat"
	"loquat/internal/store"
)

// The pause between two cleanups is as long as events are kept, within these bounds.
const (
	minCleanupPause = time.Second
	maxCleanupPause = 30 * time.Second
)

func cleanupPause(retention time.Duration) time.Duration {
	if retention <= 0 { // all events are kept, but not all increments
		return maxCleanupPause
	}
	return min(max(retention, minCleanupPause), maxCleanupPause)
}

// cleanupLoop runs cleanups until the service stops.
func (s *Service) cleanupLoop() {
	if err := s.assets.Restrict(); err != nil {
		s.log.Warn("other users of the machine may read images; make the user of the server the owner of the files", "error", err)
	}
	if err := s.removeStrayFiles(s.life); err != nil && s.life.Err() == nil {
		s.log.Warn("could not remove images that nobody owns", "error", err)
	}
	tick := time.NewTicker(cleanupPause(s.config.Events.Retention))
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
			if err := s.Cleanup(s.life); err != nil && s.life.Err() == nil {
				s.log.Warn("the cleanup failed", "error", err)
			}
		}
	}
}

// Cleanup removes rows and images that nothing needs any more.
func (s *Service) Cleanup(ctx context.Context) error {
	if err := s.store.Cleanup(ctx); err != nil {
		return err
	}
	if err := s.removeUnusedUploads(ctx, time.Now().Add(-uploadAge)); err != nil {
		return err
	}
	return s.removeFreedFiles(ctx)
}

// removeUnusedUploads removes images that were uploaded before a time and that no message has used.
// Images of queued sends stay.
func (s *Service) removeUnusedUploads(ctx context.Context, before time.Time) error {
	type removed struct{ read, kept int }
	for kept := 0; ; {
		some, err := store.Do(ctx, s.store, func(tx *store.Tx) (out removed, err error) {
			old, err := tx.Unattached(before, kept, maxUploads)
			out.read = len(old)
			for _, a := range old {
				err := removeAsset(tx, Call{}, a.SessionID, a.AssetID)
				if loquat.CodeOf(err) == loquat.CodeConflict {
					out.kept++
				} else if err != nil {
					return out, err
				}
			}
			return out, err
		})
		if err != nil {
			return fmt.Errorf("remove unused uploads: %w", err)
		}
		if some.read == 0 {
			return nil
		}
		kept += some.kept
	}
}

// removeIfUnowned removes the file of a hash unless a session owns it, and reports whether
// one does. The lock of the hash is held. If the removal fails, the next start repeats it.
func (s *Service) removeIfUnowned(ctx context.Context, hash string) (owned bool) {
	ctx = context.WithoutCancel(ctx)
	owned, err := store.Read(ctx, s.store, func(r *store.Reader) (bool, error) { return r.Owned(hash) })
	if err == nil && !owned {
		err = s.assets.Remove(hash)
	}
	if err != nil {
		s.log.Warn("could not remove an image that nobody owns", "sha256", hash, "error", err)
	}
	return owned
}

// freedAtATime is how many hashes a cleanup reads at once.
const freedAtATime = 100

// removeFreedFiles removes the files that lost their last owner.
func (s *Service) removeFreedFiles(ctx context.Context) error {
	for after := ""; ; {
		freed, err := store.Read(ctx, s.store, func(r *store.Reader) ([]string, error) { return r.FreedFiles(after, freedAtATime) })
		if err != nil || len(freed) == 0 {
			return err
		}
		for _, hash := range freed {
			if err := s.removeFreedFile(ctx, hash); err != nil {
				return fmt.Errorf("remove the files of images: %w", err)
			}
			after = hash
		}
	}
}

func (s *Service) removeFreedFile(ctx context.Context, hash string) error {
	defer s.assets.Lock(hash)()
	owned := s.removeIfUnowned(ctx, hash)
	return s.store.Update(ctx, func(tx *store.Tx) error { return tx.SettleFile(hash, owned) })
}

// removeStrayFiles removes files without an owner, once at start: a crash may have happened
// after a file was placed and before a session owned it.
func (s *Service) removeStrayFiles(ctx context.Context) error {
	for hash, err := range s.assets.Files() {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		unlock := s.assets.Lock(hash)
		s.removeIfUnowned(ctx, hash)
		unlock()
	}
	return nil
}
