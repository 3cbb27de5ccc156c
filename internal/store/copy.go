package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// A restored copy of a database must not continue the original's log: the original may
// have published further events, and clients may have seen them. So the first opening of a
// copy gives it a new store_id, and its ids continue far above all ids of the original.
// The ids in between are foreign: a client whose cursor is one of them must load again.
// Clients whose cursor is in the copy continue without noticing.

// idsPerSecond is more than any log assigns. A log that starts at some second has higher ids
// than all logs that ended before.
const idsPerSecond = 1_000_000

// MarkCopy marks the database of q as a copy. It returns the last event and the hashes of the
// images that belong to the copy.
func MarkCopy(q SQL) (last loquat.EventID, images []string, err error) {
	if _, err := q.Exec(`UPDATE log SET copied = 1`); err != nil {
		return 0, nil, err
	}
	if last, err = LastEvent(q); err != nil {
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

// adoptCopy gives a copy a log of its own. It does not write to a database that is not marked
// as a copy.
func adoptCopy(ctx context.Context, driver Driver, log *slog.Logger) error {
	var copied bool
	var last loquat.EventID
	err := driver.Read(ctx, func(q SQL) error {
		return one(q, `SELECT copied, `+lastEventID+` FROM log`, nil, &copied, &last)
	})
	if err != nil || !copied {
		return err
	}
	next := firstIDAfter(last)
	log.Info("the data are a copy: event ids continue above those of the original", "copied_up_to", last.String(), "continues_after", next.String())
	return startNewLog(ctx, driver, next, func(q SQL) (last loquat.EventID, needed bool, err error) {
		err = one(q, `SELECT copied, `+lastEventID+` FROM log`, nil, &needed, &last)
		return last, needed, err
	})
}

// firstIDAfter returns the id at which a new log starts if clients may have seen ids up to id.
func firstIDAfter(id loquat.EventID) loquat.EventID {
	return max(id+idsPerSecond, loquat.EventID(time.Now().Unix()*idsPerSecond))
}

// startNewLog gives a log a new store_id and continues its ids above next. The ids in between
// become foreign. check returns where the log ends and whether it needs all this: meanwhile
// another node may have done it.
func startNewLog(ctx context.Context, driver Driver, next loquat.EventID, check func(SQL) (last loquat.EventID, needed bool, err error)) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	return driver.Write(ctx, func(q SQL) error {
		last, needed, err := check(q)
		if err != nil || !needed {
			return err
		}
		if _, shared := q.(sharedSQL); shared {
			if _, err := q.Exec(`UPDATE log SET cuts = cuts + 1`); err != nil {
				return err
			}
		}
		if _, err := q.Exec(`INSERT INTO foreign_ids (above, below) VALUES (?, ?)`, last, next); err != nil {
			return err
		}
		_, err = q.Exec(`UPDATE log SET copied = 0, server_id = CASE server_id WHEN '' THEN store_id ELSE server_id END, store_id = ?, last_event_id = ?`,
			id.String(), next)
		return err
	})
}

// idRange is the ids above one event and below another.
type idRange struct{ above, below loquat.EventID }

// identity is what makes a log another one: it changes if the log lost events.
type identity struct {
	id, serverID string
	foreign      []idRange
}

// with returns the identity after ids were skipped.
func (id *identity) with(skipped idRange) *identity {
	return &identity{id.id, id.serverID, append(slices.Clip(id.foreign), skipped)}
}

func readIdentity(q SQL) (*identity, error) {
	foreign, err := foreignIDs(q)
	if err != nil {
		return nil, err
	}
	id := &identity{foreign: foreign}
	return id, one(q, `SELECT store_id, server_id FROM log`, nil, &id.id, &id.serverID)
}

func foreignIDs(q SQL) (out []idRange, err error) {
	rows, err := q.Query(`SELECT above, below FROM foreign_ids`)
	if err != nil {
		return nil, fmt.Errorf("read foreign ids: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var b idRange
		if err := rows.Scan(&b.above, &b.below); err != nil {
			return nil, fmt.Errorf("read foreign ids: %w", err)
		}
		out = append(out, b)
	}
	return out, rows.Err()
}

// Foreign reports whether this log never assigned id, while the log that it was copied from
// may have.
func (s *Store) Foreign(id loquat.EventID) bool {
	for _, b := range s.identity.Load().foreign {
		if b.above < id && id < b.below {
			return true
		}
	}
	return false
}

// ServerID returns the id of the server whose log is in the database of q. Copies keep it.
func ServerID(q SQL) (string, error) {
	id, err := readIdentity(q)
	if err != nil {
		return "", err
	}
	return cmp.Or(id.serverID, id.id), nil
}
