package postgres

// Unfit exports unfit.
var Unfit = unfit

// SetTimeline makes a database believe that it has used a timeline. restore ends that.
func SetTimeline(db *DB, timeline int64) (restore func()) {
	before := db.newest.Swap(timeline)
	return func() { db.newest.Store(before) }
}

// HoldLost reports whether a database has no hold.
func HoldLost(db *DB) bool { return db.hold.Load().lost.Load() }
