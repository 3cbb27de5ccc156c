package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// A copy of a database is not the same log: the one that it was taken from has gone on,
// and clients may have seen what it said. So a copy becomes a log of its own when it is
// opened first. It has a new store_id, and its ids go on from far above all that others
// may have given; those in between are foreign, and who stands at one has to load again.
// Who stands at an event from before the copy was taken goes on as if nothing had been.

// idsPerSecond is more than any log gives. The ids of a log that begins at some second are
// above those of all logs that ended before.
const idsPerSecond = 1_000_000

// MarkCopy makes the database of q known as a copy, and returns its last event and the
// hashes of the images that belong to it.
func MarkCopy(q SQL) (last loquat.EventID, images []string, err error) {
	if _, err := q.Exec(`UPDATE log SET copied = 1`); err != nil {
		return 0, nil, err
	}
	if err := one(q, `SELECT last_event_id FROM log`, nil, &last); err != nil {
		return 0, nil, err
	}
	rows, err := q.Query(`SELECT DISTINCT sha256 FROM assets ORDER BY sha256`)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var hash string
		if err := rows.Scan(&hash); err != nil {
			return 0, nil, err
		}
		images = append(images, hash)
	}
	return last, images, rows.Err()
}

// adoptCopy makes a copy a log of its own. Of what is none it writes nothing.
func adoptCopy(ctx context.Context, driver Driver, log *slog.Logger) error {
	var copied bool
	var last loquat.EventID
	err := driver.Read(ctx, func(q SQL) error {
		return one(q, `SELECT copied, last_event_id FROM log`, nil, &copied, &last)
	})
	if err != nil || !copied {
		return err
	}
	next := firstIDAfter(last)
	log.Info("these data are a copy: they go on as a log of their own", "copied_up_to", last.String(), "goes_on_after", next.String())
	return startNewLog(ctx, driver, last, next)
}

// firstIDAfter is where a log goes on whose ids up to one may have been seen.
func firstIDAfter(id loquat.EventID) loquat.EventID {
	return max(id+idsPerSecond, loquat.EventID(time.Now().Unix()*idsPerSecond))
}

// startNewLog makes of a log whose last event is known another one, whose ids go on above
// next.
func startNewLog(ctx context.Context, driver Driver, last, next loquat.EventID) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	return driver.Write(ctx, func(q SQL) error {
		if _, err := q.Exec(`INSERT INTO foreign_ids (above, below) VALUES (?, ?)`, last, next); err != nil {
			return err
		}
		_, err := q.Exec(`UPDATE log SET copied = 0, server_id = CASE server_id WHEN '' THEN store_id ELSE server_id END, store_id = ?, last_event_id = ?`,
			id.String(), next)
		return err
	})
}

// between is the ids above one event and below another.
type idRange struct{ above, below loquat.EventID }

func foreignIDs(q SQL) (out []idRange, err error) {
	rows, err := q.Query(`SELECT above, below FROM foreign_ids`)
	if err != nil {
		return nil, fmt.Errorf("read the ids of other logs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b idRange
		if err := rows.Scan(&b.above, &b.below); err != nil {
			return nil, fmt.Errorf("read the ids of other logs: %w", err)
		}
		out = append(out, b)
	}
	return out, rows.Err()
}

// Foreign reports whether an id is one that this log never gave, but another may have
// that it is a copy of.
func (s *Store) Foreign(id loquat.EventID) bool {
	for _, b := range s.foreign {
		if b.above < id && id < b.below {
			return true
		}
	}
	return false
}
