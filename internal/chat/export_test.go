package chat

import (
	"context"
	"testing"
	"time"

	"loquat/internal/store"
)

// MaxUploads is how many images a session has that no message has used.
const MaxUploads = maxUploads

// RemoveUnusedUploads is the part of Cleanup that goes by age.
func (s *Assets) RemoveUnusedUploads(ctx context.Context, before time.Time) error {
	return s.removeUnusedUploads(ctx, before)
}

// SetLookPause changes the pause between two looks for a test, before services start.
func SetLookPause(t *testing.T, pause time.Duration) {
	before := lookPause
	lookPause = pause
	t.Cleanup(func() { lookPause = before })
}

// TitlesWaiting returns how many sessions get or await a title of a model.
func TitlesWaiting(s *Service) int64 { return s.Requests.titles.waiting.Load() }

// TitleIn exports titleIn.
var TitleIn = titleIn

// ChecksAfterClose closes the sink of a request while a check of its limit begins, and reports whether the
// limit is checked again.
func ChecksAfterClose(s *Service, q store.Request) bool {
	k := newSink(context.Background(), s.Requests, q)
	k.close()
	k.checkLimit()
	return k.limit.Stop()
}
