package chat

import (
	"context"
	"time"
)

// MaxUploads is how many images a session has that no message has used.
const MaxUploads = maxUploads

// SweepUploads is the part of Sweep that goes by age.
func (s *Service) SweepUploads(ctx context.Context, before time.Time) error {
	return s.sweepUploads(ctx, before)
}
