package chat

import (
	"context"
	"errors"
	"time"
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

// cleanupLoop runs cleanups until the service stops. Of several nodes, one at a time does this.
func (s *Service) cleanupLoop() {
	if err := s.Assets.images.Start(s.life); err != nil && s.life.Err() == nil {
		s.log.Warn("the images could not be tidied", "error", err)
	}
	for {
		select {
		case <-s.life.Done():
			return
		case <-time.After(cleanupPause(s.config.Now().Events.Retention)):
			if !s.store.Leads() {
				continue
			}
			if err := s.Cleanup(s.life); err != nil && s.life.Err() == nil {
				s.log.Warn("the cleanup failed", "error", err)
			}
		}
	}
}

// Cleanup removes rows and images that nothing needs. If some cannot be removed, it goes on with others.
func (s *Service) Cleanup(ctx context.Context) error {
	var drafts error
	if s.store.Shared() { // no start may remove the drafts of other nodes
		drafts = s.Requests.dropDrafts(ctx)
	}
	return errors.Join(drafts, s.store.Cleanup(ctx), s.Assets.cleanUp(ctx))
}
