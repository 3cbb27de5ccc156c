package postgres

import "time"

// SetGiveUpAfter changes giveUpAfter for connections that are made later. restore ends that.
func SetGiveUpAfter(d time.Duration) (restore func()) {
	before := giveUpAfter
	giveUpAfter = d
	return func() { giveUpAfter = before }
}

// Unfit exports unfit.
var Unfit = unfit

// SetTimeline makes a database believe that it has used a timeline. restore ends that.
func SetTimeline(db *DB, timeline int64) (restore func()) {
	before := db.newest.Swap(timeline)
	return func() { db.newest.Store(before) }
}

// HoldLost reports whether a database has no hold.
func HoldLost(db *DB) bool { return db.hold.Load().lost.Load() }
