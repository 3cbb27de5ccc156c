package sqlite

// Prepared returns the most prepared statements that an idle reading connection keeps, and those of the
// writing one.
func Prepared(db *DB) (reading, writing int) {
	db.read.mu.Lock()
	defer db.read.mu.Unlock()
	for _, c := range db.read.idle {
		reading = max(reading, len(c.statements))
	}
	return reading, len(db.statements)
}
