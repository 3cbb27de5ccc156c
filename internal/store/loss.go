package store

import (
	"context"
	"fmt"

	"loquat"
)

// SQLite drops, without a word, all of a write-ahead log that follows a damaged place. So
// the driver notes after each commit, outside of the database, the newest id that was
// given. A database that ends below that id has lost changes which were acknowledged.
//
// The note is not synced with each commit. It survives the process at once and the
// machine after some seconds; it is never ahead of what was on disk. So it proves a loss,
// but for events of the last seconds before the machine stopped. Changes without an event
// (a token, an upload) count only when an event follows them.

// Mark is the newest id that a log has given.
type Mark struct {
	StoreID string
	Last    loquat.EventID
}

// marker is a power that a driver may have. The last mark is there after a crash.
type marker interface {
	Mark(Mark)
	Marked() (m Mark, ok bool)
}

// Loss is what a database has lost: the events above Found, up to Given.
type Loss struct{ Given, Found loquat.EventID }

func (l Loss) Error() string {
	return fmt.Sprintf("the database has lost the events from %s to %s, which were acknowledged", l.Found+1, l.Given)
}

// Loss returns what the database was found to have lost when the store was opened; nil is
// nothing.
func (s *Store) Loss() *Loss { return s.loss }

// FindLoss compares a mark with the database of q.
func FindLoss(q SQL, m Mark) (*Loss, error) {
	var id string
	var copied bool
	var last loquat.EventID
	if err := one(q, `SELECT store_id, copied, last_event_id FROM log`, nil, &id, &copied, &last); err != nil {
		return nil, err
	}
	// A log without events, of another name, was made because the database was missing.
	same := id == m.StoreID || last == 0
	if copied || !same || m.Last <= last {
		return nil, nil
	}
	return &Loss{Given: m.Last, Found: last}, nil
}

// findLoss looks whether the database has lost events. Clients may have seen those, and
// their ids must not mean something else: the log goes on as one of its own, above them.
func (s *Store) findLoss(ctx context.Context) error {
	if s.marker == nil {
		return nil
	}
	m, ok := s.marker.Marked()
	if !ok {
		return nil
	}
	err := s.driver.Read(ctx, func(q SQL) (err error) {
		s.loss, err = FindLoss(q, m)
		return err
	})
	if err != nil || s.loss == nil {
		return err
	}
	next := firstIDAfter(m.Last)
	s.log.Error(s.loss.Error()+"; restore a backup if they matter", "goes_on_after", next.String())
	return startNewLog(ctx, s.driver, s.loss.Found, next)
}
