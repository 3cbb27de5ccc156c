package sqlite

import (
	"context"
	"os"
	"time"
)

// The write-ahead log is copied back beside the writer. Only when readers have kept
// that from catching up does the writer wait for it. While nothing is written the log
// is cut, so that what a busy time has left does not stay.
const (
	checkpointEvery = 200 * time.Millisecond
	walSoftLimit    = 4 << 20
	walHardLimit    = 64 << 20
	cutPatience     = 50 * time.Millisecond // a writer that comes back waits no longer for the cut
)

// checkpointLoop copies the write-ahead log back into the file, beside the writer.
func (db *DB) checkpointLoop() {
	defer close(db.done)
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	synced := time.Now()
	for seen := int64(0); ; {
		select {
		case <-db.stop:
			return
		case <-tick.C:
		}
		if time.Since(synced) >= markSyncEvery {
			db.mark.sync()
			synced = time.Now()
		}
		if db.walSize() <= walSoftLimit {
			continue
		}
		writes := db.writes.Load()
		rest := db.checkpoint("PASSIVE")
		if idle := writes == seen; idle && rest == 0 {
			db.checkpoint("TRUNCATE")
		}
		seen = writes
	}
}

// checkpoint copies the write-ahead log back and returns how many pages of it are
// left, which those who read it still need.
func (db *DB) checkpoint(mode string) (rest int) {
	var busy, logged, copied int
	err := db.checkpointer.QueryRowContext(context.Background(), `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&busy, &logged, &copied)
	db.tell(err, &db.stuck)
	if err != nil {
		return -1
	}
	return logged - copied
}

// tell logs that copying back fails, or works again, once for each change: a full disk
// may stay so for long.
func (db *DB) tell(err error, stuck *bool) {
	switch {
	case err != nil && !*stuck:
		db.log.Warn("the write-ahead log cannot be copied back", "error", err)
	case err == nil && *stuck:
		db.log.Info("the write-ahead log can be copied back again")
	}
	*stuck = err != nil
}

// relieve makes the writer wait for the write-ahead log to be copied back, when it
// outgrew its hard limit. When a reader stays for longer than the writer waits, as one
// that copies the file may, the log may grow by as much again before the next wait.
func (db *DB) relieve(ctx context.Context) {
	size := db.walSize()
	if size < max(walHardLimit, db.waitAt) {
		return
	}
	var busy, logged, copied int
	began := time.Now()
	err := db.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &copied)
	// Who copies back at this very moment makes it busy too, without a wait.
	if db.waitAt = 0; busy != 0 && time.Since(began) > patience/2 {
		db.waitAt = size + walHardLimit
	}
	db.tell(err, &db.writerStuck)
}

func (db *DB) walSize() int64 {
	info, err := os.Stat(db.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}
