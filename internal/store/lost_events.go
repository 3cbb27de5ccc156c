package store

import (
	"context"
	"fmt"

	"loquat"
)

// SQLite silently drops everything that follows a damaged place in its write-ahead log. So
// after each commit the driver writes the newest event id, the mark, to another file. A
// database that ends below the mark has lost acknowledged changes.
//
// The mark is not synced with each commit. It survives a crash of the process at once, and
// a crash of the machine after some seconds. It is never ahead of the database, so every
// reported loss is real. A loss within the last seconds before a crash of the machine may go
// unnoticed, and so may changes without an event (a token, an upload) at the end of the log.

// Mark is the newest event id that a log has assigned.
type Mark struct {
	StoreID string
	Last    loquat.EventID
}

// marker is implemented by drivers that keep a mark. Marked returns the mark of the last
// process.
type marker interface {
	Mark(Mark)
	Marked() (m Mark, ok bool)
}

// Loss describes lost events: those above Found, up to Given.
type Loss struct{ Given, Found loquat.EventID }

func (l Loss) Error() string {
	return fmt.Sprintf("the database has lost the events from %s to %s, which were acknowledged", l.Found+1, l.Given)
}

// Loss returns what the database had lost when the store was opened, or nil.
func (s *Store) Loss() *Loss { return s.loss }

// FindLoss compares the database of q with a mark. It returns nil if nothing was lost.
func FindLoss(q SQL, m Mark) (*Loss, error) {
	var id string
	var copied bool
	var last loquat.EventID
	if err := one(q, `SELECT store_id, copied, `+lastEventID+` FROM log`, nil, &id, &copied, &last); err != nil {
		return nil, err
	}
	// An empty log with another id was created because the database file was missing.
	same := id == m.StoreID || last == 0
	if copied || !same || m.Last <= last {
		return nil, nil
	}
	return &Loss{Given: m.Last, Found: last}, nil
}

// findLoss detects lost events. Clients may have seen them, so their ids must not be used
// again: the log then continues with a new store_id, above the lost ids.
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
	s.log.Error(s.loss.Error()+"; restore a backup if they matter", "continues_after", next.String())
	return startNewLog(ctx, s.driver, next, func(q SQL) (loquat.EventID, bool, error) {
		loss, err := FindLoss(q, m)
		if err != nil || loss == nil {
			return 0, false, err
		}
		return loss.Found, true, nil
	})
}
