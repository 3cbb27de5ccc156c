package bridge

import (
	"context"
	"time"

	"loquat"
	"loquat/internal/feed"
)

// NewLocalLog returns the Log of the server in this process.
func NewLocalLog(f *feed.Feed) Log { return localLog{f} }

type localLog struct{ feed *feed.Feed }

func (l localLog) Latest() loquat.EventID { return l.feed.Latest() }

func (l localLog) Check(ctx context.Context, since loquat.EventID) error {
	_, err := l.feed.ResolveCursor(ctx, feed.Query{Since: &since, Push: true})
	return err
}

func (l localLog) Window(ctx context.Context, since, until loquat.EventID, user string, wait time.Duration) ([]loquat.Record, error) {
	w, err := l.feed.Events(ctx, feed.Query{Since: &since, Until: until, User: user, Wait: wait, Raw: true, Bytes: windowBytes})
	return w.Events, err
}

func (l localLog) AppendEvent(ctx context.Context, dst []byte, rec loquat.Record, omitSession bool) ([]byte, error) {
	if omitSession {
		rec.Rev = 0
	}
	return l.feed.AppendEvent(ctx, dst, rec)
}
