package sqlite

import (
	"context"
	"os"
	"time"

	"loquat/internal/store/datadir"
)

// A goroutine copies the write-ahead log back to the database file (a WAL checkpoint) while
// the committer goes on writing. SQLite writes the log from its start again only when a
// transaction begins after all of the log was copied, which never happens between commits that
// follow each other closely. So the committer copies the little that was written during the
// last WAL checkpoint, whenever the log has grown. It waits only when readers have kept the log
// from shrinking for too long. An idle database truncates a large log. Then the goroutine waits for the
// next write, so that an idle server does not wake for it.
const (
	checkpointEvery = 200 * time.Millisecond
	walSoftLimit    = 4 << 20
	walTurn         = 12 << 20 // size at which the committer lets the log start again
	walHardLimit    = 64 << 20
	otherCheckpoint = 500 * time.Millisecond // how long the committer waits for another WAL checkpoint
	truncateTimeout = 50 * time.Millisecond  // the most that a writer waits for a truncation
)

// checkpointLoop runs WAL checkpoints while the committer writes.
func (db *DB) checkpointLoop() {
	defer close(db.done)
	synced, unsynced, seen := time.Now(), false, int64(0)
	for open := true; open; {
		writes := db.writes.Load()
		idle := writes == seen
		seen = writes
		unsynced = unsynced || !idle
		if unsynced && time.Since(synced) >= datadir.MarkSyncEvery {
			db.mark.Sync()
			synced, unsynced = time.Now(), false
		}
		small := db.walSize() <= walSoftLimit
		if !small {
			db.shrinkWAL(idle)
		}
		switch {
		case !small || !idle:
			open = db.pause(time.After(checkpointEvery), nil)
		case unsynced:
			open = db.pause(time.After(time.Until(synced.Add(datadir.MarkSyncEvery))), db.wrote)
		default:
			open = db.pause(nil, db.wrote)
		}
	}
}

// shrinkWAL copies a large log back, and truncates it if the database is idle.
func (db *DB) shrinkWAL(idle bool) {
	rest := db.checkpoint("PASSIVE")
	if rest == 0 && db.walSize() > walTurn {
		db.checkpoint("PASSIVE") // what was written during the first, so that little is left
		db.turn.Store(true)
	}
	if idle && rest == 0 {
		db.checkpoint("TRUNCATE")
	}
}

// pause waits for one of two channels. It returns false if the database is closed first.
func (db *DB) pause(over <-chan time.Time, wrote <-chan struct{}) bool {
	select {
	case <-db.stop:
		return false
	case <-wrote:
	case <-over:
	}
	return true
}

// checkpoint runs a WAL checkpoint and returns how many pages are left because readers still
// need them. It returns -1 on failure.
func (db *DB) checkpoint(mode string) (rest int) {
	var busy, logged, copied int
	err := db.checkpointer.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&busy, &logged, &copied)
	db.logCheckpoint(err, &db.checkpointFailing)
	if err != nil {
		return -1
	}
	return logged - copied
}

// logCheckpoint logs when WAL checkpoints start to fail and when they work again. It does not
// repeat itself: a disk may stay full for long.
func (db *DB) logCheckpoint(err error, failing *bool) {
	switch {
	case err != nil && !*failing:
		db.log.Warn("the write-ahead log cannot be copied back to the database", "error", err)
	case err == nil && *failing:
		db.log.Info("the write-ahead log can be copied back to the database again")
	}
	*failing = err != nil
}

// limitWAL lets the log start again if checkpointLoop has copied nearly all of it. It makes the
// committer wait for a WAL checkpoint once the log exceeds its hard limit.
// If a reader, such as a backup, blocks the checkpoint for longer than the committer waits,
// the log may grow by the hard limit again before the next wait.
func (db *DB) limitWAL(ctx context.Context) {
	var busy, logged, copied int
	if db.turn.CompareAndSwap(true, false) {
		err := db.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &logged, &copied)
		db.logCheckpoint(err, &db.writerFailing)
	}
	size := db.walSize()
	if size < max(walHardLimit, db.nextWaitSize) {
		return
	}
	began := time.Now()
	var err error
	for {
		err = db.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &copied)
		// busy is also set, without a wait, while another WAL checkpoint runs, which ends soon.
		if err != nil || busy == 0 || time.Since(began) > otherCheckpoint {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if db.nextWaitSize = 0; busy != 0 && time.Since(began) > lockTimeout/2 {
		db.nextWaitSize = size + walHardLimit
	}
	db.logCheckpoint(err, &db.writerFailing)
}

func (db *DB) walSize() int64 {
	info, err := os.Stat(db.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}
