package chat

import (
	"context"
	"time"
)

// MaxUploads is how many images a session has that no message has used.
const MaxUploads = maxUploads

// RemoveUnusedUploads is the part of Cleanup that goes by age.
func (s *Assets) RemoveUnusedUploads(ctx context.Context, before time.Time) error {
	return s.removeUnusedUploads(ctx, before)
}
